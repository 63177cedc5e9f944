//! Tests of the egress client: which addresses it never connects to (SSRF protection).

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::header::HeaderMap;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use recado_domain::egress::{AllowList, Target, TargetRefusal};
use recado_gateways::egress::{Egress, EgressConfig, EgressError, EgressRequest, Resolver};
use recado_simulators::raw::{Acceptor, RawServer, Reply, closed_address};
use recado_testkit::DEADLINE;
use rustls::pki_types::PrivateKeyDer;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// A timeout that is expected to expire.
const SHORT: Duration = Duration::from_millis(500);

/// Stands for the public network: the only loopback address that these tests allow.
pub(crate) const OPEN: &str = "127.0.0.2";

/// A resolver with scripted answers.
#[derive(Default)]
pub(crate) struct Dns {
    answers: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    lookups: Mutex<Vec<String>>,
}

impl Dns {
    /// Sets the answers for a name, one per lookup. The last one is repeated.
    pub(crate) fn with_answers(self, name: &str, answers: &[&[&str]]) -> Self {
        let parse = |answer: &&[&str]| answer.iter().map(|ip| ip.parse().unwrap()).collect();
        let answers = answers.iter().map(parse).collect();
        self.answers.lock().unwrap().insert(name.to_owned(), answers);
        self
    }

    fn lookup_count(&self) -> usize {
        self.lookups.lock().unwrap().len()
    }
}

#[async_trait]
impl Resolver for Dns {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.lookups.lock().unwrap().push(name.to_owned());
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            match answers.get_mut(name) {
                Some(remaining) if remaining.len() > 1 => remaining.pop_front(),
                Some(remaining) => remaining.front().cloned(),
                None => None,
            }
        };
        match answer {
            // This name's server never responds.
            Some(answer) if answer.is_empty() && name.starts_with("silent") => std::future::pending().await,
            Some(answer) => Ok(answer),
            None => Err(io::Error::other("no such name")),
        }
    }
}

pub(crate) fn allow_list(networks: &[&str]) -> AllowList {
    let networks: Vec<_> = networks.iter().map(|network| network.parse().unwrap()).collect();
    networks.into()
}

pub(crate) fn config_and_dns(allow: &[&str], dns: Dns) -> (EgressConfig, Arc<Dns>) {
    let dns = Arc::new(dns);
    let config = EgressConfig {
        resolver: Arc::<Dns>::clone(&dns),
        connect_timeout: Duration::from_secs(2),
        ..EgressConfig::new(allow_list(allow))
    };
    (config, dns)
}

pub(crate) fn egress(allow: &[&str], dns: Dns) -> Egress {
    Egress::new(config_and_dns(allow, dns).0).unwrap()
}

/// Makes a GET and returns status and body.
async fn get(egress: &Egress, url: &str) -> Result<(u16, Bytes), EgressError> {
    let call = EgressRequest {
        method: Method::GET,
        target: Target::parse(url, egress.allow_list()).map_err(EgressError::Refused)?,
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let response = egress.call(call).await?;
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await.unwrap().to_bytes()))
}

fn corpus_entries(corpus: &'static str) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| match line.split_once(" => ") {
        Some((url, answers)) => (url, answers.split(", ").collect()),
        None => (line, vec![]),
    })
}

/// Adds a port to a URL; `None` if it already has one.
fn with_port(url: &str, port: u16) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let after = authority.rsplit_once(']').map_or(authority, |(_, after)| after);
    (!after.contains(':')).then(|| format!("{scheme}://{authority}:{port}{path}"))
}

/// The name that the client will resolve; `None` for an address or a malformed URL.
fn name_to_resolve(url: &str) -> Option<String> {
    let target = Target::parse(url, &allow_list(&["192.0.2.255"])).ok()?;
    target.address().is_none().then(|| target.host().to_owned())
}

