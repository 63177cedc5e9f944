//! Use cases of API keys: authenticate, list, create, change, rotate, delete.

use std::net::IpAddr;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};

use super::input::{KeyFields, check, differences};
use super::{
    ApiKey, ApiKeyError, ApiKeyInput, ApiKeyStore, KEY_PREFIX, KeyGrant, KeyRecord, KeyUse, NewApiKey, Rotation,
    StoredApiKey, networks,
};
use crate::accounts::AccountStatus;
use crate::shared::{
    Actor, ApiKeyId, AuditAction, CallingKey, Clock, Creation, Event, FieldErrors, Ids, InsertOutcome, KeyScopes, Role,
    Secrets, Tenant, retry_on_conflict, secret_hash,
};

/// Minimum interval between two writes of `last_used_at`.
const TOUCH_EVERY: Duration = Duration::minutes(1);

/// Random bytes of a key. With 192 bits of entropy an unsalted SHA-256 is a sufficient hash.
const KEY_BYTES: usize = 24;

/// Number of final characters of a key that are shown.
const HINT_CHARS: usize = 4;

/// Maximum number of keys of an account. The list has no pages.
const MAX_KEYS: i64 = 100;

/// How many hours the old secret works after a rotation, without a wish of the caller and at most.
const GRACE_HOURS: i64 = 24;
const MAX_GRACE_HOURS: i64 = 168;

/// How long a repeated request is the same request.
const REPEATED_WITHIN: Duration = Duration::hours(24);

/// Entity type of audit entries about keys.
const ENTITY: &str = "api_key";

/// Use cases of API keys.
pub struct ApiKeys {
    store: Arc<dyn ApiKeyStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    secrets: Arc<dyn Secrets>,
    /// The operator's limit on the lifetime of keys.
    longest: Option<Duration>,
}

impl ApiKeys {
    pub fn new(
        store: Arc<dyn ApiKeyStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        secrets: Arc<dyn Secrets>,
    ) -> Self {
        Self {
            store,
            clock,
            ids,
            secrets,
            longest: None,
        }
    }

    /// Limits the lifetime of keys from now on.
    #[must_use]
    pub fn longest(self, longest: Option<Duration>) -> Self {
        Self { longest, ..self }
    }

    /// Whether a credential has the prefix of an API key.
    pub fn looks_like_key(credential: &str) -> bool {
        credential.starts_with(KEY_PREFIX)
    }

    /// Returns the tenant context of a key: role `member`, with the key's creator as actor.
    pub async fn authenticate(&self, key: &SecretString, address: Option<IpAddr>) -> Result<Tenant, ApiKeyError> {
        if !Self::looks_like_key(key.expose_secret()) {
            return Err(ApiKeyError::Unknown);
        }
        let grant = self.store.find(&secret_hash(key)).await?;
        let now = self.clock.now();
        let grant = grant.filter(|grant| may_be_used(grant, now, address));
        let grant = grant.ok_or(ApiKeyError::Unknown)?;
        if grant.status == AccountStatus::Suspended {
            return Err(ApiKeyError::Suspended);
        }
        let ip_address = address.map(|address| address.to_string());
        if grant.last_used_at.is_none_or(|last| now - last >= TOUCH_EVERY) {
            let key_use = KeyUse {
                at: now,
                ip_address: ip_address.clone(),
            };
            self.store.touch(grant.account_id, grant.id, &key_use).await?;
        }
        let actor = Actor {
            user_id: grant.created_by,
            ip_address,
            support_admin: None,
        };
        let calling_key = CallingKey {
            id: grant.id,
            scopes: grant.terms.scopes.clone(),
        };
        let name = format!("API key {} (...{})", grant.terms.name, grant.terms.key_hint);
        Ok(Tenant::new(
            grant.account_id,
            actor,
            Role::Member,
            name,
            Some(calling_key),
        ))
    }

    /// Returns every key of the account, newest first. Only owners and admins see addresses.
    pub async fn list(&self, tenant: &Tenant) -> Result<Vec<ApiKey>, ApiKeyError> {
        let mut keys = self.store.list(tenant.account_id).await?;
        if !tenant.role.manages() {
            keys.iter_mut().for_each(|key| key.last_used_ip = None);
        }
        Ok(keys)
    }

