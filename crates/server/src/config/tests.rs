//! Tests of the configuration: every variable, its bounds and its error messages.

use recado_gateways::mail::SmtpMailer;

use super::*;

const SECRET: &str = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=";

fn read(changes: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut variables = std::collections::HashMap::from([
        ("DATABASE_URL", "postgres://u@h/db"),
        ("APP_SECRET", SECRET),
        ("SESSION_JWT_SECRET", "a-session-secret-of-32-bytes-long"),
    ]);
    variables.extend(changes.iter().copied());
    Config::read(&|name| variables.get(name).map(|&value| value.to_owned()))
}

#[test]
fn config_with_only_required_variables_has_defaults() {
    let config = read(&[]).unwrap();
    assert_eq!(config.bind.to_string(), "127.0.0.1:8080");
    assert_eq!(
        (config.cookie_secure, config.session_cookie.as_str()),
        (true, "svc-session")
    );
    assert_eq!((config.message_delay, config.runs), (Duration::milliseconds(200), 64));
    assert_eq!(
        (config.media_store_url, config.media_public_url.as_str()),
        (None, "http://127.0.0.1:8080/media")
    );
    assert_eq!(config.send_unknown_ttl, Duration::minutes(10));
    assert_eq!(config.database_wait_timeout, Duration::milliseconds(750));
    assert_eq!(config.webhook_retry_schedule, Schedule::default());
}

