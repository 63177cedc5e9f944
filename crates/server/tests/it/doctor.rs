//! `recado doctor`: a sound installation, an installation with one fault at a time, usage, and what it leaves behind.

use std::process::Output;

use recado_simulators::ai::{Ai, AiOptions};
use recado_simulators::raw::{RawServer, Reply};
use recado_simulators::smtp::{Smtp, SmtpBehavior, SmtpOptions};
use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::harness::cluster::Cluster;
use crate::harness::process::{SESSION_SECRET, command, own_redis};
use crate::harness::users::phone;
use crate::harness::{GATEWAY_TOKEN, Options, Server, VERIFY_TOKEN, WHATSAPP_APP_SECRET, until};

/// The checks of an installation with WhatsApp, in the order of the output.
const NAMES: [&str; 18] = [
    "configuration",
    "tls",
    "roles",
    "row_security",
    "migrations",
    "clock",
    "redis",
    "media_store",
    "mail",
    "jwks",
    "payment_gateway",
    "ai_service",
    "whatsapp_app",
    "whatsapp_callbacks",
    "numbers",
    "queues",
    "erasures",
    "sealed_values",
];

/// Nothing listens there.
const DEAD: &str = "127.0.0.1:9";

type Env = Vec<(&'static str, String)>;

/// The environment with these changes. An empty value unsets a variable.
fn with(env: &Env, changes: &[(&'static str, &str)]) -> Env {
    let mut env = env.clone();
    env.extend(changes.iter().map(|(name, value)| (*name, (*value).to_owned())));
    env
}

fn run(arguments: &[&str], env: &Env) -> Output {
    command(arguments, env).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The exit code, and the checks of `--json`.
fn checks(env: &Env, more: &[&str]) -> (Option<i32>, Vec<Value>) {
    let arguments: Vec<&str> = ["doctor", "--json"].into_iter().chain(more.iter().copied()).collect();
    let output = run(&arguments, env);
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{output:?}"));
    let checks = document["checks"].as_array().unwrap().clone();
    let worst = ["fail", "warn", "ok"]
        .into_iter()
        .find(|state| checks.iter().any(|check| check["state"] == *state));
    assert_eq!(document["state"].as_str(), worst, "{document}");
    for check in &checks {
        let has_remedy = check["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty());
        assert_eq!(has_remedy, check["state"] != "ok", "{check}");
        assert!(
            check["found"].as_str().is_some_and(|found| !found.is_empty()),
            "{check}"
        );
    }
    (output.status.code(), checks)
}

/// The names of the checks that failed, once each.
fn failed(env: &Env) -> (Option<i32>, Vec<String>) {
    let (code, checks) = checks(env, &[]);
    let failed = checks.iter().filter(|check| check["state"] == "fail");
    let mut names: Vec<String> = failed.map(|check| check["name"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    (code, names)
}

#[track_caller]
fn assert_fails(env: &Env, name: &str) {
    assert_eq!(
        failed(env),
        (Some(1), vec![name.to_owned()]),
        "{:?}",
        checks(env, &[]).1
    );
}

fn state<'a>(checks: &'a [Value], name: &str) -> &'a str {
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    check["state"].as_str().unwrap()
}

/// The simulators of all systems that a server can use, beside those of the harness.
struct Systems {
    mail: Smtp,
    ai: Ai,
    key_set: RawServer,
}

impl Systems {
    fn start() -> Self {
        let api_key = Some("key-of-the-ai-service".to_owned());
        // A public key for Ed25519 (RFC 8037, appendix A.2).
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": "1",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
        let key_set = RawServer::replying(vec![]).unwrap();
        key_set.answer(Reply::http_last("200 OK", json!({ "keys": [key] }).to_string()));
        Self {
            mail: Smtp::start(SmtpOptions::default()).unwrap(),
            ai: Ai::start(AiOptions {
                api_key,
                ..AiOptions::default()
            })
            .unwrap(),
            key_set,
        }
    }

    /// Options of a server that uses all systems but Redis.
    fn options(&self) -> Options {
        let smtp = self
            .mail
            .url()
            .replace("smtp://", "smtp://mailer:password-of-the-mailer@");
        Options::default()
            .with("SMTP_URL", smtp)
            .with("AI_API_URL", self.ai.base_url())
            .with("AI_API_KEY", "key-of-the-ai-service")
            .with("AI_MODEL", "simulated")
    }

    /// The variables of an identity provider with a key set.
    fn key_set(&self) -> [(&'static str, String); 4] {
        [
            ("SESSION_JWT_SECRET", String::new()),
            ("SESSION_JWKS_URL", format!("{}/jwks.json", self.key_set.origin())),
            ("SESSION_JWT_ISSUER", "https://id.example".to_owned()),
            ("SESSION_JWT_AUDIENCE", "recado".to_owned()),
        ]
    }
}

#[test]
fn sound_installation_passes_and_is_left_unchanged() {
    let (systems, redis) = (Systems::start(), own_redis());
    let server = Server::start(systems.options().with("REDIS_URL", redis.url()));
    let ana = server.owner();
    let number = "106540352242922";
    ana.profile_at(number);
    server.db.wait_for_outbox();
    let (code, before) = checks(&server.environment(), &[]);
    let names: Vec<&str> = before.iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!((code, names), (Some(0), NAMES.to_vec()), "{before:?}");
    assert_eq!(
        state(&before, "whatsapp_callbacks"),
        "warn",
        "WhatsApp has not called yet"
    );

    server.whatsapp.inbound(&Inbound::text(number, &phone(1), "oi"));
    until("the message is stored", || server.db.count("FROM message_rollups") > 0);
    server.db.wait_for_outbox();
    until("nothing is held for the number", || {
        server.db.count("FROM whatsapp_profiles WHERE held_since IS NOT NULL") == 0
    });
    until("the callback is applied", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
    let (rows, files) = (server.db.dump(), server.media.files());
    let env = with(&server.environment(), &[]);
    let (code, after) = checks(&env, &["--account", &ana.account]);
    assert_eq!(code, Some(0), "{after:?}");
    assert!(after.iter().all(|check| check["state"] == "ok"), "{after:?}");
    assert_eq!(after.len(), NAMES.len() + 1, "with a line for the account");
    let mut key_set = server.environment();
    key_set.extend(systems.key_set());
    let (code, checked) = checks(&key_set, &[]);
    assert_eq!((code, state(&checked, "jwks")), (Some(0), "ok"), "{checked:?}");

    assert_eq!(server.db.dump(), rows);
    assert_eq!(server.media.files(), files);
    assert!(systems.mail.mails().is_empty());
}

#[test]
fn every_line_has_a_state_a_name_and_a_remedy() {
    let server = Server::prepare(&Options::default());
    let env = with(&server.environment(), &[("REDIS_URL", "redis://127.0.0.1:9")]);
    let output = run(&["doctor"], &env);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stdout(&output);
    assert_eq!(text.lines().count(), NAMES.len(), "{text}");
    for (line, name) in text.lines().zip(NAMES) {
        let (state, rest) = line.split_once(' ').unwrap();
        assert!(["ok", "warn", "fail"].contains(&state), "{line}");
        assert!(rest.trim_start().starts_with(&format!("{name}: ")), "{line}");
        assert_eq!(line.contains(". Remedy: "), state != "ok", "{line}");
    }
    assert!(!server.media.path().exists(), "the check leaves no directory behind");
}

#[test]
fn each_broken_system_fails_its_own_check() {
    let systems = Systems::start();
    let server = Server::prepare(&systems.options());
    let env = server.environment();
    assert_eq!(failed(&env), (Some(0), vec![]));
    let dead_url = format!("http://{DEAD}/v1");
    let dead_smtp = format!("smtp://{DEAD}");
    let dead_redis = format!("redis://{DEAD}");
    let dead_bucket = format!("http://{DEAD}");
    let cases: [(&str, &[(&'static str, &str)]); 15] = [
        ("configuration", &[("COOKIE_SECURE", "perhaps")]),
        ("configuration", &[("APP_SECRET", "too-short-a-secret")]),
        ("configuration", &[("SESSION_JWT_SECRET", "")]),
        ("redis", &[("REDIS_URL", &dead_redis)]),
        ("redis", &[("REDIS_URL", "not a url")]),
        ("media_store", &[("MEDIA_STORE_URL", "file:///dev/null/media")]),
        (
            "media_store",
            &[
                ("MEDIA_STORE_URL", "s3://bucket/files"),
                ("AWS_ENDPOINT_URL", &dead_bucket),
                ("AWS_ACCESS_KEY_ID", "an-access-key-id"),
                ("AWS_SECRET_ACCESS_KEY", "a-secret-access-key"),
            ],
        ),
        ("mail", &[("SMTP_URL", &dead_smtp)]),
        ("mail", &[("MAIL_FROM", "nobody at all")]),
        ("ai_service", &[("AI_API_KEY", "another-key")]),
        ("ai_service", &[("AI_API_URL", &dead_url)]),
        ("ai_service", &[("AI_MODEL", "")]),
        ("payment_gateway", &[("PAYMENT_GATEWAY_API_KEY", "another-key")]),
        ("payment_gateway", &[("PAYMENT_GATEWAY_URL", &dead_url)]),
        ("whatsapp_app", &[("WHATSAPP_APP_SECRET", "")]),
    ];
    for (name, changes) in cases {
        assert_fails(&with(&env, changes), name);
    }
    systems.mail.set_behavior(SmtpBehavior::RefusesLogin);
    assert_fails(&env, "mail");
    systems.mail.set_behavior(SmtpBehavior::Hangs);
    assert_fails(&env, "mail");
}

#[test]
fn key_set_must_be_reachable_and_its_claims_named() {
    let systems = Systems::start();
    let server = Server::prepare(&Options::default());
    let mut env = server.environment();
    env.extend(systems.key_set());
    assert_eq!(failed(&env), (Some(0), vec![]));
    assert_fails(&with(&env, &[("SESSION_JWT_ISSUER", "")]), "jwks");
    assert_fails(&with(&env, &[("SESSION_JWT_AUDIENCE", "")]), "jwks");
    systems.key_set.answer(Reply::http_last("500 Down", ""));
    assert_fails(&env, "jwks");
    systems.key_set.answer(Reply::http_last("200 OK", r#"{"keys":[]}"#));
    assert_fails(&env, "jwks");
}

#[test]
fn unreachable_database_fails_every_check_that_needs_it() {
    let server = Server::prepare(&Options::default());
    let dead = format!("postgres://owner:password-of-the-owner@{DEAD}/none");
    let (code, names) = failed(&with(&server.environment(), &[("DATABASE_URL", &dead)]));
    let expected = [
        "roles",
        "row_security",
        "migrations",
        "clock",
        "whatsapp_callbacks",
        "numbers",
        "queues",
        "sealed_values",
    ];
    assert_eq!((code, names), (Some(1), expected.map(str::to_owned).to_vec()));
}

#[test]
fn each_fault_of_the_database_fails_its_own_check() {
    let server = Server::prepare(&Options::default());
    let env = server.environment();
    let plant = |name: &str, fault: &str, repair: &str| {
        server.db.run(fault);
        assert_fails(&env, name);
        server.db.run(repair);
        assert_eq!(failed(&env), (Some(0), vec![]), "{repair}");
    };
    plant(
        "row_security",
        "ALTER TABLE contacts DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE contacts ENABLE ROW LEVEL SECURITY",
    );
    plant(
        "row_security",
        "CREATE VIEW everyone AS SELECT * FROM contacts; GRANT SELECT ON everyone TO recado_tenant",
        "DROP VIEW everyone",
    );
    plant(
        "migrations",
        "CREATE TABLE taken AS SELECT * FROM __diesel_schema_migrations ORDER BY version DESC LIMIT 1;
         DELETE FROM __diesel_schema_migrations WHERE version IN (SELECT version FROM taken)",
        "INSERT INTO __diesel_schema_migrations SELECT * FROM taken; DROP TABLE taken",
    );
    for (queue, insert) in [
        (
            "whatsapp_callbacks",
            "INSERT INTO whatsapp_callbacks (id, body, due_at, received_at)
             VALUES (gen_random_uuid(), '{}', now(), now() - interval '6 minutes')",
        ),
        (
            "outgoing_mail",
            "INSERT INTO outgoing_mail (id, account_id, content, created_at)
             VALUES (gen_random_uuid(), gen_random_uuid(), 'x', now() - interval '6 minutes')",
        ),
        (
            "outbox_events",
            "INSERT INTO outbox_events (account_id, payload, created_at)
             VALUES (gen_random_uuid(), '{\"kind\": \"audit\"}', now() - interval '6 minutes')",
        ),
    ] {
        plant("queues", insert, &format!("DELETE FROM {queue}"));
    }
    // A function of this name comes before the built-in one, as if the clock of the database were wrong.
    let database = server.db.text("SELECT current_database()");
    let wrong_clock = format!(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
           AS 'SELECT pg_catalog.clock_timestamp() - interval ''5 seconds''';
         ALTER DATABASE {database} SET search_path = public, pg_catalog"
    );
    let right_clock = format!("ALTER DATABASE {database} RESET search_path; DROP FUNCTION public.clock_timestamp()");
    plant("clock", &wrong_clock, &right_clock);
}

#[test]
fn tenant_role_that_nothing_binds_fails() {
    // Roles belong to the cluster, so the faults need one of their own.
    let cluster = Cluster::start();
    let server = Server::prepare_on(cluster.database(), &Options::default());
    let env = server.environment();
    assert_eq!(failed(&env), (Some(0), vec![]));
    for (fault, repair) in [
        (
            "ALTER ROLE recado_tenant BYPASSRLS",
            "ALTER ROLE recado_tenant NOBYPASSRLS",
        ),
        (
            "ALTER ROLE recado_tenant SUPERUSER",
            "ALTER ROLE recado_tenant NOSUPERUSER",
        ),
        (
            "ALTER TABLE tags OWNER TO recado_tenant",
            "ALTER TABLE tags OWNER TO postgres",
        ),
        ("GRANT postgres TO recado_tenant", "REVOKE postgres FROM recado_tenant"),
    ] {
        server.db.run(fault);
        assert_fails(&env, "roles");
        server.db.run(repair);
    }
    assert_eq!(failed(&env), (Some(0), vec![]));
    server.db.run("ALTER ROLE recado_tenant RENAME TO somebody");
    let (code, names) = failed(&env);
    assert_eq!((code, names.first().map(String::as_str)), (Some(1), Some("roles")));
    server.db.run("ALTER ROLE somebody RENAME TO recado_tenant");
}

#[test]
fn account_option_names_an_account() {
    let server = Server::new();
    let ana = server.owner();
    let env = server.environment();
    let unknown = "0190a1b2-c3d4-7e5f-8a9b-000000000001";
    let (code, checked) = checks(&env, &["--account", unknown]);
    assert_eq!((code, state(&checked, "account")), (Some(1), "fail"));
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{}'",
        ana.account
    ));
    let (code, checked) = checks(&env, &["--account", &ana.account]);
    assert_eq!((code, state(&checked, "account")), (Some(0), "warn"));
}

#[test]
fn wrong_usage_exits_with_two_and_checks_nothing() {
    let wrong: [&[&str]; 5] = [
        &["doctor", "--yaml"],
        &["doctor", "now"],
        &["doctor", "--account"],
        &["doctor", "--account", "shop"],
        &["doctor", "--json", "--json"],
    ];
    for arguments in wrong {
        let output = run(arguments, &Vec::new());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with("error:") && error.contains("--help"), "{error}");
    }
}

#[test]
fn output_holds_no_secret() {
    let secrets = [
        ("APP_SECRET", "an-app-secret-that-is-not-base64"),
        ("SESSION_JWT_SECRET", "short-session-secret"),
        (
            "DATABASE_URL",
            "postgres://owner:password-of-the-owner@127.0.0.1:9/none",
        ),
        ("REDIS_URL", "redis://:password-of-redis@127.0.0.1:9"),
        (
            "SMTP_URL",
            "smtp://mailer:password-of-the-mailer@127.0.0.1:9?tls=perhaps",
        ),
        ("PAYMENT_GATEWAY_URL", "http://127.0.0.1:9/v3"),
        ("PAYMENT_GATEWAY_API_KEY", "key-of-the-gateway"),
        ("AI_API_URL", "http://user:password-of-the-ai@127.0.0.1:9/v1"),
        ("AI_API_KEY", "key-of-the-ai-service"),
        ("AI_MODEL", "simulated"),
        ("MEDIA_STORE_URL", "s3://bucket"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("AWS_ACCESS_KEY_ID", "an-access-key-id"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-access-key"),
    ];
    let server = Server::prepare(&Options::default());
    let broken = with(&server.environment(), &secrets);
    let sound = server.environment();
    let words = [
        "an-app-secret-that-is-not-base64",
        "short-session-secret",
        "password-of-",
        "key-of-the-",
        "an-access-key-id",
        "a-secret-access-key",
        SESSION_SECRET,
        WHATSAPP_APP_SECRET,
        VERIFY_TOKEN,
        GATEWAY_TOKEN,
        "a2tra2tra2tra2tra2tr",
    ];
    for (env, code) in [(broken, 1), (sound, 0)] {
        for arguments in [&["doctor"][..], &["doctor", "--json"][..]] {
            let output = run(arguments, &env);
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let text = stdout(&output) + &String::from_utf8(output.stderr.clone()).unwrap();
            for word in words {
                assert!(!text.contains(word), "{word} is in {text}");
            }
        }
    }
}
