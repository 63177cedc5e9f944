//! Malformed and hostile JSON bodies at every route that reads one.

use std::collections::BTreeMap;

use recado_api::routes::{Access, RouteSpec, TABLE};
use serde_json::{Value, json};

use crate::harness::client::Request;
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server};
use crate::matrix::{RouteInput, body_fields, create_resources, label, resource_path, row};

/// Upper bound of the peak memory that all hostile bodies of a route take, in bytes.
const MAX_PEAK: u64 = 8 * 1024 * 1024;

/// Upper bound of what is left of it after a round of all routes, in bytes.
const MAX_GROWTH: u64 = 1024 * 1024;

/// The allocator requests megabytes at times: one of so many rounds has to keep a bound. A leak or a body in memory breaks
/// it in every round.
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

/// Variants of a valid body: each documented field in turn gets a third of the unusual values, and is repeated once. Over
/// all routes every value reaches many fields.
fn spoiled_bodies(spec: &RouteSpec, good: &str) -> Vec<String> {
    let good: Value = serde_json::from_str(good).unwrap();
    let fields = good.as_object().unwrap();
    let mut bodies = Vec::new();
    for (at, name) in body_fields(spec).into_keys().enumerate() {
        let rest = fields.iter().filter(|(field, _)| *field != name);
        let rest: String = rest
            .map(|(field, value)| format!(",{}:{value}", json!(field)))
            .collect();
        let values = unusual_values().into_iter();
        for value in values.skip((at + good.to_string().len()) % 3).step_by(3) {
            bodies.push(format!("{{{}:{value}{rest}}}", json!(name)));
        }
        let value = fields.get(name).unwrap_or(&Value::Null);
        bodies.push(format!("{{{0}:{value},{0}:{value}{rest}}}", json!(name)));
    }
    bodies
}

/// Asserts a 4xx with the error envelope and without internals. A success is allowed if `may_succeed`.
fn assert_rejected(what: &str, request: Request, may_succeed: bool) {
    let reply = request.send();
    let status = reply.status;
    if may_succeed && [200, 201, 202, 204].contains(&status) {
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
fn try_route(caller: &User<'_>, spec: &RouteSpec, path: &str, good: &str, bomb: &[u8], all: bool) {
    let method = spec.method.as_str();
    let post = |body: Vec<u8>| caller.request(method, path).body("application/json", body);
    for body in invalid_bodies() {
        let what = format!("{method} {path} {:.80}", String::from_utf8_lossy(&body));
        // A route with an optional body accepts an empty one.
        assert_rejected(&what, post(body.clone()), body.is_empty() && good == "{}");
    }
    for body in spoiled_bodies(spec, good).into_iter().filter(|_| all) {
        assert_rejected(&format!("{method} {path} {body:.120}"), post(body.into_bytes()), true);
    }
    assert_rejected(&format!("{method} {path} deep"), post(deep_body().into_bytes()), true);
    let encoded = post(bomb.to_vec()).header("Content-Encoding", "gzip");
    encoded.send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_rejected(&format!("{method} {path} a bomb"), post(bomb.to_vec()), false);
    // The server may reject the request and close the connection before the whole body is written.
    let huge = post(vec![b' '; 10 * 1024 * 1024]).try_send();
    assert!(
        huge.is_err() || huge.is_ok_and(|reply| reply.status == 413),
        "{method} {path}"
    );
}

/// Tries every route that reads JSON. Returns the peak memory that each took.
fn try_all_routes(
    callers: [&User<'_>; 2],
    resources: &[(&'static str, String)],
    bomb: &[u8],
    all: bool,
) -> BTreeMap<String, u64> {
    let [ana, root] = callers;
    let mut peaks = BTreeMap::new();
    for spec in TABLE {
        let RouteInput::Json(good) = row(spec) else { continue };
        let caller = if spec.access == Access::Administrator {
            root
        } else {
            ana
        };
        let before = ana.server.reset_peak_memory();
        try_route(caller, spec, &resource_path(spec, resources), good, bomb, all);
        peaks.insert(label(spec), ana.server.peak_memory().saturating_sub(before));
    }
    peaks
}

/// F34.
#[test]
fn hostile_bodies_are_rejected_with_little_memory() {
    // Without a reachable Redis the rate limiter admits every request.
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    let (ana, root) = (server.owner(), server.root());
    let bomb = bomb();
    let mut resources = create_resources(&ana);
    resources.push(("/api/admin/accounts/", server.owner().account));
    try_all_routes([&ana, &root], &resources, &bomb, true);
    // A field that the route reads must not contain a lone surrogate.
    let lone_surrogate = ana
        .request("POST", "/api/tags")
        .body("application/json", r#"{"name":"a\ud800b"}"#);
    assert_eq!(lone_surrogate.send().invalid(), ["body"]);
    // Caches and pools are warm now, so the next rounds should reuse memory.
    let mut high: Vec<String> = TABLE.iter().map(label).collect();
    let mut grows = true;
    for _ in 0..ROUNDS {
        let before = server.memory();
        let peaks = try_all_routes([&ana, &root], &resources, &bomb, false);
        grows &= server.memory().saturating_sub(before) >= MAX_GROWTH;
        println!("{:?}", peaks.values().max());
        high.retain(|route| peaks.get(route).is_some_and(|peak| *peak > MAX_PEAK));
        if high.is_empty() && !grows {
            break;
        }
    }
    assert!(high.is_empty(), "the peak is high in every round: {high:?}");
    assert!(!grows, "memory grows in every round");
    ana.contact("Depois", &phone(77));
}
