//! Acknowledged writes of every kind survive a crash of the server, the database, or both.
//!
//! `RECADO_RUNS` sets the number of crashes (200 for a release), `RECADO_SEED` the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use recado_simulators::whatsapp::signature;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::billing::{order, subscribe};
use crate::harness::client::{Reply, Request};
use crate::harness::cluster::Cluster;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::{status, statuses, wait_for_stat, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, WHATSAPP_APP_SECRET, text, until};
use crate::inbound_webhooks::Hook;

/// Crashes by default.
const CRASHES: u64 = 4;

/// Kinds of writes.
const KINDS: usize = 16;

/// Writes of each kind that must be acknowledged after every crash.
const WRITES: usize = 3;

/// Sends that get a status update.
const SENDS: usize = 40;

/// The number that receives callbacks.
const NUMBER: &str = "106500000051";

type Written = Result<Reply, ureq::Error>;
type Write = dyn Fn(usize, &str) -> Written + Sync;

/// A kind of write. Its writes follow one another.
struct Kind {
    name: &'static str,
    /// Sends the write of this number, which stores this key.
    write: Box<Write>,
    /// The stored keys, each as often as the effect exists.
    stored: String,
    /// Without the database these writes are acknowledged, and what is left to store waits in memory: events (F21) and
    /// responses. So there are none meanwhile.
    is_buffered: bool,
}

fn kind(
    name: &'static str,
    stored: impl Into<String>,
    write: impl Fn(usize, &str) -> Written + Sync + 'static,
) -> Kind {
    Kind {
        name,
        write: Box::new(write),
        stored: stored.into(),
        is_buffered: false,
    }
}

/// A kind whose request has a JSON body.
fn json_kind(name: &'static str, stored: &str, request: Request, body: fn(usize, &str) -> Value) -> Kind {
    kind(name, stored, move |number, key| {
        request.clone().json(&body(number, key)).try_send()
    })
}

/// Writes of an account's members.
fn account_kinds(ana: &User<'_>) -> Vec<Kind> {
    let post = |path: &str| ana.request("POST", path);
    let import = post("/api/contacts/import");
    vec![
        json_kind(
            "tag",
            "SELECT name FROM tags",
            post("/api/tags"),
            |_, key| json!({ "name": key }),
        ),
        json_kind(
            "contact",
            "SELECT name FROM contacts",
            post("/api/contacts"),
            |number, key| json!({ "name": key, "phone": phone(1_000_000 + number) }),
        ),
        kind("import", "SELECT name FROM contacts", move |number, key| {
            let csv = format!("name,phone\n{key},{}\n", phone(2_000_000 + number));
            import.clone().body("text/csv", csv).try_send()
        }),
        json_kind(
            "link",
            "SELECT substring(original_url FROM '[^/]*$') FROM links",
            post("/api/links"),
            |_, key| json!({ "original_url": format!("https://loja.example/{key}") }),
        ),
        // The row has the last key, and each write replaces the one before.
        json_kind(
            "setting",
            "SELECT 'setting-' || n FROM generate_series(0,
               (SELECT substring(company_name FROM '[0-9]+')::int FROM brand_contexts)) n",
            ana.request("PUT", "/api/brand-context"),
            |_, key| json!({ "company_name": key }),
        ),
    ]
}

