//! A database that is there and does not answer as usual: a table that is locked, transactions that get in each
//! other's way.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use recado_server::routes::{Access, TABLE};

use crate::harness::client::Request;
use crate::harness::runs::{calls, silent, usage};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, text, until};

const CLIENTS: usize = 150;

/// Two seconds were promised; the rest is for the machine.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// The routes that need no database, and nobody's session.
fn free_routes() -> impl Iterator<Item = &'static str> {
    let free = |path: &str| ["/healthz", "/api/billing/plans"].contains(&path);
    let open = TABLE
        .iter()
        .filter(move |spec| spec.access == Access::Public && free(spec.path));
    open.map(|spec| spec.path)
}

/// Everybody asks at once for what is locked; how long the slowest waited to be told.
fn crowd(server: &Server, request: &Request) -> Duration {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let began = Instant::now();
                    let reply = request.clone().send();
                    let took = began.elapsed();
                    assert!(
                        reply.header("retry-after").is_some(),
                        "{}: {}",
                        reply.status,
                        reply.text
                    );
                    reply.refused(503, "UNAVAILABLE");
                    took
                })
            })
            .collect();
        let mut asked = 0;
        while clients.iter().any(|client| !client.is_finished()) {
            for path in free_routes() {
                let began = Instant::now();
                assert_eq!(server.get(path).send().status, 200, "{path}");
                assert!(began.elapsed() < TOLD_WITHIN, "{path}: {:?}", began.elapsed());
                asked += 1;
            }
        }
        assert!(asked > 0);
        clients.into_iter().map(|client| client.join().unwrap()).max().unwrap()
    })
}

/// F40b.
#[test]
fn a_locked_table_is_told_within_two_seconds_and_forgotten_at_once() {
    let server = Server::start(
        Options::default()
            .with("DATABASE_POOL_SIZE", "8")
            .with("DATABASE_WAIT_TIMEOUT", "750ms"),
    );
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C" }));
    let path = format!("/api/campaigns/{id}");
    server.db.run("BEGIN; LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE");
    for path in [path.clone(), format!("{path}/sends")] {
        let slowest = crowd(&server, &ana.request("GET", &path));
        assert!(slowest < TOLD_WITHIN, "{path}: {slowest:?}");
    }
    server.db.run("COMMIT");
    until("the campaign is read again", || ana.get(&path).status == 200);
}

/// F40c: the server holds the campaign and waits for us, we hold what it waits for and want the campaign.
#[test]
fn a_deadlock_is_tried_again_within_the_request() {
    let server = Server::start(silent());
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C" }));
    server.db.run(
        "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN PERFORM pg_advisory_xact_lock(40); RETURN NULL; END $$;
         CREATE TRIGGER hold_up AFTER UPDATE ON campaigns FOR EACH ROW EXECUTE FUNCTION hold_up()",
    );
    server.db.run("BEGIN; SELECT pg_advisory_xact_lock(40)");
    let request = ana
        .request("PUT", &format!("/api/campaigns/{id}"))
        .json(&json!({ "name": "D" }));
    let change = std::thread::spawn(move || request.send());
    // The other databases of this PostgreSQL have locks of their own.
    let waiting = "FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = 40 AND NOT l.granted";
    until("the server waits for us", || {
        assert!(!change.is_finished(), "it never waited");
        server.db.count(waiting) == 1
    });
    // It waits for the longer time, and so it is the server's transaction that is broken off.
    server.db.run("SELECT 1 FROM campaigns FOR UPDATE");
    server.db.run("COMMIT");
    assert_eq!(change.join().unwrap().ok()["name"], "D");
    until("there was a deadlock", || {
        server
            .db
            .text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            == "1"
    });
    let changes = "FROM audit_logs WHERE entity_type = 'campaign' AND action = 'create'";
    until("the audit row", || server.db.count(changes) == 1);
}

/// The next write of any of these tables fails as one that lost to another transaction.
fn trip(server: &Server, tables: &[String]) {
    server.db.run(
        "CREATE SEQUENCE trips;
         CREATE FUNCTION trip() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           IF nextval('trips') = 1 THEN
             RAISE EXCEPTION 'could not serialize access due to concurrent update' USING ERRCODE = '40001';
           END IF;
           RETURN NULL;
         END $$",
    );
    for table in tables {
        server.db.run(&format!(
            "CREATE TRIGGER trip AFTER INSERT OR UPDATE OR DELETE ON {table}
               FOR EACH STATEMENT EXECUTE FUNCTION trip()"
        ));
    }
}

/// The next write fails again.
fn trip_again(server: &Server) {
    server.db.run("ALTER SEQUENCE trips RESTART");
}

