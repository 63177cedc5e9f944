//! The columns of a verification, which the stores of profiles and of verifications write.

use diesel::prelude::{AsChangeset, Insertable};
use recado_domain::shared::StoreError;
use recado_domain::whatsapp::verification::VerificationRecord;
use serde_json::Value;
use time::OffsetDateTime;

use crate::errors::failed;
use crate::schema::whatsapp_profiles;

/// The columns of a verification record.
#[derive(Insertable, AsChangeset)]
#[diesel(table_name = whatsapp_profiles, treat_none_as_null = true, treat_none_as_default_value = false)]
pub(super) struct VerificationColumns {
    verification_state: &'static str,
    checks: Value,
    checked_at: Option<OffsetDateTime>,
    next_check_at: Option<OffsetDateTime>,
    pending_since: Option<OffsetDateTime>,
    failed_since: Option<OffsetDateTime>,
    suspected_check: Option<&'static str>,
    suspected_since: Option<OffsetDateTime>,
    held_since: Option<OffsetDateTime>,
}

impl VerificationColumns {
    pub(super) fn of(VerificationRecord { verification, history }: &VerificationRecord) -> Result<Self, StoreError> {
        Ok(Self {
            verification_state: verification.state.as_str(),
            checks: serde_json::to_value(&verification.checks).map_err(failed)?,
            checked_at: verification.checked_at,
            next_check_at: verification.next_check_at,
            pending_since: history.pending_since,
            failed_since: history.failed_since,
            suspected_check: history.suspected.map(|suspected| suspected.check.as_str()),
            suspected_since: history.suspected.map(|suspected| suspected.since),
            held_since: history.held_since,
        })
    }
}
