//! Bodies that are no JSON, hardly JSON, or JSON of the worst kind, at every route that takes one.

use recado_server::routes::{Access, TABLE};
use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server};
use crate::matrix::{Takes, belongings, path_of, row};

/// What a round of it may leave in memory.
const GROWTH: u64 = 1024 * 1024;

/// How often what a round leaves is looked at: the allocator takes megabytes from the system at a time, for one round or
/// the other, and what a request keeps is kept in every round.
const ROUNDS: usize = 6;

/// Gzip of a hundred million spaces: a hundred thousand bytes.
fn bomb() -> Vec<u8> {
    use std::io::Write as _;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let piece = vec![b' '; 1_000_000];
    for _ in 0..100 {
        bomb.write_all(&piece).unwrap();
    }
    bomb.finish().unwrap()
}

/// Bodies that no route can take, whatever it asks for.
fn nonsense() -> Vec<Vec<u8>> {
    let texts = [
        "",
        " ",
        "{",
        "}",
        "{}{}",
        "{\"a\"",
        "{\"a\":}",
        "{'a':1}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":\"\\x41\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":tru}",
        "{\"a\":1,}",
        "{\"a\":1}//",
        "\u{feff}{}",
        "[]",
        "[{}]",
        "null",
        "0",
        "\"{}\"",
        "{\"\\u0000\":1}",
        "{\"a\":\"\\u0000\"}",
        "\0",
    ];
    let mut bodies: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    bodies.push(b"{\"a\":\"\xff\xfe\"}".to_vec());
    bodies.push(b"{\"a\":\"\xed\xa0\x80\"}".to_vec());
    bodies.push("[".repeat(100_000).into_bytes());
    bodies.push("{\"a\":".repeat(100_000).into_bytes());
    bodies
}

/// A hundred thousand lists, one in the other: whoever skips a field skips them all, one by one.
fn deep() -> String {
    format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000))
}

/// Values that are JSON, and that hardly anything means; put into every field that a body has.
fn values() -> Vec<&'static str> {
    vec![
        "1e400",
        "-1e400",
        "1e-400",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "-0",
        "-0.0",
        "0.1e1",
        "null",
        "true",
        "[]",
        "{}",
        "[[[[[]]]]]",
        "\"\"",
        "\"\\u202e\\ufeff\\u0007\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "\"' OR 1=1 --\"",
        "\"0190a1b2-0000-7000-8000-000000000000\"",
        "\"9999-12-31T23:59:60Z\"",
        "\"+999999-01-01T00:00:00Z\"",
    ]
}

/// The good body with one field after the other made into a third of the values, and with that field twice. Every value
/// meets many fields.
fn spoiled(good: &str) -> Vec<String> {
    let good: Value = serde_json::from_str(good).unwrap();
    let fields = good.as_object().unwrap();
    let mut bodies = Vec::new();
    for (at, name) in fields.keys().enumerate() {
        for value in values().into_iter().skip((at + good.to_string().len()) % 3).step_by(3) {
            let rest = fields.iter().filter(|(other, _)| *other != name);
            let rest: String = rest
                .map(|(other, value)| format!(",{}:{value}", json!(other)))
                .collect();
            bodies.push(format!("{{{}:{value}{rest}}}", json!(name)));
        }
        bodies.push(format!("{{{0}:{1},{0}:{1}}}", json!(name), fields[name]));
    }
    bodies
}

/// A proper refusal, in the envelope; or, where something could be made of it, a success.
fn answered(what: &str, request: Request, may_be_taken: bool) {
    let reply = request.send();
    let status = reply.status;
    if may_be_taken && [200, 201, 204].contains(&status) {
        return;
    }
    assert!((400..500).contains(&status), "{what}: {status} {}", reply.text);
    let body = reply.json();
    assert!(body["error"]["code"].is_string(), "{what}: {body}");
    for inside in ["SELECT", "panicked", "diesel", "tokio", "src/"] {
        assert!(!reply.text.contains(inside), "{what}: {}", reply.text);
    }
}

/// One route with everything that is nothing, and with a good body spoiled in every way where there is time for it.
fn try_route(caller: &User<'_>, method: &str, path: &str, good: &str, bomb: &[u8], all: bool) {
    let post = |body: Vec<u8>| caller.request(method, path).body("application/json", body);
    for body in nonsense() {
        let what = format!("{method} {path} {:.80}", String::from_utf8_lossy(&body));
        // A body that may be missing may be empty.
        answered(&what, post(body.clone()), body.is_empty() && good == "{}");
    }
    for body in spoiled(good).into_iter().filter(|_| all) {
        answered(&format!("{method} {path} {body:.120}"), post(body.into_bytes()), true);
    }
    answered(&format!("{method} {path} deep"), post(deep().into_bytes()), true);
    let encoded = post(bomb.to_vec()).header("Content-Encoding", "gzip");
    encoded.send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
    answered(&format!("{method} {path} a bomb"), post(bomb.to_vec()), false);
}

/// Every route that takes JSON.
fn round(callers: [&User<'_>; 2], things: &[(&'static str, String)], bomb: &[u8], all: bool) {
    let [ana, root] = callers;
    for spec in TABLE {
        let Takes::Json(good) = row(spec) else { continue };
        // What it leaves behind would be other people's.
        if spec.path.starts_with("/api/billing") || spec.path == "/api/admin/accounts" {
            continue;
        }
        let caller = if spec.access == Access::Administrator {
            root
        } else {
            ana
        };
        try_route(caller, spec.method.as_str(), &path_of(spec, things), good, bomb, all);
    }
}

/// F34.
#[test]
fn no_body_costs_more_than_a_refusal() {
    // A counter that is not there counts nobody out.
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    let (ana, root) = (server.owner(), server.root());
    let bomb = bomb();
    let mut things = belongings(&ana);
    things.push(("/api/admin/accounts/", ana.account.clone()));
    round([&ana, &root], &things, &bomb, true);
    // Half a character is none, where anybody looks at it.
    let half = ana
        .request("POST", "/api/tags")
        .body("application/json", r#"{"name":"a\ud800b"}"#);
    assert_eq!(half.send().invalid(), ["body"]);
    let huge = vec![b' '; 10 * 1024 * 1024];
    let refused = || {
        let request = ana.request("POST", "/api/tags").body("application/json", huge.clone());
        // Whoever refuses it may close before it is all written.
        let reply = request.try_send();
        assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status == 413));
    };
    refused();
    // Everybody has seen everything once: what comes now takes what is there.
    let mut grown = (0..ROUNDS).map(|_| {
        let before = server.memory();
        round([&ana, &root], &things, &bomb, false);
        (0..4).for_each(|_| refused());
        server.memory().saturating_sub(before)
    });
    assert!(grown.any(|grown| grown < GROWTH), "every round leaves more");
    ana.contact("Depois", &phone(77));
}
