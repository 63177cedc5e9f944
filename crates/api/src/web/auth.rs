//! Authentication: from a request's credentials to a session or a tenant. Recently verified tokens and keys come from a
//! cache.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::header;
use recado_domain::accounts::{AccountHint, Accounts, Session, SessionError, SessionVerifier, Sessions};
use recado_domain::api_keys::ApiKeys;
use recado_domain::shared::{Clock, Network, Tenant};
use secrecy::SecretString;

use crate::error::{ApiError, RefusalReason};
use crate::web::auth_cache::AuthCache;
use crate::web::caller::CallerIds;
use crate::web::client_ip;
use crate::web::cookies;
use crate::web::support::{SupportCookies, SupportMode};

/// Authenticates requests.
pub struct Authenticator {
    pub verifier: Arc<dyn SessionVerifier>,
    pub accounts: Arc<Accounts>,
    pub sessions: Sessions,
    pub api_keys: Arc<ApiKeys>,
    pub clock: Arc<dyn Clock>,
    pub auth_cache: AuthCache,
    /// The name of the session's cookie.
    pub cookie: String,
    pub support: Arc<SupportCookies>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
}

/// The credential that a request presents.
enum Credential {
    Token { token: String, by_cookie: bool },
    ApiKey(SecretString),
    Nothing,
}

/// An authenticated caller.
pub struct VerifiedCaller<T> {
    /// The session or the tenant.
    pub identity: T,
    /// Whether the credential is a cookie. Browsers also send cookies with requests of other sites' pages.
    pub by_cookie: bool,
}

impl Authenticator {
    /// Authenticates a user by a session token. Rejects API keys.
    pub async fn session(&self, request: &HttpRequest) -> Result<VerifiedCaller<Session>, ApiError> {
        match self.credential(request) {
            Credential::Token { token, by_cookie } => {
                let identity = self.verify(token).await?;
                CallerIds::from(&identity).remember(request);
                Ok(VerifiedCaller { identity, by_cookie })
            }
            Credential::ApiKey(_) => Err(ApiError::auth(
                RefusalReason::SessionRequired,
                "This endpoint requires a session; API keys are not accepted",
            )),
            Credential::Nothing => Err(ApiError::auth(RefusalReason::NoCredential, "A session is required")),
        }
    }

    /// Authenticates by an API key, or by a session token and the active account.
    pub async fn tenant(&self, request: &HttpRequest) -> Result<VerifiedCaller<Tenant>, ApiError> {
        let address = client_ip::address(request, &self.trusted_proxies);
        match self.credential(request) {
            Credential::ApiKey(key) => {
                let identity = self.api_keys.authenticate(&key, address).await?;
                CallerIds::from(&identity).remember(request);
                Ok(VerifiedCaller {
                    identity,
                    by_cookie: false,
                })
            }
            Credential::Token { token, by_cookie } => {
                let session = self.verify(token).await?;
                CallerIds::from(&session).remember(request);
                let hint: AccountHint = cookies::account_hint(request);
                let supported = self.support_mode(request, &session).map(|mode| mode.account_id);
                let address = address.map(|address| address.to_string());
                let identity = self.accounts.context(&session, hint, supported, address).await?;
                CallerIds::from(&identity).remember(request);
                Ok(VerifiedCaller { identity, by_cookie })
            }
            Credential::Nothing => Err(ApiError::auth(
                RefusalReason::NoCredential,
                "A session or an API key is required",
            )),
        }
    }

    /// Authenticates a platform administrator who signed in recently enough.
    pub async fn admin(&self, request: &HttpRequest) -> Result<VerifiedCaller<Session>, ApiError> {
        let caller = self.session(request).await?;
        self.accounts.check_admin(&caller.identity)?;
        Ok(caller)
    }

    /// The support mode that the cookie of a platform administrator names. A support mode that began before the
    /// administrator ended all sessions is over.
    pub fn support_mode(&self, request: &HttpRequest, session: &Session) -> Option<SupportMode> {
        let is_admin = self.accounts.is_admin(session);
        let mode = is_admin
            .then(|| self.support.read(request, session.user_id, self.clock.now()))
            .flatten()?;
        let is_ended = session.signed_out_at.is_some_and(|ended| mode.started_at <= ended);
        (!is_ended).then_some(mode)
    }

    /// The client's IP address.
    pub fn address(&self, request: &HttpRequest) -> Option<String> {
        client_ip::address(request, &self.trusted_proxies).map(|address| address.to_string())
    }

    /// The client's address for limits by address: an IPv6 address counts as its /64 network.
    pub fn limit_address(&self, request: &HttpRequest) -> String {
        client_ip::address(request, &self.trusted_proxies)
            .map(client_ip::limit_key)
            .unwrap_or_default()
    }

    async fn verify(&self, token: String) -> Result<Session, ApiError> {
        if let Some(session) = self.cached_session(&token) {
            return self.admit(session).await;
        }
        let session = self.verifier.verify(&token).await?;
        if !self.accounts.admits(&session) {
            return Err(SessionError::Invalid.into());
        }
        let admitted = self.admit(session.clone()).await?;
        self.auth_cache.insert_session(token, session);
        Ok(admitted)
    }

    /// Refuses a session that its user has ended, and stores the user.
    async fn admit(&self, session: Session) -> Result<Session, ApiError> {
        let session = self.sessions.check(session).await?;
        self.accounts.record_user(&session).await?;
        Ok(session)
    }

    /// The cached session of this token, until it expires. A repeated token costs this function and `credential`. Both
    /// are never inlined, so that `cargo xtask bench auth` finds them among the instructions of a request.
    #[inline(never)]
    fn cached_session(&self, token: &str) -> Option<Session> {
        let session = self.auth_cache.session(token)?;
        (session.expires_at > self.clock.now()).then_some(session)
    }

    /// Precedence: `Authorization: Bearer`, `X-API-Key`, the session cookie.
    #[inline(never)]
    fn credential(&self, request: &HttpRequest) -> Credential {
        let text = |name: &str| {
            request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::trim)
        };
        let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match (bearer, text("x-api-key")) {
            (Some(key), _) if ApiKeys::looks_like_key(key) => Credential::ApiKey(SecretString::from(key)),
            (Some(token), _) if !token.is_empty() => Credential::Token {
                token: token.to_owned(),
                by_cookie: false,
            },
            (_, Some(key)) => Credential::ApiKey(SecretString::from(key)),
            _ => match cookies::session_token(request, &self.cookie) {
                Some(token) => Credential::Token { token, by_cookie: true },
                None => Credential::Nothing,
            },
        }
    }
}
