//! Are all environment variables valid?

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;

const NAME: &str = "configuration";

/// A line for each invalid variable.
pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    if context.config_errors.is_empty() {
        return Ok(vec![Diagnosis::ok(NAME, "every variable is valid")]);
    }
    let errors = context.config_errors.iter();
    let checks = errors.map(|error| {
        let found = format!("{} {}", error.variable, error.problem);
        let remedy = format!("correct {}; docs/configuration.md describes it", error.variable);
        Diagnosis::fail(NAME, found, remedy)
    });
    Ok(checks.collect())
}