    /// Creates a key. Only the returned value contains the full key.
    pub async fn create(&self, tenant: &Tenant, input: ApiKeyInput) -> Result<NewApiKey, ApiKeyError> {
        let input = ApiKeyInput {
            name: Some(input.name.unwrap_or_default()),
            expires_at: Some(input.expires_at.flatten()),
            ..input
        };
        let fields = self.checked(tenant, input).await?;
        let full_key = self.new_secret();
        let key = ApiKey {
            id: self.ids.next().into(),
            name: fields.name.unwrap_or_default(),
            key_prefix: KEY_PREFIX.to_owned(),
            key_hint: hint(&full_key),
            scopes: fields.scopes.unwrap_or_default(),
            expires_at: fields.expires_at.flatten(),
            allowed_cidrs: fields.allowed_cidrs.unwrap_or_default(),
            created_by: tenant.actor.user_id,
            last_used_at: None,
            last_used_ip: None,
            rotated_at: None,
            previous_valid_until: None,
            created_at: self.clock.now(),
        };
        let events = creation_events(tenant, &key);
        let record = KeyRecord {
            account_id: tenant.account_id,
            key,
            hash: secret_hash(&full_key),
        };
        match self.store.insert(&record, MAX_KEYS, &events).await? {
            InsertOutcome::Done => Ok(NewApiKey {
                key: record.key,
                full_key,
            }),
            InsertOutcome::Full => Err(FieldErrors::one("api_keys", limit_reached()).into()),
        }
    }

    /// Changes the given fields of a key. Optimistic locking preserves concurrent changes of other fields.
    pub async fn update(&self, tenant: &Tenant, id: ApiKeyId, input: ApiKeyInput) -> Result<ApiKey, ApiKeyError> {
        let fields = self.checked(tenant, input).await?;
        retry_on_conflict(async || {
            let stored = self.stored(tenant, id).await?;
            let changed = StoredApiKey {
                key: with_fields(stored.key.clone(), fields.clone()),
                ..stored
            };
            let changes = differences(&stored.key, &changed.key);
            let audit = tenant.audit(AuditAction::Update, ENTITY, id).with_changes(changes);
            let events = [Event::Audit(audit)];
            let written = self.store.update(tenant.account_id, &changed, &events).await?;
            Ok(written.or_missing(ApiKeyError::NotFound)?.map(|()| changed.key))
        })
        .await
    }

    /// Gives a key a new secret. The current one works for `grace_hours` more, and never after the key's expiry; any
    /// older one ends at once. `request` is the hash of the idempotency key: if a server crashed before it stored its
    /// response, the same request rotates again, and only the secret that was never answered is replaced.
    pub async fn rotate(
        &self,
        tenant: &Tenant,
        id: ApiKeyId,
        grace_hours: Option<i64>,
        request: Option<Vec<u8>>,
    ) -> Result<NewApiKey, ApiKeyError> {
        let grace_hours = grace_hours.unwrap_or(GRACE_HOURS);
        if !(0..=MAX_GRACE_HOURS).contains(&grace_hours) {
            return Err(FieldErrors::one("grace_hours", "must be 0 to 168").into());
        }
        let full_key = self.new_secret();
        let rotated = retry_on_conflict(async || {
            let stored = self.stored(tenant, id).await?;
            let now = self.clock.now();
            if stored.key.expires_at.is_some_and(|at| at <= now) {
                return Err(ApiKeyError::Expired);
            }
            let rotation = Rotation {
                hash: secret_hash(&full_key),
                is_repeated: is_repeated(&stored, request.as_deref(), now),
            };
            let rotated = StoredApiKey {
                key: with_secret(stored.key, &full_key, &rotation, now, grace_hours),
                rotation_request: request.clone(),
                ..stored
            };
            let changes = json!({ "rotated": true, "key_hint": rotated.key.key_hint });
            let audit = tenant.audit(AuditAction::Update, ENTITY, id).with_changes(changes);
            let events = [Event::Audit(audit)];
            let written = self
                .store
                .rotate(tenant.account_id, &rotated, &rotation, &events)
                .await?;
            Ok(written.or_missing(ApiKeyError::NotFound)?.map(|()| rotated.key))
        });
        let key = rotated.await?;
        Ok(NewApiKey { key, full_key })
    }

    /// Deletes a key permanently. It is refused from the time this returns.
    pub async fn delete(&self, tenant: &Tenant, id: ApiKeyId) -> Result<(), ApiKeyError> {
        let audit = Event::Audit(tenant.audit(AuditAction::Delete, ENTITY, id));
        self.store
            .delete(tenant.account_id, id, &[audit])
            .await?
            .or_missing(ApiKeyError::NotFound)
    }

