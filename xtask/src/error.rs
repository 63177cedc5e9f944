//! The error of this tool: a message for a person.
//!
//! No caller distinguishes errors. They are only printed and end the tool with a non-zero exit code.

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

/// Returns an error with this message.
pub(crate) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure(message.into()))
}

/// Adds the failed action to an error.
pub(crate) trait Context<T> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error>>> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| {
            let mut message = doing();
            let cause = cause.into();
            let mut next: Option<&dyn Error> = Some(&*cause);
            // The database's message is in the source error.
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
