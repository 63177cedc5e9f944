//! Who sent a request: the ids of the log line and of security events.

use actix_web::{HttpMessage as _, HttpRequest};
use recado_domain::accounts::Session;
use recado_domain::shared::{AccountId, ApiKeyId, Tenant, UserId};

/// The ids of a caller as far as authentication found them. A refused request has those that were known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerIds {
    pub account: Option<AccountId>,
    /// `None` for an API key: its creator did not send the request.
    pub user: Option<UserId>,
    pub key: Option<ApiKeyId>,
}

impl From<&Session> for CallerIds {
    fn from(session: &Session) -> Self {
        Self {
            user: Some(session.user_id),
            ..Self::default()
        }
    }
}

impl From<&Tenant> for CallerIds {
    fn from(tenant: &Tenant) -> Self {
        let key = tenant.api_key.as_ref().map(|key| key.id);
        Self {
            account: Some(tenant.account_id),
            user: key.is_none().then_some(tenant.actor.user_id),
            key,
        }
    }
}

impl CallerIds {
    /// Stores the ids in the request's extensions.
    pub fn remember(self, request: &HttpRequest) {
        request.extensions_mut().insert(self);
    }

    /// The ids in the request's extensions.
    pub fn of(request: &HttpRequest) -> Self {
        request.extensions().get::<Self>().copied().unwrap_or_default()
    }
}
