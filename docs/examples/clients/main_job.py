"""The main job with the generated Python client: import contacts, send a campaign, read its statistics.

Usage: BASE=http://127.0.0.1:8080 KEY=svc_live_sk_... python main_job.py contacts.csv
"""

import os
import sys
import time

import recado_client as recado

TIMEOUT_SECONDS = 60


def wait_until(what, read):
    """Calls `read` until it returns something true, and returns that."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < end:
        result = read()
        if result:
            return result
        time.sleep(0.5)
    sys.exit(f"not within {TIMEOUT_SECONDS} s: {what}")


def main(file):
    configuration = recado.Configuration(host=os.environ["BASE"], access_token=os.environ["KEY"])
    with recado.ApiClient(configuration) as client:
        contacts = recado.ContactsApi(client)
        templates = recado.TemplatesApi(client)
        campaigns = recado.CampaignsApi(client)

        with open(file, encoding="utf-8") as csv:
            report = contacts.contacts_import(csv.read(), _content_type="text/csv").data
        print(f"imported {report.imported}, updated {report.updated}, skipped {report.skipped}")

        template = templates.templates_create(
            recado.TemplatesCreateRequest(
                name=f"boas_vindas_py_{int(time.time())}",
                category="MARKETING",
                language="pt_BR",
                template_type="standard",
                body_text="Oi {{1}}, use o cupom {{2}} esta semana na Loja Exemplo.",
                example_values=["Ana", "BEMVINDO10"],
            )
        ).data
        templates.templates_submit(template.id)
        wait_until("approval", lambda: templates.templates_get(template.id).data.meta_status == "approved")

        campaign = campaigns.campaigns_create(
            recado.CampaignsCreateRequest(
                name="Boas-vindas (Python)",
                template_id=template.id,
                variables={"2": "{attributes.cupom|BEMVINDO10}"},
            )
        ).data
        result = campaigns.campaigns_execute(campaign.id).data
        print(f"{result.status.value}: {result.sent} of {result.total} sent")

        def settled():
            stats = campaigns.campaigns_stats(campaign.id).data
            return stats if stats.read + stats.failed == stats.total else None

        stats = wait_until("every message read or failed", settled)
        print(f"read by {stats.read} of {stats.total}")


if __name__ == "__main__":
    main(sys.argv[1])