/// Writes of an account's integrations.
fn ingestion_kinds(ana: &User<'_>) -> Vec<Kind> {
    let post = |path: &str| ana.request("POST", path);
    let automation = json!({ "name": "A", "status": "active" });
    let automation = text(&ana.post("/api/automations", automation).created()["id"]);
    let executions = post(&format!("/api/automations/{automation}/executions"));
    vec![
        json_kind(
            "order",
            "SELECT external_id FROM orders",
            post("/api/orders"),
            |_, key| {
                json!({ "orders": [{ "external_id": key, "platform": "loja", "status": "paid", "total": 1, "items": [],
                "placed_at": "2026-03-01T12:00:00Z" }] })
            },
        ),
        json_kind("cart", "SELECT external_id FROM carts", post("/api/carts"), |_, key| {
            json!({ "carts": [{ "external_id": key, "platform": "loja", "status": "open", "total": 1,
                "created_at": "2026-03-01T12:00:00Z" }] })
        }),
        json_kind(
            "spend",
            "SELECT source FROM ad_spend",
            post("/api/ad-spend"),
            |_, key| json!({ "entries": [{ "date": "2026-03-01", "source": key, "amount": 1 }] }),
        ),
        json_kind(
            "event",
            "SELECT source FROM metric_events",
            post("/api/events"),
            |_, key| json!({ "events": [{ "metric_name": "visit", "contact_phone": phone(0), "source": key }] }),
        ),
        json_kind(
            "execution",
            "SELECT 'execution-' || extract(epoch FROM finished_at - started_at)::int FROM automation_executions",
            executions,
            |number, _| {
                let end = time::UtcDateTime::UNIX_EPOCH + time::Duration::seconds(number.try_into().unwrap());
                let end = end.format(&time::format_description::well_known::Rfc3339).unwrap();
                json!({ "executions": [{ "status": "completed", "started_at": "1970-01-01T00:00:00Z", "finished_at": end }] })
            },
        ),
    ]
}

/// A started campaign, and a write with an idempotency key, of which nothing else is unique.
fn campaign_kinds(ana: &User<'_>) -> Vec<Kind> {
    let create = ana.request("POST", "/api/campaigns");
    let audience = ana.tag("audience");
    ana.tagged("audience", 0..1);
    let campaign = json!({ "template_id": ana.approved("Oi", &[]), "segment_config": { "tag_ids": [audience] } });
    let keyed = create.clone();
    vec![
        kind(
            "start",
            "SELECT name FROM campaigns WHERE status <> 'draft'",
            move |_, key| {
                let mut body = campaign.clone();
                body["name"] = json!(key);
                let created = create.clone().json(&body).try_send()?;
                if created.status != 201 {
                    return Ok(created);
                }
                let path = format!("/api/campaigns/{}/send", text(&created.created()["id"]));
                create.clone().path(&path).try_send()
            },
        ),
        Kind {
            is_buffered: true,
            ..kind("replay", "SELECT name FROM campaigns", move |_, key| {
                let create = keyed.clone().header("Idempotency-Key", key);
                create.json(&json!({ "name": key })).try_send()
            })
        },
    ]
}

