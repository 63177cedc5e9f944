//! List endpoints: invalid query parameters, hostile text, forged cursors, and cursor walks under concurrent writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::{Reply, Request};
use crate::harness::users::{User, phone};
use crate::harness::{Server, text};

/// Lists with keyset pagination.
const BY_CURSOR: [&str; 4] = [
    "/api/contacts?",
    "/api/tags?",
    "/api/whatsapp/profiles?",
    "/api/templates?cursor=&",
];
/// Lists with page numbers.
const BY_PAGE: [&str; 2] = ["/api/campaigns?", "/api/templates?"];

fn by_page(campaign: &str) -> Vec<String> {
    let sends = format!("/api/campaigns/{campaign}/sends?");
    BY_PAGE.iter().map(|path| (*path).to_owned()).chain([sends]).collect()
}

fn all_lists(campaign: &str) -> Vec<String> {
    BY_CURSOR
        .iter()
        .map(|path| (*path).to_owned())
        .chain(by_page(campaign))
        .collect()
}

/// The rows of a list response, with or without the `data` envelope.
fn rows(list: &Value) -> Vec<Value> {
    let list = list["data"].as_array().or(list["data"]["data"].as_array());
    list.unwrap().clone()
}

/// Checks that the response is no server error and that its message does not mention the database.
fn assert_no_database_detail(what: &str, reply: &Reply) {
    assert!(reply.status < 500, "{what}: {reply:?}");
    let text = reply.text.to_lowercase();
    for word in [
        "sql",
        "syntax error",
        "relation",
        "diesel",
        "postgres",
        "operator",
        "pg_",
    ] {
        assert!(reply.status == 200 || !text.contains(word), "{what}: {}", reply.text);
    }
}

#[test]
fn limit_and_page_are_clamped_and_non_numbers_refused() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(3);
    let campaign = ana.campaign(json!({ "name": "C" }));
    let huge = [
        "1000000000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999999",
    ];
    for list in all_lists(&campaign) {
        for limit in ["0", "-1", "-99999999999999999999", "1"] {
            assert!(
                rows(&ana.get(&format!("{list}limit={limit}")).expect(200)).len() <= 1,
                "{list}{limit}"
            );
        }
        for limit in ["101", "100000"].iter().chain(&huge) {
            ana.get(&format!("{list}limit={limit}")).expect(200);
        }
        for wrong in [
            "abc", "1.5", "1e3", "1e18", "0x10", "+5", "%2B5", "--1", "-", "1%2C000", "NaN", "null", "%D9%A1", "%20",
        ] {
            assert_eq!(
                ana.get(&format!("{list}limit={wrong}")).invalid(),
                ["limit"],
                "{list}{wrong}"
            );
        }
    }
    for list in by_page(&campaign) {
        for page in ["0", "-1", "-9223372036854775809"] {
            assert_eq!(
                ana.get(&format!("{list}page={page}")).expect(200)["page"]
                    .as_i64()
                    .or(Some(1)),
                Some(1)
            );
        }
        for page in huge {
            for limit in ["1", "100", "9223372036854775807"] {
                let beyond = ana.get(&format!("{list}page={page}&limit={limit}")).expect(200);
                assert_eq!(rows(&beyond), Vec::<Value>::new(), "{list}{page}");
            }
        }
        for wrong in ["abc", "1e18", "1.0", "0x1", "%2B1", "%D9%A3"] {
            assert_eq!(
                ana.get(&format!("{list}page={wrong}")).invalid(),
                ["page"],
                "{list}{wrong}"
            );
        }
    }
    for list in BY_CURSOR.iter().filter(|list| !list.contains("templates")) {
        ana.get(&format!("{list}page=-1")).expect(200);
    }
}

#[test]
fn list_returns_at_most_a_hundred_rows() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(130);
    assert_eq!(rows(&ana.get("/api/contacts?limit=101").expect(200)).len(), 100);
    assert_eq!(
        rows(&ana.get("/api/contacts?limit=99999999999999999999").expect(200)).len(),
        100
    );
    assert_eq!(rows(&ana.get("/api/contacts").expect(200)).len(), 20);
}

