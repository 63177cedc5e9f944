// A receiver of Recado's webhooks: verifies, remembers the id, answers at once. Node 18 or later, nothing to install.
//
// SIGNING_SECRET=whsec_... node docs/examples/receive_webhooks.mjs 9000

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TOLERANCE = 300; // seconds
const seen = new Set(); // in real life: a table with a unique column

/** Throws unless the body (a Buffer, exactly as it came) is from Recado, lately. */
export function verify(secret, headers, body) {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const id = headers["webhook-id"];
  const timestamp = headers["webhook-timestamp"];
  if (!id || !(Math.abs(Date.now() / 1000 - Number(timestamp)) <= TOLERANCE)) throw new Error("no id, or too old");
  const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  // After a rotation there are two signatures, separated by a space: one has to fit.
  const fits = (headers["webhook-signature"] ?? "").split(" ").some((one) => {
    const given = Buffer.from(one.replace(/^v1,/, ""), "base64");
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
  if (!fits) throw new Error("wrong signature");
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  try {
    verify(process.env.SIGNING_SECRET, request.headers, body);
  } catch (error) {
    return response.writeHead(401, error.message).end();
  }
  const event = JSON.parse(body);
  if (!seen.has(event.id)) {
    seen.add(event.id);
    console.log(event.type, JSON.stringify(event.data));
  }
  response.writeHead(204).end();
}).listen(Number(process.argv[2]), "127.0.0.1");
