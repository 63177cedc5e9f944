//! What does WhatsApp say about the connected numbers? The checks of a verification, without a registration.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use recado_domain::messaging::ProfileKey;
use recado_domain::whatsapp::verification::{Check, CheckState, VerificationPorts, Verifications};
use recado_gateways::http::Http;
use recado_gateways::whatsapp::CloudApi;
use recado_postgres::{PgDiagnostics, PgProfiles, PgVerifications};

use super::context::{AreaOutcome, DoctorContext, NotChecked};
use super::database::unavailable;
use super::diagnosis::Diagnosis;
use crate::config::Config;
use crate::sealing::AppCipher;
use recado_api::system::{SystemClock, SystemTimer};

const NAME: &str = "numbers";

/// The time of the area: the profiles are checked a few at a time.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

const MAX_PROFILES: usize = 100;
const AT_ONCE: usize = 8;

/// There is no line if WhatsApp is not configured.
pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["WHATSAPP_API_URL", "APP_SECRET", "APP_SECRET_PREVIOUS"])?;
    if config.whatsapp_api_url.is_none() {
        return Ok(Vec::new());
    }
    let limit = i64::try_from(MAX_PROFILES).unwrap_or(i64::MAX);
    let database = PgDiagnostics::new(context.owner()?.clone());
    let mut keys = match database.profiles(context.options.account, limit + 1).await {
        Ok(keys) => keys,
        Err(error) => return Ok(vec![unavailable(NAME, &error)]),
    };
    let Some(verifications) = verifications(context, config)? else {
        let remedy = "check WHATSAPP_API_URL and APP_SECRET";
        return Ok(vec![Diagnosis::fail(
            NAME,
            "WhatsApp cannot be asked as configured",
            remedy,
        )]);
    };
    let has_more = keys.len() > MAX_PROFILES;
    keys.truncate(MAX_PROFILES);
    let number = keys.len();
    let asked = stream::iter(keys).map(async |key| check_profile(&verifications, key).await);
    let mut lines: Vec<Diagnosis> = asked.buffered(AT_ONCE).collect::<Vec<_>>().await.concat();
    if lines.is_empty() {
        lines.push(Diagnosis::ok(
            NAME,
            format!("{number} connected, and every check passed"),
        ));
    }
    if has_more {
        let found = format!("only the first {MAX_PROFILES} numbers were checked");
        lines.push(Diagnosis::warn(NAME, found, "check the others with --account"));
    }
    Ok(lines)
}

fn verifications(context: &DoctorContext, config: &Config) -> Result<Option<Verifications>, NotChecked> {
    let (tenant, owner) = (context.tenant()?.clone(), context.owner()?.clone());
    let (Ok(http), Ok(cipher)) = (Http::new(), AppCipher::new(&config.app_secrets)) else {
        return Ok(None);
    };
    let Ok(gateway) = CloudApi::new(http, config.whatsapp_api_url.as_deref()) else {
        return Ok(None);
    };
    Ok(Some(Verifications::new(VerificationPorts {
        profiles: Arc::new(PgProfiles::new(tenant.clone())),
        store: Arc::new(PgVerifications::new(tenant, owner)),
        gateway: Arc::new(gateway),
        cipher: Arc::new(cipher),
        clock: Arc::new(SystemClock),
        timer: Arc::new(SystemTimer),
    })))
}

/// A line for each check that did not pass.
async fn check_profile(verifications: &Verifications, key: ProfileKey) -> Vec<Diagnosis> {
    match verifications.probe(key).await {
        Err(error) => vec![unavailable(NAME, &error)],
        Ok(None) => Vec::new(),
        Ok(Some(checks)) => checks.iter().filter_map(|check| diagnose(key, check)).collect(),
    }
}

fn diagnose(key: ProfileKey, check: &Check) -> Option<Diagnosis> {
    let profile = format!(
        "profile {} of account {}: {}",
        key.profile_id, key.account_id, check.name
    );
    let found = format!("{profile}: {}", check.found.as_deref().unwrap_or(check.state.as_str()));
    let remedy = check.remedy.clone().unwrap_or_else(|| "ask again later".to_owned());
    match check.state {
        CheckState::Passed | CheckState::Skipped => None,
        CheckState::Failed => Some(Diagnosis::fail(NAME, found, remedy)),
        CheckState::Warning | CheckState::Unknown => Some(Diagnosis::warn(NAME, found, remedy)),
    }
}

#[cfg(test)]
mod tests {
    use recado_domain::whatsapp::verification::CheckName;
    use uuid::Uuid;

    use super::super::diagnosis::DiagnosisState;
    use super::*;

    #[test]
    fn check_that_did_not_pass_is_a_line_with_its_remedy() {
        let key = ProfileKey {
            account_id: Uuid::from_u128(1).into(),
            profile_id: Uuid::from_u128(2).into(),
        };
        for (state, expected) in [
            (CheckState::Passed, None),
            (CheckState::Skipped, None),
            (CheckState::Failed, Some(DiagnosisState::Fail)),
            (CheckState::Unknown, Some(DiagnosisState::Warn)),
            (CheckState::Warning, Some(DiagnosisState::Warn)),
        ] {
            let check = Check {
                name: CheckName::Token,
                state,
                found: Some("code 190".into()),
                remedy: Some("Enter a new token.".into()),
            };
            let line = diagnose(key, &check);
            assert_eq!(line.as_ref().map(|line| line.state), expected, "{state:?}");
            assert!(line.is_none_or(|line| line.found.contains("token: code 190") && line.remedy.is_some()));
        }
    }
}
