//! TLS to Redis, mail and HTTP services with a private authority (`SSL_CERT_FILE`), and what is refused without it.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use recado_simulators::certificates::{Authority, Identity};
use recado_simulators::smtp::{OfferedTls, Smtp, SmtpOptions};
use recado_testkit::services::{ReservedPort, find};
use serde_json::json;

use crate::harness::process::{Process, environment};
use crate::harness::scrape::scrape;
use crate::harness::tls::{Files, Recorder};
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, until};
use crate::limiter::assert_thirty_pass;

const LOOPBACK: &str = "127.0.0.1";

/// An authority, its file, and a certificate of this machine.
struct Private {
    authority_file: String,
    identity: Identity,
    files: Files,
}

fn private() -> Private {
    let (authority, files) = (Authority::new().unwrap(), Files::new());
    Private {
        authority_file: files.write("ca.pem", &authority.pem()),
        identity: authority.issue(&[LOOPBACK]).unwrap(),
        files,
    }
}

/// A Redis server that takes TLS alone; killed when dropped.
struct TlsRedis {
    child: Child,
    port: ReservedPort,
}

impl TlsRedis {
    fn start(private: &Private) -> Self {
        let port = ReservedPort::new().unwrap();
        let certificate = private.files.write("redis.crt", &private.identity.certificate_pem);
        let key = private.files.write("redis.key", &private.identity.key_pem);
        let binary = find::redis_or_install().unwrap();
        let child = Command::new(binary)
            .args([
                "--port",
                "0",
                "--tls-port",
                &port.number().to_string(),
                "--bind",
                LOOPBACK,
            ])
            .args(["--tls-cert-file", &certificate, "--tls-key-file", &key])
            .args([
                "--tls-ca-cert-file",
                &private.authority_file,
                "--tls-auth-clients",
                "no",
            ])
            .args(["--save", "", "--appendonly", "no", "--requirepass", "hunter2"])
            .current_dir(std::env::temp_dir())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("Redis listens", || TcpStream::connect(port.address()).is_ok());
        Self { child, port }
    }

    fn url(&self) -> String {
        format!("rediss://:hunter2@{}", self.port.address())
    }
}

impl Drop for TlsRedis {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn limits_are_counted_over_rediss() {
    let private = private();
    let redis = TlsRedis::start(&private);
    let options = Options::default()
        .with("REDIS_URL", redis.url())
        .with("SSL_CERT_FILE", &*private.authority_file)
        .with_metrics();
    let server = Server::start(options);
    assert_eq!(
        scrape(server.metrics_port()).sum("recado_tls", &["target=\"redis\""]),
        Some(1.0)
    );
    let sibling = server.sibling();
    assert_thirty_pass(&server, &[server.port(), sibling.port()]);
}

#[test]
fn redis_with_an_untrusted_certificate_counts_nothing() {
    let private = private();
    let redis = TlsRedis::start(&private);
    let server = Server::start(Options::default().with("REDIS_URL", redis.url()));
    let ana = server.owner();
    for _ in 0..3 {
        let reply = ana.post("/api/campaigns", json!({}));
        assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (422, None));
    }
    let log = server.log();
    assert!(
        log.contains("requests are not counted") && !log.contains("hunter2"),
        "{log}"
    );
}

#[test]
fn redis_url_with_a_fragment_stops_the_start() {
    let mut env = environment("postgres://postgres@127.0.0.1:9/none", "http://127.0.0.1:9/v25.0");
    env.push(("REDIS_URL", "rediss://:hunter2@127.0.0.1:9/#insecure".to_owned()));
    let mut process = Process::start(&["serve"], &env);
    assert_eq!(process.wait(), Some(1));
    let log = process.log();
    assert!(log.contains("REDIS_URL") && !log.contains("hunter2"), "{log}");
}

fn smtp(tls: OfferedTls) -> Smtp {
    let options = SmtpOptions::default();
    Smtp::start(SmtpOptions { tls, ..options }).unwrap()
}

fn invite(owner: &User<'_>, email: &str) {
    let body = json!({ "email": email, "role": "member" });
    owner.post("/api/team/invites", body).created();
}

#[test]
fn mail_is_delivered_over_starttls_and_smtps() {
    let private = private();
    let config = private.identity.server_config().unwrap();
    for (mail, scheme, parameter) in [
        (smtp(OfferedTls::StartTls(config.clone())), "smtp", "?tls=required"),
        (smtp(OfferedTls::Implicit(config.clone())), "smtps", ""),
    ] {
        let url = format!("{scheme}://mailer:hunter2@{LOOPBACK}:{}{parameter}", mail.port());
        let options = Options::default()
            .with("SMTP_URL", url)
            .with("SSL_CERT_FILE", &*private.authority_file)
            .with_metrics();
        let server = Server::start(options);
        invite(&server.owner(), "bia@example.com");
        let mails = eventually("the mail arrives", || {
            Some(mail.mails()).filter(|mails| !mails.is_empty())
        });
        assert!(mails[0].encrypted && mails[0].to == ["bia@example.com"], "{mails:?}");
        let plaintext = mail.plaintext();
        let is_before_tls = |line: &String| line.starts_with("EHLO") || line == "STARTTLS";
        assert!(plaintext.iter().all(is_before_tls), "{plaintext:?}");
        assert_eq!(
            scrape(server.metrics_port()).sum("recado_tls", &["target=\"smtp\""]),
            Some(1.0)
        );
    }
}