/// Writes of WhatsApp, of the payment gateway, and of a shop.
fn callback_kinds(ana: &User<'_>, bia: &User<'_>) -> Vec<Kind> {
    let server = ana.server;
    let whatsapp = server.post("/api/whatsapp/webhook");
    let signed = move |body: &Value| {
        let body = body.to_string();
        let signature = signature(WHATSAPP_APP_SECRET, body.as_bytes());
        let request = whatsapp.clone().header("X-Hub-Signature-256", &signature);
        request.body("application/json", body).try_send()
    };
    let sends: Vec<String> = (ana.sends(&sent_campaign(ana)).iter())
        .map(|send| text(&send["wa_message_id"]))
        .collect();
    let status_signed = signed.clone();
    // Only the simulator's own events would change the subscription.
    server.payment.set_options(|options| options.webhook_url = None);
    let subscription = text(&subscribe(bia, order("PIX")).created()["gateway_subscription_id"]);
    let gateway = server.gateway_request(&Value::Null);
    let (hook, shop) = (Hook::new(ana), server.post("/"));
    vec![
        kind("message", "SELECT wa_message_id FROM messages", move |_, key| {
            signed(
                &json!({ "object": "whatsapp_business_account", "entry": [{ "id": "1", "changes": [{
                "field": "messages", "value": { "metadata": { "phone_number_id": NUMBER },
                "contacts": [{ "wa_id": "5531988887777", "profile": { "name": "Ana" } }],
                "messages": [{ "from": "5531988887777", "id": key, "timestamp": "1780000000", "type": "text",
                    "text": { "body": key } }] } }] }] }),
            )
        }),
        // Statuses only move forward: all before the last one of a send are stored with it.
        kind(
            "status",
            format!(
                "SELECT 'status-' || n FROM generate_series(0, 99999) n WHERE (ARRAY['{}'])[1 + n % {SENDS}]
               IN (SELECT wa_message_id FROM campaign_sends WHERE status = 'delivered')",
                sends.join("','")
            ),
            move |number, _| status_signed(&statuses(NUMBER, &[status(&sends[number % SENDS], "delivered", None)])),
        ),
        Kind {
            is_buffered: true,
            ..kind(
                "payment",
                "SELECT gateway_payment_id FROM billing_history",
                move |_, key| {
                    let payment = json!({ "id": key, "subscription": subscription, "billingType": "PIX", "value": 97.0,
                    "dueDate": "2026-12-01", "status": "CONFIRMED" });
                    let event = json!({ "id": key, "event": "PAYMENT_CONFIRMED", "payment": payment });
                    gateway.clone().json(&event).try_send()
                },
            )
        },
        kind("shop", "SELECT external_id FROM orders", move |_, key| {
            let data = json!({ "external_id": key, "platform": "shop", "status": "pending", "total": 1, "items": [],
                "placed_at": "2026-03-01T12:00:00Z" });
            hook.request(shop.clone(), key, &json!({ "type": "order.recorded", "data": data }))
                .try_send()
        }),
    ]
}

/// A campaign whose messages are sent and not delivered.
fn sent_campaign(ana: &User<'_>) -> String {
    let id = ana.campaign_to("sent", 10..10 + SENDS);
    ana.send(&id);
    wait_for_stat(ana, &id, "sent", SENDS.try_into().unwrap());
    id
}

/// What was acknowledged: by kind, the keys and the bodies of the responses.
#[derive(Default)]
struct Ledger {
    acknowledged: Mutex<BTreeMap<&'static str, Vec<(String, String)>>>,
    stop: AtomicBool,
    /// The database is down or is about to be, or events still wait in memory.
    is_down: AtomicBool,
}

impl Ledger {
    fn counts(&self) -> Vec<usize> {
        self.acknowledged.lock().unwrap().values().map(Vec::len).collect()
    }

    /// Writes one kind after the other until stopped, whatever the responses are.
    fn write(&self, kinds: &[Kind]) {
        for number in 0.. {
            for kind in kinds {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                let key = format!("{}-{number}", kind.name);
                let must_wait = || kind.is_buffered && self.is_down.load(Ordering::SeqCst);
                if must_wait() {
                    continue;
                }
                match (kind.write)(number, &key) {
                    Ok(_) if must_wait() => {}
                    Ok(reply) if [200, 201].contains(&reply.status) => {
                        let mut acknowledged = self.acknowledged.lock().unwrap();
                        acknowledged.get_mut(kind.name).unwrap().push((key, reply.text));
                    }
                    Ok(reply) => assert_eq!(reply.status, 503, "{key}: {}", reply.text),
                    // No server listens: it was killed.
                    Err(_) => std::thread::yield_now(),
                }
            }
        }
    }

    /// Asserts that every acknowledged write is stored once.
    fn check(self, server: &Server, kinds: &[Kind]) {
        let acknowledged = self.acknowledged.into_inner().unwrap();
        for kind in kinds {
            let mut stored = BTreeMap::new();
            for key in server.db.rows(&kind.stored).into_iter().flatten().flatten() {
                *stored.entry(key).or_insert(0) += 1;
            }
            let keys: BTreeSet<&String> = acknowledged[kind.name].iter().map(|(key, _)| key).collect();
            let wrong: Vec<_> = keys.iter().filter(|key| stored.get(**key) != Some(&1)).collect();
            assert!(wrong.is_empty(), "lost, or stored more than once: {wrong:?}");
        }
    }

