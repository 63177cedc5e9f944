//! The printed report: a line for each check, or one JSON document.

use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use super::diagnosis::{Diagnosis, DiagnosisState};
use super::redaction::Redactor;

/// Longest text of a check, in characters.
const MAX_TEXT_CHARS: usize = 300;

/// All checks in the order of the output.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The worst state of all checks.
    state: DiagnosisState,
    checks: Vec<Diagnosis>,
}

impl Report {
    /// Removes secrets and line breaks from the texts.
    pub(super) fn new(checks: Vec<Diagnosis>, redactor: &Redactor) -> Self {
        let clean = |text: &str| one_line(&redactor.redact(text));
        let checks: Vec<Diagnosis> = checks
            .into_iter()
            .map(|check| Diagnosis {
                found: clean(&check.found),
                remedy: check.remedy.as_deref().map(clean),
                ..check
            })
            .collect();
        let worst = checks.iter().map(|check| check.state).max();
        Self {
            state: worst.unwrap_or(DiagnosisState::Ok),
            checks,
        }
    }

    /// 1 if a check failed, else 0.
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.has_failed()))
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state == DiagnosisState::Fail
    }

    pub(super) fn text(&self) -> String {
        let lines = self.checks.iter().map(|check| {
            let remedy = check.remedy.as_ref().map(|remedy| format!(". Remedy: {remedy}"));
            let (state, remedy) = (check.state.as_str(), remedy.unwrap_or_default());
            format!("{state:<4}  {}: {}{remedy}\n", check.name, check.found)
        });
        lines.collect()
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Writes to standard output. A reader that closes the pipe early is not an error.
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        let text = if json {
            format!("{}\n", self.json()?)
        } else {
            self.text()
        };
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace(char::is_control, "");
    match line.char_indices().nth(MAX_TEXT_CHARS) {
        None => line,
        Some(_) => line.chars().take(MAX_TEXT_CHARS - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn report(checks: Vec<Diagnosis>) -> Report {
        let secrets = [("APP_SECRET".to_owned(), "k3y-of-the-app".to_owned())];
        Report::new(checks, &Redactor::new(secrets))
    }

    #[test]
    fn report_has_one_line_for_each_check() {
        let report = report(vec![
            Diagnosis::ok("clock", "equal"),
            Diagnosis::warn("mail", "two\nlines\r\n of\u{7} text", "read k3y-of-the-app"),
            Diagnosis::fail("redis", "no answer", "set REDIS_URL"),
        ]);
        assert_eq!(
            report.text(),
            "ok    clock: equal\n\
             warn  mail: two lines of text. Remedy: read [redacted]\n\
             fail  redis: no answer. Remedy: set REDIS_URL\n"
        );
        let document: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(
            document,
            json!({ "state": "fail", "checks": [
                { "name": "clock", "state": "ok", "found": "equal", "remedy": null },
                { "name": "mail", "state": "warn", "found": "two lines of text", "remedy": "read [redacted]" },
                { "name": "redis", "state": "fail", "found": "no answer", "remedy": "set REDIS_URL" } ] })
        );
    }

    #[test]
    fn exit_code_is_one_with_a_failed_check_alone() {
        let code = |checks| report(checks).exit_code();
        let (ok, warn) = (Diagnosis::ok("clock", "equal"), Diagnosis::warn("mail", "x", "y"));
        assert_eq!(code(vec![]), ExitCode::SUCCESS);
        assert_eq!(code(vec![ok.clone(), warn.clone()]), ExitCode::SUCCESS);
        assert_eq!(
            code(vec![Diagnosis::fail("redis", "x", "y"), ok, warn]),
            ExitCode::from(1)
        );
    }

    #[test]
    fn long_text_is_cut() {
        let report = report(vec![Diagnosis::ok("clock", "é".repeat(400))]);
        assert_eq!(report.checks[0].found.chars().count(), MAX_TEXT_CHARS);
        assert!(report.checks[0].found.ends_with('…'));
    }
}
