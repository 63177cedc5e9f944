//! Tests of session verification with valid and forged tokens, against a provider that publishes keys.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use recado_domain::accounts::{Session, SessionError, SessionVerifier};
use recado_domain::shared::Clock;
use recado_gateways::http::Http;
use recado_gateways::sessions::{Expected, Hs256Verifier, JwksVerifier};
use recado_simulators::raw::{RawServer, Reply};
use recado_testkit::DEADLINE;
use secrecy::SecretString;
use serde_json::{Value, json};
use time::OffsetDateTime;

const NOW: i64 = 1_767_323_045;
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A clock that the test advances.
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

impl ManualClock {
    fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// A signing key of the provider.
struct Signer {
    algorithm: Algorithm,
    key: EncodingKey,
}

static RSA: LazyLock<RsaKeyPair> = LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap());

impl Signer {
    fn rsa() -> Self {
        let der = AsDer::<Pkcs8V1Der<'static>>::as_der(&*RSA).unwrap();
        let pem = format!(
            "-----BEGIN {0}-----\n{1}\n-----END {0}-----",
            "PRIVATE KEY",
            STANDARD.encode(der.as_ref())
        );
        Self {
            algorithm: Algorithm::RS256,
            key: EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap(),
        }
    }

    fn ec() -> Self {
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        Self {
            algorithm: Algorithm::ES256,
            key: EncodingKey::from_ec_der(der.as_ref()),
        }
    }

    fn ed() -> Self {
        let der = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
        Self {
            algorithm: Algorithm::EdDSA,
            key: EncodingKey::from_ed_der(der.as_ref()),
        }
    }

    fn public_jwk(&self, kid: &str) -> Value {
        let mut jwk = json!(Jwk::from_encoding_key(&self.key, self.algorithm).unwrap());
        jwk["kid"] = json!(kid);
        jwk["use"] = json!("sig");
        jwk
    }

    fn token(&self, kid: Option<&str>, changes: Value) -> String {
        let header = Header {
            kid: kid.map(str::to_owned),
            ..Header::new(self.algorithm)
        };
        encode(&header, &claims(changes), &self.key).unwrap()
    }
}

fn claims(changes: Value) -> Value {
    let mut claims = json!({ "iss": "https://id.example/auth/v1", "aud": "authenticated", "exp": NOW + 3600,
        "sub": "0334744a-f2a2-4aba-8c8a-6e748f62a172", "email": "ana@example.com", "name": "Ana" });
    for (key, value) in changes.as_object().unwrap() {
        claims[key] = value.clone();
    }
    claims
}

fn expected() -> Expected {
    Expected {
        issuer: Some("https://id.example/auth/v1".into()),
        audience: Some("authenticated".into()),
        max_age: None,
    }
}

fn key_set(keys: &[Value]) -> Reply {
    Reply::http("200 OK", json!({ "keys": keys }).to_string())
}

/// Starts a provider, and returns it with a verifier that uses it and the verifier's clock.
fn start_provider(reply: Reply) -> (RawServer, Arc<JwksVerifier>, Arc<ManualClock>) {
    let server = RawServer::replying(vec![reply]).unwrap();
    let clock = Arc::new(ManualClock(AtomicI64::new(NOW)));
    let url = format!("{}/.well-known/jwks.json", server.origin());
    let verifier = JwksVerifier::new(Http::new().unwrap(), &url, expected(), clock.clone()).unwrap();
    (server, Arc::new(verifier), clock)
}

fn is_invalid(result: &Result<Session, SessionError>) -> bool {
    matches!(result, Err(SessionError::Invalid))
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.", part(header), part(claims))
}

#[tokio::test]
async fn token_of_every_accepted_algorithm_is_verified() {
    let signers = [Signer::rsa(), Signer::ec(), Signer::ed()];
    let key_list: Vec<Value> = signers
        .iter()
        .zip(["a", "b", "c"])
        .map(|(key, kid)| key.public_jwk(kid))
        .collect();
    let (server, verifier, _) = start_provider(key_set(&key_list));
    for (signer, kid) in signers.iter().zip(["a", "b", "c"]) {
        let session = verifier.verify(&signer.token(Some(kid), json!({}))).await.unwrap();
        assert_eq!(
            (session.email.as_str(), session.name.as_deref()),
            ("ana@example.com", Some("Ana"))
        );
        assert_eq!(session.expires_at.unix_timestamp(), NOW + 3600);
        // Each is the only key of its algorithm, so the token needs no `kid`.
        assert!(verifier.verify(&signer.token(None, json!({}))).await.is_ok());
    }
    assert_eq!(server.heads().len(), 1);
    assert!(server.heads()[0].starts_with("GET /.well-known/jwks.json "));
}

