//! The outcome of a step. A check that cannot run on this machine is skipped, which is neither passed nor failed; with
//! `CI=true` it is a failure.

use std::time::Duration;

use anyhow::{Result, bail};
use recado_testkit::skip;

/// A check that could not run, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skipped(pub(crate) String);

impl Skipped {
    pub(crate) fn new(check: &str, reason: impl std::fmt::Display) -> Self {
        Self(format!("{check}: {reason}"))
    }
}

/// How a step or a part of it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// Some checks were skipped, and the others passed.
    Skipped(Vec<Skipped>),
    Failed(String),
}

impl Outcome {
    /// The outcome of a step whose result is the list of its skipped checks.
    pub(crate) fn new(result: Result<Vec<Skipped>>, skip_is_failure: bool) -> Self {
        match result {
            Err(failure) => Self::Failed(format!("{failure:#}")),
            Ok(skipped) if skipped.is_empty() => Self::Passed,
            Ok(skipped) if skip_is_failure => {
                let reasons: Vec<String> = skipped.into_iter().map(|Skipped(reason)| reason).collect();
                Self::Failed(format!("skipped, which CI=true forbids: {}", reasons.join("; ")))
            }
            Ok(skipped) => Self::Skipped(skipped),
        }
    }
}

/// The outcome and time of a named step.
pub(crate) struct StepReport {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// The summary: a line for every step, and one for every skipped check.
pub(crate) fn summary(reports: &[StepReport]) -> String {
    let mut text = String::new();
    for StepReport { name, outcome, took } in reports {
        let status = match outcome {
            Outcome::Passed => "ok",
            Outcome::Skipped(_) => "SKIPPED",
            Outcome::Failed(_) => "FAILED",
        };
        text.push_str(&format!("{name:<12}{status:<8}{:>6.1} s\n", took.as_secs_f64()));
    }
    for StepReport { name, outcome, .. } in reports {
        if let Outcome::Skipped(skipped) = outcome {
            for Skipped(reason) in skipped {
                text.push_str(&format!("skipped in {name}: {reason}\n"));
            }
        }
    }
    text
}

/// Fails if a step failed.
pub(crate) fn check(reports: &[StepReport]) -> Result<()> {
    let is_failure = |report: &&StepReport| matches!(report.outcome, Outcome::Failed(_));
    let failed: Vec<&str> = reports.iter().filter(is_failure).map(|report| report.name).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("failed: {}", failed.join(", ")),
    }
}

/// Ends a command that runs one check: prints the skipped checks, and fails if a skip is a failure.
pub(crate) fn finish(result: Result<Vec<Skipped>>) -> Result<()> {
    match Outcome::new(result, skip::is_failure()) {
        Outcome::Passed => {}
        Outcome::Skipped(skipped) => skipped.iter().for_each(|Skipped(reason)| println!("skipped: {reason}")),
        Outcome::Failed(failure) => bail!(failure),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn skipped() -> Vec<Skipped> {
        vec![Skipped::new("operating", "node is not installed")]
    }

    fn report(outcome: Outcome) -> StepReport {
        StepReport {
            name: "guides",
            outcome,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn skip_is_neither_passed_nor_failed() {
        assert_eq!(Outcome::new(Ok(Vec::new()), false), Outcome::Passed);
        assert_eq!(Outcome::new(Ok(skipped()), false), Outcome::Skipped(skipped()));
        assert_eq!(
            Outcome::new(Err(anyhow!("no")), false),
            Outcome::Failed("no".to_owned())
        );
        let reports = [report(Outcome::Passed), report(Outcome::Skipped(skipped()))];
        let text = summary(&reports);
        assert!(text.contains("ok") && text.contains("SKIPPED"), "{text}");
        assert!(
            text.contains("skipped in guides: operating: node is not installed\n"),
            "{text}"
        );
        assert!(check(&reports).is_ok());
    }

    #[test]
    fn skip_fails_the_run_of_a_build_machine() {
        let outcome = Outcome::new(Ok(skipped()), true);
        assert!(matches!(&outcome, Outcome::Failed(reason) if reason.contains("node is not installed")));
        assert!(check(&[report(Outcome::Passed), report(outcome)]).is_err());
        assert_eq!(Outcome::new(Ok(Vec::new()), true), Outcome::Passed);
    }
}
