//! From a request's credentials to a session or an account context. What was proved a moment ago is not proved again:
//! a verified token is remembered until it ends, a membership for a fifth of a second.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header;
use async_trait::async_trait;
use moka::sync::Cache;
use recado_domain::accounts::{
    Account, AccountHint, AccountStore, Accounts, Membership, Session, SessionVerifier, Standing,
};
use recado_domain::api_keys::ApiKeys;
use recado_domain::shared::{AccountId, Clock, Network, StoreError, Tenant, UserId};
use secrecy::SecretString;
use time::OffsetDateTime;

use crate::error::ApiError;
use crate::web::cookies;
use crate::web::peer;
use crate::web::support::{SupportCookies, SupportMode};

/// How many tokens, users and memberships are remembered at most.
const REMEMBERED: u64 = 50_000;

/// How long a membership is trusted without a look: a removed member is out within this time. Long enough for a client
/// that asks again and again, well below the second that is promised.
const STANDING_FOR: Duration = Duration::from_millis(200);

/// How long nothing is remembered of a membership that was changed here: longer than any look that began before the
/// change can take to answer.
const CHANGED_FOR: Duration = Duration::from_secs(30);

/// How long it is remembered that a user was recorded.
const RECORDED_FOR: Duration = Duration::from_secs(600);

/// What all workers of a process remember.
#[derive(Clone)]
pub struct Memory {
    sessions: Cache<String, Session>,
    recorded: Cache<UserId, (String, Option<String>)>,
    standings: Cache<(UserId, AccountId), Standing>,
    changed: Cache<(UserId, AccountId), ()>,
    changed_accounts: Cache<AccountId, ()>,
}

impl Memory {
    /// What was changed in this process counts in it at once.
    pub fn forget_standing(&self, user: UserId, account: AccountId) {
        self.changed.insert((user, account), ());
    }

    /// The same for everybody in an account.
    pub fn forget_account(&self, account: AccountId) {
        self.changed_accounts.insert(account, ());
    }

    /// The standing, while it may be trusted.
    fn standing(&self, user: UserId, account: AccountId) -> Option<Standing> {
        let standing = self.standings.get(&(user, account))?;
        let changed = self.changed.contains_key(&(user, account)) || self.changed_accounts.contains_key(&account);
        (!changed).then_some(standing)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            sessions: Cache::builder()
                .max_capacity(REMEMBERED)
                .time_to_live(RECORDED_FOR)
                .build(),
            recorded: Cache::builder()
                .max_capacity(REMEMBERED)
                .time_to_live(RECORDED_FOR)
                .build(),
            standings: Cache::builder()
                .max_capacity(REMEMBERED)
                .time_to_live(STANDING_FOR)
                .build(),
            changed: Cache::builder()
                .max_capacity(REMEMBERED)
                .time_to_live(CHANGED_FOR)
                .build(),
            changed_accounts: Cache::builder()
                .max_capacity(REMEMBERED)
                .time_to_live(CHANGED_FOR)
                .build(),
        }
    }
}

/// An account store that trusts a standing for a fifth of a second. Only memberships that exist are remembered, so that a new
/// one counts at once.
pub struct RememberedStandings {
    /// Where they come from.
    pub store: Arc<dyn AccountStore>,
    /// What is remembered.
    pub memory: Memory,
}

#[async_trait]
impl AccountStore for RememberedStandings {
    async fn record_user(&self, session: &Session) -> Result<(), StoreError> {
        let seen = (session.email.clone(), session.name.clone());
        if self.memory.recorded.get(&session.user_id).as_ref() == Some(&seen) {
            return Ok(());
        }
        self.store.record_user(session).await?;
        self.memory.recorded.insert(session.user_id, seen);
        Ok(())
    }

    async fn memberships(&self, user: UserId) -> Result<Vec<Membership>, StoreError> {
        self.store.memberships(user).await
    }

    async fn standing(&self, user: UserId, account: AccountId) -> Result<Option<Standing>, StoreError> {
        if let Some(standing) = self.memory.standing(user, account) {
            return Ok(Some(standing));
        }
        let standing = self.store.standing(user, account).await?;
        if let Some(standing) = standing {
            self.memory.standings.insert((user, account), standing);
        }
        Ok(standing)
    }

    async fn latest_standing(&self, user: UserId) -> Result<Option<Standing>, StoreError> {
        self.store.latest_standing(user).await
    }

