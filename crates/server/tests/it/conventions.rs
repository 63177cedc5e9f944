//! HTTP conventions of all routes: HEAD, entity tags, locations, caching, content codings, challenges.

use std::collections::BTreeMap;
use std::io::Read as _;

use actix_web::http::Method;
use flate2::read::GzDecoder;
use recado_api::routes::{Access, Content, RouteSpec, TABLE};
use serde_json::{Value, json};

use crate::harness::client::{Reply, Request};
use crate::harness::users::User;
use crate::harness::{Server, text};
use crate::matrix::{create_resources, is_account, label, resource_path};

/// The headers of a response that do not belong to this request alone.
fn lasting_headers(reply: &Reply) -> BTreeMap<String, String> {
    let headers = reply.headers.iter().filter(|(name, _)| {
        let name = name.as_str();
        !["date", "x-request-id", "retry-after"].contains(&name) && !name.starts_with("x-ratelimit-re")
    });
    headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect()
}

fn reads() -> impl Iterator<Item = &'static RouteSpec> {
    TABLE
        .iter()
        .filter(|spec| spec.method == Method::GET && (is_account(spec) || !spec.path.contains("{id}")))
}

#[test]
fn head_answers_as_get_without_a_body() {
    let server = Server::new();
    let ana = server.owner();
    let resources = create_resources(&ana);
    for spec in reads() {
        let path = match is_account(spec) {
            true => resource_path(spec, &resources),
            false => spec.path.to_owned(),
        };
        let ask = |method: &str| match spec.access {
            Access::Public => server.request(method, &path).send(),
            _ => ana.request(method, &path).send(),
        };
        let (get, head) = (ask("GET"), ask("HEAD"));
        assert_eq!(head.text, "", "{}", label(spec));
        assert_eq!(
            (head.status, lasting_headers(&head)),
            (get.status, lasting_headers(&get)),
            "{}",
            label(spec)
        );
    }
    // An id that does not exist, a missing session, and a path without GET.
    assert_eq!(ana.request("HEAD", "/api/contacts/7").send().status, 422);
    assert_eq!(server.request("HEAD", "/api/contacts").send().status, 401);
    let refused = server.request("HEAD", "/api/accounts/switch").send();
    assert_eq!((refused.status, refused.header("allow")), (405, Some("POST")));
}

fn etag(reply: &Reply) -> String {
    reply.header("etag").map(str::to_owned).unwrap_or_default()
}

#[test]
fn unchanged_row_is_not_modified() {
    let server = Server::new();
    let ana = server.owner();
    let resources = create_resources(&ana);
    let tagged = reads().filter(|spec| spec.has_entity_tag() && is_account(spec));
    let mut seen = 0;
    for spec in tagged {
        let path = resource_path(spec, &resources);
        let first = ana.request("GET", &path).send();
        let tag = etag(&first);
        assert!(
            tag.starts_with('"') && tag.ends_with('"') && tag.len() > 2,
            "{}: {tag}",
            label(spec)
        );
        let again = |known: &str| ana.request("GET", &path).header("If-None-Match", known).send();
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
            let unchanged = again(&known);
            assert_eq!(
                (unchanged.status, unchanged.text.as_str()),
                (304, ""),
                "{}",
                label(spec)
            );
            assert_eq!(etag(&unchanged), tag);
            assert!(unchanged.header("x-request-id").is_some());
        }
        assert_eq!(again("\"x\"").status, 200);
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
    for path in ["/api/billing/plans", "/api/openapi.json", "/docs", "/docs/start.js"] {
        let tag = etag(&server.get(path).send());
        let again = server.get(path).header("If-None-Match", &tag).send();
        assert_eq!((again.status, etag(&again)), (304, tag), "{path}");
    }
}

#[test]
fn changed_row_has_another_entity_tag() {
    let server = Server::new();
    let ana = server.owner();
    let path = format!("/api/contacts/{}", ana.contact("Ana", "+5511961111111"));
    let before = etag(&ana.get(&path));
    ana.put(&path, json!({ "name": "Bia" })).ok();
    let changed = ana.request("GET", &path).header("If-None-Match", &before).send();
    assert_ne!(etag(&changed), before);
    assert_eq!(changed.ok()["name"], "Bia");
    let missing = ana.get("/api/contacts/0190a1b2-0000-7000-8000-000000000000");
    assert_eq!(missing.header("etag"), None);
}

#[test]
fn new_row_has_its_path_in_location() {
    let server = Server::new();
    let ana = server.owner();
    for (path, body) in [
        ("/api/contacts", json!({ "name": "Ana", "phone": "+5511961111111" })),
        ("/api/segments", json!({ "name": "Clientes" })),
        ("/api/campaigns", json!({ "name": "Natal" })),
        (
            "/api/templates",
            json!({ "name": "natal", "category": "MARKETING", "language": "pt_BR", "template_type": "standard", "body_text": "Oi" }),
        ),
        (
            "/api/webhooks",
            json!({ "name": "Loja", "url": "https://loja.example/hook", "events": ["*"] }),
        ),
    ] {
        let create = || {
            let request = ana.request("POST", path).header("Idempotency-Key", path);
            request.json(&body).send()
        };
        for reply in [create(), create()] {
            let location = reply.header("location").map(str::to_owned);
            let made = reply.created();
            let location = location.unwrap_or_else(|| panic!("{path} has no location"));
            assert_eq!(location, format!("{path}/{}", text(&made["id"])));
            assert_eq!(ana.get(&location).ok()["id"], made["id"]);
        }
    }
    let tag = ana.post("/api/tags", json!({ "name": "vip" }));
    assert_eq!(tag.header("location"), None, "a tag has no GET");
}

