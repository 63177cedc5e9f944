//! Campaign runs for a bench: the WhatsApp simulator, a server, and an account with contacts.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::http::{Client, JsonResponse};
use recado_testkit::product::Simulators;
use recado_testkit::services::postgres::connect;
use recado_testkit::signals;
use serde_json::{Value, json};

use super::fixture::{Fixture, Launch, Server};

/// How long to retry a start that the rate limit refuses: longer than the limit's window.
const RATE_LIMIT_WAIT: Duration = Duration::from_secs(70);

pub(super) const APP_SECRET: &str = "bench-app-secret";

/// The simulators in a process of their own; the client is connected to the WhatsApp simulator.
pub(super) struct WhatsappSimulator {
    pub(super) base: String,
    /// URL of the receiver of webhooks.
    pub(super) receiver: String,
    client: Client,
    _process: Simulators,
}

impl WhatsappSimulator {
    /// Starts it without callbacks, delays or limits, unlike in development.
    pub(super) fn start(fixture: &Fixture) -> Result<Self> {
        fixture.build(&["--package", "recado-simulators", "--bin", "recado-simulators"])?;
        let variables = [
            ("SIM_WHATSAPP_CALLBACK_URL", "http://127.0.0.1:9/nowhere"),
            ("SIM_PAYMENT_WEBHOOK_URL", "http://127.0.0.1:9/nowhere"),
            ("SIM_PAYMENT_API_KEY", "bench"),
            ("SIM_PAYMENT_WEBHOOK_TOKEN", "bench"),
            ("SIM_WHATSAPP_APP_SECRET", APP_SECRET),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let program = fixture.program("recado-simulators");
        let simulators = Simulators::start(&program, &variables.into(), fixture.dir())?;
        let base = format!("http://{}", simulators.address("whatsapp")?);
        let receiver = format!("http://{}", simulators.address("receiver")?);
        let client = Client::new(&base, Vec::new());
        let options = json!({ "sent_ms": null, "delivered_ms": null, "read_ms": null, "number_rate": null,
            "pair_limit": false, "latency_ms": 0, "fail_percent": 0 });
        client.post("/_sim/options", &options)?;
        Ok(Self {
            base,
            receiver,
            client,
            _process: simulators,
        })
    }

    /// The number of accepted messages.
    pub(super) fn accepted(&self) -> Result<u32> {
        let counters = self.client.get("/_sim/counters")?.body;
        let accepted = counters.get("accepted").and_then(Value::as_u64);
        match accepted.and_then(|count| u32::try_from(count).ok()) {
            Some(accepted) => Ok(accepted),
            None => bail!("the simulator returned no count of accepted messages: {counters}"),
        }
    }

    /// The recipient of each message in the ledger, and its time in milliseconds since 1970.
    pub(super) fn sends(&self) -> Result<Vec<(String, u64)>> {
        let ledger = self.client.get("/_sim/ledger")?.body;
        let entries = ledger.as_array().cloned().unwrap_or_default();
        let sends = entries.iter().filter(|entry| {
            let path = entry.get("path").and_then(Value::as_str);
            path.is_some_and(|path| path.ends_with("/messages"))
        });
        let recipient_and_time = |entry: &Value| {
            let to = entry.pointer("/body/to").and_then(Value::as_str);
            Some((to?.to_owned(), entry.get("at_ms")?.as_u64()?))
        };
        Ok(sends.filter_map(recipient_and_time).collect())
    }

    pub(super) fn reset(&self) -> Result<()> {
        self.client.post("/_sim/reset", &json!({})).map(drop)
    }

    /// Starts a server with workers that sends to this simulator without a delay between messages.
    pub(super) fn serve(&self, fixture: &Fixture, log: &'static str) -> Result<Server> {
        fixture.launch(&Launch {
            command_line: &["serve"],
            more: vec![
                ("WHATSAPP_API_URL", format!("{}/v25.0", self.base)),
                ("WHATSAPP_APP_SECRET", APP_SECRET.to_owned()),
                ("CAMPAIGN_MESSAGE_DELAY_MS", "0".to_owned()),
                ("EGRESS_ALLOW_CIDRS", "127.0.0.0/8".to_owned()),
            ],
            log,
            ..fixture.routes()
        })
    }
}

/// An account that sends campaigns through a server.
pub(super) struct Sender {
    pub(super) account: String,
    pub(super) client: Client,
}

impl Sender {
    pub(super) fn new(fixture: &Fixture, server: &Server, account: &str) -> Result<Self> {
        Ok(Self {
            account: account.to_owned(),
            client: Client::new(&server.base, fixture.headers(account)?),
        })
    }