    async fn create(&self, account: &Account, owner: UserId) -> Result<Account, StoreError> {
        self.store.create(account, owner).await
    }

    async fn switch(
        &self,
        user: UserId,
        account: AccountId,
        now: OffsetDateTime,
    ) -> Result<Option<Membership>, StoreError> {
        self.store.switch(user, account, now).await
    }
}

/// Proves who asks.
pub struct Authenticator {
    /// Proves tokens.
    pub verifier: Arc<dyn SessionVerifier>,
    /// Finds accounts.
    pub accounts: Arc<Accounts>,
    /// Proves API keys.
    pub api_keys: Arc<ApiKeys>,
    /// Ends remembered sessions.
    pub clock: Arc<dyn Clock>,
    /// What is remembered.
    pub memory: Memory,
    /// The session's cookie.
    pub cookie: String,
    /// Knows administrators in support mode.
    pub support: Arc<SupportCookies>,
    /// Whose word on addresses is taken.
    pub trusted_proxies: Vec<Network>,
}

/// What a request presents.
enum Credential {
    Token { token: String, by_cookie: bool },
    ApiKey(SecretString),
    Nothing,
}

/// Somebody proved.
pub struct Proof<T> {
    /// Who.
    pub who: T,
    /// By a cookie, which browsers send without being asked to, also for foreign pages.
    pub by_cookie: bool,
}

impl Authenticator {
    /// The person behind a request; API keys are none.
    pub async fn session(&self, request: &HttpRequest) -> Result<Proof<Session>, ApiError> {
        match self.credential(request) {
            Credential::Token { token, by_cookie } => Ok(Proof {
                who: self.verified(token).await?,
                by_cookie,
            }),
            Credential::ApiKey(_) => Err(ApiError::Auth("This route takes a session, not an API key".to_owned())),
            Credential::Nothing => Err(ApiError::Auth("A session is required".to_owned())),
        }
    }

    /// The account context of a request.
    pub async fn tenant(&self, request: &HttpRequest) -> Result<Proof<Tenant>, ApiError> {
        let address = self.address(request);
        match self.credential(request) {
            Credential::ApiKey(key) => Ok(Proof {
                who: self.api_keys.authenticate(&key, address).await?,
                by_cookie: false,
            }),
            Credential::Token { token, by_cookie } => {
                let session = self.verified(token).await?;
                let hint: AccountHint = cookies::account_hint(request);
                let supported = self.support_mode(request, &session).map(|mode| mode.account_id);
                Ok(Proof {
                    who: self.accounts.context(&session, hint, supported, address).await?,
                    by_cookie,
                })
            }
            Credential::Nothing => Err(ApiError::Auth("A session or an API key is required".to_owned())),
        }
    }

    /// A platform administrator, and nobody else.
    pub async fn admin(&self, request: &HttpRequest) -> Result<Proof<Session>, ApiError> {
        let proof = self.session(request).await?;
        if self.accounts.is_admin(&proof.who) {
            Ok(proof)
        } else {
            Err(ApiError::Auth("This takes a platform administrator".to_owned()))
        }
    }

    /// Which support mode a platform administrator is in, as their cookie says.
    pub fn support_mode(&self, request: &HttpRequest, session: &Session) -> Option<SupportMode> {
        let is_admin = self.accounts.is_admin(session);
        is_admin
            .then(|| self.support.read(request, session.user_id, self.clock.now()))
            .flatten()
    }

    /// Where the request comes from.
    pub fn address(&self, request: &HttpRequest) -> Option<String> {
        peer::address(request, &self.trusted_proxies).map(|address| address.to_string())
    }

    async fn verified(&self, token: String) -> Result<Session, ApiError> {
        if let Some(session) = self.remembered(&token) {
            self.accounts.record_user(&session).await?;
            return Ok(session);
        }
        let session = self.verifier.verify(&token).await?;
        self.accounts.record_user(&session).await?;
        self.memory.sessions.insert(token, session.clone());
        Ok(session)
    }

    /// The session that this token proved before, while it lasts. With `credential` all that a repeated token costs, and
    /// apart, so that `cargo xtask bench auth` finds the two among the instructions of a request.
    #[inline(never)]
    fn remembered(&self, token: &str) -> Option<Session> {
        let session = self.memory.sessions.get(token)?;
        (session.expires_at > self.clock.now()).then_some(session)
    }

    /// `Authorization: Bearer` first, then `X-API-Key`, then the cookie.
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
