// Saves the file of a WhatsApp message from Recado: waits for it, resumes a broken download, checks its hash. Node 20 or
// later, no packages.
//
// BASE=https://api.recado.example KEY=rcd_... node docs/examples/receive_media.mjs <media id> <file>

import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

/** Returns the hash. Begin with `message.media_ready`, which names the id; a pending file is waited for. */
export async function receive(mediaId, path, attempts = 20) {
  const part = `${path}.part`;
  let etag;
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    const have = (await stat(part).catch(() => ({ size: 0 }))).size;
    const headers = { Authorization: `Bearer ${process.env.KEY}` };
    if (have && etag) Object.assign(headers, { Range: `bytes=${have}-`, "If-Range": etag });
    try {
      const response = await fetch(`${process.env.BASE}/api/media/${mediaId}`, { headers });
      if (!response.ok) {
        // 409: not fetched from WhatsApp yet. 404: it never will be, or it is not yours.
        if (![409, 429, 502, 503].includes(response.status)) throw new Refused(await response.text());
        await pause(Number(response.headers.get("Retry-After") ?? 5));
        continue;
      }
      etag = response.headers.get("ETag");
      const out = createWriteStream(part, { flags: response.status === 206 ? "a" : "w" });
      await pipeline(Readable.fromWeb(response.body), out);
    } catch (error) {
      if (error instanceof Refused) throw error;
      await pause(Math.min(2 ** attempt, 30)); // the connection broke: the next request continues
      continue;
    }
    const hash = createHash("sha256");
    await pipeline(createReadStream(part), hash);
    const sha256 = hash.digest("hex");
    // The ETag of a file is its hash.
    if (etag === `"${sha256}"`) {
      await rename(part, path);
      return sha256;
    }
    await rm(part);
  }
  throw new Error("the file is not available; run it again later");
}

class Refused extends Error {}

console.log(await receive(...process.argv.slice(2, 4)));
