//! Session tokens: accepted forms, refused tokens, expiry, user records and administrators.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use crate::harness::process::SESSION_SECRET;
use crate::harness::users::{now, sign, sign_with};
use crate::harness::{Options, Server};

#[test]
fn invalid_session_token_is_refused() {
    let server = Server::new();
    let ana = server.stranger();
    let claims = json!({ "sub": ana.id, "email": ana.email, "exp": now() + 3600 });
    let head = json!({ "alg": "HS256", "typ": "JWT" });
    let none = sign_with(&json!({ "alg": "none" }), &claims, SESSION_SECRET);
    let unsigned = format!("{}.", none.rsplit_once('.').unwrap().0);
    let without = |claim: &str| {
        let mut claims = claims.clone();
        claims.as_object_mut().unwrap().remove(claim);
        sign(&claims)
    };
    let wrong = |claim: &str, value: serde_json::Value| {
        let mut claims = claims.clone();
        claims[claim] = value;
        sign(&claims)
    };
    let tokens = [
        String::from("garbage"),
        String::from("a.b.c"),
        sign_with(&head, &claims, "another-secret-of-at-least-32-bytes!"),
        sign_with(&json!({ "alg": "HS512" }), &claims, SESSION_SECRET),
        sign_with(&json!({ "alg": "RS256" }), &claims, SESSION_SECRET),
        none,
        unsigned,
        without("sub"),
        without("email"),
        without("exp"),
        wrong("exp", json!(now() - 3600)),
        wrong("nbf", json!(now() + 3600)),
        wrong("sub", json!("not-a-uuid")),
        wrong("email", json!(7)),
    ];
    for token in &tokens {
        server
            .get("/api/accounts")
            .bearer(token)
            .send()
            .refused(401, "AUTH_ERROR");
        let cookie = format!("svc-session={token}");
        server
            .get("/api/accounts")
            .cookie(&cookie)
            .send()
            .refused(401, "AUTH_ERROR");
        server
            .get("/api/contacts")
            .bearer(token)
            .send()
            .refused(401, "AUTH_ERROR");
    }
    server.get("/api/accounts").send().refused(401, "AUTH_ERROR");
    server
        .get("/api/accounts")
        .header("Authorization", "Bearer ")
        .send()
        .refused(401, "AUTH_ERROR");
    let basic = format!("Basic {}", ana.token);
    server
        .get("/api/accounts")
        .header("Authorization", &basic)
        .send()
        .refused(401, "AUTH_ERROR");
    assert_eq!(server.db.count("FROM users"), 0);
}

#[test]
fn session_ends_at_its_expiry() {
    let server = Server::new();
    let ana = server.stranger();
    let token = sign(&json!({ "sub": ana.id, "email": ana.email, "exp": now() + 2 }));
    let status = || server.get("/api/accounts").bearer(&token).send().status;
    assert_eq!(status(), 200);
    // The server caches verified tokens, but not beyond their expiry.
    crate::harness::until("the session is over", || status() == 401);
}

#[test]
fn session_is_read_from_every_header_and_cookie_form() {
    let server = Server::new();
    let ana = server.stranger();
    let session = json!({ "access_token": ana.token, "token_type": "bearer", "expires_in": 3600 }).to_string();
    let encoded = format!("base64-{}", URL_SAFE_NO_PAD.encode(session));
    let (first, second) = encoded.split_at(encoded.len() / 2);
    let (head, tail) = ana.token.split_at(40);
    let cookies = [
        format!("svc-session={}", ana.token),
        format!("other=1; svc-session={encoded}"),
        format!("svc-session.0={first}; svc-session.1={second}"),
        format!("svc-session.1={tail}; svc-session.0={head}"),
    ];
    for cookie in &cookies {
        server.get("/api/accounts").cookie(cookie).send().ok();
    }
    server.get("/api/accounts").bearer(&ana.token).send().ok();
    let lower = format!("bearer {}", ana.token);
    server.get("/api/accounts").header("Authorization", &lower).send().ok();
    let incomplete = format!("svc-session.0={first}");
    server
        .get("/api/accounts")
        .cookie(&incomplete)
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn first_request_stores_the_user_and_later_ones_update_it() {
    let server = Server::new();
    let ana = server.stranger();
    let row = || {
        server
            .db
            .rows(&format!("SELECT email, name FROM users WHERE id = '{}'", ana.id))
    };
    assert!(row().is_empty());
    ana.get("/api/accounts").ok();
    assert_eq!(row(), [[Some(ana.email.clone()), None]]);
    let renamed = sign(&json!({ "sub": ana.id, "email": "new@example.com", "name": "Ana", "exp": now() + 3600 }));
    server.get("/api/accounts").bearer(&renamed).send().ok();
    assert_eq!(row(), [[Some("new@example.com".to_owned()), Some("Ana".to_owned())]]);
}

#[test]
fn administrator_is_identified_by_email() {
    let server = Server::new();
    let is_admin = |email: &str| {
        let token = sign(&json!({ "sub": uuid::Uuid::new_v4(), "email": email, "exp": now() + 3600 }));
        server.get("/api/accounts").bearer(&token).send().ok()["is_admin"].clone()
    };
    assert_eq!(
        (is_admin("Root@Example.com"), is_admin("root@example.com.br")),
        (json!(true), json!(false))
    );
}

#[test]
fn session_issuer_and_audience_are_checked_if_configured() {
    let options = Options::default().with("SESSION_JWT_ISSUER", "https://idp.example");
    let server = Server::start(options.with("SESSION_JWT_AUDIENCE", "recado"));
    let status = |change: serde_json::Value| {
        let mut claims = json!({ "sub": uuid::Uuid::new_v4(), "email": "a@example.com", "exp": now() + 60,
                                 "iss": "https://idp.example", "aud": "recado" });
        claims
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        server.get("/api/accounts").bearer(&sign(&claims)).send().status
    };
    assert_eq!(status(json!({})), 200);
    assert_eq!(status(json!({ "aud": ["other", "recado"] })), 200);
    for wrong in [
        json!({ "iss": "https://evil.example" }),
        json!({ "aud": "other" }),
        json!({ "aud": null }),
        json!({ "iss": null }),
    ] {
        assert_eq!(status(wrong.clone()), 401, "{wrong}");
    }
}

#[test]
fn shared_secret_token_is_refused_with_published_keys() {
    let options = Options::default().with("SESSION_JWT_SECRET", "");
    let server = Server::start(options.with("SESSION_JWKS_URL", "http://127.0.0.1:9/jwks.json"));
    let ana = server.stranger();
    ana.get("/api/accounts").refused(401, "AUTH_ERROR");
    // The signature cannot be verified while the key set is unreachable.
    let claims = json!({ "sub": ana.id, "email": ana.email, "exp": now() + 60 });
    let token = sign_with(&json!({ "alg": "RS256", "kid": "1" }), &claims, SESSION_SECRET);
    let reply = server.get("/api/accounts").bearer(&token).send();
    assert!(reply.header("retry-after").is_some());
    reply.refused(503, "UNAVAILABLE");
}
