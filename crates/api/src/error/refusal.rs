//! Why a caller was refused. A refusal is a security event: it is counted and logged once.

/// The reason of a refusal: the label of `recado_refusals_total` and the field `reason` of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The request has no session and no API key.
    NoCredential,
    /// The session token is malformed, expired, or not issued for this server.
    InvalidSession,
    /// The API key does not exist, has expired, or must not be used from this address.
    UnknownKey,
    /// The route requires a session, and the request has an API key.
    SessionRequired,
    /// The user is not a member of the account, or has no account.
    NotMember,
    /// The account is suspended.
    Suspended,
    /// The role of the member does not permit the operation.
    Role,
    /// The API key does not have the scope of the route.
    Scope,
    /// The user is not a platform administrator.
    Administrator,
    /// The request comes from a page of another site.
    Origin,
    /// The signature of a callback is missing or wrong.
    CallbackSignature,
    /// The token of a callback is missing or wrong.
    CallbackToken,
}

impl RefusalReason {
    pub const ALL: [Self; 12] = [
        Self::NoCredential,
        Self::InvalidSession,
        Self::UnknownKey,
        Self::SessionRequired,
        Self::NotMember,
        Self::Suspended,
        Self::Role,
        Self::Scope,
        Self::Administrator,
        Self::Origin,
        Self::CallbackSignature,
        Self::CallbackToken,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoCredential => "no_credential",
            Self::InvalidSession => "invalid_session",
            Self::UnknownKey => "unknown_key",
            Self::SessionRequired => "session_required",
            Self::NotMember => "not_member",
            Self::Suspended => "suspended",
            Self::Role => "role",
            Self::Scope => "scope",
            Self::Administrator => "administrator",
            Self::Origin => "origin",
            Self::CallbackSignature => "callback_signature",
            Self::CallbackToken => "callback_token",
        }
    }
}
