//! Who is a platform administrator, under both verifiers, and the rules about the age and the type of session tokens.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::admin::ROOT;
use crate::harness::process::SESSION_SECRET;
use crate::harness::users::{now, sign, sign_with};
use crate::harness::{Options, Server};
use crate::identity::{Provider, claims};

/// Whether a token administers: on a route of administrators, and in `is_admin`, which must agree.
#[track_caller]
fn is_admin(server: &Server, token: &str) -> bool {
    let route = server.get("/api/admin/stats").bearer(token).send();
    let accounts = server.get("/api/accounts").bearer(token).send();
    match route.status {
        200 => {
            assert_eq!(accounts.ok()["is_admin"], json!(true));
            true
        }
        _ => {
            route.refused(401, "AUTH_ERROR");
            assert!(accounts.status == 401 || accounts.ok()["is_admin"] == json!(false));
            false
        }
    }
}

/// Claims of a new user with these changes, with the issuer and audience of `Provider`.
fn changed(email: &str, email_verified: Value) -> Value {
    claims(json!({ "email": email, "email_verified": email_verified }))
}

#[test]
fn verified_address_is_required_as_the_verifier_demands() {
    let provider = Provider::start();
    let by_secret = Server::new();
    let by_keys = Server::start(provider.options());
    let trusting = Server::start(provider.options().with("SESSION_TRUST_EMAIL", "true"));
    let head = json!({ "alg": "ES256", "typ": "JWT", "kid": "e" });
    for (verified, secret, keys, trusted) in [
        (json!(true), true, true, true),
        (json!("true"), true, true, true),
        (json!(null), true, false, true),
        (json!(false), false, false, false),
        (json!("false"), false, false, false),
    ] {
        let listed = changed(ROOT, verified.clone());
        assert_eq!(is_admin(&by_secret, &sign(&listed)), secret, "secret {verified}");
        let token = provider.es256(&head, &listed);
        assert_eq!(is_admin(&by_keys, &token), keys, "keys {verified}");
        assert_eq!(is_admin(&trusting, &token), trusted, "trusted {verified}");
        let stranger = changed("bia@example.com", verified.clone());
        assert!(!is_admin(&by_secret, &sign(&stranger)));
        assert!(!is_admin(&trusting, &provider.es256(&head, &stranger)));
    }
}

#[test]
fn administrator_by_id_needs_no_address() {
    let (provider, id) = (Provider::start(), Uuid::new_v4());
    let ids = format!("{}, {id}", Uuid::new_v4());
    let by_secret = Server::start(Options::default().with("PLATFORM_ADMIN_IDS", &ids));
    let by_keys = Server::start(provider.options().with("PLATFORM_ADMIN_IDS", &ids));
    let head = json!({ "alg": "ES256", "kid": "e" });
    for verified in [json!(null), json!(true), json!(false)] {
        let listed = claims(json!({ "sub": id, "email": "any@example.com", "email_verified": verified }));
        assert!(is_admin(&by_secret, &sign(&listed)), "secret {verified}");
        assert!(is_admin(&by_keys, &provider.es256(&head, &listed)), "keys {verified}");
    }
    let other = claims(json!({ "email": "any@example.com", "email_verified": true }));
    assert!(!is_admin(&by_secret, &sign(&other)));
    assert!(!is_admin(&by_keys, &provider.es256(&head, &other)));
}

#[test]
fn unverified_address_has_no_session() {
    let server = Server::new();
    let token = sign(&changed("bia@example.com", json!(false)));
    server
        .get("/api/accounts")
        .bearer(&token)
        .send()
        .refused(401, "AUTH_ERROR");
    assert_eq!(server.db.count("FROM users"), 0);
}

#[test]
fn administrator_address_is_compared_by_ascii_case() {
    let server = Server::start(Options::default().with("PLATFORM_ADMIN_EMAILS", "Kim@Example.com"));
    let token = |email: &str| sign(&changed(email, json!(null)));
    assert!(is_admin(&server, &token("KIM@example.COM")));
    assert!(!is_admin(&server, &token("\u{212a}im@example.com")));
}

