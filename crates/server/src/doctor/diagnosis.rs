//! The result of one check.

use serde::Serialize;

/// How a check ended. Ordered by severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DiagnosisState {
    Ok,
    /// Worth a look; the installation works.
    Warn,
    /// The installation does not work as configured.
    Fail,
}

impl DiagnosisState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Diagnosis {
    /// What was checked, as one word.
    pub(super) name: &'static str,
    pub(super) state: DiagnosisState,
    pub(super) found: String,
    /// What to do. None: nothing.
    pub(super) remedy: Option<String>,
}

impl Diagnosis {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: DiagnosisState::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    pub(super) fn warn(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            name,
            state: DiagnosisState::Warn,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub(super) fn fail(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            name,
            state: DiagnosisState::Fail,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}
