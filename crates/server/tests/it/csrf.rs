//! CSRF protection: requests of cross-site pages, and the cookie and header that select the active account.

use recado_api::routes::{Access, RouteSpec, TABLE};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::{Reply, Request};
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};
use crate::matrix::{create_resources, dump, label, resource_path, row, with_body};

const ACTIVE: &str = "svc-active-account-id";

/// The names of the contacts that a request returns. None: the request is refused.
fn contact_names(request: Request) -> Option<Vec<String>> {
    let reply = request.send();
    if reply.status == 401 {
        reply.refused(401, "AUTH_ERROR");
        return None;
    }
    let list = reply.ok();
    let names = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|contact| text(&contact["name"]));
    Some(names.collect())
}

#[test]
fn active_account_cookie_selects_only_own_accounts() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.contact("Of Ana", "+5511961230001");
    bia.contact("Of Bia", "+5511961230002");
    let (own, foreign) = (ana.account.clone(), bia.account.clone());
    let with = |lines: &[String]| {
        let request = ana.request("GET", "/api/contacts");
        contact_names(lines.iter().fold(request, |request, line| request.cookie(line)))
    };
    let cookie = |id: &str| format!("{ACTIVE}={id}");
    let own_contacts = Some(vec!["Of Ana".to_owned()]);
    assert_eq!(with(&[cookie(&own)]), own_contacts);
    assert_eq!(with(&[cookie(&own.to_uppercase())]), own_contacts);
    assert_eq!(with(&[format!("other=1; {}; more=2", cookie(&own))]), own_contacts);
    assert_eq!(with(&[cookie("")]), own_contacts, "an empty cookie is ignored");
    for junk in [
        foreign.as_str(),
        "garbage",
        "0",
        "../..",
        "' OR 1=1 --",
        "%00",
        "%ff",
        "%22",
        "null",
        &Uuid::nil().to_string(),
        &Uuid::max().to_string(),
        &format!("{own},{foreign}"),
        &format!("{own}x"),
        &"a".repeat(8 * 1024),
        &format!("{own}{}", "a".repeat(8 * 1024)),
    ] {
        assert_eq!(with(&[cookie(junk)]), None, "{}", &junk[..junk.len().min(40)]);
    }
    // Equal repeated cookies count as one. Different ones are refused, in any order, in one header line or in two.
    assert_eq!(with(&[format!("{}; {}", cookie(&own), cookie(&own))]), own_contacts);
    for (first, second) in [(&own, &foreign), (&foreign, &own), (&own, &"junk".to_owned())] {
        assert_eq!(with(&[format!("{}; {}", cookie(first), cookie(second))]), None);
        assert_eq!(with(&[cookie(first), cookie(second)]), None);
    }
    // A malformed cookie does not hide a later valid one.
    for broken in ["junk", "=", "a=%ff", "\"x", ";;"] {
        assert_eq!(with(&[format!("{broken}; {}", cookie(&own))]), own_contacts, "{broken}");
        assert_eq!(with(&[format!("{broken}; {}", cookie(&foreign))]), None, "{broken}");
    }
}

#[test]
fn account_header_must_name_exactly_one_own_account() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.contact("Of Ana", "+5511961230001");
    bia.contact("Of Bia", "+5511961230002");
    let with = |values: &[&str]| {
        let request = ana.request("GET", "/api/contacts");
        let header = |request: Request, value: &&str| request.header("X-Account-Id", value);
        contact_names(values.iter().fold(request, header))
    };
    let own_contacts = Some(vec!["Of Ana".to_owned()]);
    assert_eq!(with(&[&ana.account]), own_contacts);
    assert_eq!(with(&[&ana.account, &ana.account]), own_contacts);
    for wrong in [
        &[bia.account.as_str()][..],
        &[&ana.account, &bia.account],
        &[&bia.account, &ana.account],
        &[&format!("{}, {}", ana.account, ana.account)],
        &["garbage"],
        &[""],
        &[&"a".repeat(8 * 1024)],
    ] {
        assert_eq!(with(wrong), None, "{wrong:?}");
    }
    // The cookie wins over the header, valid or not.
    let both = |cookie: &str, header: &str| {
        let request = ana.request("GET", "/api/contacts").header("X-Account-Id", header);
        contact_names(request.cookie(&format!("{ACTIVE}={cookie}")))
    };
    assert_eq!(both(&ana.account, &bia.account), own_contacts);
    assert_eq!(both(&bia.account, &ana.account), None);
}

