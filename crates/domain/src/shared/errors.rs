//! Errors shared by all contexts: input errors, store errors and errors of external systems.

use std::collections::BTreeMap;

use thiserror::Error;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Errors of the caller's input by field path. Paths look like `segment_config.tag_ids[1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Error)]
#[error("invalid data")]
pub struct FieldErrors(pub BTreeMap<String, Vec<String>>);

/// The most fields with errors, and the most messages of a field. They bound the size of an error response.
const MAX_FIELDS: usize = 100;
const MAX_MESSAGES: usize = 10;

/// The longest path or message in characters. A longer one is reduced to `END_CHARS` at each end, because the middle
/// usually quotes the input.
const MAX_CHARS: usize = 1000;
const END_CHARS: usize = 200;

impl FieldErrors {
    /// A single error of a single field.
    pub fn one(field: impl Into<String>, message: impl Into<String>) -> Self {
        let mut errors = Self::default();
        errors.add(field, message);
        errors
    }

    /// Adds an error, unless a limit is reached.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let field = shorten(field.into());
        if self.0.len() >= MAX_FIELDS && !self.0.contains_key(&field) {
            return;
        }
        let messages = self.0.entry(field).or_default();
        if messages.len() < MAX_MESSAGES {
            messages.push(shorten(message.into()));
        }
    }

    /// `Ok` without errors.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

fn shorten(text: String) -> String {
    if text.char_indices().nth(MAX_CHARS).is_none() {
        return text;
    }
    let start: String = text.chars().take(END_CHARS).collect();
    let tail_start = text.chars().count() - END_CHARS;
    start + "…" + &text.chars().skip(tail_start).collect::<String>()
}

/// Why a store operation failed. `Display` shows only the kind; the source is for the log.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store is unreachable or overloaded, or timed out. A retry may succeed.
    #[error("the store is unavailable")]
    Unavailable(#[source] Source),
    /// A value that must be unique in the account already exists.
    #[error("{field} already exists")]
    Duplicate {
        /// The input field with the value.
        field: &'static str,
    },
    /// The account has no row with the referenced id.
    #[error("{field} does not exist")]
    UnknownReference {
        /// The input field with the reference.
        field: &'static str,
    },
    /// This version cannot parse a stored value.
    #[error("a stored value cannot be parsed: {0}")]
    Corrupt(String),
    /// Any other error. It indicates a bug or a broken database.
    #[error("the store failed")]
    Failed(#[source] Source),
}

impl StoreError {
    /// Converts errors that the caller caused (a duplicate value or unknown reference) to field errors.
    pub fn into_field_errors(self) -> Result<FieldErrors, Self> {
        match self {
            Self::Duplicate { field } => Ok(FieldErrors::one(field, "is already taken")),
            Self::UnknownReference { field } => Ok(FieldErrors::one(field, "does not exist")),
            other @ (Self::Unavailable(_) | Self::Corrupt(_) | Self::Failed(_)) => Err(other),
        }
    }
}

/// Why a call to an external system failed.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// It was unreachable, timed out or sent an unreadable response.
    #[error("the outside system is unavailable: {0}")]
    Unavailable(String),
    /// It rejected the request.
    #[error("the outside system refused ({code}): {message}")]
    Refused {
        /// The external system's error code.
        code: i64,
        /// The external system's message, which is safe to show to the caller.
        message: String,
    },
    /// The configuration lacks the feature's URL or key.
    #[error("{0} is not configured")]
    NotConfigured(&'static str),
}

/// How an insert with a limit per account ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    Done,
    /// The account has reached the limit. Nothing was written.
    Full,
}

/// How a write to one row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    Done,
    /// The row does not exist.
    Missing,
}

impl RowOutcome {
    /// `is_done`: whether the row existed.
    pub fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Missing }
    }

    pub fn is_done(self) -> bool {
        self == Self::Done
    }

    pub fn or_missing<E>(self, missing: E) -> Result<(), E> {
        match self {
            Self::Done => Ok(()),
            Self::Missing => Err(missing),
        }
    }
}

/// How a write ended that is guarded by the facts on which its caller decided. Unlike [`WriteOutcome`] it returns no
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardOutcome {
    Done,
    /// The facts have changed. Nothing was written.
    Stale,
}

impl GuardOutcome {
    /// `is_done`: whether the facts were unchanged.
    pub fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Stale }
    }

    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

/// Whether the worker held its lease at the time of a write that requires it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    Held,
    /// The lease was released, or another worker claimed it. Nothing was written.
    Lost,
}

impl LeaseOutcome {
    pub fn of(is_held: bool) -> Self {
        if is_held { Self::Held } else { Self::Lost }
    }

    pub fn is_held(self) -> bool {
        self == Self::Held
    }
}

/// How one batch of a larger work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// There may be more to do: call again.
    More,
    /// Nothing is left, or another worker does it.
    Done,
}

impl WorkOutcome {
    pub fn of(has_more: bool) -> Self {
        if has_more { Self::More } else { Self::Done }
    }

    pub fn has_more(self) -> bool {
        self == Self::More
    }
}

/// How a write ended that is guarded by the state of its row. `S` is the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome<S> {
    Done,
    /// The row has another state, which is returned. Nothing was written.
    Stale(S),
    /// The row does not exist.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_errors_are_bounded_in_number() {
        let mut errors = FieldErrors::default();
        for n in 0..1000 {
            errors.add(format!("items[{n}]"), "is required");
            errors.add("items[0]", format!("is {n}"));
        }
        assert_eq!(errors.0.len(), MAX_FIELDS);
        assert_eq!(errors.0["items[99]"], ["is required"]);
        assert_eq!(errors.0["items[0]"].len(), MAX_MESSAGES);
        assert_eq!(errors.0["items[0]"][9], "is 8");
    }

    #[test]
    fn field_errors_shorten_long_messages() {
        let whole = "ã".repeat(MAX_CHARS);
        assert_eq!(FieldErrors::one("a", &whole).0["a"], [whole.as_str()]);
        let message = format!("invalid type: string \"{whole}\", expected a boolean");
        let errors = FieldErrors::one(&message, &message);
        let (name, messages) = errors.0.first_key_value().unwrap();
        assert_eq!(messages, &[name.as_str()]);
        assert_eq!(name.chars().count(), 2 * END_CHARS + 1);
        assert!(name.starts_with("invalid type: string \"ãã"), "{name}");
        assert!(name.ends_with("ã\", expected a boolean"), "{name}");
    }
}