#[test]
fn mail_is_not_sent_without_a_trusted_tls_server() {
    let private = private();
    let config = private.identity.server_config().unwrap();
    for mail in [smtp(OfferedTls::StartTls(config)), smtp(OfferedTls::None)] {
        let url = format!("smtp://mailer:hunter2@{LOOPBACK}:{}?tls=required", mail.port());
        let server = Server::start(Options::default().with("SMTP_URL", url));
        invite(&server.owner(), "bia@example.com");
        until("sending failed", || {
            mail.attempts() > 0 && server.db.count("FROM outgoing_mail WHERE attempts > 0") == 1
        });
        drop(server);
        assert!(mail.mails().is_empty());
        let plaintext = mail.plaintext();
        let leaks = |line: &String| line.starts_with("AUTH") || line.contains('@');
        assert!(!plaintext.iter().any(leaks), "{plaintext:?}");
    }
}

#[test]
fn mail_without_tls_stays_the_default_on_loopback() {
    let mail = smtp(OfferedTls::None);
    let url = mail.url().replace("smtp://", "smtp://mailer:hunter2@");
    let server = Server::start(Options::default().with("SMTP_URL", url));
    invite(&server.owner(), "bia@example.com");
    let mails = eventually("the mail arrives", || {
        Some(mail.mails()).filter(|mails| !mails.is_empty())
    });
    assert!(!mails[0].encrypted);
}

#[test]
fn private_authority_is_trusted_by_http_clients() {
    let private = private();
    let response = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"keys\":[]}";
    // A token of an unknown key makes the server fetch the key set.
    let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJhIn0.AAAA";
    for (trusts, expected) in [(true, true), (false, false)] {
        let provider = Recorder::with_tls(&private.identity, false, response);
        let mut options = Options::default().with("SESSION_JWT_SECRET", "");
        options = options.with(
            "SESSION_JWKS_URL",
            format!("https://{LOOPBACK}:{}/jwks", provider.port()),
        );
        if trusts {
            options = options.with("SSL_CERT_FILE", &*private.authority_file);
        }
        let server = Server::start(options);
        let reply = server.get("/api/contacts").bearer(token).send();
        until("the key set is requested", || provider.connections() > 0);
        assert_eq!(reply.status, if trusts { 401 } else { 503 }, "{}", reply.text);
        let received = String::from_utf8(provider.received()).unwrap();
        assert_eq!(received.starts_with("GET /jwks HTTP/1.1"), expected, "{received}");
    }
}

#[test]
fn plain_http_to_another_host_stops_the_start() {
    let base = environment("postgres://postgres@127.0.0.1:9/none", "https://graph.example/v25.0");
    let refused = |name: &'static str, value: &str| {
        let mut env = base.clone();
        env.extend([(name, value.to_owned()), ("MEDIA_STORE_URL", "s3://bucket".to_owned())]);
        let mut process = Process::start(&["serve"], &env);
        assert_eq!(process.wait(), Some(1), "{name}");
        let log = process.log();
        assert!(
            log.contains(&format!("{name} must be an https URL")) && log.contains("PLAINTEXT_HOSTS"),
            "{log}"
        );
    };
    for name in [
        "WHATSAPP_API_URL",
        "PAYMENT_GATEWAY_URL",
        "AI_API_URL",
        "AWS_ENDPOINT_URL",
    ] {
        refused(name, "http://service.example:9000/v1");
    }
    let mut env = base.clone();
    env.extend(
        [
            "WHATSAPP_API_URL",
            "PAYMENT_GATEWAY_URL",
            "AI_API_URL",
            "AWS_ENDPOINT_URL",
        ]
        .map(|name| (name, "http://service.example:9000/v1".to_owned())),
    );
    env.extend([
        ("PLAINTEXT_HOSTS", "other.example, service.example".to_owned()),
        ("MEDIA_STORE_URL", "s3://bucket".to_owned()),
    ]);
    let mut process = Process::start(&["serve"], &env);
    until("the server listens", || process.log().contains("listening"));
    assert_eq!(process.stop(), Some(0));
}

#[test]
fn password_for_mail_in_clear_text_stops_the_start() {
    let mut env = environment("postgres://postgres@127.0.0.1:9/none", "http://127.0.0.1:9/v25.0");
    env.push(("SMTP_URL", "smtp://mailer:hunter2@mail.example?tls=none".to_owned()));
    let mut process = Process::start(&["serve"], &env);
    assert_eq!(process.wait(), Some(1));
    let log = process.log();
    assert!(
        log.contains("SMTP_URL has a password and ?tls=none") && !log.contains("hunter2"),
        "{log}"
    );
}
