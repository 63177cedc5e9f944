//! Authentication, accounts, API keys and invites.

use std::sync::Arc;

use recado_domain::accounts::{AccountStore, Accounts, Administrators, Sessions};
use recado_domain::api_keys::{ApiKeys, KeyNotices};
use recado_domain::team::Invites;
use recado_postgres::{OwnerPool, PgAccounts, PgApiKeys, PgInvites, PgSessions};

use super::{Shared, Stores};
use crate::config::{Config, SessionVerification};
use crate::recipient_hash::AppRecipientHasher;
use recado_api::web::auth::Authenticator;
use recado_api::web::auth_cache::CachedMemberships;
use recado_api::web::key_cache::CachedKeys;
use recado_api::web::key_lookups::KeyLookups;
use recado_api::web::session_cache::CachedSessions;
use recado_api::web::support::SupportCookies;

pub(super) fn accounts(shared: &Shared, stores: &Stores) -> Arc<Accounts> {
    let store: Arc<dyn AccountStore> = Arc::new(PgAccounts::new(stores.owner.clone()));
    let store = Arc::new(CachedMemberships {
        store,
        auth_cache: shared.auth_cache.clone(),
    });
    let administrators = administrators(&shared.config);
    let (clock, ids) = (shared.clock.clone(), shared.ids.clone());
    let accounts = Accounts::new(store, clock, ids, administrators);
    Arc::new(accounts.at_most(shared.config.limits.accounts_per_user))
}

/// With published keys the identity provider may let users register any address, so its tokens have to say that the
/// address is verified, unless the operator vouches for the provider.
fn administrators(config: &Config) -> Administrators {
    let rules = &config.identity;
    let administrators = Administrators::new(rules.admin_ids.clone(), &config.platform_admin_emails)
        .signed_in_within(rules.admin_max_age);
    match &config.session_verification {
        SessionVerification::Jwks(_) if !rules.trust_email => administrators.requiring_verified_email(),
        SessionVerification::Jwks(_) | SessionVerification::Secret(_) => administrators,
    }
}

/// Sessions that users have ended, with a cache.
pub(super) fn sessions(shared: &Shared, stores: &Stores) -> Sessions {
    let store = CachedSessions {
        store: Arc::new(PgSessions::new(stores.owner.clone())),
        cache: shared.sessions.clone(),
    };
    Sessions::new(Arc::new(store), shared.clock.clone())
}

pub(super) fn invites(shared: &Shared, stores: &Stores) -> anyhow::Result<Invites> {
    Ok(Invites::new(
        Arc::new(PgInvites::new(stores.owner.clone())),
        shared.secrets.clone(),
        shared.ids.clone(),
        shared.mailer.is_some().then(|| shared.cipher.clone()),
        Arc::new(AppRecipientHasher::new(&shared.config.app_secrets.current)?),
        &shared.config.public_url,
    ))
}

/// Looks up unseen keys on separate connections (`unseen`).
pub(super) fn api_keys(shared: &Shared, stores: &Stores, unseen: &OwnerPool) -> Arc<ApiKeys> {
    let store = Arc::new(CachedKeys {
        store: Arc::new(PgApiKeys::new(stores.owner.clone())),
        unseen: KeyLookups::new(Arc::new(PgApiKeys::new(unseen.clone()))),
        cache: shared.keys.clone(),
        auth_cache: shared.auth_cache.clone(),
    });
    let (clock, ids, secrets) = (shared.clock.clone(), shared.ids.clone(), shared.secrets.clone());
    Arc::new(ApiKeys::new(store, clock, ids, secrets).longest(shared.config.api_key_longest))
}

impl Stores {
    /// Notifies accounts about their keys.
    pub fn key_notices(&self, shared: &Shared) -> KeyNotices {
        KeyNotices::new(Arc::new(PgApiKeys::new(self.owner.clone())), shared.clock.clone())
    }
}

pub(super) fn authenticator(
    shared: &Shared,
    stores: &Stores,
    accounts: Arc<Accounts>,
    api_keys: Arc<ApiKeys>,
) -> anyhow::Result<Authenticator> {
    let support = SupportCookies::new(&shared.config.app_secrets, shared.config.cookie_secure)?;
    Ok(Authenticator {
        verifier: shared.verifier.clone(),
        accounts,
        sessions: sessions(shared, stores),
        api_keys,
        clock: shared.clock.clone(),
        auth_cache: shared.auth_cache.clone(),
        support: Arc::new(support),
        cookie: shared.config.session_cookie.clone(),
        trusted_proxies: shared.config.trusted_proxies.clone(),
    })
}