    /// Asserts that each idempotency key still returns its response.
    fn replay(&self, create: &Request) {
        for (key, text) in &self.acknowledged.lock().unwrap()["replay"] {
            let create = create.clone().header("Idempotency-Key", key);
            let reply = create.json(&json!({ "name": key })).send();
            let is_replay = reply.header("idempotent-replayed") == Some("true");
            assert!(is_replay, "{key}: {} {}", reply.status, reply.text);
            assert_eq!((reply.status, &reply.text), (201, text), "{key}");
        }
    }
}

/// Crashes and restarts the server, the database, or both.
fn crash_and_restart(server: &Server, cluster: &Cluster, ledger: &Ledger, rng: &mut TestRng) {
    std::thread::sleep(rng.duration_below(100_000));
    let kind = rng.below(3);
    if kind != 0 {
        ledger.is_down.store(true, Ordering::SeqCst);
        cluster.crash();
    }
    if kind != 1 {
        server.kill();
    }
    if kind != 0 {
        cluster.launch();
        until("the database accepts connections", || server.db.try_reconnect());
    }
    if kind != 1 {
        server.run(&["serve"]);
    }
    until("the server is ready", || {
        server.get("/readyz").try_send().is_ok_and(|reply| reply.status == 200)
    });
    until("events of the gateway are stored at once", || {
        let id = Uuid::new_v4().to_string();
        server.gateway_event(&json!({ "id": id, "event": "PAYMENT_UNKNOWN" }));
        server.db.count(&format!("FROM gateway_events WHERE key LIKE '%{id}%'")) == 1
    });
    ledger.is_down.store(false, Ordering::SeqCst);
}

/// R2.
#[test]
fn acknowledged_writes_survive_server_and_database_crashes() {
    let (runs, seed) = (runs(CRASHES), seed(20_261_122));
    let cluster = Cluster::start();
    // Without a reachable Redis the rate limiter admits every request.
    let options = without_statuses().with("REDIS_URL", "redis://127.0.0.1:1");
    let server = Server::start_on(cluster.database(), &options);
    let (ana, bia) = (server.owner(), server.owner());
    server.db.run("UPDATE accounts SET plan = 'scale'");
    ana.profile_at(NUMBER);
    let mut kinds = account_kinds(&ana);
    kinds.extend(ingestion_kinds(&ana));
    kinds.extend(campaign_kinds(&ana));
    kinds.extend(callback_kinds(&ana, &bia));
    let ledger = Ledger::default();
    *ledger.acknowledged.lock().unwrap() = kinds.iter().map(|kind| (kind.name, Vec::new())).collect();
    assert_eq!(ledger.counts().len(), KINDS);
    std::thread::scope(|scope| {
        for kinds in kinds.chunks(KINDS.div_ceil(4)) {
            scope.spawn(|| ledger.write(kinds));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for run in 0..runs {
                println!("crash {run} of seed {seed}");
                let before = ledger.counts();
                crash_and_restart(&server, &cluster, &ledger, &mut TestRng::of(seed, run));
                until("writes of every kind succeed again", || {
                    let mut both = before.iter().zip(ledger.counts());
                    both.all(|(before, now)| now >= before + WRITES)
                });
            }
        }));
        ledger.stop.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    // A killed server's leases on callbacks would expire later.
    server.db.run(
        "UPDATE whatsapp_callbacks SET due_at = now();
         UPDATE gateway_events SET due_at = now() WHERE due_at IS NOT NULL",
    );
    until("every callback is applied", || {
        server.db.count("FROM whatsapp_callbacks") + server.db.count("FROM gateway_events WHERE due_at IS NOT NULL")
            == 0
    });
    for (name, writes) in ledger.acknowledged.lock().unwrap().iter() {
        println!("{name}: {} acknowledged", writes.len());
    }
    ledger.replay(&ana.request("POST", "/api/campaigns"));
    ledger.check(&server, &kinds);
}