#[tokio::test]
async fn token_with_invalid_claim_is_rejected() {
    let signer = Signer::ec();
    let (_server, verifier, _) = start_provider(key_set(&[signer.public_jwk("a")]));
    for invalid in [
        json!({ "aud": "other" }),
        json!({ "iss": "https://other.example" }),
        json!({ "exp": NOW - 2 }),
        json!({ "exp": (NOW + 3600).to_string() }),
        json!({ "nbf": (NOW - 1).to_string() }),
        json!({ "nbf": NOW + 60 }),
        json!({ "role": "service_role" }),
    ] {
        let result = verifier.verify(&signer.token(Some("a"), invalid.clone())).await;
        assert!(is_invalid(&result), "{invalid}: {result:?}");
    }
}

#[tokio::test]
async fn forged_token_is_rejected() {
    let (rsa, ec) = (Signer::rsa(), Signer::ec());
    let (server, verifier, _) = start_provider(key_set(&[rsa.public_jwk("r"), ec.public_jwk("e")]));
    let public = RSA.public_key().as_ref().to_vec();
    let modulus = rsa.public_jwk("r")["n"].as_str().unwrap().to_owned();
    let header = |algorithm| Header {
        kid: Some("r".into()),
        ..Header::new(algorithm)
    };
    let hmac = |secret: &[u8]| {
        encode(
            &header(Algorithm::HS256),
            &claims(json!({})),
            &EncodingKey::from_secret(secret),
        )
        .unwrap()
    };
    let foreign = Signer::ec();
    // A key and a key URL in the token's header: the verifier ignores both.
    let with_own_key = Header {
        jwk: Some(serde_json::from_value(foreign.public_jwk("e")).unwrap()),
        jku: Some(format!("{}/mine.json", server.origin())),
        kid: Some("e".into()),
        ..Header::new(Algorithm::ES256)
    };
    let good = ec.token(Some("e"), json!({}));
    let mut critical = Header {
        kid: Some("e".into()),
        ..Header::new(Algorithm::ES256)
    };
    critical.crit = Some(vec!["exp".into()]);
    let forged = [
        (
            "alg none",
            unsigned(&json!({ "alg": "none", "kid": "r" }), &claims(json!({}))),
        ),
        (
            "no signature",
            unsigned(&json!({ "alg": "ES256", "kid": "e" }), &claims(json!({}))),
        ),
        ("hmac with the public key", hmac(&public)),
        ("hmac with the modulus", hmac(modulus.as_bytes())),
        ("another algorithm than the key's", ec.token(Some("r"), json!({}))),
        ("another key", foreign.token(Some("e"), json!({}))),
        (
            "its own key",
            encode(&with_own_key, &claims(json!({})), &foreign.key).unwrap(),
        ),
        (
            "critical extensions",
            encode(&critical, &claims(json!({})), &ec.key).unwrap(),
        ),
        (
            "RS512",
            encode(&header(Algorithm::RS512), &claims(json!({})), &rsa.key).unwrap(),
        ),
        ("cut off", good.chars().take(good.len() - 4).collect()),
        (
            "too long",
            ec.token(Some("e"), json!({ "padding": "x".repeat(16 * 1024) })),
        ),
        ("nothing", "..".into()),
    ];
    for (case, token) in forged {
        let result = verifier.verify(&token).await;
        assert!(is_invalid(&result), "{case}: {result:?}");
    }
    assert!(verifier.verify(&good).await.is_ok());
    assert_eq!(server.heads().len(), 1, "no forged token causes a second fetch");
}

#[tokio::test]
async fn flood_of_unknown_keys_fetches_once_per_minute() {
    let signer = Signer::ec();
    let (server, verifier, clock) = start_provider(key_set(&[signer.public_jwk("a")]));
    let flood = || async {
        let calls = (0..50).map(|number| {
            let (verifier, token) = (
                Arc::clone(&verifier),
                signer.token(Some(&format!("no-{number}")), json!({})),
            );
            async move { verifier.verify(&token).await }
        });
        assert!(join_all(calls).await.iter().all(is_invalid));
    };
    assert!(verifier.verify(&signer.token(Some("a"), json!({}))).await.is_ok());
    assert_eq!(server.heads().len(), 1);
    flood().await;
    assert_eq!(server.heads().len(), 2, "all requests wait for one fetch");
    clock.advance(59);
    flood().await;
    assert_eq!(server.heads().len(), 2);
    clock.advance(1);
    flood().await;
    assert_eq!(server.heads().len(), 3);
    assert!(verifier.verify(&signer.token(Some("a"), json!({}))).await.is_ok());
    assert_eq!(server.heads().len(), 3);
}