#[test]
fn caching_is_private_and_forbidden_for_secrets() {
    let server = Server::new();
    let ana = server.owner();
    let vary = "Authorization, Cookie, X-Account-Id, X-API-Key, Accept-Encoding";
    for reply in [ana.get("/api/contacts"), ana.post("/api/contacts", json!({}))] {
        assert_eq!(reply.header("cache-control"), Some("private, no-cache"));
        assert_eq!(reply.header("vary"), Some(vary));
    }
    assert_eq!(
        server.get("/api/contacts").send().header("cache-control"),
        Some("no-store")
    );
    assert_eq!(
        server.get("/api/billing/plans").send().header("cache-control"),
        Some("no-cache")
    );
    let secrets = TABLE.iter().filter(|spec| spec.content == Content::Secret);
    let secrets: Vec<&str> = secrets.map(|spec| spec.path).collect();
    assert_eq!(
        secrets,
        [
            "/api/team/invites",
            "/api/api-keys",
            "/api/api-keys/{id}/rotate",
            "/api/webhooks",
            "/api/webhooks/{id}/rotate-secret"
        ]
    );
    let key = json!({ "name": "x".repeat(100), "scopes": ["contacts:read"] });
    for _ in 0..2 {
        let request = ana.request("POST", "/api/api-keys").header("Idempotency-Key", "key");
        let reply = request.header("Accept-Encoding", "gzip").json(&key).send();
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("content-encoding"), None);
        assert!(reply.created()["full_key"].is_string());
    }
}

fn listed(ana: &User<'_>, path: &str, accepted: &str) -> Request {
    ana.request("GET", path).header("Accept-Encoding", accepted)
}

#[test]
fn long_text_is_compressed_as_the_client_accepts() {
    let server = Server::new();
    let ana = server.owner();
    let attributes = json!({ "note": "Cliente desde 2019. ".repeat(100) });
    let contact = json!({ "name": "Ana", "phone": "+5511961111111", "attributes": attributes });
    let id = text(&ana.post("/api/contacts", contact).created()["id"]);
    let path = format!("/api/contacts/{id}");
    let (status, headers, plain) = ana.request("GET", &path).send_raw();
    assert_eq!((status, headers.get("content-encoding")), (200, None));
    let tag = headers["etag"].to_str().unwrap().to_owned();
    for (accepted, coding) in [
        ("gzip", Some("gzip")),
        ("br", Some("br")),
        ("gzip;q=0.5, br;q=0.9", Some("br")),
        ("br;q=0.5, gzip;q=0.9", Some("gzip")),
        ("gzip;q=0, br;q=0", None),
        ("identity", None),
        ("deflate", None),
    ] {
        let (status, headers, body) = listed(&ana, &path, accepted).send_raw();
        let found = headers.get("content-encoding").map(|value| value.to_str().unwrap());
        assert_eq!((status, found), (200, coding), "{accepted}");
        let Some(coding) = coding else {
            assert_eq!(body, plain, "{accepted}");
            continue;
        };
        assert!(body.len() < plain.len() / 2, "{accepted}");
        let coded = format!("{}-{coding}\"", tag.trim_end_matches('"'));
        assert_eq!(headers["etag"], coded.as_str());
        if coding == "gzip" {
            let mut unpacked = Vec::new();
            GzDecoder::new(body.as_slice()).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, plain);
        }
        let known = listed(&ana, &path, accepted).header("If-None-Match", &coded).send();
        assert_eq!(known.status, 304);
    }
    let short = ana.post("/api/tags", json!({ "name": "vip" })).created();
    assert!(short.to_string().len() < 1024);
    let (_, headers, body) = listed(&ana, "/api/tags", "gzip").send_raw();
    assert_eq!(headers.get("content-encoding"), None);
    assert!(serde_json::from_slice::<Value>(&body).is_ok());
    let (_, headers, _) = listed(&ana, "/api/accounts", "gzip").send_raw();
    assert_eq!(headers.get("content-encoding"), None, "a session route");
    let request = server
        .post("/api/tags")
        .bearer(&ana.token)
        .header("Content-Encoding", "gzip");
    request
        .json(&json!({ "name": "x" }))
        .send()
        .refused(415, "UNSUPPORTED_MEDIA_TYPE");
}

#[test]
fn refused_credentials_get_a_challenge() {
    let server = Server::new();
    let ana = server.owner();
    let invalid = "Bearer realm=\"recado\", error=\"invalid_token\"";
    for (request, expected) in [
        (server.get("/api/contacts"), "Bearer realm=\"recado\""),
        (server.get("/api/contacts").bearer("x"), invalid),
        (server.get("/api/contacts").bearer("svc_live_sk_unknown"), invalid),
        (server.get("/api/admin/stats").bearer("x"), invalid),
    ] {
        let reply = request.send();
        assert_eq!(reply.header("www-authenticate"), Some(expected));
        reply.refused(401, "AUTH_ERROR");
    }
    assert_eq!(ana.get("/api/contacts").header("www-authenticate"), None);
}