#[test]
fn unknown_sort_order_or_filter_names_the_parameter() {
    let server = Server::new();
    let ana = server.owner();
    let words = [
        "age",
        "id",
        "NAME",
        "name%20desc",
        "created_at;drop",
        "1",
        "account_id",
        "deleted_at",
        "%27",
        "name,id",
    ];
    for list in ["/api/campaigns?", "/api/templates?", "/api/templates?cursor=&"] {
        for word in words {
            assert_eq!(
                ana.get(&format!("{list}sort={word}")).invalid(),
                ["sort"],
                "{list}{word}"
            );
            assert_eq!(
                ana.get(&format!("{list}order={word}")).invalid(),
                ["order"],
                "{list}{word}"
            );
        }
        for word in ["7", "x", "%27%20OR%201=1%20--", "00000000-0000-0000-0000-00000000000g"] {
            assert_eq!(
                ana.get(&format!("{list}folder_id={word}")).invalid(),
                ["folder_id"],
                "{list}{word}"
            );
        }
    }
    for filter in ["tag_id", "segment_id"] {
        assert_eq!(ana.get(&format!("/api/contacts?{filter}=7")).invalid(), [filter]);
    }
    for filter in ["category", "meta_status"] {
        assert_eq!(ana.get(&format!("/api/templates?{filter}=none")).invalid(), [filter]);
    }
}

#[test]
fn hostile_query_text_is_matched_literally() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(3);
    ana.template("plain", "Oi", &[]);
    let campaign = ana.campaign(json!({ "name": "C" }));
    let parameters = [
        "search",
        "cursor",
        "page",
        "limit",
        "sort",
        "order",
        "folder_id",
        "tag_id",
        "segment_id",
        "category",
        "meta_status",
    ];
    let texts = [
        "%27",
        "%27%20OR%20%271%27=%271",
        "%27;DROP%20TABLE%20contacts;--",
        "%22",
        "%5C",
        "%25",
        "_",
        "$1",
        "%00",
        "a%00b",
        "%ff%fe",
        "%",
        "%zz",
        "%F0%9F%98%80",
        "%2e%2e%2f",
        "%0d%0aX-Injected:%201",
        "{}",
        "[]",
        "()",
        "*",
        "%E2%80%8B",
        "%u0000",
        "<script>",
        "\\x00",
    ];
    let long = "a".repeat(4000);
    for list in all_lists(&campaign) {
        for value in texts.iter().chain([&long.as_str()]) {
            let value = value.replace(['<', '>', '\\', '{', '}'], "-");
            // The text as a search, as a cursor and in every parameter.
            let all: Vec<String> = parameters.iter().map(|name| format!("{name}={value}")).collect();
            for query in [format!("search={value}"), format!("cursor={value}"), all.join("&")] {
                let reply = ana.get(&format!("{list}{query}"));
                assert_no_database_detail(&query, &reply);
                assert!([200, 422].contains(&reply.status), "{list}{query}: {reply:?}");
                assert_eq!(reply.header("x-injected"), None);
                if value.contains("%00") {
                    assert_eq!(reply.status, 422, "{list}{query}");
                }
            }
        }
    }
    assert_eq!(server.db.count("FROM contacts"), 3);
    // SQL wildcards match only themselves.
    for wildcard in ["%25", "_", "%25%25", "%5C", "%5C%25"] {
        let found = ana.get(&format!("/api/contacts?search={wildcard}")).expect(200);
        assert_eq!(rows(&found), Vec::<Value>::new(), "{wildcard}");
    }
    assert_eq!(rows(&ana.get("/api/contacts?search=Contato1").expect(200)).len(), 1);
}