#[tokio::test]
async fn new_key_is_accepted_and_revoked_key_is_rejected() {
    let (old, new) = (Signer::ec(), Signer::ed());
    let (server, verifier, clock) = start_provider(key_set(&[old.public_jwk("old")]));
    let (by_old, by_new) = (old.token(Some("old"), json!({})), new.token(Some("new"), json!({})));
    assert!(verifier.verify(&by_old).await.is_ok());
    // The first fetch does not count for the interval, so the new key is fetched at once.
    server.answer(key_set(&[old.public_jwk("old"), new.public_jwk("new")]));
    assert!(verifier.verify(&by_new).await.is_ok());
    assert!(verifier.verify(&by_old).await.is_ok());
    assert_eq!(server.heads().len(), 2);
    // After ten minutes the next token starts a refresh in the background and is still accepted.
    server.answer(key_set(&[new.public_jwk("new")]));
    clock.advance(600);
    assert!(verifier.verify(&by_old).await.is_ok());
    let deadline = std::time::Instant::now() + DEADLINE;
    while !is_invalid(&verifier.verify(&by_old).await) {
        assert!(
            std::time::Instant::now() < deadline,
            "the revoked key is still accepted"
        );
        tokio::task::yield_now().await;
    }
    assert!(verifier.verify(&by_new).await.is_ok());
    assert_eq!(server.heads().len(), 3);
}

#[tokio::test]
async fn cached_keys_stay_valid_while_provider_is_down() {
    let signer = Signer::ec();
    let (server, verifier, clock) = start_provider(key_set(&[signer.public_jwk("a")]));
    let good = signer.token(Some("a"), json!({}));
    assert!(verifier.verify(&good).await.is_ok());
    let broken = [
        Reply::http("503 Service Unavailable", ""),
        Reply::http("200 OK", "<html>"),
        Reply::http("302 Found\r\nLocation: /x", ""),
        Reply::http("200 OK", format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(64 * 1024))),
        Reply::last(""),
    ];
    for reply in broken {
        server.answer(reply);
        clock.advance(60);
        assert!(is_invalid(&verifier.verify(&signer.token(Some("b"), json!({}))).await));
        assert!(verifier.verify(&good).await.is_ok());
    }
    assert_eq!(server.heads().len(), 6, "every fault was injected");
}

#[tokio::test]
async fn keys_that_are_not_refreshed_for_a_day_verify_nothing() {
    const DAY: i64 = 24 * 3600;
    let signer = Signer::ec();
    let (server, verifier, clock) = start_provider(key_set(&[signer.public_jwk("a")]));
    let good = signer.token(Some("a"), json!({ "exp": NOW + 10 * DAY }));
    let session = verifier.verify(&good).await.unwrap();
    assert_eq!(
        session.expires_at.unix_timestamp(),
        NOW + DAY,
        "a cached session ends with its keys"
    );
    server.answer(Reply::http("503 Service Unavailable", ""));
    clock.advance(DAY - 1);
    assert!(verifier.verify(&good).await.is_ok());
    clock.advance(1);
    let is_unavailable = async || matches!(verifier.verify(&good).await, Err(SessionError::Unavailable(_)));
    let deadline = std::time::Instant::now() + DEADLINE;
    while !is_unavailable().await {
        assert!(std::time::Instant::now() < deadline, "the old key still verifies");
    }
    // The next fetch that succeeds ends the outage.
    server.answer(key_set(&[signer.public_jwk("a")]));
    clock.advance(60);
    assert!(verifier.verify(&good).await.is_ok());
    // Keys that were not needed for a day are fetched before they are used.
    clock.advance(2 * DAY);
    assert!(verifier.verify(&good).await.is_ok());
}

