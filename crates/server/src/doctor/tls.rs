//! Are the connections to other machines encrypted?

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;

const NAME: &str = "tls";

/// A connection without TLS is right on this machine. Elsewhere a variable allowed it, and the configuration has a
/// warning.
pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["DATABASE_URL", "DATABASE_TLS", "DATABASE_TLS_CA", "SSL_CERT_FILE"])?;
    let remedy = "read the page about TLS in the operating guide";
    let warnings = config.tls.warnings.iter();
    let mut lines: Vec<Diagnosis> = warnings
        .map(|warning| Diagnosis::warn(NAME, warning.clone(), remedy))
        .collect();
    if lines.is_empty() {
        lines.push(Diagnosis::ok(NAME, summary(&config.tls.targets)));
    }
    Ok(lines)
}

fn summary(targets: &[(&'static str, bool)]) -> String {
    let states = targets.iter().map(|(target, is_encrypted)| match is_encrypted {
        true => format!("{target} encrypted"),
        false => format!("{target} on this machine or as configured"),
    });
    states.collect::<Vec<_>>().join(", ")
}