#[tokio::test]
async fn egress_connects_to_no_url_of_the_hostile_corpus() {
    const HOSTILE: &str = include_str!("../../../domain/src/egress/corpus/hostile.txt");
    let canary = RawServer::replying_at("0.0.0.0:0", vec![Reply::http("200 OK", "caught")]).unwrap();
    let port = canary.port();
    let canary_v6 = RawServer::replying_at(&format!("[::1]:{port}"), vec![Reply::http("200 OK", "caught")]).unwrap();
    let mut attempts = 0;
    // With a non-empty allow list that allows nothing of the corpus, a name's port passes the URL check, so that its
    // addresses are checked.
    for allow in [&[][..], &["192.0.2.255"][..]] {
        for (url, answers) in corpus_entries(HOSTILE) {
            for url in [Some(url.to_owned()), with_port(url, port)].into_iter().flatten() {
                let dns = match name_to_resolve(&url) {
                    Some(name) => Dns::default().with_answers(&name, &[&answers]),
                    None => Dns::default(),
                };
                let result = get(&egress(allow, dns), &url).await;
                assert!(matches!(result, Err(EgressError::Refused(_))), "{url}: {result:?}");
                attempts += 1;
            }
        }
    }
    assert!(attempts > 900, "{attempts}");
    assert_eq!((canary.connections(), canary_v6.connections()), (0, 0));
    // A client that may call this machine reaches the same canaries.
    let unrestricted = egress(
        &["127.0.0.0/8", "::1"],
        Dns::default().with_answers("lvh.me", &[&["127.0.0.1"]]),
    );
    for url in ["http://0177.1/", "http://[::1]/", "http://lvh.me/", "http://１２７.1/"] {
        let (status, _) = get(&unrestricted, &with_port(url, port).unwrap()).await.unwrap();
        assert_eq!(status, 200, "{url}");
    }
    // Two of the URLs have the same host and share its connection.
    assert_eq!((canary.connections(), canary_v6.connections()), (2, 1));
}

#[tokio::test]
async fn egress_checks_rebound_name_and_resolves_once_per_connection() {
    let public = RawServer::replying_at(
        &format!("{OPEN}:0"),
        vec![Reply::http("200 OK\r\nConnection: close", "hello")],
    )
    .unwrap();
    let port = public.port();
    let canary = RawServer::replying_at(&format!("127.0.0.1:{port}"), vec![Reply::http("200 OK", "caught")]).unwrap();
    let (config, dns) = config_and_dns(
        &[OPEN],
        Dns::default().with_answers("rebound.example", &[&[OPEN], &["127.0.0.1"]]),
    );
    let egress = Egress::new(config).unwrap();
    let url = format!("http://rebound.example:{port}/");
    assert_eq!(get(&egress, &url).await.unwrap(), (200, Bytes::from("hello")));
    assert_eq!(
        (public.connections(), dns.lookup_count()),
        (1, 1),
        "one lookup serves the check and the connection"
    );
    for _ in 0..2 {
        let refused = get(&egress, &url).await;
        assert!(
            matches!(refused, Err(EgressError::Refused(TargetRefusal::Address))),
            "{refused:?}"
        );
    }
    assert_eq!((public.connections(), canary.connections()), (1, 0));
}

#[tokio::test]
async fn name_with_one_forbidden_address_is_refused() {
    let public = RawServer::replying_at(&format!("{OPEN}:0"), vec![Reply::http("200 OK", "hello")]).unwrap();
    let port = public.port();
    let canary = RawServer::replying_at(&format!("127.0.0.1:{port}"), vec![Reply::http("200 OK", "caught")]).unwrap();
    let dns = Dns::default()
        .with_answers("mixed.example", &[&[OPEN, "127.0.0.1"]])
        .with_answers("first.example", &[&["127.0.0.1", OPEN]])
        .with_answers("last.example", &[&[OPEN, OPEN, OPEN, OPEN, OPEN, "::ffff:127.0.0.1"]])
        .with_answers("none.example", &[&[]]);
    let egress = egress(&[OPEN], dns);
    for name in ["mixed", "first", "last"] {
        let refused = get(&egress, &format!("http://{name}.example:{port}/")).await;
        assert!(
            matches!(refused, Err(EgressError::Refused(TargetRefusal::Address))),
            "{name}: {refused:?}"
        );
    }
    for name in ["none", "unknown"] {
        let unknown = get(&egress, &format!("http://{name}.example:{port}/")).await;
        assert!(
            matches!(unknown, Err(EgressError::Resolution(_))),
            "{name}: {unknown:?}"
        );
    }
    assert_eq!((public.connections(), canary.connections()), (0, 0));
}

#[tokio::test]
async fn hanging_resolver_or_host_times_out() {
    let silent = RawServer::replying_at(&format!("{OPEN}:0"), vec![Reply::NoResponse]).unwrap();
    let port = silent.port();
    let refusing = closed_address(&format!("{OPEN}:0")).unwrap();
    let (config, _) = config_and_dns(&[OPEN], Dns::default().with_answers("silent.example", &[&[]]));
    let egress = Egress::new(EgressConfig {
        connect_timeout: SHORT,
        ..config
    })
    .unwrap();
    let started = Instant::now();
    let hung = get(&egress, "http://silent.example/").await;
    assert!(matches!(hung, Err(EgressError::Resolution(_))), "{hung:?}");
    let refused = get(&egress, &format!("http://{refusing}/")).await;
    assert!(matches!(refused, Err(EgressError::Connection(_))), "{refused:?}");
    // The server never responds to the TLS handshake.
    let hung = get(&egress, &format!("https://{OPEN}:{port}/")).await;
    assert!(matches!(hung, Err(EgressError::TimedOut)), "{hung:?}");
    assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
}

