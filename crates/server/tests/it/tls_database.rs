//! TLS to PostgreSQL: a server that takes TLS alone, certificates that are not trusted, and servers without TLS.

use recado_simulators::certificates::Authority;

use crate::harness::cluster::Cluster;
use crate::harness::database::Database;
use crate::harness::process::{Process, command, environment};
use crate::harness::scrape::scrape;
use crate::harness::tls::{Files, Recorder};
use crate::harness::{Options, Server};

/// A name that is not a loopback name. `hostaddr` in the URL leads it to this machine.
const HOST: &str = "db.recado.example";
const PASSWORD: &str = "hunter2-of-the-database";

fn url(host: &str, port: u16, database: &str, parameters: &str) -> String {
    format!("postgres://postgres:{PASSWORD}@{host}:{port}/{database}?hostaddr=127.0.0.1{parameters}")
}

/// The environment of a server on this database.
fn env(url: &str, others: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let mut env = environment(url, "http://127.0.0.1:9/v25.0");
    env.extend(others.iter().map(|(name, value)| (*name, (*value).to_owned())));
    env
}

/// Starts a command that must refuse to start, and returns its output.
fn refusal(arguments: &[&str], env: &[(&'static str, String)]) -> String {
    let mut process = Process::start(arguments, env);
    let code = process.wait();
    let log = process.log();
    assert_eq!(code, Some(1), "{arguments:?}: {log}");
    assert!(!log.contains(PASSWORD), "{log}");
    log
}

/// A cluster with a database that takes TLS and passwords alone. The connection to the database is older than that.
fn encrypted_cluster(authority: &Authority, names: &[&str]) -> (Cluster, Database) {
    let cluster = Cluster::start();
    let database = cluster.database();
    database.run(&format!("ALTER ROLE postgres PASSWORD '{PASSWORD}'"));
    cluster.require_tls(&authority.issue(names).unwrap());
    (cluster, database)
}

#[test]
fn server_works_on_a_database_that_takes_tls_alone() {
    let (authority, files) = (Authority::new().unwrap(), Files::new());
    let (cluster, database) = encrypted_cluster(&authority, &[HOST]);
    let authority_file = files.write("ca.pem", &authority.pem());
    database.run("CREATE DATABASE empty");
    // verify-full is the default: the host is not a loopback host.
    let ca = ("DATABASE_TLS_CA", authority_file.as_str());
    let migrated = command(&["migrate"], &env(&url(HOST, cluster.port(), "empty", ""), &[ca])).output();
    assert!(migrated.as_ref().unwrap().status.success(), "{migrated:?}");

    let options = Options::default()
        .with("DATABASE_URL", url(HOST, cluster.port(), "recado", ""))
        .with("DATABASE_TLS_CA", &*authority_file)
        .with_metrics();
    let server = Server::start_on(database, &options);
    let ana = server.owner();
    let contact = ana.contact("Bia", "+5511987654321");
    assert_eq!(ana.get(&format!("/api/contacts/{contact}")).status, 200);
    let connections = |condition: &str| {
        server.db.count(&format!(
            "FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
             WHERE application_name LIKE 'recado%' AND {condition}"
        ))
    };
    assert!(connections("ssl") > 3, "{}", connections("ssl"));
    assert_eq!(connections("NOT ssl"), 0);
    assert_eq!(
        scrape(server.metrics_port()).sum("recado_tls", &["target=\"postgres\""]),
        Some(1.0)
    );

    let parameters = format!("&sslmode=verify-full&sslrootcert={authority_file}");
    let verify = url(HOST, cluster.port(), "recado", &parameters);
    let rollups = command(&["rollups", "verify"], &env(&verify, &[])).output().unwrap();
    assert!(rollups.status.success(), "{rollups:?}");
    // The database refuses a login without TLS, so the commands above used it.
    let plain = env(&url(HOST, cluster.port(), "recado", ""), &[("DATABASE_TLS", "off")]);
    let refused = refusal(&["migrate"], &plain);
    assert!(refused.contains("no encryption"), "{refused}");
}

#[test]
fn untrusted_certificate_stops_the_start() {
    let (authority, files) = (Authority::new().unwrap(), Files::new());
    let (cluster, _database) = encrypted_cluster(&authority, &[HOST]);
    let own = files.write("ca.pem", &authority.pem());
    let foreign = files.write("foreign.pem", &Authority::new().unwrap().pem());
    let at = |host: &str| url(host, cluster.port(), "recado", "");
    let assert_refused = |host: &str, others: &[(&'static str, &str)], reason: &str| {
        for command in ["serve", "worker", "migrate"] {
            let log = refusal(&[command], &env(&at(host), others));
            let address = format!("{host}:{}", cluster.port());
            assert!(log.contains(&address) && log.contains(reason), "{command}: {log}");
        }
    };
    let not_signed = "not signed by a trusted authority";
    assert_refused(HOST, &[("DATABASE_TLS_CA", &foreign)], not_signed);
    assert_refused(HOST, &[], not_signed);
    // DATABASE_TLS_CA replaces the other authorities.
    assert_refused(
        HOST,
        &[("DATABASE_TLS_CA", &foreign), ("SSL_CERT_FILE", &own)],
        not_signed,
    );
    assert_refused(
        HOST,
        &[("DATABASE_TLS_CA", &foreign), ("DATABASE_TLS", "verify-ca")],
        not_signed,
    );
    let other_name = format!("for another name: {HOST}");
    assert_refused("other.recado.example", &[("DATABASE_TLS_CA", &own)], &other_name);

    let migrates = |host: &str, others: &[(&'static str, &str)]| {
        let output = command(&["migrate"], &env(&at(host), others)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    migrates(HOST, &[("SSL_CERT_FILE", &own)]);
    migrates(
        "other.recado.example",
        &[("DATABASE_TLS_CA", &own), ("DATABASE_TLS", "verify-ca")],
    );
    migrates("other.recado.example", &[("DATABASE_TLS", "require")]);

    cluster.replace_certificate(&authority.issue_expired(&[HOST]).unwrap());
    assert_refused(HOST, &[("DATABASE_TLS_CA", &own)], "has expired");
    migrates(HOST, &[("DATABASE_TLS", "require")]);
}

#[test]
fn server_without_tls_gets_no_password() {
    let plain = Recorder::without_tls();
    for (host, tls) in [(HOST, ""), ("127.0.0.1", "verify-full"), ("127.0.0.1", "require")] {
        for command in ["serve", "migrate"] {
            let url = url(host, plain.port(), "recado", "");
            let log = refusal(&[command], &env(&url, &[("DATABASE_TLS", tls)]));
            let address = format!("{host}:{}", plain.port());
            assert!(log.contains(&address) && log.contains("the server has no TLS"), "{log}");
        }
    }
    assert_eq!(plain.connections(), 6);
    let request: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
    assert_eq!(plain.received(), request.repeat(6), "only TLS is requested");
}

#[test]
fn server_with_a_wrong_certificate_gets_no_password() {
    let files = Files::new();
    let (authority, foreign) = (Authority::new().unwrap(), Authority::new().unwrap());
    let own = files.write("ca.pem", &authority.pem());
    for identity in [
        foreign.issue(&[HOST]).unwrap(),
        authority.issue(&["other.recado.example"]).unwrap(),
        authority.issue_expired(&[HOST]).unwrap(),
    ] {
        let imposter = Recorder::with_tls(&identity, true, "");
        let url = url(HOST, imposter.port(), "recado", "");
        let log = refusal(&["serve"], &env(&url, &[("DATABASE_TLS_CA", &own)]));
        assert!(log.contains("cannot be trusted: its certificate"), "{log}");
        assert_eq!(imposter.connections(), 1);
        assert_eq!(imposter.received(), b"", "nothing was sent over TLS");
    }
}

#[test]
fn weaker_sslmode_stops_the_start() {
    for (sslmode, tls) in [
        ("disable", ""),
        ("prefer", ""),
        ("require", ""),
        ("require", "verify-ca"),
    ] {
        let url = url(HOST, 9, "recado", &format!("&sslmode={sslmode}"));
        let log = refusal(&["serve"], &env(&url, &[("DATABASE_TLS", tls)]));
        assert!(log.contains("DATABASE_URL has an sslmode that is weaker"), "{log}");
    }
}

#[test]
fn unreachable_database_does_not_stop_the_start() {
    let authority = Authority::new().unwrap();
    let files = Files::new();
    let own = files.write("ca.pem", &authority.pem());
    let url = url(HOST, 9, "recado", "");
    let mut process = Process::start(&["serve"], &env(&url, &[("DATABASE_TLS_CA", &own)]));
    crate::harness::until("the server listens", || process.log().contains("listening"));
    assert!(process.is_running() && process.log().contains("its TLS is not checked yet"));
    assert_eq!(process.stop(), Some(0));
}
