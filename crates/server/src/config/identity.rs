//! Who is a platform administrator, and how old a session may be.

use recado_domain::shared::UserId;
use time::Duration;
use uuid::Uuid;

use super::values::{ConfigError, Source, invalid, list, parse_duration, parsed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRules {
    /// `PLATFORM_ADMIN_IDS`: the users who are administrators whatever their address.
    pub admin_ids: Vec<UserId>,
    /// `PLATFORM_ADMIN_MAX_AGE`: how long ago an administrator may have signed in. None: any time.
    pub admin_max_age: Option<Duration>,
    /// `SESSION_TRUST_EMAIL`: the identity provider verifies every address, although its tokens do not say so.
    pub trust_email: bool,
    /// `SESSION_MAX_AGE`: how long ago a session token may have been issued. None: the token's expiry decides.
    pub session_max_age: Option<Duration>,
}

impl IdentityRules {
    pub(super) fn read(source: Source<'_>) -> Result<Self, ConfigError> {
        let ids: Vec<Uuid> = list(
            source,
            "PLATFORM_ADMIN_IDS",
            "a comma-separated list of user ids (UUIDs)",
        )?;
        Ok(Self {
            admin_ids: ids.into_iter().map(UserId).collect(),
            admin_max_age: max_age(source, "PLATFORM_ADMIN_MAX_AGE")?,
            trust_email: parsed(source, "SESSION_TRUST_EMAIL", false, |_| true, "true or false")?,
            session_max_age: max_age(source, "SESSION_MAX_AGE")?,
        })
    }
}

/// An age of zero would refuse every session.
fn max_age(source: Source<'_>, name: &'static str) -> Result<Option<Duration>, ConfigError> {
    let Some(text) = source(name) else { return Ok(None) };
    let age = parse_duration(&text).filter(|age| age.is_positive());
    age.map(Some)
        .ok_or_else(|| invalid(name, "must be a duration above zero like 30m or 12h"))
}