#[test]
fn config_debug_shows_no_secret_and_no_url() {
    let planted = [
        ("PLATFORM_ADMIN_EMAILS", "planted@example.com"),
        ("APP_SECRET_PREVIOUS", "bGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGxsbGw="),
        ("AI_API_URL", "https://planted@ai.example/v1"),
        ("AI_API_KEY", "planted"),
    ];
    let config = read(&planted).unwrap();
    assert_eq!(config.app_secrets.previous.len(), 1);
    let shown = format!("{config:?}{:?}{:?}", config.ai, config.app_secrets);
    for secret in ["planted", "107, 107", "108, 108"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn config_error_names_the_variable_without_its_value() {
    let cases = [
        ("DATABASE_URL", ""),
        ("DATABASE_URL", "mysql://secret"),
        ("TENANT_DATABASE_URL", "mysql://secret"),
        ("DATABASE_POOL_SIZE", "3"),
        ("BIND", "localhost"),
        ("TRUSTED_PROXIES", "10.0.0.0/33"),
        ("EGRESS_ALLOW_CIDRS", "10.0.0.0/8, 127.0.0.1/33"),
        ("EGRESS_ALLOW_CIDRS", "localhost"),
        ("AI_API_URL", "ai.example/v1"),
        ("PUBLIC_URL", "recado.example"),
        ("CORS_ORIGINS", "https://a.example, b.example"),
        ("SMTP_URL", "mail.example:25"),
        ("MEDIA_STORE_URL", "/var/media"),
        ("MEDIA_STORE_URL", "file://media"),
        ("MEDIA_PUBLIC_URL", "media.example"),
        ("APP_SECRET", " "),
        ("APP_SECRET", "c2hvcnQ="),
        ("APP_SECRET_PREVIOUS", "c2hvcnQ="),
        ("APP_SECRET_PREVIOUS", "not base64"),
        ("SESSION_JWT_SECRET", ""),
        ("SESSION_JWT_SECRET", "too-short"),
        ("COOKIE_SECURE", "yes"),
        ("PLATFORM_ADMIN_IDS", "root@example.com"),
        ("PLATFORM_ADMIN_MAX_AGE", "0s"),
        ("PLATFORM_ADMIN_MAX_AGE", "twelve"),
        ("SESSION_MAX_AGE", "0h"),
        ("SESSION_TRUST_EMAIL", "yes"),
        ("CAMPAIGN_MESSAGE_DELAY_MS", "-1"),
        ("CAMPAIGN_MAX_CONCURRENT_RUNS", "5000"),
        ("SEND_UNKNOWN_TTL", "10"),
        ("SEND_UNKNOWN_TTL", "ten minutes"),
        ("WEBHOOK_RETRY_SCHEDULE", "77"),
        ("WEBHOOK_RETRY_SCHEDULE", "5s,,5m"),
        ("MAX_CONNECTIONS", "15"),
        ("CALLBACK_MEMORY", "1MiB"),
        ("LOG_FORMAT", "xml"),
        ("METRICS_BIND", "9090"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "user:password@collector"),
        ("PAYMENT_GATEWAY_URL", "gateway.example/v3"),
        ("WHATSAPP_API_URL", "no address"),
        ("WHATSAPP_API_URL", "ftp://user:password@host"),
        ("SESSION_JWKS_URL", "idp.example/jwks"),
    ];
    for (variable, value) in cases {
        let error = read(&[(variable, value)]).unwrap_err();
        assert_eq!(error.variable, variable, "{value}");
        assert!(value.trim().is_empty() || !error.to_string().contains(value), "{error}");
    }
    let unknown_port = read(&[("BIND", "127.0.0.1:0")]).unwrap_err();
    assert_eq!(unknown_port.variable, "PUBLIC_URL");
    let both = read(&[("SESSION_JWKS_URL", "https://idp/jwks")]).unwrap_err();
    assert_eq!(both.variable, "SESSION_JWT_SECRET");
}

#[test]
fn app_secret_previous_takes_up_to_three_secrets() {
    let previous =
        |value: &str| read(&[("APP_SECRET_PREVIOUS", value)]).map(|config| config.app_secrets.previous.len());
    assert_eq!(read(&[]).unwrap().app_secrets.previous.len(), 0);
    assert_eq!(previous(SECRET), Ok(1));
    assert_eq!(previous(&format!("{SECRET}, {SECRET},{SECRET},")), Ok(3));
    let error = previous(&[SECRET; 4].join(",")).unwrap_err();
    assert_eq!(error.variable, "APP_SECRET_PREVIOUS");
    assert!(
        error.problem.contains("up to 3") && !error.problem.contains(SECRET),
        "{error}"
    );
}

#[test]
fn mail_sender_defaults_to_the_host_of_public_url() {
    for (public_url, from) in [
        ("https://app.recado.example/x", "Recado <no-reply@app.recado.example>"),
        ("http://localhost:8080", "Recado <no-reply@localhost>"),
        ("http://127.0.0.1:8080", "Recado <no-reply@localhost>"),
        ("http://[::1]:8080", "Recado <no-reply@localhost>"),
    ] {
        assert_eq!(read(&[("PUBLIC_URL", public_url)]).unwrap().mail_from, from);
        let mailer = SmtpMailer::new(&SecretString::from("smtp://mail.example"), from);
        assert!(mailer.is_ok(), "{from}");
    }
    assert_eq!(read(&[("MAIL_FROM", "a@b.example")]).unwrap().mail_from, "a@b.example");
}

#[test]
fn config_parses_durations_and_lists() {
    let config = read(&[
        ("SEND_UNKNOWN_TTL", "500ms"),
        ("WEBHOOK_RETRY_SCHEDULE", "10ms, 2h"),
        ("PLATFORM_ADMIN_EMAILS", "a@b.c, d@e.f,"),
    ])
    .unwrap();
    assert_eq!(config.send_unknown_ttl, Duration::milliseconds(500));
    let delays = vec![Duration::milliseconds(10), Duration::hours(2)];
    assert_eq!(config.webhook_retry_schedule, Schedule(delays));
    assert_eq!(config.platform_admin_emails, ["a@b.c", "d@e.f"]);
}

#[test]
fn identity_rules_are_parsed_and_off_by_default() {
    let rules = read(&[]).unwrap().identity;
    assert_eq!((rules.admin_ids, rules.trust_email), (vec![], false));
    assert_eq!((rules.admin_max_age, rules.session_max_age), (None, None));
    let id = uuid::Uuid::from_u128(7);
    let rules = read(&[
        ("PLATFORM_ADMIN_IDS", &format!("{id}, ")),
        ("PLATFORM_ADMIN_MAX_AGE", "30m"),
        ("SESSION_MAX_AGE", "12h"),
        ("SESSION_TRUST_EMAIL", "true"),
    ])
    .unwrap()
    .identity;
    assert_eq!((rules.admin_ids, rules.trust_email), (vec![id.into()], true));
    assert_eq!(rules.admin_max_age, Some(Duration::minutes(30)));
    assert_eq!(rules.session_max_age, Some(Duration::hours(12)));
}