#[test]
fn administrator_must_have_signed_in_recently() {
    let server = Server::start(Options::default().with("PLATFORM_ADMIN_MAX_AGE", "10m"));
    let token = |changes: Value| {
        let mut claims = claims(changes);
        claims["email"] = json!(ROOT);
        sign(&claims)
    };
    let old = now() - 700;
    for (changes, recent) in [
        (json!({}), true),
        (json!({ "auth_time": now() - 60, "iat": old }), true),
        (json!({ "auth_time": old }), false),
        (json!({ "iat": old }), false),
        (json!({ "iat": null }), false),
    ] {
        let token = token(changes.clone());
        let reply = server.get("/api/admin/stats").bearer(&token).send();
        // Routes of other kinds need no recent sign-in, and the user is an administrator all the same.
        let listed = server.get("/api/accounts").bearer(&token).send().ok();
        assert_eq!(listed["is_admin"], json!(true), "{changes}");
        match recent {
            true => drop(reply.ok()),
            false => {
                let error = reply.refused(401, "AUTH_ERROR");
                assert!(error["message"].as_str().unwrap().contains("sign in again"), "{error}");
            }
        }
    }
}

#[test]
fn session_is_refused_beyond_its_maximum_age() {
    let server = Server::start(Options::default().with("SESSION_MAX_AGE", "1h"));
    let status = |changes: Value| {
        let token = sign(&claims(changes));
        server.get("/api/accounts").bearer(&token).send().status
    };
    let year = now() + 365 * 86_400;
    assert_eq!(status(json!({ "exp": year })), 200);
    assert_eq!(status(json!({ "exp": year, "iat": now() - 3500 })), 200);
    assert_eq!(status(json!({ "exp": year, "iat": now() - 3610 })), 401);
    assert_eq!(status(json!({ "iat": null })), 401);
    assert_eq!(status(json!({ "iat": "x" })), 401);
    // A cached token ends at its maximum age, too.
    let token = sign(&claims(json!({ "exp": year, "iat": now() - 3598 })));
    let again = || server.get("/api/accounts").bearer(&token).send().status;
    crate::harness::until("the session is too old", || again() == 401);
}

#[test]
fn token_of_another_type_is_no_session() {
    let provider = Provider::start();
    let (by_secret, by_keys) = (Server::new(), Server::start(provider.options()));
    for (typ, accepted) in [
        (json!("JWT"), true),
        (json!("jwt"), true),
        (json!("at+JWT"), true),
        (json!("id+jwt"), false),
        (json!("secevent+jwt"), false),
        (json!(7), false),
    ] {
        let expected = if accepted { 200 } else { 401 };
        let claims = claims(json!({}));
        let token = sign_with(&json!({ "alg": "HS256", "typ": typ }), &claims, SESSION_SECRET);
        assert_eq!(
            by_secret.get("/api/accounts").bearer(&token).send().status,
            expected,
            "{typ}"
        );
        let token = provider.es256(&json!({ "alg": "ES256", "kid": "e", "typ": typ }), &claims);
        assert_eq!(
            by_keys.get("/api/accounts").bearer(&token).send().status,
            expected,
            "{typ}"
        );
    }
}

#[test]
fn unchecked_issuer_and_audience_are_warned_about_once() {
    let provider = Provider::start();
    let warnings = |server: &Server, variable: &str| {
        let log = server.log();
        let lines = log
            .lines()
            .filter(|line| line.contains(variable) && line.contains("WARN"));
        lines.count()
    };
    let options = || {
        Options::default()
            .with("SESSION_JWT_SECRET", "")
            .with("SESSION_JWKS_URL", provider.key_set())
    };
    let unset = Server::start(options());
    assert_eq!(warnings(&unset, "SESSION_JWT_ISSUER is not set"), 1);
    assert_eq!(warnings(&unset, "SESSION_JWT_AUDIENCE is not set"), 1);
    let half = Server::start(options().with("SESSION_JWT_ISSUER", "https://id.example/auth/v1"));
    assert_eq!(warnings(&half, "SESSION_JWT_ISSUER is not set"), 0);
    assert_eq!(warnings(&half, "SESSION_JWT_AUDIENCE is not set"), 1);
    assert_eq!(warnings(&Server::new(), "is not set: tokens"), 0);
}
