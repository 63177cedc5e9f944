//! Lost updates: two concurrent PUTs of different fields both take effect, for every resource that has a PUT.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use actix_web::http::Method;
use recado_api::reference::document;
use recado_api::routes::TABLE;
use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::runs::without_statuses;
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};
use crate::matrix;

/// The longest time that rows stay locked: requests give up waiting for a lock after 1.15 s.
const MAX_LOCK_TIME: Duration = Duration::from_millis(800);

/// Attempts until both requests wait for the lock at the same time.
const MAX_ROUNDS: usize = 25;

/// How the PUT of a route is tested.
enum Coverage {
    /// Concurrently with another PUT of the same row of this table. Each body contains the number of the round.
    Concurrent(&'static str, fn(usize) -> [Value; 2]),
    /// The body has one field, so that no other field can be lost.
    OneField(&'static str),
    /// A test in another module covers it.
    Elsewhere,
}

use Coverage::{Concurrent, Elsewhere, OneField};

const ROUTES: &[(&str, Coverage)] = &[
    ("/api/team/members/{id}", OneField("role")),
    // postgres/tests/it/billing.rs: of the writes that were decided on one version of a subscription, one succeeds.
    ("/api/billing/subscription", Elsewhere),
    (
        "/api/brand-context",
        Concurrent("brand_contexts", |n| {
            [
                json!({ "company_name": format!("Loja {n}") }),
                json!({ "tone_of_voice": format!("Tom {n}") }),
            ]
        }),
    ),
    // retention.rs: `concurrent_changes_of_two_terms_both_apply`. The terms are one column.
    ("/api/retention", Elsewhere),
    (
        "/api/contacts/{id}",
        Concurrent("contacts", |n| {
            [
                json!({ "email": format!("ana{n}@example.com") }),
                json!({ "phone": format!("+55119777770{n:02}") }),
            ]
        }),
    ),
    // Concurrently with the PUT of the contact: `concurrent_put_of_tags_and_contact_field_both_apply`.
    ("/api/contacts/{id}/tags", OneField("tag_ids")),
    ("/api/conversations/{id}", OneField("status")),
    (
        "/api/segments/{id}",
        Concurrent("segments", |n| {
            [
                json!({ "name": format!("VIP {n}") }),
                json!({ "description": format!("De {n}") }),
            ]
        }),
    ),
    (
        "/api/settings",
        Concurrent("account_settings", |n| {
            [
                json!({ "opt_out_words": [format!("fim {n}")] }),
                json!({ "hold_at_most_hours": n + 1 }),
            ]
        }),
    ),
    (
        "/api/templates/{id}",
        Concurrent("message_templates", |n| {
            [
                json!({ "footer_text": format!("Loja {n}") }),
                json!({ "body_text": format!("Oi {n}") }),
            ]
        }),
    ),
    (
        "/api/whatsapp/profiles/{id}",
        Concurrent("whatsapp_profiles", |n| {
            [
                json!({ "access_token": format!("EAAG-token-{n}") }),
                json!({ "messages_per_second": n + 1 }),
            ]
        }),
    ),
    (
        "/api/webhooks/{id}",
        Concurrent("webhook_endpoints", |n| {
            [
                json!({ "name": format!("CI {n}") }),
                json!({ "url": format!("https://e{n}.example") }),
            ]
        }),
    ),
    (
        "/api/campaigns/{id}",
        Concurrent("campaigns", |n| {
            [
                json!({ "name": format!("Natal {n}") }),
                json!({ "rfm_segments": [format!("s{n}")] }),
            ]
        }),
    ),
    (
        "/api/automations/{id}",
        Concurrent("automations", |n| {
            let status = if n % 2 == 0 { "active" } else { "paused" };
            [json!({ "name": format!("Oi {n}") }), json!({ "status": status })]
        }),
    ),
    ("/api/api-keys/{id}", Elsewhere),
    (
        "/api/admin/accounts/{id}",
        Concurrent("accounts", |n| {
            [
                json!({ "name": format!("Loja {n}") }),
                json!({ "logo_url": format!("https://e.example/{n}.png") }),
            ]
        }),
    ),
];

/// The properties of a schema, including those of its `$ref` and `allOf` parts.
fn properties(document: &Value, schema: &Value) -> BTreeSet<String> {
    if let Some(pointer) = schema["$ref"].as_str() {
        return properties(document, document.pointer(pointer.trim_start_matches('#')).unwrap());
    }
    let own = schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(|own| own.keys().cloned());
    let parts = schema["allOf"].as_array().into_iter().flatten();
    own.chain(parts.flat_map(|part| properties(document, part))).collect()
}

/// The fields of a PUT's body, according to the OpenAPI document.
fn body_fields(path: &str) -> BTreeSet<String> {
    let document = document();
    let schema = &document["paths"][path]["put"]["requestBody"]["content"]["application/json"]["schema"];
    let fields = properties(&document, schema);
    assert!(!fields.is_empty(), "{path}: {schema}");
    fields
}

#[test]
fn every_put_route_has_its_coverage_declared() {
    let routes: BTreeSet<&str> = TABLE
        .iter()
        .filter(|spec| spec.method == Method::PUT)
        .map(|spec| spec.path)
        .collect();
    let covered: BTreeSet<&str> = ROUTES.iter().map(|(path, _)| *path).collect();
    assert_eq!(routes, covered);
    for (path, coverage) in ROUTES {
        let fields = body_fields(path);
        match coverage {
            OneField(field) => assert_eq!(fields, BTreeSet::from([(*field).to_owned()]), "{path}"),
            Concurrent(_, bodies) => {
                for body in bodies(1) {
                    let mut names = body.as_object().unwrap().keys();
                    assert!(names.all(|field| fields.contains(field)), "{path}: {body}");
                }
            }
            Elsewhere => {}
        }
    }
}

/// Without workers, only the test's requests change the rows.
const NO_WORKERS: [&str; 2] = ["serve", "--no-workers"];

fn server_without_workers() -> Server {
    Server::start(Options {
        args: NO_WORKERS.to_vec(),
        ..without_statuses()
    })
}

/// Rows locked by `FOR UPDATE`: writers wait, readers do not.
struct LockedRows<'a> {
    server: &'a Server,
    since: Instant,
}

impl<'a> LockedRows<'a> {
    fn new(server: &'a Server, rows: &str) -> Self {
        server.db.run(&format!("BEGIN; SELECT 1 FROM {rows} FOR UPDATE"));
        let since = Instant::now();
        Self { server, since }
    }

