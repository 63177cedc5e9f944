//! The environment of the development server and of the simulators.

use std::path::Path;

use anyhow::{Context, Result};

use crate::demo_account;
use crate::state::{Env, value};

/// The owner's URL, and the one with which tenants log in.
pub(super) struct DatabaseUrls {
    pub(super) owner: String,
    /// None for a database of the developer without `TENANT_DATABASE_URL`.
    pub(super) tenant: Option<String>,
}

/// The address of every process, as `host:port`.
pub struct Addresses {
    pub server: String,
    pub metrics: String,
    pub whatsapp: String,
    pub payment: String,
    pub ai: String,
    pub smtp: String,
    pub receiver: String,
}

impl Addresses {
    pub fn base_url(&self) -> String {
        format!("http://{}", self.server)
    }
}

/// The environment of the server, with a simulator for every external system.
pub(super) fn server(
    at: &Addresses,
    database: &DatabaseUrls,
    redis_url: Option<&str>,
    secrets: &Env,
    dir: &Path,
) -> Result<Env> {
    let base = at.base_url();
    let media = dir.join("media");
    std::fs::create_dir_all(&media).with_context(|| format!("cannot create {}", media.display()))?;
    let mut env = named(&[
        ("DATABASE_URL", &database.owner),
        ("BIND", &at.server),
        ("METRICS_BIND", &at.metrics),
        ("PUBLIC_URL", &base),
        ("COOKIE_SECURE", "false"),
        ("PLATFORM_ADMIN_EMAILS", demo_account::ADMIN),
        ("PAYMENT_GATEWAY_URL", &format!("http://{}/v3", at.payment)),
        ("WHATSAPP_API_URL", &format!("http://{}/v25.0", at.whatsapp)),
        ("WHATSAPP_APP_ID", "1029384756"),
        ("AI_API_URL", &format!("http://{}/v1", at.ai)),
        ("AI_API_KEY", "development"),
        ("AI_MODEL", "simulated"),
        ("SMTP_URL", &format!("smtp://{}", at.smtp)),
        ("MEDIA_STORE_URL", &format!("file://{}", media.display())),
        ("MEDIA_PUBLIC_URL", &format!("{base}/media")),
        // With the default of 200 ms the first campaign would take a minute.
        ("CAMPAIGN_MESSAGE_DELAY_MS", "20"),
        ("EGRESS_ALLOW_CIDRS", "127.0.0.0/8"),
        ("LOG_FORMAT", "pretty"),
    ]);
    if let Some(url) = &database.tenant {
        env.insert("TENANT_DATABASE_URL".to_owned(), url.clone());
    }
    if let Some(url) = redis_url {
        env.insert("REDIS_URL".to_owned(), url.to_owned());
    }
    for name in [
        "APP_SECRET",
        "SESSION_JWT_SECRET",
        "PAYMENT_GATEWAY_API_KEY",
        "PAYMENT_GATEWAY_WEBHOOK_TOKEN",
        "WHATSAPP_APP_SECRET",
        "WHATSAPP_VERIFY_TOKEN",
    ] {
        env.insert(name.to_owned(), value(secrets, name)?.to_owned());
    }
    Ok(env)
}

/// The environment of the simulators, with the same secrets and the address of the server.
pub(super) fn simulators(server: &str, secrets: &Env) -> Result<Env> {
    Ok(named(&[
        ("SIM_WHATSAPP_APP_SECRET", value(secrets, "WHATSAPP_APP_SECRET")?),
        (
            "SIM_WHATSAPP_CALLBACK_URL",
            &format!("http://{server}/api/whatsapp/webhook"),
        ),
        ("SIM_PAYMENT_API_KEY", value(secrets, "PAYMENT_GATEWAY_API_KEY")?),
        (
            "SIM_PAYMENT_WEBHOOK_URL",
            &format!("http://{server}/api/billing/webhook"),
        ),
        (
            "SIM_PAYMENT_WEBHOOK_TOKEN",
            value(secrets, "PAYMENT_GATEWAY_WEBHOOK_TOKEN")?,
        ),
    ]))
}

fn named(pairs: &[(&str, &str)]) -> Env {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}