    /// Connects a phone number. `rate`: its messages per second.
    pub(super) fn connect_number(&self, number: &str, rate: Option<u32>) -> Result<String> {
        let profile = json!({ "name": "Bench", "phone_number_id": number, "waba_id": "1", "access_token": "token",
            "messages_per_second": rate });
        id_of(&self.post(201, "/api/whatsapp/profiles", &profile)?)
    }

    pub(super) fn disconnect_number(&self, id: &str) -> Result<()> {
        self.client.delete(&format!("/api/whatsapp/profiles/{id}")).map(drop)
    }

    /// Creates a campaign to all contacts with the account's template, whose id is the account's id.
    pub(super) fn campaign(&self) -> Result<String> {
        let campaign = json!({ "name": "Bench", "template_id": self.account });
        id_of(&self.post(201, "/api/campaigns", &campaign)?)
    }

    pub(super) fn begin(&self, id: &str) -> Result<()> {
        self.act(id, "send").map(drop)
    }

    /// Requests an action of a campaign, and returns how long it took. Waits while the account exceeds its actions per
    /// minute; that time does not count.
    fn act(&self, id: &str, action: &str) -> Result<Duration> {
        let path = format!("/api/campaigns/{id}/{action}");
        let began = Instant::now();
        loop {
            let sent = Instant::now();
            let reply = self.client.post(&path, &json!({}))?;
            match reply.status {
                200 => return Ok(sent.elapsed()),
                429 if began.elapsed() < RATE_LIMIT_WAIT && !signals::received() => sleep(Duration::from_secs(1)),
                status => bail!("{path} responded with {status}: {}", reply.body),
            }
        }
    }

    pub(super) fn wait_for_end(&self, id: &str, timeout: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let reply = self.client.get(&format!("/api/campaigns/{id}"))?;
            match reply.body.pointer("/data/status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("sending") if began.elapsed() < timeout && !signals::received() => {}
                _ => bail!("the campaign did not complete: {}", reply.body),
            }
            // Poll rarely: each read loads the database.
            sleep((began.elapsed() / 10).max(Duration::from_millis(20)));
        }
    }

    /// Runs a campaign to its end.
    pub(super) fn send(&self, timeout: Duration) -> Result<String> {
        let id = self.campaign()?;
        self.begin(&id)?;
        self.wait_for_end(&id, timeout)?;
        Ok(id)
    }

    /// Returns how long the request took.
    pub(super) fn cancel(&self, id: &str) -> Result<Duration> {
        self.act(id, "cancel")
    }

    /// The number of the campaign's sends that are no longer pending.
    pub(super) fn processed(&self, id: &str) -> Result<f64> {
        let reply = self.client.get(&format!("/api/campaigns/{id}/stats"))?;
        let count = |field: &str| reply.body.pointer(&format!("/data/{field}")).and_then(Value::as_f64);
        match (count("total"), count("pending")) {
            (Some(total), Some(pending)) => Ok(total - pending),
            _ => bail!("no stats: {}", reply.body),
        }
    }

    pub(super) fn post(&self, status: u16, path: &str, body: &Value) -> Result<JsonResponse> {
        let reply = self.client.post(path, body)?;
        if reply.status == status {
            Ok(reply)
        } else {
            bail!("{path} responded with {}: {}", reply.status, reply.body)
        }
    }
}

fn id_of(reply: &JsonResponse) -> Result<String> {
    match reply.body.pointer("/data/id").and_then(Value::as_str) {
        Some(id) => Ok(id.to_owned()),
        None => bail!("no id in {}", reply.body),
    }
}