    /// Whether `writers` transactions wait for a lock before the rows must be released.
    fn has_waiting_writers(&self, writers: i64) -> bool {
        let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while self.since.elapsed() < MAX_LOCK_TIME {
            // Within a transaction, pg_stat_activity returns a cached snapshot.
            self.server.db.run("SELECT pg_stat_clear_snapshot()");
            if self.server.db.count(waiting) >= writers {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    fn release(self) {
        self.server.db.run("COMMIT");
    }
}

/// Sends both requests in this order while the table's rows are locked: each reads its row, then waits to write.
/// Returns the statuses and whether both waited.
fn send_while_locked(server: &Server, table: &str, requests: [Request; 2]) -> ([u16; 2], bool) {
    let rows = LockedRows::new(server, table);
    let mut waited = true;
    let sent = [1, 2].into_iter().zip(requests).map(|(writers, request)| {
        let sent = std::thread::spawn(move || request.send().status);
        waited &= rows.has_waiting_writers(writers);
        sent
    });
    let sent: Vec<_> = sent.collect();
    rows.release();
    let statuses: Vec<u16> = sent.into_iter().map(|sent| sent.join().unwrap()).collect();
    ([statuses[0], statuses[1]], waited)
}

/// Updates two fields of a row concurrently until both requests have read the row before either wrote, in both orders.
/// Asserts that neither update is lost.
fn assert_no_lost_update(
    user: &User<'_>,
    table: &str,
    row: &str,
    paths: [&str; 2],
    bodies: impl Fn(usize) -> [Value; 2],
) {
    let server = user.server;
    let read = || -> Value { serde_json::from_str(&server.db.text(row)).unwrap() };
    let mut raced = [false; 2];
    for round in 1..=MAX_ROUNDS {
        let (before, bodies) = (read(), bodies(round));
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let requests = order.map(|n| user.request("PUT", paths[n]).json(&bodies[n]));
        let (statuses, waited) = send_while_locked(server, table, requests);
        let after = read();
        for (status, n) in statuses.into_iter().zip(order) {
            // 503: on a busy machine the rows stayed locked for longer than the request waits.
            if status == 503 {
                continue;
            }
            assert_eq!(status, 200, "{table}: {}", bodies[n]);
            for (field, value) in bodies[n].as_object().unwrap() {
                match field.as_str() {
                    // The sealed token cannot be compared with the input, only with the earlier ciphertext.
                    "access_token" => assert_ne!(after[field], before[field], "{table}: {field} is lost"),
                    _ => assert_eq!(&after[field], value, "{table}: {field} is lost beside {bodies:?}"),
                }
            }
        }
        raced[round % 2] |= waited && statuses == [200, 200];
        if raced == [true, true] {
            return;
        }
    }
    panic!("{table}: the requests never waited at the same time");
}

#[test]
fn concurrent_puts_of_different_fields_both_apply() {
    let server = Server::start(without_statuses());
    let (ana, root) = (server.owner(), server.root());
    ana.put("/api/brand-context", json!({ "company_name": "Loja" })).ok();
    ana.put("/api/settings", json!({ "timezone": "UTC" })).ok();
    let resources = matrix::create_resources(&ana);
    server.stop();
    server.run(&NO_WORKERS);
    for (path, coverage) in ROUTES {
        let Concurrent(table, bodies) = coverage else { continue };
        let user = if path.starts_with("/api/admin/") { &root } else { &ana };
        let id = match path.strip_suffix("{id}") {
            None => None,
            Some("/api/admin/accounts/") => Some(ana.account.clone()),
            Some(prefix) => {
                let resource = resources.iter().find(|(route, _)| *route == prefix);
                Some(resource.unwrap_or_else(|| panic!("{path}: no resource")).1.clone())
            }
        };
        let key = match &id {
            Some(id) => format!("id = '{id}'"),
            None => format!("account_id = '{}'", ana.account),
        };
        let row = format!("SELECT to_jsonb(t) FROM {table} t WHERE {key}");
        let path = path.replace("{id}", &id.unwrap_or_default());
        assert_no_lost_update(user, table, &row, [&path, &path], bodies);
    }
}

#[test]
fn concurrent_put_of_tags_and_contact_field_both_apply() {
    let server = server_without_workers();
    let ana = server.owner();
    let (contact, tag) = (ana.contact("Ana", "+5511961234567"), ana.tag("vip"));
    let row = format!(
        "SELECT to_jsonb(c) || jsonb_build_object('tag_ids', (SELECT coalesce(jsonb_agg(tag_id), '[]')
           FROM contact_tags WHERE contact_id = c.id)) FROM contacts c WHERE id = '{contact}'"
    );
    let path = format!("/api/contacts/{contact}");
    let bodies = |n| [json!({ "tag_ids": [tag] }), json!({ "name": format!("Ana {n}") })];
    assert_no_lost_update(&ana, "contacts", &row, [&format!("{path}/tags"), &path], bodies);
}

/// Otherwise the next campaign would write to the new holder of the old number.
#[test]
fn phone_changed_by_whatsapp_survives_a_concurrent_put() {
    const NUMBER: &str = "106500000061";
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let raced = (1..=MAX_ROUNDS).any(|round| {
        let (old, new) = (format!("+55119611110{round:02}"), format!("+55119622220{round:02}"));
        let contact = ana.contact("Ana", &old);
        let path = format!("/api/contacts/{contact}");
        let email = format!("ana{round}@example.com");
        let put = ana.request("PUT", &path).json(&json!({ "email": email }));
        let rows = LockedRows::new(&server, &format!("contacts WHERE id = '{contact}'"));
        // The callback is first in the queue for the row lock. The PUT has read the old number by then.
        server.whatsapp.inbound(&Inbound {
            new_number: Some(new.clone()),
            ..Inbound::text(NUMBER, &old, "")
        });
        let callback_waits = rows.has_waiting_writers(1);
        let sent = std::thread::spawn(move || put.send().status);
        let both_wait = rows.has_waiting_writers(2);
        rows.release();
        let status = sent.join().unwrap();
        until("the number has changed", || ana.get(&path).ok()["phone"] == json!(new));
        let stored = ana.get(&path).ok();
        assert!(status != 200 || text(&stored["email"]) == email, "{stored}");
        callback_waits && both_wait && status == 200
    });
    assert!(raced, "the callback and the PUT never waited at the same time");
}

/// A contact can have more attributes than a request may write, for example from older imports.
#[test]
fn contact_with_too_many_attributes_can_be_edited() {
    let server = server_without_workers();
    let ana = server.owner();
    let contact = ana.contact("Ana", "+5511961234567");
    server
        .db
        .run("UPDATE contacts SET attributes = (SELECT jsonb_object_agg('k' || n, n) FROM generate_series(1, 120) n)");
    let tag = ana.tag("vip");
    let path = format!("/api/contacts/{contact}");
    for body in [
        json!({ "name": "Bia" }),
        json!({ "phone": "+5511977777777" }),
        json!({ "email": "bia@example.com" }),
        json!({ "tag_ids": [tag] }),
        json!({ "opted_out": true }),
    ] {
        ana.put(&path, body).ok();
    }
    ana.put(&format!("{path}/tags"), json!({ "tag_ids": [] })).ok();
    let stored = ana.get(&path).ok();
    assert_eq!(stored["attributes"].as_object().unwrap().len(), 120);
    assert_eq!(stored["phone"], "+5511977777777");
    let refused = ana.put(&path, json!({ "attributes": stored["attributes"] }));
    assert_eq!(refused.invalid(), ["attributes"]);
}