#[tokio::test]
async fn egress_tries_next_address_after_failure() {
    let server = RawServer::replying_at(&format!("{OPEN}:0"), vec![Reply::http("200 OK", "hello")]).unwrap();
    let dns = Dns::default().with_answers("two.example", &[&["127.0.0.3", OPEN]]);
    let egress = egress(&["127.0.0.2/31"], dns);
    let url = format!("http://two.example:{}/", server.port());
    assert_eq!(get(&egress, &url).await.unwrap().0, 200);
}

#[tokio::test]
async fn pooled_connection_serves_only_its_own_host() {
    let server = RawServer::replying_at(&format!("{OPEN}:0"), vec![Reply::http("200 OK", "")]).unwrap();
    let port = server.port();
    let dns = Dns::default()
        .with_answers("a.example", &[&[OPEN]])
        .with_answers("b.example", &[&[OPEN]]);
    let (config, dns) = config_and_dns(&[OPEN], dns);
    let egress = Egress::new(config).unwrap();
    for _ in 0..20 {
        get(&egress, &format!("http://a.example:{port}/x")).await.unwrap();
    }
    assert_eq!((server.connections(), dns.lookup_count()), (1, 1));
    get(&egress, &format!("http://b.example:{port}/x")).await.unwrap();
    get(&egress, &format!("http://{OPEN}:{port}/x")).await.unwrap();
    assert_eq!((server.connections(), dns.lookup_count()), (3, 2));
    let hosts: Vec<_> = server
        .heads()
        .iter()
        .skip(19)
        .map(|head| {
            head.to_lowercase()
                .split_once("host: ")
                .unwrap()
                .1
                .split("\r\n")
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        hosts,
        ["a.example", "b.example", OPEN].map(|host| format!("{host}:{port}"))
    );
}

/// Starts a TLS server with a self-signed certificate for one name, and returns a root store that trusts it.
fn secure_server(name: &str) -> (Acceptor, Arc<RootCertStore>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let mut authorities = RootCertStore::empty();
    authorities.add(cert.der().clone()).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let server = Acceptor::start(&format!("{OPEN}:0"), move |mut stream| {
        let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut tls = rustls::Stream::new(&mut connection, &mut stream);
        // A client that does not trust the certificate aborts the handshake.
        if tls.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
            let name = tls.conn.server_name().unwrap_or("none").to_owned();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            let _ = tls.write_all(response.as_bytes());
        }
    });
    (server.unwrap(), Arc::new(authorities))
}

#[tokio::test]
async fn certificate_must_match_the_host_of_the_url() {
    let (server, authorities) = secure_server("hooks.example");
    let port = server.address().port();
    let dns = Dns::default()
        .with_answers("hooks.example", &[&[OPEN]])
        .with_answers("other.example", &[&[OPEN]]);
    let (config, _) = config_and_dns(&[OPEN], dns);
    let egress = Egress::new(EgressConfig { authorities, ..config }).unwrap();
    for host in ["hooks.example", "HOOKS.example."] {
        let response = get(&egress, &format!("https://{host}:{port}/")).await.unwrap();
        assert_eq!(
            response,
            (200, Bytes::from("hooks.example")),
            "the response is the server name of the handshake (SNI)"
        );
    }
    for host in ["other.example", OPEN] {
        let refused = get(&egress, &format!("https://{host}:{port}/")).await;
        assert!(matches!(refused, Err(EgressError::Tls(_))), "{host}: {refused:?}");
    }
    // A client without this root store refuses the certificate.
    let dns = Dns::default().with_answers("hooks.example", &[&[OPEN]]);
    let refused = get(&self::egress(&[OPEN], dns), &format!("https://hooks.example:{port}/")).await;
    assert!(matches!(refused, Err(EgressError::Tls(_))), "{refused:?}");
}

#[tokio::test]
async fn system_resolver_resolves_localhost() {
    let resolver = recado_gateways::egress::SystemResolver::default();
    let found = resolver.resolve("localhost").await.unwrap();
    assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    assert!(resolver.resolve(&"a".repeat(64)).await.is_err());
}