#[test]
fn repeated_query_parameter_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let campaign = ana.campaign(json!({ "name": "C" }));
    for list in all_lists(&campaign) {
        for twice in [
            "limit=1&limit=2",
            "limit=5&limit=5",
            "limit=abc&limit=5",
            "limit=&limit=5",
            "limit=1&x=1&%6cimit=2",
        ] {
            assert_eq!(ana.get(&format!("{list}{twice}")).invalid(), ["limit"], "{list}{twice}");
        }
    }
    for list in ["/api/campaigns?", "/api/templates?"] {
        assert_eq!(ana.get(&format!("{list}order=asc&order=desc")).invalid(), ["order"]);
    }
}

#[test]
fn odd_path_id_is_not_found_or_invalid() {
    let server = Server::new();
    let ana = server.owner();
    let id = ana.contact("Ana", "+5511961234567");
    for path in [
        "/api/contacts/%2F",
        "/api/contacts/a%2Fb",
        "/api/contacts/%2e%2e%2ftags",
        "/api/contacts/..%2f..%2fhealthz",
        "/api/contacts/%00",
        "/api/contacts/%ff",
        "/api/contacts/%252F",
        "/api/campaigns/a%2Fb/stats",
        "/api/campaigns/%27%20OR%201=1/sends",
        "/api/templates/%3Cscript%3E",
    ] {
        let reply = ana.get(path);
        assert_no_database_detail(path, &reply);
        assert!([404, 422].contains(&reply.status), "{path}: {reply:?}");
    }
    for tail in ["%2Ftags", "%00", "%20", ";x=1", ","] {
        let reply = ana.get(&format!("/api/contacts/{id}{tail}"));
        assert!([404, 422].contains(&reply.status), "{tail}: {reply:?}");
    }
}

#[test]
fn stale_cursor_continues_and_forged_cursor_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    for number in 0..6 {
        ana.tag(&format!("t{number}"));
        ana.contact("C", &phone(number));
        ana.template(&format!("t{number}"), "Oi", &[]);
    }
    for list in ["/api/contacts", "/api/tags", "/api/whatsapp/profiles"] {
        for junk in [
            "7",
            "garbage",
            "null",
            "0",
            "00000000-0000-0000-0000-00000000000g",
            "aaaa",
        ] {
            assert_eq!(
                ana.get(&format!("{list}?cursor={junk}")).invalid(),
                ["cursor"],
                "{list} {junk}"
            );
        }
        assert_eq!(
            rows(&ana.get(&format!("{list}?cursor={}", Uuid::nil())).expect(200)),
            Vec::<Value>::new()
        );
    }
    // A cursor stays valid after its row was deleted.
    for list in ["/api/contacts", "/api/tags"] {
        let first = ana.get(&format!("{list}?limit=3")).ok();
        let cursor = text(&first["nextCursor"]);
        let after = ana.get(&format!("{list}?limit=3&cursor={cursor}")).ok();
        ana.delete(&format!("{list}/{cursor}")).no_content();
        assert_eq!(
            ana.get(&format!("{list}?limit=3&cursor={cursor}")).ok(),
            after,
            "{list}"
        );
    }
    let first = ana.get("/api/templates?cursor=&limit=3").ok();
    let cursor = text(&first["nextCursor"]);
    let after = ana.get(&format!("/api/templates?limit=3&cursor={cursor}")).ok();
    ana.delete(&format!("/api/templates/{}", text(&first["data"][2]["id"])))
        .no_content();
    assert_eq!(ana.get(&format!("/api/templates?limit=3&cursor={cursor}")).ok(), after);
    // A cursor of another sort order is invalid.
    assert_eq!(
        ana.get(&format!("/api/templates?sort=name&cursor={cursor}")).invalid(),
        ["cursor"]
    );
}

