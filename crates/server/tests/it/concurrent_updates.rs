//! Two PUTs of different fields at the same time: both are kept, for every resource that has a PUT.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use actix_web::http::Method;
use recado_server::reference::document;
use recado_server::routes::TABLE;
use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::runs::silent;
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};
use crate::matrix;

/// How long rows are held at most: no request may wait longer for a lock than 1.15 s.
const HELD: Duration = Duration::from_millis(800);

/// How many rounds there may be until one finds both requests waiting.
const ROUNDS: usize = 25;

/// How the PUT of a route is tried.
enum Tried {
    /// Beside another change of the same row of a table. Each body has the number of the round in it.
    Beside(&'static str, fn(usize) -> [Value; 2]),
    /// It has one field, so that no other one can be lost.
    OneField(&'static str),
    /// By the tests of that module.
    Elsewhere,
}

use Tried::{Beside, Elsewhere, OneField};

const ROWS: &[(&str, Tried)] = &[
    ("/api/team/members/{id}", OneField("role")),
    // postgres/tests/it/billing.rs: of writes that were decided on one version of a subscription one is done.
    ("/api/billing/subscription", Elsewhere),
    (
        "/api/brand-context",
        Beside("brand_contexts", |n| {
            [
                json!({ "company_name": format!("Loja {n}") }),
                json!({ "tone_of_voice": format!("Tom {n}") }),
            ]
        }),
    ),
    (
        "/api/contacts/{id}",
        Beside("contacts", |n| {
            [
                json!({ "email": format!("ana{n}@example.com") }),
                json!({ "phone": format!("+55119777770{n:02}") }),
            ]
        }),
    ),
    // Beside the PUT of the contact: `tags_beside_another_field_of_the_contact_keep_both`.
    ("/api/contacts/{id}/tags", OneField("tag_ids")),
    ("/api/conversations/{id}", OneField("status")),
    (
        "/api/segments/{id}",
        Beside("segments", |n| {
            [
                json!({ "name": format!("VIP {n}") }),
                json!({ "description": format!("De {n}") }),
            ]
        }),
    ),
    (
        "/api/templates/{id}",
        Beside("message_templates", |n| {
            [
                json!({ "footer_text": format!("Loja {n}") }),
                json!({ "body_text": format!("Oi {n}") }),
            ]
        }),
    ),
    (
        "/api/whatsapp/profiles/{id}",
        Beside("whatsapp_profiles", |n| {
            [
                json!({ "access_token": format!("EAAG-token-{n}") }),
                json!({ "messages_per_second": n + 1 }),
            ]
        }),
    ),
    (
        "/api/webhooks/{id}",
        Beside("webhook_endpoints", |n| {
            [
                json!({ "name": format!("CI {n}") }),
                json!({ "url": format!("https://e{n}.example") }),
            ]
        }),
    ),
    (
        "/api/campaigns/{id}",
        Beside("campaigns", |n| {
            [
                json!({ "name": format!("Natal {n}") }),
                json!({ "rfm_segments": [format!("s{n}")] }),
            ]
        }),
    ),
    (
        "/api/automations/{id}",
        Beside("automations", |n| {
            let status = if n % 2 == 0 { "active" } else { "paused" };
            [json!({ "name": format!("Oi {n}") }), json!({ "status": status })]
        }),
    ),
    (
        "/api/admin/accounts/{id}",
        Beside("accounts", |n| {
            [
                json!({ "name": format!("Loja {n}") }),
                json!({ "logo_url": format!("https://e.example/{n}.png") }),
            ]
        }),
    ),
];

/// The properties of a schema of the document, and of those that it is made of.
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

/// The fields of the body of a PUT that the reference knows.
fn fields_of(path: &str) -> BTreeSet<String> {
    let document = document();
    let schema = &document["paths"][path]["put"]["requestBody"]["content"]["application/json"]["schema"];
    let fields = properties(&document, schema);
    assert!(!fields.is_empty(), "{path}: {schema}");
    fields
}

#[test]
fn every_put_of_the_route_table_is_tried() {
    let routes: BTreeSet<&str> = TABLE
        .iter()
        .filter(|spec| spec.method == Method::PUT)
        .map(|spec| spec.path)
        .collect();
    let rows: BTreeSet<&str> = ROWS.iter().map(|(path, _)| *path).collect();
    assert_eq!(routes, rows);
    for (path, tried) in ROWS {
        let fields = fields_of(path);
        match tried {
            OneField(field) => assert_eq!(fields, BTreeSet::from([(*field).to_owned()]), "{path}"),
            Beside(_, bodies) => {
                for body in bodies(1) {
                    let named = body.as_object().unwrap().keys();
                    assert!(named.into_iter().all(|field| fields.contains(field)), "{path}: {body}");
                }
            }
            Elsewhere => {}
        }
    }
}

/// From now on nothing but the clients touches the rows.
const NO_WORKERS: [&str; 2] = ["serve", "--no-workers"];

fn quiet() -> Server {
    Server::start(Options {
        args: NO_WORKERS.to_vec(),
        ..silent()
    })
}

/// Rows that are held: whoever wants to write them waits, and whoever reads them does not.
struct Held<'a> {
    server: &'a Server,
    since: Instant,
}

impl<'a> Held<'a> {
    fn new(server: &'a Server, rows: &str) -> Self {
        server.db.run(&format!("BEGIN; SELECT 1 FROM {rows} FOR UPDATE"));
        let since = Instant::now();
        Self { server, since }
    }