/// Replaces the contacts of an account, and gives it a plan with a sufficient quota and an approved template.
pub(super) fn create_contacts(fixture: &Fixture, account: &str, contacts: u32) -> Result<()> {
    let sql = format!(
        "UPDATE accounts SET plan = 'scale' WHERE id = '{account}';
         DELETE FROM message_usage_slots WHERE account_id = '{account}';
         UPDATE contacts SET deleted_at = now(), phone = NULL WHERE account_id = '{account}' AND deleted_at IS NULL;
         UPDATE message_templates SET meta_status = 'approved', body_text = 'Oi {{{{1}}}}, tudo bem?',
           variables = '[\"Ana\"]' WHERE account_id = '{account}';
         INSERT INTO contacts (account_id, id, name, phone)
           SELECT '{account}', ('0193a6e2-' || lpad(to_hex(n / 65536), 4, '0') || '-7' || lpad(to_hex(n % 4096), 3, '0')
               || '-8' || lpad(to_hex(n / 4096 % 16), 3, '0') || '-' || substr(md5(n::text || clock_timestamp()), 1, 12))::uuid,
             'Contato ' || n, '+55119' || lpad((60000000 + n)::text, 8, '0')
           FROM generate_series(1, {contacts}) n"
    );
    let mut client = connect(&fixture.database())?;
    client
        .batch_execute(&sql)
        .and_then(|()| client.batch_execute("VACUUM ANALYZE contacts"))
        .context("cannot create contacts")
}

/// Inserts a run to all contacts of the account whose send rows exist already. It may exceed the plan's quota.
/// `claimed`: the run has a lease of a worker with the campaign's id, else no worker.
pub(super) fn create_frozen_run(fixture: &Fixture, account: &str, claimed: bool) -> Result<String> {
    let mut client = connect(&fixture.database())?;
    let row = client.query_one(
        "INSERT INTO campaigns (account_id, id, name, template_id, status, profile_id, executed_at, frozen_at, quota_month,
           run_quota_month)
         SELECT account_id, gen_random_uuid(), 'Bench', account_id, 'sending', id, now(),
           date_trunc('milliseconds', now()),
           date_trunc('month', now() AT TIME ZONE 'UTC')::date, date_trunc('month', now() AT TIME ZONE 'UTC')::date
         FROM whatsapp_profiles WHERE account_id::text = $1 RETURNING id::text",
        &[&account],
    );
    let campaign: String = row.and_then(|row| row.try_get(0)).context("cannot create a campaign")?;
    let worker = if claimed {
        format!("'{campaign}'")
    } else {
        "NULL".to_owned()
    };
    let sql = format!(
        "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
           SELECT account_id, send_id((SELECT frozen_at FROM campaigns WHERE id = '{campaign}'), '{campaign}', id),
             '{campaign}', id FROM contacts
           WHERE account_id = '{account}' AND deleted_at IS NULL ORDER BY id;
         INSERT INTO campaign_counter_slots (account_id, campaign_id, total, pending)
           SELECT '{account}', '{campaign}', count(*), count(*) FROM campaign_sends
           WHERE account_id = '{account}' AND campaign_id = '{campaign}';
         UPDATE campaigns SET total_recipients = n.total FROM campaign_counters n
           WHERE campaigns.id = '{campaign}' AND n.campaign_id = campaigns.id;
         INSERT INTO message_usage_slots AS u (account_id, month, reserved)
           SELECT account_id, quota_month, total_recipients FROM campaigns WHERE id = '{campaign}'
           ON CONFLICT (account_id, month, slot) DO UPDATE SET reserved = u.reserved + excluded.reserved;
         INSERT INTO campaign_queue (account_id, campaign_id, trigger, prepared, worker, leased_until)
           VALUES ('{account}', '{campaign}', 'send', true, {worker}, now() + interval '1 hour')"
    );
    client.batch_execute(&sql).context("cannot freeze an audience")?;
    Ok(campaign)
}
