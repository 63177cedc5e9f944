//! The one error of this tool: a sentence for a person.
//!
//! Nothing here is ever handled by kind, only shown and turned into a non-zero exit, so there is nothing to match on.

use std::error::Error;
use std::fmt::{Display, Formatter};

#[derive(Debug)]
pub(crate) struct Failure(String);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Failure {}

/// A failure with this message.
pub(crate) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure(message.into()))
}

/// Says what was being done when something below failed.
pub(crate) trait Context<T> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error>>> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| {
            let mut message = doing();
            let cause = cause.into();
            let mut next: Option<&dyn Error> = Some(&*cause);
            // The database's own words are one level down.
            while let Some(cause) = next {
                let text = cause.to_string();
                if !message.contains(&text) {
                    message = format!("{message}: {text}");
                }
                next = cause.source();
            }
            Failure(message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_names_the_action_and_the_cause() {
        let failure = "x".parse::<u8>().context(|| "cannot count".to_owned()).unwrap_err();
        assert_eq!(failure.to_string(), "cannot count: invalid digit found in string");
    }
}
