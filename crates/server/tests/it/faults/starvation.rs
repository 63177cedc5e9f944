//! Lock contention in the database: a locked table, a deadlock, serialization failures.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use recado_api::routes::{Access, TABLE};

use crate::harness::client::{Request, connect};
use crate::harness::runs::{calls, usage, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, text, until};

/// Clients that request a locked row at the same time.
const CLIENTS: usize = 500;

const POOL: usize = 8;

/// F40b promises this upper bound of the server's time to a 503, from its log. A request waits once for a connection,
/// and once for the lock.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

/// A busy machine delays timers: one of this many rounds has to keep the bound.
const ROUNDS: usize = 5;

/// Public routes that need no database connection.
fn routes_without_database() -> impl Iterator<Item = &'static str> {
    let needs_no_database = |path: &str| ["/healthz", "/api/billing/plans"].contains(&path);
    let routes = TABLE
        .iter()
        .filter(move |spec| spec.access == Access::Public && needs_no_database(spec.path));
    routes.map(|spec| spec.path)
}

/// Asserts a 503 with `Retry-After` for every client, while routes without the database are served.
fn refuse_all_clients(server: &Server, request: &Request) {
    let bytes = request.bytes();
    let mut streams: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(server.port())).collect();
    for stream in &mut streams {
        stream.write_all(&bytes).unwrap();
    }
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            for mut stream in streams {
                let mut response = String::new();
                stream.read_to_string(&mut response).unwrap();
                let response = response.to_lowercase();
                assert!(response.starts_with("http/1.1 503"), "{response}");
                assert!(response.contains("\r\nretry-after: "), "{response}");
            }
        });
        let mut requests = 0;
        while !clients.is_finished() {
            for path in routes_without_database() {
                assert_eq!(server.get(path).send().status, 200, "{path}");
                requests += 1;
            }
        }
        assert!(requests > 0);
    });
}

/// The server's times to the 503s of a route, in milliseconds.
fn refusal_times(server: &Server, route: &str) -> Vec<f64> {
    let log = server.log();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let refusals = events.filter(|event| event["route"] == route && event["status"] == 503);
    refusals.map(|event| event["duration_ms"].as_f64().unwrap()).collect()
}

/// F40b.
#[test]
fn locked_table_returns_503_until_it_is_unlocked() {
    let server = Server::start(
        Options::default()
            .with("DATABASE_POOL_SIZE", POOL.to_string())
            .with("DATABASE_WAIT_TIMEOUT", "750ms"),
    );
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C" }));
    let path = format!("/api/campaigns/{id}");
    server.db.run("BEGIN; LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE");
    for (path, route) in [
        (path.clone(), "/api/campaigns/{id}"),
        (format!("{path}/sends"), "/api/campaigns/{id}/sends"),
    ] {
        ana.get(&path).refused(503, "UNAVAILABLE");
        let in_time = (1..=ROUNDS).any(|round| {
            let before = refusal_times(&server, route).len();
            refuse_all_clients(&server, &ana.request("GET", &path));
            let times = refusal_times(&server, route).split_off(before);
            assert_eq!(times.len(), CLIENTS);
            let slowest = times.into_iter().fold(0.0, f64::max);
            println!("{path}, round {round}: {slowest} ms");
            slowest <= REFUSED_WITHIN.as_secs_f64() * 1000.0
        });
        assert!(in_time, "{path}: no round was in time");
    }
    server.db.run("COMMIT");
    // The first requests succeed, one by one and as many at once as there are connections.
    ana.get(&path).ok();
    std::thread::scope(|scope| {
        for _ in 0..POOL {
            let request = ana.request("GET", &path);
            scope.spawn(|| request.send().ok());
        }
    });
}

/// F40c: the server locks the campaign and waits for the test's advisory lock, then the test locks the campaign.
#[test]
fn deadlock_is_retried_within_the_request() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = ana.campaign(json!({ "name": "C" }));
    // PostgreSQL looks for a deadlock once, a second after a session began to wait. So the server begins to wait last,
    // and the other session does not look: whatever the load, PostgreSQL aborts the server's transaction. The retry may
    // lock the row before the other session does. It is not held up, because a rollback does not reset a sequence.
    server.db.run(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           IF nextval('tries') > 1 THEN RETURN NULL; END IF;
           PERFORM pg_advisory_xact_lock(41);
           FOR i IN 1..6000 LOOP
             EXIT WHEN EXISTS (SELECT FROM pg_locks
               WHERE locktype = 'transactionid' AND NOT granted
                 AND transactionid = pg_current_xact_id()::xid);
             PERFORM pg_sleep(0.005);
           END LOOP;
           PERFORM pg_advisory_xact_lock(40);
           RETURN NULL;
         END $$;
         CREATE TRIGGER hold_up AFTER UPDATE ON campaigns FOR EACH ROW EXECUTE FUNCTION hold_up()",
    );
    server
        .db
        .run("BEGIN; SET LOCAL deadlock_timeout = '1min'; SELECT pg_advisory_xact_lock(40)");
    let request = ana
        .request("PUT", &format!("/api/campaigns/{id}"))
        .json(&json!({ "name": "D" }));
    let change = std::thread::spawn(move || request.send());
    // The lock is looked for in this database: the cluster is shared.
    server.db.run(
        "DO $$ BEGIN
           FOR i IN 1..6000 LOOP
             EXIT WHEN EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
               WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = 41 AND l.granted);
             PERFORM pg_sleep(0.005);
           END LOOP;
           PERFORM 1 FROM campaigns FOR UPDATE;
         END $$",
    );
    server.db.run("COMMIT");
    assert_eq!(change.join().unwrap().ok()["name"], "D");
    until("PostgreSQL reports the deadlock", || {
        server
            .db
            .text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            == "1"
    });
    let changes = "FROM audit_logs WHERE entity_type = 'campaign' AND action = 'create'";
    until("the audit entry is stored", || server.db.count(changes) == 1);
}

