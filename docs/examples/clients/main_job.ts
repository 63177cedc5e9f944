// The main job with the generated TypeScript types: import contacts, send a campaign, read its statistics.
//
// Usage: BASE=http://127.0.0.1:8080 KEY=svc_live_sk_... node main_job.js contacts.csv

import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import createClient from "openapi-fetch";
import type { paths } from "./recado.js";

const TIMEOUT_MS = 60_000;

const client = createClient<paths>({
  baseUrl: process.env.BASE!,
  headers: { Authorization: `Bearer ${process.env.KEY}` },
});

/** Returns the `data` of a response, or throws its error. */
function dataOf<T>(result: { data?: { data: T }; error?: unknown }): T {
  if (result.data === undefined) throw new Error(JSON.stringify(result.error));
  return result.data.data;
}

/** Calls `read` until it returns something, and returns that. */
async function waitUntil<T>(what: string, read: () => Promise<T | undefined>): Promise<T> {
  for (const end = Date.now() + TIMEOUT_MS; Date.now() < end; await sleep(500)) {
    const result = await read();
    if (result !== undefined) return result;
  }
  throw new Error(`not within ${TIMEOUT_MS} ms: ${what}`);
}

const csv = await readFile(process.argv[2]!, "utf8");
const report = dataOf(
  await client.POST("/api/contacts/import", {
    headers: { "Content-Type": "text/csv" },
    body: csv,
    bodySerializer: (text) => text,
  }),
);
console.log(`imported ${report.imported}, updated ${report.updated}, skipped ${report.skipped}`);

const template = dataOf(
  await client.POST("/api/templates", {
    body: {
      name: `boas_vindas_ts_${Date.now()}`,
      category: "MARKETING",
      language: "pt_BR",
      template_type: "standard",
      body_text: "Oi {{1}}, use o cupom {{2}} esta semana na Loja Exemplo.",
      example_values: ["Ana", "BEMVINDO10"],
    },
  }),
);
const ofTemplate = { params: { path: { id: template.id } } };
dataOf(await client.POST("/api/templates/{id}/submit", ofTemplate));
await waitUntil("approval", async () => {
  const { meta_status } = dataOf(await client.GET("/api/templates/{id}", ofTemplate));
  return meta_status === "approved" ? meta_status : undefined;
});

const campaign = dataOf(
  await client.POST("/api/campaigns", {
    body: {
      name: "Boas-vindas (TypeScript)",
      template_id: template.id,
      variables: { "2": "{attributes.cupom|BEMVINDO10}" },
    },
  }),
);
const ofCampaign = { params: { path: { id: campaign.id } } };
const result = dataOf(await client.POST("/api/campaigns/{id}/execute", ofCampaign));
console.log(`${result.status}: ${result.sent} of ${result.total} sent`);

const stats = await waitUntil("every message read or failed", async () => {
  const stats = dataOf(await client.GET("/api/campaigns/{id}/stats", ofCampaign));
  return stats.read + stats.failed === stats.total ? stats : undefined;
});
console.log(`read by ${stats.read} of ${stats.total}`);
