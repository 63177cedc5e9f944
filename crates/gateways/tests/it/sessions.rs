//! Tokens good and bad, against a provider that publishes keys.

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
use secrecy::SecretString;
use serde_json::{Value, json};
use time::OffsetDateTime;

const NOW: i64 = 1_767_323_045;
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A clock that is set by hand.
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

impl Hand {
    fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// A provider's key.
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

    fn published(&self, kid: &str) -> Value {
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
    }
}

fn key_set(keys: &[Value]) -> Reply {
    Reply::http("200 OK", json!({ "keys": keys }).to_string())
}

/// A provider, a verifier that asks it, and the verifier's clock.
fn rig(reply: Reply) -> (RawServer, Arc<JwksVerifier>, Arc<Hand>) {
    let server = RawServer::replying(vec![reply]).unwrap();
    let clock = Arc::new(Hand(AtomicI64::new(NOW)));
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
async fn every_algorithm_of_the_list_proves_a_session() {
    let signers = [Signer::rsa(), Signer::ec(), Signer::ed()];
    let published: Vec<Value> = signers
        .iter()
        .zip(["a", "b", "c"])
        .map(|(key, kid)| key.published(kid))
        .collect();
    let (server, verifier, _) = rig(key_set(&published));
    for (signer, kid) in signers.iter().zip(["a", "b", "c"]) {
        let session = verifier.verify(&signer.token(Some(kid), json!({}))).await.unwrap();
        assert_eq!(
            (session.email.as_str(), session.name.as_deref()),
            ("ana@example.com", Some("Ana"))
        );
        assert_eq!(session.expires_at.unix_timestamp(), NOW + 3600);
        // Each is the only key of its kind, so that no name is needed.
        assert!(verifier.verify(&signer.token(None, json!({}))).await.is_ok());
    }
    assert_eq!(server.heads().len(), 1);
    assert!(server.heads()[0].starts_with("GET /.well-known/jwks.json "));
}

#[tokio::test]
async fn claims_that_speak_against_a_token_refuse_it() {
    let signer = Signer::ec();
    let (_server, verifier, _) = rig(key_set(&[signer.published("a")]));
    for bad in [
        json!({ "aud": "other" }),
        json!({ "iss": "https://other.example" }),
        json!({ "exp": NOW - 2 }),
        json!({ "exp": (NOW + 3600).to_string() }),
        json!({ "nbf": (NOW - 1).to_string() }),
        json!({ "nbf": NOW + 60 }),
        json!({ "role": "service_role" }),
    ] {
        let result = verifier.verify(&signer.token(Some("a"), bad.clone())).await;
        assert!(is_invalid(&result), "{bad}: {result:?}");
    }
}

#[tokio::test]
async fn forged_tokens_are_refused() {
    let (rsa, ec) = (Signer::rsa(), Signer::ec());
    let (server, verifier, _) = rig(key_set(&[rsa.published("r"), ec.published("e")]));
    let public = RSA.public_key().as_ref().to_vec();
    let modulus = rsa.published("r")["n"].as_str().unwrap().to_owned();
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
    // The token's own key, and an address of one: neither is looked at.
    let brought = Header {
        jwk: Some(serde_json::from_value(foreign.published("e")).unwrap()),
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
            encode(&brought, &claims(json!({})), &foreign.key).unwrap(),
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
    for (what, token) in forged {
        let result = verifier.verify(&token).await;
        assert!(is_invalid(&result), "{what}: {result:?}");
    }
    assert!(verifier.verify(&good).await.is_ok());
    assert_eq!(server.heads().len(), 1, "none of them is worth a second fetch");
}

#[tokio::test]
async fn a_flood_of_unknown_keys_fetches_once_a_minute() {
    let signer = Signer::ec();
    let (server, verifier, clock) = rig(key_set(&[signer.published("a")]));
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
    assert_eq!(server.heads().len(), 2, "together they wait for one fetch");
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
async fn a_new_key_is_found_and_a_withdrawn_one_ceases_to_count() {
    let (old, new) = (Signer::ec(), Signer::ed());
    let (server, verifier, clock) = rig(key_set(&[old.published("old")]));
    let (by_old, by_new) = (old.token(Some("old"), json!({})), new.token(Some("new"), json!({})));
    assert!(verifier.verify(&by_old).await.is_ok());
    // That the keys were just fetched for the first time keeps nobody out.
    server.answer(key_set(&[old.published("old"), new.published("new")]));
    assert!(verifier.verify(&by_new).await.is_ok());
    assert!(verifier.verify(&by_old).await.is_ok());
    assert_eq!(server.heads().len(), 2);
    // Ten minutes on, the keys are looked at again, beside the token that showed their age.
    server.answer(key_set(&[new.published("new")]));
    clock.advance(600);
    assert!(verifier.verify(&by_old).await.is_ok());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !is_invalid(&verifier.verify(&by_old).await) {
        assert!(std::time::Instant::now() < deadline, "the withdrawn key still counts");
        tokio::task::yield_now().await;
    }
    assert!(verifier.verify(&by_new).await.is_ok());
    assert_eq!(server.heads().len(), 3);
}

#[tokio::test]
async fn while_the_provider_is_down_the_old_keys_count() {
    let signer = Signer::ec();
    let (server, verifier, clock) = rig(key_set(&[signer.published("a")]));
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
    assert_eq!(server.heads().len(), 6, "every fault was met");
}

#[tokio::test]
async fn without_any_keys_nothing_can_be_said() {
    let signer = Signer::ec();
    let (server, verifier, _) = rig(Reply::http("503 Service Unavailable", ""));
    let good = signer.token(Some("a"), json!({}));
    for _ in 0..3 {
        assert!(matches!(
            verifier.verify(&good).await,
            Err(SessionError::Unavailable(_))
        ));
    }
    assert_eq!(server.heads().len(), 1);
    let never = verifier
        .verify(&unsigned(&json!({ "alg": "none" }), &claims(json!({}))))
        .await;
    assert!(is_invalid(&never), "that much can be said");
}

#[tokio::test]
async fn first_key_fetch_is_repeated_with_exponential_backoff() {
    let signer = Signer::ec();
    let (server, verifier, clock) = rig(Reply::http("503 Service Unavailable", ""));
    let good = signer.token(Some("a"), json!({}));
    assert!(verifier.verify(&good).await.is_err());
    for (fetches, pause) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
        clock.advance(pause - 1);
        assert!(verifier.verify(&good).await.is_err());
        assert_eq!(
            server.heads().len(),
            fetches + 1,
            "no fetch before {pause} s have passed"
        );
        clock.advance(1);
        assert!(verifier.verify(&good).await.is_err());
        assert_eq!(server.heads().len(), fetches + 2, "a fetch after {pause} s");
    }
    server.answer(key_set(&[signer.published("a")]));
    clock.advance(30);
    assert!(verifier.verify(&good).await.is_ok());
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_take_the_fetch_along() {
    let signer = Signer::ec();
    let (server, verifier, _) = rig(key_set(&[signer.published("a")]));
    let good = signer.token(Some("a"), json!({}));
    // Polled once, so that the fetch has begun, then dropped.
    let mut gone = verifier.verify(&good);
    assert!(futures_util::poll!(&mut gone).is_pending());
    drop(gone);
    assert!(verifier.verify(&good).await.is_ok());
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn one_secret_proves_hs256_alone() {
    let clock = Arc::new(Hand(AtomicI64::new(NOW)));
    let made = |secret: &str| Hs256Verifier::new(&SecretString::from(secret), expected(), clock.clone());
    assert!(made("too short").is_err_and(|error| !error.contains("too short")));
    let verifier = made(SECRET).unwrap();
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
    for (what, bad) in [
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
        assert!(is_invalid(&verifier.verify(&bad).await), "{what}");
    }
    clock.advance(3601);
    assert!(verifier.verify(&good).await.is_ok(), "within the leeway");
    clock.advance(1);
    assert!(is_invalid(&verifier.verify(&good).await));
}