/// Makes the next write to any of these tables fail with a serialization failure.
fn fail_next_write(server: &Server, tables: &[String]) {
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

/// Arms the failure of `fail_next_write` again.
fn rearm_failure(server: &Server) {
    server.db.run("ALTER SEQUENCE trips RESTART");
}

/// One request per kind of write.
fn writes(ana: &User<'_>) -> Vec<(&'static str, String, Value)> {
    let contact = ana.contact("C", &phone(1));
    let deleted_contact = ana.contact("D", &phone(2));
    let (tag, other_tag) = (ana.tag("a"), ana.tag("b"));
    let create = |path: &str, body: Value| text(&ana.post(path, body).created()["id"]);
    let segment = create("/api/segments", json!({ "name": "S" }));
    let folder = create("/api/folders", json!({ "name": "F", "kind": "campaign" }));
    let (template, deleted_template) = (ana.template("t1", "Oi", &[]), ana.template("t2", "Oi", &[]));
    let (profile, campaign) = (ana.profile(), ana.campaign(json!({ "name": "C" })));
    let path = |kind: &str, id: &str| format!("/api/{kind}/{id}");
    let new_contact = json!({ "name": "P", "phone": phone(3) });
    let new_template = json!({ "name": "t3", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
                        "body_text": "Oi" });
    let new_profile = json!({ "name": "L", "phone_number_id": "106500000031", "waba_id": "1", "access_token": "EAAG" });
    let later = json!({ "scheduled_at": "2100-01-01T00:00:00Z" });
    let members = json!({ "contact_ids": [contact] });
    vec![
        ("POST", "/api/contacts".into(), new_contact),
        ("PUT", path("contacts", &contact), json!({ "name": "E" })),
        (
            "PUT",
            format!("/api/contacts/{contact}/tags"),
            json!({ "tag_ids": [tag] }),
        ),
        ("DELETE", path("contacts", &deleted_contact), Value::Null),
        ("POST", "/api/tags".into(), json!({ "name": "c" })),
        ("DELETE", path("tags", &other_tag), Value::Null),
        ("POST", "/api/segments".into(), json!({ "name": "T" })),
        ("PUT", path("segments", &segment), json!({ "name": "U" })),
        ("POST", format!("/api/segments/{segment}/members"), members.clone()),
        ("DELETE", format!("/api/segments/{segment}/members"), members),
        ("DELETE", path("segments", &segment), Value::Null),
        (
            "POST",
            "/api/folders".into(),
            json!({ "name": "G", "kind": "template" }),
        ),
        ("DELETE", path("folders", &folder), Value::Null),
        ("POST", "/api/templates".into(), new_template),
        ("PUT", path("templates", &template), json!({ "body_text": "Olá" })),
        ("DELETE", path("templates", &deleted_template), Value::Null),
        ("POST", "/api/whatsapp/profiles".into(), new_profile),
        ("PUT", path("whatsapp/profiles", &profile), json!({ "name": "M" })),
        ("DELETE", path("whatsapp/profiles", &profile), Value::Null),
        ("POST", "/api/campaigns".into(), json!({ "name": "D" })),
        ("PUT", path("campaigns", &campaign), json!({ "name": "E" })),
        ("POST", format!("/api/campaigns/{campaign}/schedule"), later),
        ("POST", format!("/api/campaigns/{campaign}/cancel"), json!({})),
        ("DELETE", path("campaigns", &campaign), Value::Null),
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

/// F40c: every kind of write.
#[test]
fn write_with_serialization_failure_is_retried_in_request() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let writes = writes(&ana);
    // Excludes the tables to which relays write: their write would consume the failure.
    let tables = server.db.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
           AND relname NOT LIKE 'audit%' AND relname NOT IN ('outbox_events', 'idempotency_keys')",
    );
    let tables: Vec<String> = tables.into_iter().filter_map(|mut row| row.remove(0)).collect();
    fail_next_write(&server, &tables);
    let mut failures = Vec::new();
    for (method, path, body) in writes {
        rearm_failure(&server);
        let request = ana.request(method, &path);
        let request = if body.is_null() { request } else { request.json(&body) };
        let reply = request.send();
        let failed_once = server.db.text("SELECT is_called FROM trips") == "t";
        if !failed_once || ![200, 201, 204].contains(&reply.status) {
            failures.push(format!(
                "{method} {path}: {} {} {failed_once}",
                reply.status, reply.text
            ));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// F40c: a run whose statements fail again and again with serialization failures.
#[test]
fn run_with_serialization_failures_sends_every_message_once() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "10"));
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
    fail_next_write(&server, &tables.map(str::to_owned));
    let request = ana.command(&id, "execute");
    let run = std::thread::spawn(move || request.send());
    let mut failed_at = 0;
    until("the run is over", || {
        let sent = server.whatsapp.sends().len();
        if sent >= failed_at + 4 {
            failed_at = sent;
            rearm_failure(&server);
        }
        run.is_finished()
    });
    assert!(failed_at > 20, "{failed_at}");
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
