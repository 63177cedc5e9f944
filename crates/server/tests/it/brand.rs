//! The brand context: updates, and scraping of websites within the egress rules.

use std::time::{Duration, Instant};

use recado_simulators::ai::{self, Ai, completion};
use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::raw::{RawServer, Reply};
use recado_simulators::receiver::{self, Receiver};
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{DEADLINE, Options, Server, eventually, text};

const PATH: &str = "/api/brand-context";
pub const SCRAPE: &str = "/api/brand-context/scrape";

const PAGE: &str = "<html><head><title>Padaria Aurora | Pães</title><meta name=description content='Pães de fermentação \
    natural.'></head><body><script>steal()</script><p>Oferecemos produtos sem conservantes! Atendemos famílias da região. \
    Nossos valores são qualidade e respeito!</p></body></html>";

/// A website that gives every request the same response.
fn site(response: Reply) -> RawServer {
    RawServer::replying(vec![response]).unwrap()
}

fn site_with_html(html: &str) -> RawServer {
    site(http_response("text/html; charset=utf-8", html.as_bytes()))
}

fn http_response(media_type: &str, body: &[u8]) -> Reply {
    Reply::http_last(&format!("200 OK\r\nContent-Type: {media_type}"), body)
}

/// A server whose egress rules allow this machine, and its AI service.
pub fn start_with_ai_service() -> (Server, Ai) {
    let service = Ai::start(ai::AiOptions::default()).unwrap();
    let options = Options::default()
        .with("AI_API_URL", service.base_url())
        .with("AI_API_KEY", "key")
        .with("AI_MODEL", "small")
        .with("EGRESS_ALLOW_CIDRS", "127.0.0.0/8");
    (Server::start(options), service)
}

/// Scrapes a URL that must be refused. Returns the message of the field `url`.
fn scrape_error(user: &User<'_>, url: &str) -> String {
    let reply = user.post(SCRAPE, json!({ "url": url }));
    let body = reply.json();
    assert_eq!(reply.invalid(), ["url"], "{url}");
    body["error"]["details"]["fields"]["url"][0]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn brand_put_updates_only_the_given_fields() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    assert_eq!(ana.get(PATH).ok(), Value::Null);
    let made = ana
        .put(
            PATH,
            json!({ "company_name": "Loja", "description": "Pães", "website_url": "https://loja.example", "id": 7 }),
        )
        .ok();
    let mut names: Vec<_> = made.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected = [
        "brand_values",
        "company_name",
        "created_at",
        "description",
        "last_scraped_at",
        "products_services",
        "raw_scrape_data",
        "target_audience",
        "tone_of_voice",
        "updated_at",
        "website_url",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (&made["company_name"], &made["tone_of_voice"]),
        (&json!("Loja"), &Value::Null)
    );
    let changed = ana
        .put(PATH, json!({ "description": null, "tone_of_voice": "claro" }))
        .ok();
    assert_eq!(
        (
            &changed["company_name"],
            &changed["description"],
            &changed["tone_of_voice"]
        ),
        (&json!("Loja"), &Value::Null, &json!("claro"))
    );
    assert_eq!(ana.get(PATH).ok(), changed);
    assert_eq!(bia.get(PATH).ok(), Value::Null);
    let logs = ana.get("/api/audit-logs?entity_type=brand_context").ok();
    let log = &logs["logs"][0];
    assert_eq!(
        (&log["action"], &log["entity_id"]),
        (&json!("update"), &json!(ana.account))
    );
    assert_eq!(log["changes"], json!({ "fields": ["description", "tone_of_voice"] }));
    assert_eq!(logs["logs"].as_array().unwrap().len(), 2);
}

#[test]
fn brand_errors_name_the_invalid_field() {
    let server = Server::new();
    let ana = server.owner();
    let long = "ã".repeat(5001);
    for (body, fields) in [
        (json!({ "company_name": 7 }), vec!["company_name"]),
        (
            json!({ "description": long, "brand_values": long }),
            vec!["brand_values", "description"],
        ),
        (json!({ "website_url": "loja.example" }), vec!["website_url"]),
        (json!({ "website_url": "ftp://loja.example" }), vec!["website_url"]),
        (json!({ "tone_of_voice": "a\u{0}b" }), vec!["body"]),
    ] {
        assert_eq!(ana.put(PATH, body.clone()).invalid(), fields, "{body}");
    }
    for body in [
        json!({}),
        json!({ "url": null }),
        json!({ "url": "" }),
        json!({ "url": "loja.example" }),
    ] {
        assert_eq!(ana.post(SCRAPE, body.clone()).invalid(), ["url"], "{body}");
    }
    assert_eq!(ana.get(PATH).ok(), Value::Null);
    ana.put(PATH, json!({ "description": "ã".repeat(5000) })).ok();
}

