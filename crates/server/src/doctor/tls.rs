//! Are the connections to other machines encrypted?

use super::context::DoctorContext;
use super::{AreaOutcome, Diagnosis};

const NAME: &str = "tls";

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["DATABASE_URL", "DATABASE_TLS", "DATABASE_TLS_CA", "SSL_CERT_FILE"])?;
    let lines = config
        .tls
        .targets
        .iter()
        .map(|(target, is_encrypted)| judge(target, *is_encrypted));
    let warnings = config
        .tls
        .warnings
        .iter()
        .map(|warning| Diagnosis::warn(NAME, warning.clone(), "read the page about TLS in the operating guide"));
    Ok(lines.chain(warnings).collect())
}

/// A connection without TLS is right on this machine, and was allowed by a variable otherwise.
fn judge(target: &str, is_encrypted: bool) -> Diagnosis {
    match is_encrypted {
        true => Diagnosis::ok(NAME, format!("{target}: encrypted")),
        false => Diagnosis::ok(
            NAME,
            format!("{target}: not encrypted, as configured or on this machine"),
        ),
    }
}
