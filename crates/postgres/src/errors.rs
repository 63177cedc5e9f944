//! Maps the driver's errors to `StoreError`, and retries transactions that conflicted with another one.

use diesel::result::{DatabaseErrorKind, Error};
use recado_domain::shared::StoreError;
use thiserror::Error as ThisError;

use crate::sqlstate::{self, Transient};

/// Retries after a deadlock or a serialization failure.
pub(crate) const RETRIES: usize = 3;

/// The input field of each unique constraint.
const UNIQUE_FIELDS: &[(&str, &str)] = &[
    ("contacts_phone_unique", "phone"),
    ("contacts_wa_user_id_unique", "wa_user_id"),
    ("direct_messages_client_reference_unique", "client_reference"),
    ("link_codes_pkey", "short_code"),
    ("message_templates_name_unique", "name"),
    ("subscriptions_live_unique", "plan"),
    ("tags_name_unique", "name"),
    ("team_invites_pending_unique", "email"),
    ("whatsapp_profiles_phone_number_id_unique", "phone_number_id"),
];

/// Unique constraints on values that no caller sends: another transaction wrote the value first, and a retry sees it.
const RACES: &[&str] = &["contacts_wa_id_unique"];

/// The input field of each foreign key.
const REFERENCE_FIELDS: &[(&str, &str)] = &[
    ("campaigns_folder_id_fkey", "folder_id"),
    ("campaigns_profile_id_fkey", "profile_id"),
    ("campaigns_segment_id_fkey", "segment_id"),
    ("campaigns_template_id_fkey", "template_id"),
    ("contact_tags_tag_id_fkey", "tag_ids"),
    ("links_campaign_id_fkey", "campaign_id"),
    ("message_templates_folder_id_fkey", "folder_id"),
    ("message_templates_profile_id_fkey", "profile_id"),
];

/// Why a statement or the conversion of its rows failed, before it is mapped to a `StoreError`.
pub(crate) enum DbError {
    Database(Error),
    Store(StoreError),
}

pub(crate) type DbResult<T> = Result<T, DbError>;

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for DbError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<DbError> for StoreError {
    fn from(error: DbError) -> Self {
        match error {
            DbError::Database(error) => map_db_error(error),
            DbError::Store(error) => error,
        }
    }
}

/// A deadlock, a serialization failure, or a row that another transaction wrote first. The transaction is rolled back
/// and may be retried at once.
#[derive(Debug, ThisError)]
#[error("the transaction conflicted with another one")]
struct Conflict(#[source] Error);

/// Another transaction inserted the row first: a retry finds that row.
pub(crate) fn concurrent_insert() -> DbError {
    DbError::Store(StoreError::Unavailable(Box::new(Conflict(Error::NotFound))))
}

fn map_db_error(error: Error) -> StoreError {
    let Error::DatabaseError(kind, information) = &error else {
        return StoreError::Failed(Box::new(error));
    };
    let named = |table: &[(&str, &'static str)]| {
        let constraint = information.constraint_name()?;
        table
            .iter()
            .find(|(name, _)| *name == constraint)
            .map(|(_, field)| *field)
    };
    match kind {
        DatabaseErrorKind::UniqueViolation
            if information.constraint_name().is_some_and(|name| RACES.contains(&name)) =>
        {
            StoreError::Unavailable(Box::new(Conflict(error)))
        }
        DatabaseErrorKind::UniqueViolation => match named(UNIQUE_FIELDS) {
            Some(field) => StoreError::Duplicate { field },
            None => StoreError::Failed(Box::new(error)),
        },
        DatabaseErrorKind::ForeignKeyViolation => match named(REFERENCE_FIELDS) {
            Some(field) => StoreError::UnknownReference { field },
            None => StoreError::Failed(Box::new(error)),
        },
        DatabaseErrorKind::SerializationFailure => StoreError::Unavailable(Box::new(Conflict(error))),
        DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection => {
            StoreError::Unavailable(Box::new(error))
        }
        _ => match sqlstate::transient(information.message()) {
            Some(Transient::Deadlock) => StoreError::Unavailable(Box::new(Conflict(error))),
            Some(Transient::LockTimeout | Transient::Unavailable) => StoreError::Unavailable(Box::new(error)),
            None => StoreError::Failed(Box::new(error)),
        },
    }
}

/// An internal error that does not come from the driver.
pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Failed(Box::new(error))
}

/// A stored value that this version cannot read.
pub(crate) fn corrupt(error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// Parses a stored enum value.
pub(crate) fn parse_enum<T: std::str::FromStr<Err = String>>(stored: &str) -> Result<T, StoreError> {
    stored.parse().map_err(corrupt)
}

/// Whether the only cause was a conflict with another transaction.
pub(crate) fn is_conflict(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(source) if source.is::<Conflict>())
}

/// Runs a transaction, and retries it after a conflict.
pub(crate) async fn retry<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut retries_left = RETRIES;
    loop {
        match attempt().await {
            Err(error) if retries_left > 0 && is_conflict(&error) => retries_left -= 1,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(kind: DatabaseErrorKind, message: &str) -> StoreError {
        DbError::from(Error::DatabaseError(kind, Box::new(message.to_owned()))).into()
    }

    #[test]
    fn db_error_if_transient_maps_to_unavailable() {
        let unknown = |message| database(DatabaseErrorKind::Unknown, message);
        for message in [
            "canceling statement due to statement timeout",
            "canceling statement due to lock timeout",
            "terminating connection due to administrator command",
            "the database system is shutting down",
            "deadlock detected",
        ] {
            assert!(matches!(unknown(message), StoreError::Unavailable(_)), "{message}");
        }
        assert!(matches!(unknown("column x does not exist"), StoreError::Failed(_)));
        let closed = database(DatabaseErrorKind::UnableToSendCommand, "connection closed");
        assert!(matches!(closed, StoreError::Unavailable(_)));
        assert!(matches!(
            database(DatabaseErrorKind::UniqueViolation, "x"),
            StoreError::Failed(_)
        ));
        assert!(matches!(
            StoreError::from(DbError::from(Error::NotFound)),
            StoreError::Failed(_)
        ));
    }

    #[tokio::test]
    async fn retry_repeats_conflicts_up_to_the_limit() {
        let mut tries = 0;
        let conflict = || database(DatabaseErrorKind::SerializationFailure, "could not serialize access");
        let lost: Result<(), _> = retry(|| {
            tries += 1;
            async { Err(conflict()) }
        })
        .await;
        assert!(matches!(lost, Err(StoreError::Unavailable(_))));
        assert_eq!(tries, RETRIES + 1);
        tries = 0;
        let failure: Result<(), _> = retry(|| {
            tries += 1;
            async { Err(database(DatabaseErrorKind::Unknown, "terminating connection")) }
        })
        .await;
        assert!(failure.is_err());
        assert_eq!(tries, 1);
    }
}
