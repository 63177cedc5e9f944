//! Session tokens of an identity provider with a published key set (JWKS): forged tokens, invalid claims, oversized
//! tokens, and floods of unknown key ids while the provider is down.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use recado_simulators::raw::{RawServer, Reply};
use serde_json::{Value, json};
use sha2::Sha256;
use uuid::Uuid;

use crate::harness::client::connect;
use crate::harness::users::now;
use crate::harness::{Options, Server};

const ISSUER: &str = "https://id.example/auth/v1";
const AUDIENCE: &str = "authenticated";

/// An identity provider with an EC key, an RSA key and a server that publishes both.
pub struct Provider {
    server: RawServer,
    ec: EcdsaKeyPair,
    rsa: RsaKeyPair,
}

impl Provider {
    pub fn start() -> Self {
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let server = RawServer::replying(vec![]).unwrap();
        let provider = Self { server, ec, rsa };
        let keys = json!({ "keys": [provider.ec_key(), provider.rsa_key()] });
        provider.server.answer(Reply::http_last("200 OK", keys.to_string()));
        provider
    }

    /// Makes the key set respond with status 500 from now on.
    fn fail(&self) {
        self.server.answer(Reply::http_last("500 Down", ""));
    }

    pub fn key_set(&self) -> String {
        format!("{}/jwks.json", self.server.origin())
    }

