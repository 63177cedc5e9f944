//! WhatsApp's app: can its callbacks be verified, and do they arrive?

use recado_postgres::PgDiagnostics;

use super::context::{AreaOutcome, DoctorContext};
use super::database::unavailable;
use super::diagnosis::Diagnosis;

pub(super) async fn check_app(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["WHATSAPP_API_URL", "WHATSAPP_APP_SECRET"])?;
    if config.whatsapp_api_url.is_none() {
        let found = "WHATSAPP_API_URL is not set: nothing is sent to WhatsApp";
        return Ok(vec![Diagnosis::ok("whatsapp_app", found)]);
    }
    let mut checks = Vec::new();
    if config.whatsapp_app_secrets.is_empty() {
        checks.push(Diagnosis::fail(
            "whatsapp_app",
            "WHATSAPP_APP_SECRET is not set: every callback of WhatsApp is refused",
            "set WHATSAPP_APP_SECRET to the app secret in WhatsApp's app dashboard",
        ));
    }
    if config.whatsapp_verify_token.is_none() {
        checks.push(Diagnosis::warn(
            "whatsapp_app",
            "WHATSAPP_VERIFY_TOKEN is not set: WhatsApp cannot confirm the callback URL",
            "set WHATSAPP_VERIFY_TOKEN to the verify token in WhatsApp's app dashboard",
        ));
    }
    if checks.is_empty() {
        let found = "the app secret and the verify token of WhatsApp are set";
        checks.push(Diagnosis::ok("whatsapp_app", found));
    }
    Ok(checks)
}

/// There is no line if WhatsApp is not configured.
pub(super) async fn check_callbacks(context: &DoctorContext) -> AreaOutcome {
    if context.config(&["WHATSAPP_API_URL"])?.whatsapp_api_url.is_none() {
        return Ok(Vec::new());
    }
    let database = PgDiagnostics::new(context.owner()?.clone());
    Ok(vec![match database.has_recent_callback().await {
        Ok(true) => Diagnosis::ok("whatsapp_callbacks", "WhatsApp called within the last 24 hours"),
        Ok(false) => Diagnosis::warn(
            "whatsapp_callbacks",
            "no callback of WhatsApp was applied within the last 24 hours",
            "check the callback URL and its fields in WhatsApp's app dashboard; a refused signature is logged with 401",
        ),
        Err(error) => unavailable("whatsapp_callbacks", &error),
    }])
}