/// The one cookie that a response sets, its attributes sorted.
fn attributes(reply: &Reply) -> Vec<String> {
    let lines: Vec<_> = reply.headers.get_all("set-cookie").iter().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let mut parts: Vec<String> = lines[0].to_str().unwrap().split("; ").map(str::to_owned).collect();
    parts[1..].sort_unstable();
    parts
}

#[test]
fn active_account_cookie_has_the_published_attributes() {
    for (secure, more) in [("true", Some("Secure")), ("false", None)] {
        let server = Server::start(Options::default().with("COOKIE_SECURE", secure));
        let ana = server.stranger();
        let made = ana.post("/api/accounts", json!({ "name": "Loja" }));
        let set = attributes(&made);
        let account = text(&made.created()["account"]["id"]);
        let mut expected = vec![format!("{ACTIVE}={account}")];
        expected.extend(["HttpOnly", "Max-Age=31536000", "Path=/", "SameSite=Lax"].map(str::to_owned));
        expected.extend(more.map(str::to_owned));
        assert_eq!(set, expected);
        let switched = ana.post("/api/accounts/switch", json!({ "account_id": account }));
        assert_eq!(attributes(&switched), expected);
        // Reads and refused requests set no cookie.
        for reply in [
            ana.get("/api/accounts"),
            ana.get("/api/contacts"),
            ana.post("/api/accounts", json!({})),
            ana.post("/api/accounts/switch", json!({ "account_id": Uuid::now_v7() })),
        ] {
            assert_eq!(reply.header("set-cookie"), None, "{reply:?}");
        }
    }
}

fn mutating_routes() -> impl Iterator<Item = &'static RouteSpec> {
    TABLE
        .iter()
        .filter(|spec| spec.access != Access::Public && spec.method != "GET")
}

/// The headers that a browser adds to the requests of a page.
type Headers<'a> = &'a [(&'a str, &'a str)];

const CROSS_SITE: [Headers<'static>; 7] = [
    &[("Origin", "https://evil.example")],
    &[("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")],
    &[("Origin", "null")],
    &[("Origin", "null"), ("Sec-Fetch-Site", "same-origin")],
    &[("Sec-Fetch-Site", "cross-site")],
    &[("Origin", "https://app.example.evil.example")],
    &[("Origin", "http://app.example")],
];

fn with_headers(request: Request, headers: Headers<'_>) -> Request {
    headers
        .iter()
        .fold(request, |request, (name, value)| request.header(name, value))
}

fn request_by_cookie(server: &Server, user: &User<'_>, method: &str, path: &str) -> Request {
    let cookie = format!("svc-session={}; {ACTIVE}={}", user.token, user.account);
    server.request(method, path).cookie(&cookie)
}