#[test]
fn handmade_cursor_never_causes_a_server_error() {
    let server = Server::new();
    let ana = server.owner();
    ana.template("only", "Oi", &[]);
    let id = Uuid::now_v7();
    for (sort, value) in [
        ("created_at", "-377705116800000000"),
        ("created_at", "253402300799999999"),
        ("created_at", "-9223372036854775808"),
        ("created_at", "99999999999999999999999999999999999999"),
        ("created_at", "now()"),
        ("updated_at", "-210866803200000001"),
        ("name", "'; DROP TABLE message_templates; --"),
        ("name", "a\u{0}b"),
        ("name", &"x".repeat(10_000)),
        ("id", "x"),
    ] {
        let forged = hex::encode(format!("{sort} {id} {value}"));
        let reply = ana.get(&format!("/api/templates?sort={sort}&cursor={forged}"));
        assert_no_database_detail(&format!("{sort} {value}"), &reply);
        assert!([200, 422].contains(&reply.status), "{sort} {value}: {reply:?}");
    }
    for junk in [
        "zz",
        "00",
        "ff",
        "abc",
        &hex::encode("name"),
        &hex::encode("name x y"),
        &"0".repeat(9000),
    ] {
        let reply = ana.get(&format!("/api/templates?sort=name&cursor={junk}"));
        assert_eq!(reply.invalid(), ["cursor"], "{}", &junk[..junk.len().min(20)]);
    }
}

/// Reads the whole list by cursor while a second client adds rows. Returns how often each row occurred.
fn walk_under_writes(user: &User<'_>, list: &str, add: impl Fn(usize) -> Request + Sync) -> BTreeMap<String, usize> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            let mut added = 0;
            while !done.load(Ordering::Relaxed) && added < 400 {
                add(added).send().created();
                added += 1;
            }
            added
        });
        let mut seen = BTreeMap::new();
        let mut cursor = String::new();
        loop {
            let page = user.get(&format!("{list}&limit=4&cursor={cursor}")).ok();
            for row in rows(&page) {
                *seen.entry(text(&row["id"])).or_default() += 1;
            }
            if page["hasMore"] == json!(false) {
                assert_eq!(page["nextCursor"], json!(null));
                break;
            }
            cursor = text(&page["nextCursor"]);
        }
        done.store(true, Ordering::Relaxed);
        assert!(adding.join().unwrap() > 0, "no row was added during the walk");
        seen
    })
}

fn assert_each_once(list: &str, before: &[String], seen: &BTreeMap<String, usize>) {
    assert!(seen.values().all(|times| *times == 1), "{list}: a row occurred twice");
    for id in before {
        assert!(seen.contains_key(id), "{list}: {id} is missing");
    }
}

#[test]
fn cursor_walk_returns_each_row_once_under_writes() {
    let server = Server::new();
    let ana = server.owner();
    let template =
        |name: &str| json!({ "name": name, "category": "UTILITY", "language": "pt", "template_type": "standard" });
    let (mut contacts, mut tags, mut templates) = (vec![], vec![], vec![]);
    for number in 0..60 {
        contacts.push(ana.contact("C", &phone(number)));
        tags.push(ana.tag(&format!("before {number}")));
        let made = ana
            .post("/api/templates", template(&format!("before_{number}")))
            .created();
        templates.push(text(&made["id"]));
    }
    let (port, token) = (server.port(), ana.token.clone());
    let post = |path: &str, body: Value| Request::new(port, "POST", path).bearer(&token).json(&body);
    let contact = |number: usize| post("/api/contacts", json!({ "name": "D", "phone": phone(1000 + number) }));
    assert_each_once(
        "contacts",
        &contacts,
        &walk_under_writes(&ana, "/api/contacts?x=", contact),
    );
    let tag = |number: usize| post("/api/tags", json!({ "name": format!("later {number}") }));
    assert_each_once("tags", &tags, &walk_under_writes(&ana, "/api/tags?x=", tag));
    for (index, order) in [
        "sort=created_at&order=desc",
        "sort=created_at&order=asc",
        "sort=name&order=asc",
        "sort=name&order=desc",
    ]
    .iter()
    .enumerate()
    {
        // Names that sort before, between and after the existing ones.
        let name = |number: usize| format!("{}_{index}_{number}", ["a", "before_3", "z"][number % 3]);
        let list = format!("/api/templates?{order}");
        let seen = walk_under_writes(&ana, &list, |number| post("/api/templates", template(&name(number))));
        assert_each_once(&list, &templates, &seen);
    }
}
