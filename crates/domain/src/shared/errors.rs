//! Why something did not happen: input faults, store faults, faults of the outside systems.

use std::collections::BTreeMap;

use thiserror::Error;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What is wrong with the caller's input: field path -> messages. Paths look like `segment_config.tag_ids[1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Error)]
#[error("invalid data")]
pub struct FieldErrors(pub BTreeMap<String, Vec<String>>);

/// How many fields are named, and how many faults of each: what is said of a body stays small, whatever is wrong with it.
const FIELDS: usize = 100;
const FAULTS: usize = 10;

/// The longest name or fault, in characters. Of a longer one the middle is left out, which is what it quotes, and so much
/// of either end is kept.
const CHARS: usize = 1000;
const END_CHARS: usize = 200;

impl FieldErrors {
    /// One fault of one field.
    pub fn one(field: impl Into<String>, message: impl Into<String>) -> Self {
        let mut errors = Self::default();
        errors.add(field, message);
        errors
    }

    /// Adds a fault, unless enough is wrong already.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let field = shortened(field.into());
        if self.0.len() >= FIELDS && !self.0.contains_key(&field) {
            return;
        }
        let faults = self.0.entry(field).or_default();
        if faults.len() < FAULTS {
            faults.push(shortened(message.into()));
        }
    }

    /// `Ok` when nothing was found.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

fn shortened(text: String) -> String {
    if text.char_indices().nth(CHARS).is_none() {
        return text;
    }
    let begin: String = text.chars().take(END_CHARS).collect();
    let left_out = text.chars().count() - END_CHARS;
    begin + "…" + &text.chars().skip(left_out).collect::<String>()
}

/// Why a store did not do as asked. `Display` names the kind only: the source is for the log.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store cannot be reached, is overloaded, or gave up waiting. Trying later may help.
    #[error("the store is unavailable")]
    Unavailable(#[source] Source),
    /// A value that has to be unique in the account is taken.
    #[error("{field} is taken")]
    Duplicate {
        /// The input field that bears the value.
        field: &'static str,
    },
    /// A reference names no row of the account.
    #[error("{field} names nothing")]
    UnknownReference {
        /// The input field that bears the reference.
        field: &'static str,
    },
    /// A stored value does not mean anything to this version.
    #[error("a stored value cannot be read: {0}")]
    Corrupt(String),
    /// Anything else: a fault of ours.
    #[error("the store failed")]
    Failed(#[source] Source),
}

impl StoreError {
    /// The caller's share of the blame, when it is one: a taken value or a dangling reference.
    pub fn into_field_errors(self) -> Result<FieldErrors, Self> {
        match self {
            Self::Duplicate { field } => Ok(FieldErrors::one(field, "is already taken")),
            Self::UnknownReference { field } => Ok(FieldErrors::one(field, "does not exist")),
            other @ (Self::Unavailable(_) | Self::Corrupt(_) | Self::Failed(_)) => Err(other),
        }
    }
}

/// Why an outside system did not do as asked.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// It could not be reached, timed out, or answered something that cannot be read.
    #[error("the outside system is unavailable: {0}")]
    Unavailable(String),
    /// It understood and refused.
    #[error("the outside system refused ({code}): {message}")]
    Refused {
        /// Its own error code.
        code: i64,
        /// Its own words, safe to show to the caller.
        message: String,
    },
    /// The feature has no address or key configured.
    #[error("{0} is not configured")]
    NotConfigured(&'static str),
}

/// How an insert ended of something of which an account may have so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertOutcome {
    /// Written.
    Done,
    /// The account has as many as it may: nothing was written.
    Full,
}

/// How a guarded write ended. `S` is the state that the write expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome<S> {
    /// Written.
    Done,
    /// The state was another one by then: nothing was written.
    Stale(S),
    /// No such row.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_much_that_is_wrong_a_part_is_said() {
        let mut errors = FieldErrors::default();
        for n in 0..1000 {
            errors.add(format!("items[{n}]"), "is required");
            errors.add("items[0]", format!("is {n}"));
        }
        assert_eq!(errors.0.len(), FIELDS);
        assert_eq!(errors.0["items[99]"], ["is required"]);
        assert_eq!(errors.0["items[0]"].len(), FAULTS);
        assert_eq!(errors.0["items[0]"][9], "is 8");
    }

    #[test]
    fn of_what_a_fault_quotes_the_middle_is_left_out() {
        let whole = "ã".repeat(CHARS);
        assert_eq!(FieldErrors::one("a", &whole).0["a"], [whole.as_str()]);
        let fault = format!("invalid type: string \"{whole}\", expected a boolean");
        let errors = FieldErrors::one(&fault, &fault);
        let (name, faults) = errors.0.first_key_value().unwrap();
        assert_eq!(faults, &[name.as_str()]);
        assert_eq!(name.chars().count(), 2 * END_CHARS + 1);
        assert!(name.starts_with("invalid type: string \"ãã"), "{name}");
        assert!(name.ends_with("ã\", expected a boolean"), "{name}");
    }
}