    fn ec_key(&self) -> Value {
        let point = self.ec.public_key().as_ref();
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "kty": "EC", "crv": "P-256", "kid": "e", "use": "sig", "alg": "ES256",
                "x": encode(&point[1..33]), "y": encode(&point[33..65]) })
    }

    /// The RSA key as a JWK. `n` is the modulus inside the DER encoding, a sequence of modulus and exponent.
    fn rsa_key(&self) -> Value {
        let der = self.rsa.public_key().as_ref();
        json!({ "kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256", "e": "AQAB",
                "n": URL_SAFE_NO_PAD.encode(&der[9..265]) })
    }

    pub fn es256(&self, head: &Value, claims: &Value) -> String {
        let text = unsigned(head, claims);
        let signature = self.ec.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn rs256(&self, head: &Value, claims: &Value) -> String {
        let text = unsigned(head, claims);
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        self.rsa
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A valid session token with a new user id.
    fn session(&self) -> String {
        self.es256(&json!({ "alg": "ES256", "typ": "JWT", "kid": "e" }), &claims(json!({})))
    }

    fn fetches(&self) -> usize {
        self.server.requests().len()
    }

    pub fn options(&self) -> Options {
        Options::default()
            .with("SESSION_JWT_SECRET", "")
            .with("SESSION_JWKS_URL", self.key_set())
            .with("SESSION_JWT_ISSUER", ISSUER)
            .with("SESSION_JWT_AUDIENCE", AUDIENCE)
    }
}

fn unsigned(head: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", encode(head), encode(claims))
}

fn hs256(head: &Value, claims: &Value, secret: &[u8]) -> String {
    let text = unsigned(head, claims);
    let mac = Hmac::<Sha256>::new_from_slice(secret).unwrap().chain_update(&text);
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// Valid claims of a new user with these changes; `null` removes a claim.
pub fn claims(changes: Value) -> Value {
    let id = Uuid::new_v4();
    let mut claims = json!({ "sub": id, "email": format!("{}@example.com", id.simple()), "iss": ISSUER,
                             "aud": AUDIENCE, "exp": now() + 3600, "iat": now() });
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

fn status(server: &Server, token: &str) -> u16 {
    server.get("/api/accounts").bearer(token).send().status
}

#[track_caller]
fn assert_refused(server: &Server, what: &str, token: &str) {
    for request in [
        server.get("/api/accounts").bearer(token),
        server.get("/api/contacts").bearer(token),
        server.get("/api/accounts").cookie(&format!("svc-session={token}")),
    ] {
        let reply = request.send();
        assert_eq!(reply.status, 401, "{what}: {reply:?}");
        let error = reply.refused(401, "AUTH_ERROR");
        assert_eq!(error["details"], json!({}), "{what}");
    }
}

#[test]
fn forged_token_is_refused_and_its_urls_are_not_called() {
    let (provider, canary) = (Provider::start(), RawServer::replying(vec![]).unwrap());
    let server = Server::start(provider.options());
    let good = provider.session();
    assert_eq!(status(&server, &good), 200);
    let by_rsa = provider.rs256(&json!({ "alg": "RS256", "kid": "r" }), &claims(json!({})));
    assert_eq!(status(&server, &by_rsa), 200);

    let claims = claims(json!({}));
    for algorithm in ["none", "None", "NONE", "nOnE", "", "ES256K", "HS256"] {
        let head = json!({ "alg": algorithm, "kid": "e" });
        assert_refused(&server, algorithm, &format!("{}.", unsigned(&head, &claims)));
        assert_refused(&server, algorithm, &unsigned(&head, &claims));
    }
    let der = provider.rsa.public_key().as_ref();
    let pem = format!(
        "-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----\n",
        STANDARD.encode(der)
    );
    let (rsa, ec) = (provider.rsa_key(), provider.ec_key());
    let secrets: [&[u8]; 9] = [
        der,
        pem.as_bytes(),
        pem.trim().as_bytes(),
        &der[9..265],
        rsa["n"].as_str().unwrap().as_bytes(),
        provider.ec.public_key().as_ref(),
        ec["x"].as_str().unwrap().as_bytes(),
        &ec.to_string().into_bytes(),
        b"",
    ];
    for secret in secrets {
        for kid in ["r", "e"] {
            let head = json!({ "alg": "HS256", "typ": "JWT", "kid": kid });
            assert_refused(&server, "a public key as a secret", &hs256(&head, &claims, secret));
        }
    }
    refuse_keys_in_headers(&server, &provider, &canary);
    // Truncated, swapped and patched signatures.
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (_, rsa_signature) = by_rsa.rsplit_once('.').unwrap();
    for token in [
        format!("{signed}."),
        format!("{signed}.{rsa_signature}"),
        format!("{signed}.{signature}="),
        format!("{signed}.{}", &signature[..signature.len() - 2]),
        format!("{signed}.{signature}.{signature}"),
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
        good.replacen('.', "..", 1),
    ] {
        assert_refused(&server, "not what was signed", &token);
    }
    assert_eq!(
        provider.fetches(),
        2,
        "one fetch at the start and one for the first unknown key id"
    );
    assert!(provider.server.heads()[0].starts_with("GET /jwks.json "));
    assert_eq!(canary.connections(), 0, "the server called an address from a token");
    assert_eq!(status(&server, &good), 200);
}

/// Sends tokens whose header contains a key, the URL of a key set, or a key id that no key set can have.
fn refuse_keys_in_headers(server: &Server, provider: &Provider, canary: &RawServer) {
    let foreign = Provider::start();
    let address = format!("{}/jwks.json", canary.origin());
    let heads = [
        json!({ "jku": address }),
        json!({ "x5u": address }),
        json!({ "jku": foreign.key_set() }),
        json!({ "jwk": foreign.ec_key() }),
        json!({ "x5c": [STANDARD.encode(b"certificate")] }),
        json!({ "jku": address, "x5u": address, "jwk": foreign.ec_key(), "crit": ["jku"] }),
        json!({ "kid": "../../../../dev/null" }),
        json!({ "kid": "..\\..\\windows\\win.ini" }),
        json!({ "kid": "' UNION SELECT 'x' --" }),
        json!({ "kid": "e' OR '1'='1" }),
        json!({ "kid": address }),
        json!({ "kid": "e\u{0}" }),
        json!({ "kid": "" }),
        json!({ "kid": "k".repeat(10_000) }),
        json!({ "kid": 7 }),
        json!({ "kid": ["e"] }),
        json!({ "kid": { "e": "e" } }),
        json!({ "b64": false, "crit": ["b64"] }),
        json!({ "zip": "DEF", "crit": ["zip"] }),
    ];
    for extra in heads {
        let mut head = json!({ "alg": "ES256", "typ": "JWT", "kid": "e" });
        head.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_refused(server, &extra.to_string(), &foreign.es256(&head, &claims(json!({}))));
    }
    assert_eq!(foreign.fetches(), 0, "the foreign key set was fetched");
    // With a valid signature these header fields change nothing.
    let head = json!({ "alg": "ES256", "kid": "e", "jku": address, "x5u": address, "jwk": foreign.ec_key() });
    assert_eq!(status(server, &provider.es256(&head, &claims(json!({})))), 200);
}

#[test]
fn token_with_invalid_claims_is_refused() {
    let provider = Provider::start();
    let server = Server::start(provider.options());
    let head = json!({ "alg": "ES256", "kid": "e" });
    assert_eq!(status(&server, &provider.es256(&head, &claims(json!({})))), 200);
    let (now, later) = (now(), now() + 3600);
    for wrong in [
        json!({ "iss": "https://evil.example" }),
        json!({ "iss": format!("{ISSUER}/") }),
        json!({ "iss": [ISSUER] }),
        json!({ "iss": null }),
        json!({ "aud": "other" }),
        json!({ "aud": ["other", "another"] }),
        json!({ "aud": [] }),
        json!({ "aud": null }),
        json!({ "exp": later.to_string() }),
        json!({ "exp": now - 60 }),
        json!({ "exp": 0 }),
        json!({ "exp": -1 }),
        json!({ "exp": true }),
        json!({ "exp": [later] }),
        json!({ "exp": 1e300 }),
        json!({ "exp": later * 1000 * 1000 }),
        json!({ "exp": null }),
        json!({ "nbf": later }),
        json!({ "nbf": (now - 60).to_string() }),
        json!({ "nbf": {} }),
        json!({ "sub": null }),
        json!({ "sub": "not-a-uuid" }),
        json!({ "sub": "' OR 1=1 --" }),
        json!({ "email": null }),
        json!({ "email": ["a@example.com"] }),
        json!({ "email": "" }),
        json!({ "role": "service_role" }),
    ] {
        assert_refused(
            &server,
            &wrong.to_string(),
            &provider.es256(&head, &claims(wrong.clone())),
        );
    }
    for good in [
        json!({ "aud": ["other", AUDIENCE] }),
        json!({ "nbf": now - 60 }),
        json!({ "exp": f64::from(u32::try_from(later).unwrap()) + 0.5 }),
    ] {
        assert_eq!(
            status(&server, &provider.es256(&head, &claims(good.clone()))),
            200,
            "{good}"
        );
    }
    assert_eq!(server.db.count("FROM users"), 4);
}

/// Sends a request with this header and returns the response status. `None`: the connection closed without a response.
fn raw(port: u16, name: &str, value: &str) -> Option<u16> {
    let mut stream = connect(port);
    let request = format!("GET /api/accounts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}: {value}\r\n\r\n");
    // The server may close the connection before it has read the whole request.
    stream.write_all(request.as_bytes()).ok();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok();
    String::from_utf8_lossy(&response).split(' ').nth(1)?.parse().ok()
}

#[test]
fn oversized_token_is_refused_without_memory_growth() {
    let provider = Provider::start();
    let server = Server::start(provider.options());
    assert_eq!(status(&server, &provider.session()), 200);
    let before = server.memory();
    for bytes in [17 * 1024, 60 * 1024, 100 * 1024] {
        let padded = claims(json!({ "padding": "x".repeat(bytes * 3 / 4) }));
        let token = provider.es256(&json!({ "alg": "ES256", "kid": "e" }), &padded);
        assert_eq!(
            raw(server.port(), "Authorization", &format!("Bearer {token}")),
            Some(401),
            "{bytes}"
        );
        assert_eq!(
            raw(server.port(), "Cookie", &format!("svc-session={token}")),
            Some(401),
            "{bytes}"
        );
    }
    for _ in 0..8 {
        let token = "x".repeat(1 << 20);
        for (name, value) in [
            ("Authorization", format!("Bearer {token}")),
            ("Cookie", format!("svc-session={token}")),
        ] {
            let status = raw(server.port(), name, &value);
            // None: the server closed the connection early, and the response was lost with it.
            assert!(matches!(status, None | Some(400 | 401 | 431)), "{name}: {status:?}");
        }
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 32 * 1024 * 1024, "{grown} bytes more");
    assert_eq!(status(&server, &provider.session()), 200);
}

/// Sends one request on an open connection, reads the whole response and returns its status.
fn exchange(stream: &mut TcpStream, token: &str) -> u16 {
    write!(
        stream,
        "GET /api/accounts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    .unwrap();
    let mut response = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed: {}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let mut lengths = head
            .lines()
            .filter_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
        if lengths
            .next_back()
            .is_some_and(|length| body.len() >= length.parse::<usize>().unwrap())
        {
            return text.split(' ').nth(1).unwrap().parse().unwrap();
        }
    }
}

/// Sends `tokens` tokens with unknown key ids over several connections, and repeats `meanwhile` until they are done.
/// Returns the number of responses of each status.
fn flood(port: u16, tokens: usize, meanwhile: impl Fn()) -> Vec<(u16, usize)> {
    const THREADS: usize = 4;
    let (running, statuses) = (AtomicUsize::new(THREADS), Mutex::new(std::collections::BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut stream = connect(port);
                stream.set_nodelay(true).unwrap();
                for _ in 0..tokens / THREADS {
                    // Long key ids make a cache of unknown ids visible in the memory.
                    let kid = format!("{}{}", Uuid::new_v4(), "k".repeat(11_000));
                    let head = json!({ "alg": "ES256", "kid": kid });
                    let token = format!(
                        "{}.{}",
                        unsigned(&head, &claims(json!({}))),
                        URL_SAFE_NO_PAD.encode([7; 64])
                    );
                    let status = exchange(&mut stream, &token);
                    *statuses.lock().unwrap().entry(status).or_default() += 1;
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while running.load(Ordering::SeqCst) > 0 {
            meanwhile();
        }
    });
    statuses.into_inner().unwrap().into_iter().collect()
}

/// The most key set fetches since `began`: one at the start, one for the first unknown key id, five with exponential
/// backoff (1, 2, 4, 8, 16 s), then one per 30 s.
fn max_fetches(began: Instant) -> usize {
    2 + 5 + usize::try_from(began.elapsed().as_secs() / 30).unwrap()
}

#[test]
fn unknown_key_flood_leaves_known_sessions_working() {
    let provider = Provider::start();
    let server = Server::start(provider.options());
    let known_session = provider.session();
    let began = Instant::now();
    assert_eq!(status(&server, &known_session), 200);
    provider.fail();
    flood(server.port(), 200, || assert_eq!(status(&server, &known_session), 200));
    let before = server.memory();
    let statuses = flood(server.port(), 2400, || {
        // A cached token, and a new token signed with a cached key.
        assert_eq!(status(&server, &known_session), 200);
        assert_eq!(status(&server, &provider.session()), 200);
    });
    assert_eq!(statuses, [(401, 2400)]);
    assert!(
        provider.fetches() <= max_fetches(began),
        "{} fetches in {:?}",
        provider.fetches(),
        began.elapsed()
    );
    let grown = server.memory().saturating_sub(before);
    assert!(
        grown < 16 * 1024 * 1024,
        "{grown} bytes more after 2400 tokens of 15 KiB"
    );
}

#[test]
fn unknown_key_flood_without_jwks_returns_503_and_few_fetches() {
    let provider = Provider::start();
    provider.fail();
    let server = Server::start(provider.options());
    let began = Instant::now();
    let statuses = flood(server.port(), 1000, || {
        // An unsigned token is refused without a key.
        let none = format!("{}.", unsigned(&json!({ "alg": "none" }), &claims(json!({}))));
        assert_eq!(status(&server, &none), 401);
        server.get("/healthz").send().ok();
    });
    assert_eq!(statuses, [(503, 1000)], "without keys no token can be verified");
    assert!(
        provider.fetches() <= max_fetches(began),
        "{} fetches in {:?}",
        provider.fetches(),
        began.elapsed()
    );
    assert_eq!(server.db.count("FROM users"), 0);
}