    /// Whether so many writers wait before the rows have to be released.
    fn stops(&self, writers: i64) -> bool {
        let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while self.since.elapsed() < HELD {
            // Inside of a transaction what was seen of others is kept.
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

/// Sends both while the rows of a table are held: each reads, and then waits to write, in this order. The statuses, and
/// whether both waited.
fn side_by_side(server: &Server, table: &str, requests: [Request; 2]) -> ([u16; 2], bool) {
    let held = Held::new(server, table);
    let mut waited = true;
    let sent = [1, 2].into_iter().zip(requests).map(|(writers, request)| {
        let sent = std::thread::spawn(move || request.send().status);
        waited &= held.stops(writers);
        sent
    });
    let sent: Vec<_> = sent.collect();
    held.release();
    let statuses: Vec<u16> = sent.into_iter().map(|sent| sent.join().unwrap()).collect();
    ([statuses[0], statuses[1]], waited)
}

/// Changes two fields of a row at once until both requests had read it before either wrote, in either order.
fn both_are_kept(user: &User<'_>, table: &str, row: &str, paths: [&str; 2], bodies: impl Fn(usize) -> [Value; 2]) {
    let server = user.server;
    let read = || -> Value { serde_json::from_str(&server.db.text(row)).unwrap() };
    let mut seen = [false; 2];
    for round in 1..=ROUNDS {
        let (before, bodies) = (read(), bodies(round));
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let requests = order.map(|n| user.request("PUT", paths[n]).json(&bodies[n]));
        let (statuses, waited) = side_by_side(server, table, requests);
        let after = read();
        for (status, n) in statuses.into_iter().zip(order) {
            // Unavailable: the machine was so busy that the rows were held for too long.
            if status == 503 {
                continue;
            }
            assert_eq!(status, 200, "{table}: {}", bodies[n]);
            for (field, value) in bodies[n].as_object().unwrap() {
                match field.as_str() {
                    // What a token is sealed to can only be told from what was there before.
                    "access_token" => assert_ne!(after[field], before[field], "{table}: {field} is lost"),
                    _ => assert_eq!(&after[field], value, "{table}: {field} is lost beside {bodies:?}"),
                }
            }
        }
        seen[round % 2] |= waited && statuses == [200, 200];
        if seen == [true, true] {
            return;
        }
    }
    panic!("{table}: the requests never waited at the same time");
}

#[test]
fn two_puts_of_different_fields_are_both_kept() {
    let server = Server::start(silent());
    let (ana, root) = (server.owner(), server.root());
    ana.put("/api/brand-context", json!({ "company_name": "Loja" })).ok();
    let belongings = matrix::belongings(&ana);
    server.stop();
    server.run(&NO_WORKERS);
    for (path, tried) in ROWS {
        let Beside(table, bodies) = tried else { continue };
        let user = if path.starts_with("/api/admin/") { &root } else { &ana };
        let id = match path.strip_suffix("{id}") {
            None => None,
            Some("/api/admin/accounts/") => Some(ana.account.clone()),
            Some(prefix) => {
                let made = belongings.iter().find(|(of, _)| *of == prefix);
                Some(made.unwrap_or_else(|| panic!("{path}: there is none")).1.clone())
            }
        };
        let key = match &id {
            Some(id) => format!("id = '{id}'"),
            None => format!("account_id = '{}'", ana.account),
        };
        let row = format!("SELECT to_jsonb(t) FROM {table} t WHERE {key}");
        let path = path.replace("{id}", &id.unwrap_or_default());
        both_are_kept(user, table, &row, [&path, &path], bodies);
    }
}

#[test]
fn tags_beside_another_field_of_the_contact_keep_both() {
    let server = quiet();
    let ana = server.owner();
    let (contact, tag) = (ana.contact("Ana", "+5511961234567"), ana.tag("vip"));
    let row = format!(
        "SELECT to_jsonb(c) || jsonb_build_object('tag_ids', (SELECT coalesce(jsonb_agg(tag_id), '[]')
           FROM contact_tags WHERE contact_id = c.id)) FROM contacts c WHERE id = '{contact}'"
    );
    let path = format!("/api/contacts/{contact}");
    let bodies = |n| [json!({ "tag_ids": [tag] }), json!({ "name": format!("Ana {n}") })];
    both_are_kept(&ana, "contacts", &row, [&format!("{path}/tags"), &path], bodies);
}

/// The next campaign must not write to whoever has the old number now.
#[test]
fn phone_that_whatsapp_moved_beside_a_put_stays_moved() {
    const NUMBER: &str = "106500000061";
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let moved = (1..=ROUNDS).any(|round| {
        let (old, new) = (format!("+55119611110{round:02}"), format!("+55119622220{round:02}"));
        let contact = ana.contact("Ana", &old);
        let path = format!("/api/contacts/{contact}");
        let email = format!("ana{round}@example.com");
        let put = ana.request("PUT", &path).json(&json!({ "email": email }));
        let held = Held::new(&server, &format!("contacts WHERE id = '{contact}'"));
        // The callback comes first in the queue for the row; the PUT has read the old number by then.
        server.whatsapp.inbound(&Inbound {
            new_number: Some(new.clone()),
            ..Inbound::text(NUMBER, &old, "")
        });
        let first = held.stops(1);
        let sent = std::thread::spawn(move || put.send().status);
        let both = held.stops(2);
        held.release();
        let status = sent.join().unwrap();
        until("the number has moved", || ana.get(&path).ok()["phone"] == json!(new));
        let stored = ana.get(&path).ok();
        assert!(status != 200 || text(&stored["email"]) == email, "{stored}");
        first && both && status == 200
    });
    assert!(moved, "the callback and the PUT never waited at the same time");
}

/// A contact may hold more than a caller may write: it came from imports.
#[test]
fn contact_with_too_many_attributes_can_be_edited() {
    let server = quiet();
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