#[tokio::test]
async fn token_of_another_type_is_rejected() {
    let signer = Signer::ec();
    let (_server, verifier, _) = start_provider(key_set(&[signer.public_jwk("a")]));
    let secret = SecretString::from(SECRET);
    let shared = Hs256Verifier::new(&secret, expected(), Arc::new(ManualClock(AtomicI64::new(NOW)))).unwrap();
    let token = |typ: Option<&str>, algorithm, key: &EncodingKey| {
        let header = Header {
            typ: typ.map(str::to_owned),
            kid: Some("a".into()),
            ..Header::new(algorithm)
        };
        encode(&header, &claims(json!({})), key).unwrap()
    };
    let by_secret = EncodingKey::from_secret(SECRET.as_bytes());
    for (typ, accepted) in [
        (None, true),
        (Some("JWT"), true),
        (Some("jwt"), true),
        (Some("at+jwt"), true),
        (Some("AT+JWT"), true),
        (Some("id+jwt"), false),
        (Some("logout+jwt"), false),
        (Some("application/jwt"), false),
        (Some(""), false),
    ] {
        let published = verifier.verify(&token(typ, Algorithm::ES256, &signer.key)).await;
        let symmetric = shared.verify(&token(typ, Algorithm::HS256, &by_secret)).await;
        for result in [published, symmetric] {
            assert_eq!(result.is_ok(), accepted, "{typ:?}: {result:?}");
            assert!(accepted || is_invalid(&result));
        }
    }
}

#[tokio::test]
async fn verifier_without_keys_is_unavailable() {
    let signer = Signer::ec();
    let (server, verifier, _) = start_provider(Reply::http("503 Service Unavailable", ""));
    let good = signer.token(Some("a"), json!({}));
    for _ in 0..3 {
        assert!(matches!(
            verifier.verify(&good).await,
            Err(SessionError::Unavailable(_))
        ));
    }
    assert_eq!(server.heads().len(), 1);
    let unsigned_result = verifier
        .verify(&unsigned(&json!({ "alg": "none" }), &claims(json!({}))))
        .await;
    assert!(
        is_invalid(&unsigned_result),
        "an unsigned token is invalid without any keys"
    );
}

#[tokio::test]
async fn first_key_fetch_is_repeated_with_exponential_backoff() {
    let signer = Signer::ec();
    let (server, verifier, clock) = start_provider(Reply::http("503 Service Unavailable", ""));
    let good = signer.token(Some("a"), json!({}));
    assert!(verifier.verify(&good).await.is_err());
    for (fetches, delay) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
        clock.advance(delay - 1);
        assert!(verifier.verify(&good).await.is_err());
        assert_eq!(
            server.heads().len(),
            fetches + 1,
            "no fetch before {delay} s have passed"
        );
        clock.advance(1);
        assert!(verifier.verify(&good).await.is_err());
        assert_eq!(server.heads().len(), fetches + 2, "a fetch after {delay} s");
    }
    server.answer(key_set(&[signer.public_jwk("a")]));
    clock.advance(30);
    assert!(verifier.verify(&good).await.is_ok());
}

#[tokio::test]
async fn dropped_verification_does_not_cancel_the_fetch() {
    let signer = Signer::ec();
    let (server, verifier, _) = start_provider(key_set(&[signer.public_jwk("a")]));
    let good = signer.token(Some("a"), json!({}));
    // Polled once, so that the fetch has started, then dropped.
    let mut dropped = verifier.verify(&good);
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    assert!(verifier.verify(&good).await.is_ok());
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn hs256_verifier_accepts_only_hs256() {
    let clock = Arc::new(ManualClock(AtomicI64::new(NOW)));
    let verifier_for = |secret: &str| Hs256Verifier::new(&SecretString::from(secret), expected(), clock.clone());
    assert!(verifier_for("too short").is_err_and(|error| !error.contains("too short")));
    let verifier = verifier_for(SECRET).unwrap();
    let signed = |algorithm, secret: &str, changes| {
        encode(
            &Header::new(algorithm),
            &claims(changes),
            &EncodingKey::from_secret(secret.as_bytes()),
        )
        .unwrap()
    };
    let good = signed(Algorithm::HS256, SECRET, json!({}));
    assert_eq!(verifier.verify(&good).await.unwrap().email, "ana@example.com");
    for (case, token) in [
        (
            "another secret",
            signed(Algorithm::HS256, &SECRET.replace('0', "1"), json!({})),
        ),
        ("HS512", signed(Algorithm::HS512, SECRET, json!({}))),
        ("alg none", unsigned(&json!({ "alg": "none" }), &claims(json!({})))),
        (
            "another issuer",
            signed(Algorithm::HS256, SECRET, json!({ "iss": "x" })),
        ),
        ("ES256", Signer::ec().token(None, json!({}))),
    ] {
        assert!(is_invalid(&verifier.verify(&token).await), "{case}");
    }
    clock.advance(3601);
    assert!(verifier.verify(&good).await.is_ok(), "within the leeway");
    clock.advance(1);
    assert!(is_invalid(&verifier.verify(&good).await));
}