#[test]
fn website_scrape_fills_and_stores_the_brand() {
    let (server, service) = start_with_ai_service();
    let site = site_with_html(PAGE);
    let ana = server.owner();
    ana.put(PATH, json!({ "tone_of_voice": "antigo", "target_audience": "antigo" }))
        .ok();
    let read = ana.post(SCRAPE, json!({ "url": format!(" {} ", site.origin()) })).ok();
    for (field, value) in [
        ("company_name", json!("Padaria Aurora")),
        ("description", json!("Pães de fermentação natural.")),
        ("products_services", json!("Oferecemos produtos sem conservantes!")),
        ("target_audience", json!("Atendemos famílias da região.")),
        ("website_url", json!(site.origin())),
    ] {
        assert_eq!(read[field], value, "{field}");
    }
    let raw = &read["raw_scrape_data"];
    assert_eq!(
        (&raw["url"], &raw["model"]),
        (&json!(format!("{}/", site.origin())), &json!("small"))
    );
    assert!(read["last_scraped_at"].is_string());
    assert_eq!(ana.get(PATH).ok(), read);
    let prompts = service.ledger();
    let text = prompts[0].body["messages"][1]["content"].as_str().unwrap().to_owned();
    assert!(text.contains("Nossos valores") && !text.contains("steal") && !text.contains("<p"));
    assert!(!text.contains(&ana.account), "the prompt contains no tenant data");
    assert_eq!(
        ana.get("/api/audit-logs?entity_type=brand_context").ok()["logs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // A field that is not found on the page becomes null.
    site.answer(http_response("text/plain", "só um título".as_bytes()));
    let again = ana.post(SCRAPE, json!({ "url": site.origin() })).ok();
    assert_eq!(again["target_audience"], Value::Null);
}

/// Scrapes the sample shop of `cargo xtask dev`, so that the README's example gives the shown result.
#[test]
fn sample_shop_scrape_fills_the_brand() {
    let (server, service) = start_with_ai_service();
    let shop = Receiver::start(receiver::ReceiverOptions::default()).unwrap();
    let read = server.owner().post(SCRAPE, json!({ "url": shop.url("/site") })).ok();
    for (field, value) in [
        ("company_name", "Padaria Aurora"),
        (
            "description",
            "Pães de fermentação natural, bolos e cafés, feitos à mão todos os dias.",
        ),
        (
            "target_audience",
            "Atendemos famílias do bairro e empresas que encomendam lanches para reuniões.",
        ),
        ("tone_of_voice", "Entusiasmado e próximo"),
    ] {
        assert_eq!(read[field], json!(value), "{field}");
    }
    assert!(
        text(&read["brand_values"]).contains("o respeito ao tempo da massa"),
        "{read}"
    );
    assert!(text(&read["products_services"]).contains("pães rústicos"), "{read}");
    let prompts = service.ledger();
    let page = prompts[0].body["messages"][1]["content"].as_str().unwrap();
    for removed in ["dataLayer", "<p", "font-family", "Ative o JavaScript", "\t"] {
        assert!(!page.contains(removed), "{removed}: {page}");
    }
}

#[test]
fn invalid_pages_are_refused_and_change_nothing() {
    let (server, service) = start_with_ai_service();
    let ana = server.owner();
    let canary = site_with_html("caught");
    let before = ana.put(PATH, json!({ "company_name": "Loja" })).ok();
    let large = vec![b'a'; (1 << 20) + 1];
    let head = |lines: &str| Reply::last(format!("HTTP/1.1 {lines}\r\nConnection: close\r\n\r\n"));
    for (response, message) in [
        (http_response("image/png", b"x"), "neither HTML nor plain text"),
        (http_response("text/html", &large), "larger than 1 MB"),
        (
            http_response("text/html; charset=utf-8", b"<p>\xff\xfe\xc3"),
            "cannot be read",
        ),
        (http_response("text/html", b"<script>x</script>"), "no text"),
        (head("404 Not Found\r\nContent-Type: text/html"), "status 404"),
        (head("500 No\r\nContent-Type: text/html"), "status 500"),
        (head("302 Found\r\nLocation: http://169.254.169.254/"), "redirects to"),
        (head("302 Found\r\nLocation: file:///etc/passwd"), "redirects to"),
        (head("302 Found\r\nLocation: /again"), "too often"),
        (
            Reply::last("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\nab"),
            "cannot be read",
        ),
        (Reply::last(""), "cannot be read"),
    ] {
        let site = site(response);
        let error = scrape_error(&ana, site.origin());
        assert!(error.contains(message), "{message}: {error}");
    }
    for url in [
        "http://10.0.0.1/",
        "http://[::ffff:10.0.0.1]/",
        "http://2852039166/",
        "ftp://127.0.0.1/",
        "http://no.such.invalid/",
    ] {
        scrape_error(&ana, url);
    }
    assert_eq!((service.ledger().len(), canary.connections()), (0, 0));
    assert_eq!(ana.get(PATH).ok(), before);
}

#[test]
fn slow_website_is_abandoned_after_ten_seconds() {
    let (server, service) = start_with_ai_service();
    let ana = server.owner();
    // One byte every 100 ms, until the server disconnects.
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
    let site = site(Reply::drip(head, "a", Duration::from_millis(100)));
    let begun = Instant::now();
    let error = scrape_error(&ana, site.origin());
    assert!(error.contains("in time"), "{error}");
    let took = begun.elapsed();
    assert!(took.as_secs() >= 9 && took < DEADLINE, "{took:?}");
    assert_eq!(service.ledger().len(), 0);
}

#[test]
fn loopback_addresses_are_refused_by_default() {
    let service = Ai::start(ai::AiOptions::default()).unwrap();
    let options = Options::default()
        .with("AI_API_URL", service.base_url())
        .with("AI_MODEL", "small");
    let server = Server::start(options);
    let (ana, canary) = (server.owner(), site_with_html(PAGE));
    let port = canary.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "0x7f.1",
        "2130706433",
        "[::1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "0",
    ] {
        scrape_error(&ana, &format!("http://{host}:{port}/"));
    }
    assert_eq!((canary.connections(), service.ledger().len()), (0, 0));
}

#[test]
fn failing_ai_service_returns_502_and_stores_nothing() {
    let (server, service) = start_with_ai_service();
    let site = site_with_html(PAGE);
    let ana = server.owner();
    let scrape = || ana.post(SCRAPE, json!({ "url": site.origin() }));
    let status = |http_status, body| Fault::new(FaultKind::status(http_status, body));
    for faults in [
        vec![status(401, json!({ "error": "secret words" }))],
        vec![status(500, json!({})); 3],
        vec![status(200, completion(None, "stop", Some("No.")))],
        vec![status(200, completion(Some("no JSON"), "stop", None)); 2],
    ] {
        service.script(faults);
        let error = scrape().refused(502, "VPS_ERROR");
        assert_eq!(error["message"], "The AI service is unavailable");
        assert_eq!(ana.get(PATH).ok(), Value::Null);
    }
    let hostile = json!({ "company_name": "x".repeat(9000), "description": ["a"], "account_id": "x", "tone_of_voice": "a\u{0}b" });
    service.script(vec![status(200, completion(Some(&hostile.to_string()), "stop", None))]);
    let read = scrape().ok();
    assert_eq!(read["company_name"].as_str().unwrap().len(), 5000);
    assert_eq!(
        (&read["description"], &read["tone_of_voice"]),
        (&Value::Null, &json!("ab"))
    );
}

#[test]
fn scrape_without_ai_service_returns_502() {
    let server = Server::start(Options::default().with("EGRESS_ALLOW_CIDRS", "127.0.0.0/8"));
    let (ana, site) = (server.owner(), site_with_html(PAGE));
    let error = ana
        .post(SCRAPE, json!({ "url": site.origin() }))
        .refused(502, "VPS_ERROR");
    assert_eq!(error["message"], "The AI service is not configured");
    assert_eq!(ana.get(PATH).ok(), Value::Null);
}

#[test]
fn scrapes_are_rate_limited_per_account() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let scrape = |user: &User<'_>| user.post(SCRAPE, json!({ "url": "http://10.0.0.1/" }));
    let limited = eventually("the rate limit is reached", || {
        Some(scrape(&ana)).filter(|reply| reply.status == 429)
    });
    limited.refused(429, "RATE_LIMIT");
    assert_eq!(scrape(&bia).status, 422);
}
