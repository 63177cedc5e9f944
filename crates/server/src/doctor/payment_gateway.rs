//! Does the payment gateway accept our key?

use std::time::Duration;

use recado_gateways::http::Http;
use recado_gateways::payment::PaymentApi;

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;
use crate::config::Config;
use recado_api::error_chain::chain;

const NAME: &str = "payment_gateway";

/// Shorter than the time limit of an area, so that its line has the reason.
const TIMEOUT: Duration = Duration::from_secs(8);

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["PAYMENT_GATEWAY_URL", "PAYMENT_GATEWAY_API_KEY"])?;
    if config.payment_gateway_url.is_none() {
        let found = "PAYMENT_GATEWAY_URL is not set: no plan can be paid";
        return Ok(vec![Diagnosis::ok(NAME, found)]);
    }
    let mut checks = unset_secrets(config);
    if config.payment_gateway_api_key.is_some() {
        checks.push(match test(config).await {
            Ok(()) => Diagnosis::ok(NAME, "the payment gateway answers and accepts the key"),
            Err(error) => Diagnosis::fail(
                NAME,
                format!("the payment gateway cannot be used: {error}"),
                "check PAYMENT_GATEWAY_URL with its version, and PAYMENT_GATEWAY_API_KEY",
            ),
        });
    }
    Ok(checks)
}

fn unset_secrets(config: &Config) -> Vec<Diagnosis> {
    let secrets = [
        (
            "PAYMENT_GATEWAY_API_KEY",
            "the payment gateway refuses every call",
            config.payment_gateway_api_key.is_none(),
        ),
        (
            "PAYMENT_GATEWAY_WEBHOOK_TOKEN",
            "the events of the payment gateway are refused",
            config.payment_gateway_webhook_token.is_none(),
        ),
    ];
    let unset = secrets.into_iter().filter(|(_, _, is_unset)| *is_unset);
    unset
        .map(|(variable, effect, _)| {
            Diagnosis::fail(
                NAME,
                format!("{variable} is not set: {effect}"),
                format!("set {variable}"),
            )
        })
        .collect()
}

async fn test(config: &Config) -> Result<(), String> {
    let url = config.payment_gateway_url.as_deref();
    let api = PaymentApi::new(Http::new()?, url, config.payment_gateway_api_key.as_ref())?;
    let tested = api.timeouts(TIMEOUT, TIMEOUT).test_access().await;
    tested.map_err(|error| chain(&error))
}
