// Sends one WhatsApp message through Recado, once, whatever fails on the way. Node 20 or later, no packages.
//
// BASE=https://api.recado.example KEY=rcd_... node docs/examples/send_message.mjs +5511961234567 order_update order-1042

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

/** Returns the message. The reference makes a repeated request harmless, so every failure may be retried. */
export async function send(phone, template, variables, reference, attempts = 5) {
  const body = {
    to: { phone },
    template: { name: template, language: "pt_BR", variables },
    client_reference: reference,
  };
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    let response;
    try {
      response = await fetch(`${process.env.BASE}/api/messages`, {
        method: "POST",
        headers: { Authorization: `Bearer ${process.env.KEY}`, "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(10_000),
      });
    } catch {
      await pause(2 ** attempt); // no connection, or no response: the message may be stored
      continue;
    }
    if (response.ok) return (await response.json()).data;
    // 429 and 503 say when to come back. Any other status is an answer: the same request would get it again.
    if (![429, 503].includes(response.status)) throw new Error(`refused: ${await response.text()}`);
    await pause(Number(response.headers.get("Retry-After") ?? 1));
  }
  throw new Error("no answer; run it again with the same reference");
}

const [phone, template, reference] = process.argv.slice(2);
const message = await send(phone, template, { 1: "Ana", 2: "1042" }, reference);
console.log(message.id, message.status);
