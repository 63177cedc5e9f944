//! Malformed and hostile JSON bodies at every route that reads one.

use recado_api::routes::{Access, TABLE};
use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server};
use crate::matrix::{RouteInput, create_resources, resource_path, row};

/// Upper bound of the memory growth in a round without a leak, in bytes.
const MAX_GROWTH: u64 = 1024 * 1024;

/// Number of measured rounds. The allocator requests megabytes in some rounds; a leak grows memory in every round.
const ROUNDS: usize = 6;

/// A decompression bomb: 100 kB of gzip that expand to 100 MB of spaces.
fn bomb() -> Vec<u8> {
    use std::io::Write as _;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let chunk = vec![b' '; 1_000_000];
    for _ in 0..100 {
        bomb.write_all(&chunk).unwrap();
    }
    bomb.finish().unwrap()
}

/// Bodies that every route must reject.
fn invalid_bodies() -> Vec<Vec<u8>> {
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

/// 100,000 nested arrays in an unknown field. A recursive parser that skips the field could overflow its stack.
fn deep_body() -> String {
    format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000))
}

/// Valid but unusual JSON values for the fields of a body.
fn unusual_values() -> Vec<&'static str> {
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

/// Variants of a valid body: each field in turn gets a third of the unusual values, and is repeated once. Over all
/// routes every value reaches many fields.
fn spoiled_bodies(good: &str) -> Vec<String> {
    let good: Value = serde_json::from_str(good).unwrap();
    let fields = good.as_object().unwrap();
    let mut bodies = Vec::new();
    for (at, name) in fields.keys().enumerate() {
        for value in unusual_values()
            .into_iter()
            .skip((at + good.to_string().len()) % 3)
            .step_by(3)
        {
            let rest = fields.iter().filter(|(field, _)| *field != name);
            let rest: String = rest
                .map(|(field, value)| format!(",{}:{value}", json!(field)))
                .collect();
            bodies.push(format!("{{{}:{value}{rest}}}", json!(name)));
        }
        bodies.push(format!("{{{0}:{1},{0}:{1}}}", json!(name), fields[name]));
    }
    bodies
}

/// Asserts a 4xx with the error envelope and without internals. A success is allowed if `may_succeed`.
fn assert_rejected(what: &str, request: Request, may_succeed: bool) {
    let reply = request.send();
    let status = reply.status;
    if may_succeed && [200, 201, 204].contains(&status) {
        return;
    }
    assert!((400..500).contains(&status), "{what}: {status} {}", reply.text);
    let body = reply.json();
    assert!(body["error"]["code"].is_string(), "{what}: {body}");
    for inside in ["SELECT", "panicked", "diesel", "tokio", "src/"] {
        assert!(!reply.text.contains(inside), "{what}: {}", reply.text);
    }
}

/// Sends all hostile bodies to one route. Sends the variants of the valid body only if `all`.
fn try_route(caller: &User<'_>, method: &str, path: &str, good: &str, bomb: &[u8], all: bool) {
    let post = |body: Vec<u8>| caller.request(method, path).body("application/json", body);
    for body in invalid_bodies() {
        let what = format!("{method} {path} {:.80}", String::from_utf8_lossy(&body));
        // A route with an optional body accepts an empty one.
        assert_rejected(&what, post(body.clone()), body.is_empty() && good == "{}");
    }
    for body in spoiled_bodies(good).into_iter().filter(|_| all) {
        assert_rejected(&format!("{method} {path} {body:.120}"), post(body.into_bytes()), true);
    }
    assert_rejected(&format!("{method} {path} deep"), post(deep_body().into_bytes()), true);
    let encoded = post(bomb.to_vec()).header("Content-Encoding", "gzip");
    encoded.send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_rejected(&format!("{method} {path} a bomb"), post(bomb.to_vec()), false);
}

/// Tries every route that reads JSON.
fn try_all_routes(callers: [&User<'_>; 2], resources: &[(&'static str, String)], bomb: &[u8], all: bool) {
    let [ana, root] = callers;
    for spec in TABLE {
        let RouteInput::Json(good) = row(spec) else { continue };
        // Excludes routes whose effects reach beyond the caller's account.
        if spec.path.starts_with("/api/billing") || spec.path == "/api/admin/accounts" {
            continue;
        }
        let caller = if spec.access == Access::Administrator {
            root
        } else {
            ana
        };
        try_route(
            caller,
            spec.method.as_str(),
            &resource_path(spec, resources),
            good,
            bomb,
            all,
        );
    }
}

/// F34.
#[test]
fn hostile_bodies_are_rejected_with_little_memory() {
    // Without a reachable Redis the rate limiter admits every request.
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    let (ana, root) = (server.owner(), server.root());
    let bomb = bomb();
    let mut resources = create_resources(&ana);
    resources.push(("/api/admin/accounts/", ana.account.clone()));
    try_all_routes([&ana, &root], &resources, &bomb, true);
    // A field that the route reads must not contain a lone surrogate.
    let lone_surrogate = ana
        .request("POST", "/api/tags")
        .body("application/json", r#"{"name":"a\ud800b"}"#);
    assert_eq!(lone_surrogate.send().invalid(), ["body"]);
    let huge = vec![b' '; 10 * 1024 * 1024];
    let send_too_large = || {
        let request = ana.request("POST", "/api/tags").body("application/json", huge.clone());
        // The server may reject the request and close the connection before the whole body is written.
        let reply = request.try_send();
        assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status == 413));
    };
    send_too_large();
    // Caches and pools are warm now, so the next rounds should reuse memory.
    let mut grown = (0..ROUNDS).map(|_| {
        let before = server.memory();
        try_all_routes([&ana, &root], &resources, &bomb, false);
        (0..4).for_each(|_| send_too_large());
        server.memory().saturating_sub(before)
    });
    assert!(grown.any(|grown| grown < MAX_GROWTH), "memory grows in every round");
    ana.contact("Depois", &phone(77));
}