/// Writes of every kind, as people make them.
fn writes(ana: &User<'_>) -> Vec<(&'static str, String, Value)> {
    let contact = ana.contact("C", &phone(1));
    let gone = ana.contact("D", &phone(2));
    let (tag, other_tag) = (ana.tag("a"), ana.tag("b"));
    let make = |path: &str, body: Value| text(&ana.post(path, body).created()["id"]);
    let segment = make("/api/segments", json!({ "name": "S" }));
    let folder = make("/api/folders", json!({ "name": "F", "kind": "campaign" }));
    let (template, old) = (ana.template("t1", "Oi", &[]), ana.template("t2", "Oi", &[]));
    let (profile, campaign) = (ana.profile(), ana.campaign(json!({ "name": "C" })));
    let of = |kind: &str, id: &str| format!("/api/{kind}/{id}");
    let person = json!({ "name": "P", "phone": phone(3) });
    let paper = json!({ "name": "t3", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
                        "body_text": "Oi" });
    let line = json!({ "name": "L", "phone_number_id": "106500000031", "waba_id": "1", "access_token": "EAAG" });
    let later = json!({ "scheduled_at": "2100-01-01T00:00:00Z" });
    let people = json!({ "contact_ids": [contact] });
    vec![
        ("POST", "/api/contacts".into(), person),
        ("PUT", of("contacts", &contact), json!({ "name": "E" })),
        (
            "PUT",
            format!("/api/contacts/{contact}/tags"),
            json!({ "tag_ids": [tag] }),
        ),
        ("DELETE", of("contacts", &gone), Value::Null),
        ("POST", "/api/tags".into(), json!({ "name": "c" })),
        ("DELETE", of("tags", &other_tag), Value::Null),
        ("POST", "/api/segments".into(), json!({ "name": "T" })),
        ("PUT", of("segments", &segment), json!({ "name": "U" })),
        ("POST", format!("/api/segments/{segment}/members"), people.clone()),
        ("DELETE", format!("/api/segments/{segment}/members"), people),
        ("DELETE", of("segments", &segment), Value::Null),
        (
            "POST",
            "/api/folders".into(),
            json!({ "name": "G", "kind": "template" }),
        ),
        ("DELETE", of("folders", &folder), Value::Null),
        ("POST", "/api/templates".into(), paper),
        ("PUT", of("templates", &template), json!({ "body_text": "Olá" })),
        ("DELETE", of("templates", &old), Value::Null),
        ("POST", "/api/whatsapp/profiles".into(), line),
        ("PUT", of("whatsapp/profiles", &profile), json!({ "name": "M" })),
        ("DELETE", of("whatsapp/profiles", &profile), Value::Null),
        ("POST", "/api/campaigns".into(), json!({ "name": "D" })),
        ("PUT", of("campaigns", &campaign), json!({ "name": "E" })),
        ("POST", format!("/api/campaigns/{campaign}/schedule"), later),
        ("POST", format!("/api/campaigns/{campaign}/cancel"), json!({})),
        ("DELETE", of("campaigns", &campaign), Value::Null),
        ("POST", "/api/api-keys".into(), json!({ "name": "K" })),
        (
            "POST",
            "/api/team/invites".into(),
            json!({ "email": "bia@example.com", "role": "member" }),
        ),
        ("POST", "/api/accounts".into(), json!({ "name": "Other" })),
        ("POST", "/api/notifications/read-all".into(), json!({})),
    ]
}

/// F40c: whatever is written.
#[test]
fn every_write_that_loses_to_another_transaction_is_tried_again_within_the_request() {
    let server = Server::start(silent());
    let ana = server.owner();
    let writes = writes(&ana);
    // What the relays write, in their own time, would fail in place of the request.
    let tables = server.db.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
           AND relname NOT LIKE 'audit%' AND relname NOT IN ('outbox_events', 'idempotency_keys')",
    );
    let tables: Vec<String> = tables.into_iter().filter_map(|mut row| row.remove(0)).collect();
    trip(&server, &tables);
    let mut wrong = Vec::new();
    for (method, path, body) in writes {
        trip_again(&server);
        let request = ana.request(method, &path);
        let request = if body.is_null() { request } else { request.json(&body) };
        let reply = request.send();
        let tripped = server.db.text("SELECT is_called FROM trips") == "t";
        if !tripped || ![200, 201, 204].contains(&reply.status) {
            wrong.push(format!("{method} {path}: {} {} {tripped}", reply.status, reply.text));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// F40c: a whole run whose every statement loses now and then.
#[test]
fn a_run_whose_transactions_lose_to_others_reaches_everybody_once() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "10"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(60);
    let id = ana.plain_campaign();
    let tables = [
        "campaigns",
        "campaign_sends",
        "campaign_counter_slots",
        "campaign_queue",
        "message_usage_slots",
    ];
    trip(&server, &tables.map(str::to_owned));
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    let mut tripped_at = 0;
    until("the run is over, in spite of it", || {
        let sent = server.whatsapp.sends().len();
        if sent >= tripped_at + 4 {
            tripped_at = sent;
            trip_again(&server);
        }
        run.is_finished()
    });
    assert!(tripped_at > 20, "{tripped_at}");
    let report = run.join().unwrap().ok();
    assert_eq!(
        (&report["sent"], &report["status"]),
        (&json!(60), &json!("completed")),
        "{report}"
    );
    let calls = calls(&server);
    assert!(
        calls.len() == 60 && calls.values().all(|calls| *calls == 1),
        "{calls:?}"
    );
    assert_eq!(usage(&server, &ana.account), "60 0");
}