    async fn stored(&self, tenant: &Tenant, id: ApiKeyId) -> Result<StoredApiKey, ApiKeyError> {
        let found = self.store.get(tenant.account_id, id).await?;
        found.ok_or(ApiKeyError::NotFound)
    }

    /// Checks every field, and that the account has the templates that scopes name.
    async fn checked(&self, tenant: &Tenant, input: ApiKeyInput) -> Result<KeyFields, ApiKeyError> {
        let fields = check(input, self.clock.now(), self.longest)?;
        if fields.templates.is_empty() {
            return Ok(fields);
        }
        let templates: Vec<_> = fields.templates.iter().map(|(_, template)| *template).collect();
        let missing = self.store.missing_templates(tenant.account_id, &templates).await?;
        let mut errors = FieldErrors::default();
        for (position, template) in &fields.templates {
            if missing.contains(template) {
                errors.add(format!("scopes[{position}]"), "names a template that does not exist");
            }
        }
        errors.into_result()?;
        Ok(fields)
    }

    fn new_secret(&self) -> SecretString {
        let random = self.secrets.token(KEY_BYTES);
        SecretString::from(format!("{KEY_PREFIX}{}", random.expose_secret()))
    }
}

/// Whether key and secret have not ended, and the caller's address is in an allowed network.
fn may_be_used(grant: &KeyGrant, now: OffsetDateTime, address: Option<IpAddr>) -> bool {
    let has_ended = |end: Option<OffsetDateTime>| end.is_some_and(|end| end <= now);
    !has_ended(grant.expires_at)
        && !has_ended(grant.secret_valid_until)
        && networks::permit(&grant.terms.allowed_cidrs, address)
}

/// Whether the last rotation of the key was this request, which counts as the same for as long as idempotency keys.
fn is_repeated(stored: &StoredApiKey, request: Option<&[u8]>, now: OffsetDateTime) -> bool {
    let is_recent = stored.key.rotated_at.is_some_and(|at| now - at < REPEATED_WITHIN);
    is_recent && request.is_some() && stored.rotation_request.as_deref() == request
}

fn with_secret(
    key: ApiKey,
    full_key: &SecretString,
    rotation: &Rotation,
    now: OffsetDateTime,
    grace_hours: i64,
) -> ApiKey {
    let grace_end = now + Duration::hours(grace_hours);
    let grace_end = key.expires_at.map_or(grace_end, |at| at.min(grace_end));
    ApiKey {
        key_hint: hint(full_key),
        rotated_at: Some(now),
        previous_valid_until: key
            .previous_valid_until
            .filter(|_| rotation.is_repeated)
            .or(Some(grace_end)),
        ..key
    }
}

fn with_fields(key: ApiKey, fields: KeyFields) -> ApiKey {
    ApiKey {
        name: fields.name.unwrap_or(key.name),
        scopes: fields.scopes.unwrap_or(key.scopes),
        expires_at: fields.expires_at.unwrap_or(key.expires_at),
        allowed_cidrs: fields.allowed_cidrs.unwrap_or(key.allowed_cidrs),
        ..key
    }
}

fn creation_events(tenant: &Tenant, key: &ApiKey) -> [Event; 2] {
    let mut changes = Map::from_iter([("name".to_owned(), json!(key.name))]);
    if key.scopes != KeyScopes::default() {
        changes.insert("scopes".to_owned(), json!(key.scopes));
    }
    if !key.allowed_cidrs.is_empty() {
        changes.insert("allowed_cidrs".to_owned(), json!(key.allowed_cidrs));
    }
    if let Some(at) = key.expires_at {
        changes.insert("expires_at".to_owned(), json!(crate::shared::timestamp::format(at)));
    }
    let changes = Value::Object(changes);
    let audit = tenant.audit(AuditAction::Create, ENTITY, key.id).with_changes(changes);
    let notice = tenant.creation_notice(&Creation {
        title: "API key created",
        action: "created the API key",
        name: &key.name,
        id_field: "api_key_id",
        id: key.id.0,
    });
    [Event::Audit(audit), notice]
}

/// Returns the last characters of a key.
fn hint(key: &SecretString) -> String {
    let key = key.expose_secret();
    key.chars()
        .skip(key.chars().count().saturating_sub(HINT_CHARS))
        .collect()
}

fn limit_reached() -> String {
    format!("limit of {MAX_KEYS} reached; delete an API key first")
}

#[cfg(test)]
mod tests;