#[test]
fn cross_site_request_is_refused_on_every_route() {
    let server = Server::start(Options::default().with("CORS_ORIGINS", "https://app.example"));
    let ana = server.owner();
    let root = server.user(Uuid::new_v4(), "root@example.com");
    let ids = create_resources(&ana);
    let accounts = || {
        server
            .db
            .text("SELECT string_agg(a::text, '|' ORDER BY id) FROM accounts a")
    };
    let before = (dump(&ana), accounts());
    let mut tried = 0;
    for spec in mutating_routes() {
        let (user, path) = match spec.access {
            Access::Administrator => (&root, spec.path.replace("{id}", &ana.account)),
            _ => (&ana, resource_path(spec, &ids)),
        };
        for headers in CROSS_SITE {
            let request = request_by_cookie(&server, user, spec.method.as_str(), &path);
            let request = with_headers(with_body(request, row(spec)), headers);
            let error = request.send().refused(403, "FORBIDDEN");
            assert_eq!(error["details"], json!({}), "{}", label(spec));
            tried += 1;
        }
        // A form can only send such a media type. The request is refused before the body is read.
        let form = request_by_cookie(&server, user, spec.method.as_str(), &path);
        let form = form
            .header("Origin", "https://evil.example")
            .body("text/plain", "{\"name\":\"x\"}");
        form.send().refused(403, "FORBIDDEN");
    }
    assert!(tried >= 7 * 18, "{tried}");
    assert_eq!((dump(&ana), accounts()), before);
    // Reads are processed, but without a CORS header for the foreign origin the browser hides the response.
    for headers in CROSS_SITE {
        let read = with_headers(request_by_cookie(&server, &ana, "GET", "/api/contacts"), headers).send();
        let allowed = read.header("access-control-allow-origin").map(str::to_owned);
        read.ok();
        assert!(
            allowed.as_deref().is_none_or(|origin| origin == "https://app.example"),
            "{allowed:?}"
        );
    }
}

#[test]
fn own_pages_api_clients_and_callbacks_are_accepted() {
    let server = Server::start(Options::default().with("CORS_ORIGINS", "https://app.example, http://localhost:3000"));
    let ana = server.owner();
    let key = api_keys::create_key(&ana);
    let own = format!("http://127.0.0.1:{}", server.port());
    let own_pages: [Headers<'_>; 7] = [
        &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")],
        &[("Origin", "https://app.example"), ("Sec-Fetch-Site", "cross-site")],
        &[("Origin", "HTTPS://App.Example:443")],
        &[("Origin", "http://localhost:3000"), ("Sec-Fetch-Site", "same-site")],
        &[("Sec-Fetch-Site", "same-origin")],
        &[("Sec-Fetch-Site", "none")],
        &[],
    ];
    let mut number = 0;
    let mut create_tag = |request: Request| {
        number += 1;
        request.json(&json!({ "name": format!("tag {number}") })).send()
    };
    for headers in own_pages {
        create_tag(with_headers(
            request_by_cookie(&server, &ana, "POST", "/api/tags"),
            headers,
        ))
        .created();
    }
    // A browser adds no bearer token and no API key by itself.
    for headers in CROSS_SITE {
        create_tag(with_headers(ana.request("POST", "/api/tags"), headers)).created();
        create_tag(with_headers(server.post("/api/tags").bearer(&key), headers)).created();
        let by_key = server.post("/api/tags").header("X-API-Key", &key);
        create_tag(with_headers(
            by_key.cookie(&format!("svc-session={}", ana.token)),
            headers,
        ))
        .created();
    }
    let plain = request_by_cookie(&server, &ana, "POST", "/api/tags").body("text/plain", "{\"name\":\"x\"}");
    plain.send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
    // WhatsApp's callback is authenticated by its signature. Its Origin header is ignored.
    let body = json!({ "object": "whatsapp_business_account", "entry": [] }).to_string();
    let signature = recado_simulators::whatsapp::signature(crate::harness::WHATSAPP_APP_SECRET, body.as_bytes());
    for headers in CROSS_SITE {
        let callback = server
            .post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signature);
        let callback = with_headers(callback.cookie(&format!("svc-session={}", ana.token)), headers);
        assert_eq!(callback.body("application/json", body.clone()).send().status, 200);
    }
}

#[test]
fn authentication_and_role_precede_the_origin_check() {
    let server = Server::new();
    let ana = server.owner();
    let viewer = server.member(&ana.account, "viewer");
    for headers in CROSS_SITE {
        let stranger = with_headers(server.post("/api/tags"), headers).json(&json!({ "name": "x" }));
        stranger.send().refused(401, "AUTH_ERROR");
        let viewer = with_headers(request_by_cookie(&server, &viewer, "POST", "/api/tags"), headers);
        viewer.json(&json!({ "name": "x" })).send().refused(401, "AUTH_ERROR");
    }
    until("no tag is stored", || server.db.count("FROM tags") == 0);
    let tags: Value = ana.get("/api/tags").ok()["data"].clone();
    assert_eq!(tags, json!([]));
}
