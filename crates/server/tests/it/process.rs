//! The process: commands, configuration, readiness and log.

use crate::harness::client::Request;
use crate::harness::process::{Process, SESSION_SECRET, command, environment};
use crate::harness::users::phone;
use crate::harness::{Options, Server, eventually, until};

#[test]
fn invalid_environment_variable_is_named_and_stops_start() {
    let url = "postgres://postgres@127.0.0.1:9/none";
    let valid_env = environment(url, "http://127.0.0.1:9/v25.0");
    let cases = [
        ("DATABASE_URL", ""),
        ("APP_SECRET", ""),
        ("SESSION_JWT_SECRET", ""),
        ("APP_SECRET", "too-short-a-secret"),
        ("APP_SECRET_PREVIOUS", "too-short-a-secret"),
        ("COOKIE_SECURE", "perhaps"),
        ("CAMPAIGN_MESSAGE_DELAY_MS", "soon"),
        ("SEND_UNKNOWN_TTL", "ten"),
        ("BIND", "nowhere"),
        ("TRUSTED_PROXIES", "everybody"),
        ("REDIS_URL", "not a url"),
        ("WHATSAPP_API_URL", "not a url"),
        ("SMTP_URL", "mail.example"),
        ("SMTP_URL", "smtp://u:hunter2@mail.example?tls=perhaps"),
        ("SESSION_JWKS_URL", "not a url"),
    ];
    for (name, value) in cases {
        let mut env = valid_env.clone();
        env.push((name, value.to_owned()));
        let mut process = Process::start(&["serve"], &env);
        let code = process.wait();
        assert!(code.is_some_and(|code| code != 0), "{name}={value}: {code:?}");
        let log = process.log();
        assert!(log.contains(name), "{name}: {log}");
        assert!(
            value.is_empty() || !log.contains(value),
            "{name}: the log holds the value: {log}"
        );
    }
}

#[test]
fn unknown_command_prints_the_usage() {
    let output = command(&["dance"], &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("Usage: recado"));
}

#[test]
fn server_is_not_ready_before_its_migrations_ran() {
    let server = Server::prepare(&Options::default());
    let mut env = server.environment();
    let empty = server.db.empty();
    env.push(("DATABASE_URL", empty.url()));
    let mut process = Process::start(&["serve"], &env);
    let port = process.port();
    let ready = || Request::new(port, "GET", "/readyz").try_send();
    let reply = eventually("the server answers", || ready().ok());
    assert_eq!(reply.header("retry-after"), Some("1"));
    reply.refused(503, "UNAVAILABLE");
    for _ in 0..2 {
        let output = command(&["migrate"], &env).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    until("the server is ready", || ready().is_ok_and(|reply| reply.status == 200));
    assert_eq!(process.stop(), Some(0));
}

#[test]
fn contacts_are_searched_by_index_after_migrate() {
    let server = Server::prepare(&Options::default());
    server.run(&["serve"]);
    assert!(server.log().contains(r#""mode":"scan""#));
    server.kill();
    let migrated = server.spawn(&["migrate"]).wait();
    assert_eq!(migrated, Some(0));
    server.run(&["serve"]);
    assert!(server.log().contains(r#""mode":"index""#));
    let ana = server.owner();
    ana.post(
        "/api/contacts",
        serde_json::json!({ "name": "Zélia", "phone": "+5511961234567" }),
    )
    .created();
    assert_eq!(
        ana.get("/api/contacts?search=%C3%89LIA").ok()["data"][0]["name"],
        "Zélia"
    );
}

#[test]
fn server_without_database_returns_503_without_its_url() {
    let server = Server::prepare(&Options::default());
    let mut env = server.environment();
    env.push(("DATABASE_URL", "postgres://postgres@127.0.0.1:9/none".into()));
    let process = Process::start(&["serve"], &env);
    let get = |path: &str| Request::new(process.port(), "GET", path);
    eventually("the process answers", || get("/healthz").try_send().ok()).ok();
    get("/readyz").send().refused(503, "UNAVAILABLE");
    let reply = get("/api/accounts").bearer(&server.stranger().token).send();
    assert_eq!(reply.header("retry-after"), Some("1"));
    let error = reply.refused(503, "UNAVAILABLE");
    assert!(!error.to_string().contains("127.0.0.1"), "{error}");
}

#[test]
fn log_has_one_line_per_request_and_holds_no_secrets() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    ana.get("/api/contacts?search=quem").ok();
    until("the request is logged", || server.log().contains("GET /api/contacts"));
    let log = server.log();
    for secret in [ana.token.as_str(), "EAAG-token", SESSION_SECRET, "quem"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("GET /api/contacts")).collect();
    assert_eq!(lines.len(), 1);
    let line: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(line["status"], 200);
    assert!(
        line["span"]["request_id"].is_string() && line["duration_ms"].is_number(),
        "{line}"
    );
}

#[test]
fn small_pool_serves_forty_concurrent_requests() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "4"));
    let ana = server.owner();
    let statuses = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..40)
            .map(|number| {
                let body = serde_json::json!({ "name": "C", "phone": phone(number) });
                let request = ana.request("POST", "/api/contacts").json(&body);
                scope.spawn(move || request.send().status)
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(statuses.iter().all(|status| *status == 201), "{statuses:?}");
}
