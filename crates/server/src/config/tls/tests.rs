//! Tests of `DATABASE_TLS`, `DATABASE_TLS_CA`, `SSL_CERT_FILE` and of what is warned about.

use std::collections::HashMap;
use std::path::PathBuf;

use recado_simulators::certificates::Authority;

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<OutgoingTls, ConfigError> {
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    OutgoingTls::read(&|name| variables.get(name).map(|&value| value.to_owned()))
}

fn database(url: &str, others: &[(&str, &str)]) -> Result<TlsMode, ConfigError> {
    let mut variables = vec![("DATABASE_URL", url)];
    variables.extend_from_slice(others);
    read(&variables).map(|tls| tls.database.mode())
}

fn file(name: &str, content: &str) -> String {
    let path: PathBuf = std::env::temp_dir().join(format!("recado-config-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn database_tls_defaults_to_verify_full_except_on_loopback() {
    for (url, expected) in [
        ("postgres://u:p@localhost:5432/r", TlsMode::Off),
        ("postgres://u:p@127.0.0.1/r?sslmode=prefer", TlsMode::Off),
        ("postgres://u@%2Fvar%2Frun%2Fpostgresql/r", TlsMode::Off),
        ("postgres://u:p@db.example/r", TlsMode::VerifyFull),
        ("postgres://u:p@localhost,db.example/r", TlsMode::VerifyFull),
        ("postgres://u:p@10.0.0.5/r?sslmode=verify-full", TlsMode::VerifyFull),
        // A stricter sslmode counts.
        ("postgres://u:p@localhost/r?sslmode=require", TlsMode::Require),
        ("postgres://u:p@localhost/r?sslmode=verify-full", TlsMode::VerifyFull),
    ] {
        assert_eq!(database(url, &[]), Ok(expected), "{url}");
    }
    let remote = "postgres://u:p@db.example/r";
    for mode in ["off", "require", "verify-ca", "verify-full"] {
        assert_eq!(database(remote, &[("DATABASE_TLS", mode)]).unwrap().as_str(), mode);
    }
    let tenant = ("TENANT_DATABASE_URL", "postgres://t:p@db.example/r");
    assert_eq!(
        database("postgres://u:p@localhost/r", &[tenant]),
        Ok(TlsMode::VerifyFull)
    );
}

#[test]
fn weaker_sslmode_is_refused() {
    for (sslmode, mode) in [
        ("disable", None),
        ("prefer", None),
        ("require", None),
        ("verify-ca", None),
        ("require", Some("verify-ca")),
        ("disable", Some("require")),
    ] {
        let url = format!("postgres://u:hunter2@db.example/r?sslmode={sslmode}");
        let others: Vec<_> = mode.map(|mode| ("DATABASE_TLS", mode)).into_iter().collect();
        let error = database(&url, &others).unwrap_err();
        assert_eq!(error.variable, "DATABASE_URL");
        let expected = format!("weaker than {}", mode.unwrap_or("verify-full"));
        assert!(error.problem.contains(&expected), "{error}");
        assert!(!error.problem.contains("hunter2"), "{error}");
    }
    let url = "postgres://u@db.example/r?sslmode=verify-full";
    assert_eq!(database(url, &[("DATABASE_TLS", "require")]), Ok(TlsMode::VerifyFull));
    let tenant = ("TENANT_DATABASE_URL", "postgres://t@db.example/r?sslmode=require");
    assert_eq!(database(url, &[tenant]).unwrap_err().variable, "TENANT_DATABASE_URL");
}

#[test]
fn malformed_tls_variables_are_named() {
    let url = "postgres://u@db.example/r";
    let broken = file("broken.pem", "no certificate");
    for (variable, value) in [
        ("DATABASE_TLS", "on"),
        ("DATABASE_TLS", "prefer"),
        ("DATABASE_TLS_CA", "/nowhere/ca.pem"),
        ("DATABASE_TLS_CA", &broken),
        ("SSL_CERT_FILE", "/nowhere/ca.pem"),
        ("SSL_CERT_FILE", &broken),
        ("DATABASE_URL", "postgres://u@db.example/r?sslmode=verify-all"),
        ("DATABASE_URL", "postgres://u@db.example/r?sslrootcert=/nowhere/ca.pem"),
    ] {
        let error = read(&[("DATABASE_URL", url), (variable, value)]).err().unwrap();
        assert_eq!(error.variable, variable, "{value}");
        assert!(!error.problem.contains("nowhere"), "{error}");
    }
}

#[test]
fn database_authority_comes_from_variable_or_url() {
    let (first, second) = (
        file("first.pem", &Authority::new().unwrap().pem()),
        file("second.pem", &Authority::new().unwrap().pem()),
    );
    let url = format!("postgres://u@db.example/r?sslrootcert={first}");
    assert_eq!(database(&url, &[]), Ok(TlsMode::VerifyFull));
    assert_eq!(database(&url, &[("DATABASE_TLS_CA", &first)]), Ok(TlsMode::VerifyFull));
    let error = database(&url, &[("DATABASE_TLS_CA", &second)]).unwrap_err();
    assert!(error.problem.contains("names another file"), "{error}");
    let system = "postgres://u@db.example/r?sslrootcert=system";
    assert_eq!(database(system, &[]), Ok(TlsMode::VerifyFull));
}

#[test]
fn ssl_cert_file_adds_one_authority() {
    let own = file("own.pem", &Authority::new().unwrap().pem());
    let url = ("DATABASE_URL", "postgres://u@localhost/r");
    let trusted = |others: &[(&str, &str)]| read(&[&[url], others].concat()).unwrap().authorities.roots().len();
    assert_eq!(trusted(&[("SSL_CERT_FILE", &own)]), trusted(&[]) + 1);
}

#[test]
fn weak_connections_are_warned_about() {
    let local = ("DATABASE_URL", "postgres://u@localhost/r");
    let remote = ("DATABASE_URL", "postgres://u@db.example/r");
    let warnings = |variables: &[(&str, &str)]| read(variables).unwrap().warnings;
    for (variables, expected) in [
        (vec![remote, ("DATABASE_TLS", "require")], "not verified"),
        (vec![remote, ("DATABASE_TLS", "off")], "PostgreSQL are not encrypted"),
        (
            vec![local, ("REDIS_URL", "redis://:p@redis.example")],
            "Redis are not encrypted",
        ),
        (
            vec![local, ("SMTP_URL", "smtp://mail.example?tls=none")],
            "without encryption",
        ),
        (
            vec![local, ("SMTP_URL", "smtp://mail.example?tls=opportunistic")],
            "without encryption",
        ),
    ] {
        let warnings = warnings(&variables);
        assert!(warnings.len() == 1 && warnings[0].contains(expected), "{warnings:?}");
    }
    for silent in [
        vec![local],
        vec![remote],
        vec![local, ("REDIS_URL", "redis://127.0.0.1:6379")],
        vec![local, ("REDIS_URL", "redis://[::1]:6379")],
        vec![local, ("REDIS_URL", "unix:///run/redis.sock")],
        vec![local, ("REDIS_URL", "rediss://redis.example")],
        vec![local, ("SMTP_URL", "smtp://u:p@mail.example")],
        vec![local, ("SMTP_URL", "smtp://localhost:25")],
    ] {
        assert_eq!(warnings(&silent), Vec::<String>::new(), "{silent:?}");
    }
}

#[test]
fn targets_are_the_configured_systems() {
    let tls = read(&[
        ("DATABASE_URL", "postgres://u@db.example/r"),
        ("REDIS_URL", "redis://127.0.0.1"),
        ("SMTP_URL", "smtps://mail.example"),
        ("WHATSAPP_API_URL", "https://graph.example/v25.0"),
        ("PAYMENT_GATEWAY_URL", "http://localhost:9000/v3"),
        ("MEDIA_STORE_URL", "s3://bucket"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"),
    ]);
    let expected = [
        ("postgres", true),
        ("redis", false),
        ("smtp", true),
        ("whatsapp", true),
        ("payment", false),
        ("storage", false),
    ];
    assert_eq!(tls.unwrap().targets, expected);
    let url = ("DATABASE_URL", "postgres://u@%2Frun%2Fpostgresql/r");
    let socket = read(&[url, ("DATABASE_TLS", "verify-full")]).unwrap();
    assert_eq!(socket.targets, [("postgres", false)]);
}
