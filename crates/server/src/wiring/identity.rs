//! Authentication, accounts, API keys and invites.

use std::sync::Arc;

use recado_domain::accounts::{AccountStore, Accounts};
use recado_domain::api_keys::ApiKeys;
use recado_domain::team::Invites;
use recado_postgres::{OwnerPool, PgAccounts, PgApiKeys, PgInvites};

use super::{Shared, Stores};
use crate::web::auth::Authenticator;
use crate::web::auth_cache::CachedMemberships;
use crate::web::key_cache::CachedKeys;
use crate::web::key_lookups::KeyLookups;
use crate::web::support::SupportCookies;

pub(super) fn accounts(shared: &Shared, stores: &Stores) -> Arc<Accounts> {
    let store: Arc<dyn AccountStore> = Arc::new(PgAccounts::new(stores.owner.clone()));
    let store = Arc::new(CachedMemberships {
        store,
        auth_cache: shared.auth_cache.clone(),
    });
    let admins = &shared.config.platform_admin_emails;
    Arc::new(Accounts::new(store, shared.clock.clone(), shared.ids.clone(), admins))
}

pub(super) fn invites(shared: &Shared, stores: &Stores) -> Invites {
    Invites::new(
        Arc::new(PgInvites::new(stores.owner.clone())),
        shared.secrets.clone(),
        shared.ids.clone(),
        shared.mailer.is_some().then(|| shared.cipher.clone()),
        &shared.config.public_url,
    )
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
    Arc::new(ApiKeys::new(store, clock, ids, secrets))
}

pub(super) fn authenticator(
    shared: &Shared,
    accounts: Arc<Accounts>,
    api_keys: Arc<ApiKeys>,
) -> anyhow::Result<Authenticator> {
    let support = SupportCookies::new(&shared.config.app_secrets, shared.config.cookie_secure)?;
    Ok(Authenticator {
        verifier: shared.verifier.clone(),
        accounts,
        api_keys,
        clock: shared.clock.clone(),
        auth_cache: shared.auth_cache.clone(),
        support: Arc::new(support),
        cookie: shared.config.session_cookie.clone(),
        trusted_proxies: shared.config.trusted_proxies.clone(),
    })
}
