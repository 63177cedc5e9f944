//! The use cases of webhooks: endpoints, their secrets, logs, the feed, test events and redelivery.

use std::sync::Arc;

use secrecy::SecretString;
use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::endpoint::{EndpointFields, UrlRules, merge};
use super::signature::SECRET_BYTES;
use super::{
    DeliveryQueue, Direction, FeedQuery, LogQuery, NewWebhook, RedeliveryRefusal, SealedSecrets, SecretBytes,
    StoredWebhook, Webhook, WebhookError, WebhookEvent, WebhookInput, WebhookLog, WebhookLogStore, WebhookStore,
};
use crate::egress::AllowList;
use crate::shared::{
    AuditAction, Cipher, Clock, Creation, CursorPage, Event, FieldErrors, Ids, InsertOutcome, Page, PageQuery,
    SealContext, Secrets, Tenant, WebhookEventId, WebhookId, WebhookKind, WebhookLogId, retry_on_conflict,
};

/// The most endpoints of an account. The limit bounds the deliveries of one event.
const MAX_WEBHOOKS: i64 = 200;

/// How long a replaced secret signs beside the new one.
const SECRET_OVERLAP: Duration = Duration::hours(24);

/// The most deliveries that one transaction of a recovery enqueues.
const RECOVERY_BATCH: i64 = 5000;

/// How long an abandoned delivery is stored: as long as its event, from the event's time.
const RETENTION: Duration = Duration::days(30);

/// The `entity_type` of an endpoint in audit entries.
pub(super) const ENTITY: &str = "webhook";

/// The use cases of one account's webhooks.
pub struct Webhooks {
    pub store: Arc<dyn WebhookStore>,
    pub logs: Arc<dyn WebhookLogStore>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    /// Creates secrets.
    pub secrets: Arc<dyn Secrets>,
    /// Seals stored secrets.
    pub cipher: Arc<dyn Cipher>,
    /// Private networks that may be called.
    pub allow: AllowList,
    /// Whether endpoints may use plain HTTP.
    pub plain_http: bool,
}

impl Webhooks {
    /// Lists the account's endpoints, newest first.
    pub async fn page(&self, tenant: &Tenant, page: PageQuery) -> Result<Page<Webhook>, WebhookError> {
        Ok(self.store.page(tenant.account_id, page).await?)
    }

    pub async fn get(&self, tenant: &Tenant, id: WebhookId) -> Result<Webhook, WebhookError> {
        Ok(self.stored(tenant, id).await?.webhook)
    }

    async fn stored(&self, tenant: &Tenant, id: WebhookId) -> Result<StoredWebhook, WebhookError> {
        let found = self.store.find(tenant.account_id, id).await?;
        found.ok_or(WebhookError::NotFound)
    }

    fn url_rules(&self) -> UrlRules<'_> {
        UrlRules {
            plain_http: self.plain_http,
            allow: &self.allow,
        }
    }

    /// Creates an endpoint. Only this result shows its secret.
    pub async fn create(&self, tenant: &Tenant, input: WebhookInput) -> Result<NewWebhook, WebhookError> {
        let fields = merge(None, input, &self.url_rules())?;
        let secret = self.new_secret()?;
        let now = self.clock.now();
        let webhook = Webhook {
            id: self.ids.next().into(),
            name: fields.name,
            url: fields.url,
            events: fields.events,
            direction: fields.direction,
            is_active: fields.is_active,
            secret_hint: secret.hint(),
            disabled_at: None,
            disabled_reason: None,
            created_at: now,
            updated_at: now,
        };
        let changes = json!({ "name": webhook.name, "url": webhook.url.as_deref().map(without_query), "events": webhook.events,
            "direction": webhook.direction, "is_active": webhook.is_active });
        let audit = tenant
            .audit(AuditAction::Create, ENTITY, webhook.id)
            .with_changes(changes);
        let notice = tenant.creation_notice(&Creation {
            title: "Webhook created",
            action: "created the webhook",
            name: &webhook.name,
            id_field: "webhook_id",
            id: webhook.id.0,
        });
        let secrets = SealedSecrets {
            current: self.cipher.seal(
                &secret.hex(),
                &SealContext::webhook_secret(tenant.account_id, webhook.id),
            ),
            previous: None,
        };
        let stored = StoredWebhook {
            webhook,
            secrets,
            version: 1,
        };
        let events = [Event::Audit(audit), notice];
        match self
            .store
            .insert(tenant.account_id, &stored, MAX_WEBHOOKS, &events)
            .await?
        {
            InsertOutcome::Done => Ok(with_secret(stored.webhook, &secret)),
            InsertOutcome::Full => Err(FieldErrors::one("webhooks", limit_reached()).into()),
        }
    }

    fn new_secret(&self) -> Result<SecretBytes, WebhookError> {
        let token = self.secrets.token(SECRET_BYTES);
        SecretBytes::from_token(&token).ok_or_else(|| {
            let message = "the secret generator returned invalid base64url".to_owned();
            WebhookError::Store(crate::shared::StoreError::Corrupt(message))
        })
    }

    /// Changes the given fields of an endpoint. Optimistic locking preserves concurrent changes of other fields.
    pub async fn update(&self, tenant: &Tenant, id: WebhookId, input: WebhookInput) -> Result<Webhook, WebhookError> {
        self.validate_input(&input)?;
        retry_on_conflict(async || {
            let stored = self.stored(tenant, id).await?;
            let fields = merge(
                Some(EndpointFields::from_stored(&stored)),
                input.clone(),
                &self.url_rules(),
            )?;
            let changed = self.with_fields(&stored, fields);
            let audit = tenant.audit(AuditAction::Update, ENTITY, id);
            let changes = differences(&stored.webhook, &changed.webhook);
            let events = [Event::Audit(audit.with_changes(changes))];
            let written = self.store.update(tenant.account_id, &changed, &events).await?;
            Ok(written.or_missing(WebhookError::NotFound)?.map(|()| changed.webhook))
        })
        .await
    }

    /// Validates `input` before the endpoint is read, so that invalid input takes precedence over `NotFound`.
    fn validate_input(&self, input: &WebhookInput) -> Result<(), FieldErrors> {
        let inbound = input.direction.as_deref() == Some(Direction::Inbound.as_str());
        let clears_url = matches!(input.url.as_ref().map(Option::as_deref), Some(None | Some("")));
        let any = EndpointFields {
            name: "-".to_owned(),
            url: Some("https://e.example".to_owned()),
            events: vec!["*".to_owned()],
            direction: if inbound {
                Direction::Inbound
            } else {
                Direction::Outbound
            },
            is_active: true,
        };
        // Whether the URL may be cleared depends on the stored direction.
        let url = if clears_url { None } else { input.url.clone() };
        let input = WebhookInput { url, ..input.clone() };
        merge(Some(any), input, &self.url_rules()).map(|_| ())
    }

    fn with_fields(&self, stored: &StoredWebhook, fields: EndpointFields) -> StoredWebhook {
        let mut changed = stored.clone();
        let webhook = &mut changed.webhook;
        // A member's change of `is_active` replaces an automatic disabling.
        if fields.is_active != webhook.is_active {
            webhook.disabled_at = None;
            webhook.disabled_reason = None;
        }
        webhook.name = fields.name;
        webhook.url = fields.url;
        webhook.events = fields.events;
        webhook.is_active = fields.is_active;
        webhook.updated_at = self.clock.now();
        changed
    }

    /// Gives an endpoint a new secret. The old one signs too for `SECRET_OVERLAP`.
    pub async fn rotate_secret(&self, tenant: &Tenant, id: WebhookId) -> Result<NewWebhook, WebhookError> {
        let secret = self.new_secret()?;
        let context = SealContext::webhook_secret(tenant.account_id, id);
        let webhook = retry_on_conflict(async || {
            let stored = self.stored(tenant, id).await?;
            let mut changed = stored.clone();
            changed.webhook.updated_at = self.clock.now();
            changed.webhook.secret_hint = secret.hint();
            changed.secrets = SealedSecrets {
                current: self.cipher.seal(&secret.hex(), &context),
                previous: Some((stored.secrets.current, self.clock.now() + SECRET_OVERLAP)),
            };
            let changes = json!({ "secret_hint": changed.webhook.secret_hint });
            let audit = tenant.audit(AuditAction::Update, ENTITY, id).with_changes(changes);
            let events = [Event::Audit(audit)];
            let written = self.store.update(tenant.account_id, &changed, &events).await?;
            Ok::<_, WebhookError>(written.or_missing(WebhookError::NotFound)?.map(|()| changed.webhook))
        });
        Ok(with_secret(webhook.await?, &secret))
    }

    /// Deletes an endpoint and its waiting deliveries.
    pub async fn delete(&self, tenant: &Tenant, id: WebhookId) -> Result<(), WebhookError> {
        let audit = Event::Audit(tenant.audit(AuditAction::Delete, ENTITY, id));
        self.store
            .delete(tenant.account_id, id, &[audit])
            .await?
            .or_missing(WebhookError::NotFound)
    }

    /// Lists logs, newest first.
    pub async fn logs(&self, tenant: &Tenant, query: &LogQuery) -> Result<CursorPage<WebhookLog>, WebhookError> {
        let with_next = LogQuery {
            limit: query.limit.saturating_add(1),
            ..query.clone()
        };
        let rows = self.logs.logs(tenant.account_id, &with_next).await?;
        Ok(CursorPage::cut(rows, query.limit, |log| log.id))
    }

    /// Lists the account's webhook events, oldest first.
    pub async fn feed(&self, tenant: &Tenant, query: &FeedQuery) -> Result<CursorPage<WebhookEvent>, WebhookError> {
        Ok(self.logs.feed(tenant.account_id, query).await?)
    }

    /// Finds an endpoint that accepts deliveries: outbound and active.
    async fn deliverable(&self, tenant: &Tenant, id: WebhookId) -> Result<Webhook, WebhookError> {
        let webhook = self.get(tenant, id).await?;
        match (webhook.direction, webhook.is_active) {
            (Direction::Inbound, _) => Err(RedeliveryRefusal::Inbound.into()),
            (Direction::Outbound, false) => Err(RedeliveryRefusal::Inactive.into()),
            (Direction::Outbound, true) => Ok(webhook),
        }
    }

    /// Enqueues a test event for an endpoint, regardless of its subscribed types. Returns the event's id.
    pub async fn test(&self, tenant: &Tenant, id: WebhookId) -> Result<WebhookEventId, WebhookError> {
        let webhook = self.deliverable(tenant, id).await?;
        let event = WebhookEvent {
            id: self.ids.next().into(),
            kind: WebhookKind::TestPing.as_str().to_owned(),
            timestamp: self.clock.now(),
            account_id: tenant.account_id,
            data: json!({ "webhook_id": webhook.id, "name": webhook.name }),
        };
        let pinged = self.logs.ping(tenant.account_id, id, &event).await?;
        pinged.or_missing(WebhookError::NotFound).map(|()| event.id)
    }

    /// Enqueues the event of a log again for the log's endpoint. Returns the event's id.
    pub async fn redeliver(&self, tenant: &Tenant, id: WebhookLogId) -> Result<WebhookEventId, WebhookError> {
        let account = tenant.account_id;
        let logged = self.logs.logged(account, id).await?.ok_or(WebhookError::NotFound)?;
        let event = logged.event_id.ok_or(RedeliveryRefusal::Inbound)?;
        match self.deliverable(tenant, logged.endpoint_id).await {
            Ok(_) => {}
            Err(WebhookError::NotFound) => return Err(RedeliveryRefusal::Deleted.into()),
            Err(error) => return Err(error),
        }
        let enqueued = self.logs.redeliver(account, logged.endpoint_id, event).await?;
        Ok(enqueued.or_missing(RedeliveryRefusal::EventPurged).map(|()| event)?)
    }

    /// Enqueues the deliveries that failed since `since` and did not succeed afterwards. Returns their number.
    pub async fn recover(
        &self,
        tenant: &Tenant,
        id: WebhookId,
        since: Option<OffsetDateTime>,
    ) -> Result<i64, WebhookError> {
        let since = since.ok_or_else(|| FieldErrors::one("since", "is required"))?;
        if since > self.clock.now() {
            return Err(FieldErrors::one("since", "must not be in the future").into());
        }
        self.deliverable(tenant, id).await?;
        Ok(self.logs.recover(tenant.account_id, id, since, RECOVERY_BATCH).await?)
    }
}

fn with_secret(webhook: Webhook, secret: &SecretBytes) -> NewWebhook {
    let (hex, signing_secret): (SecretString, SecretString) = (secret.hex(), secret.signing_secret());
    NewWebhook {
        webhook,
        secret: hex,
        signing_secret,
    }
}

/// The changed fields with their new values. A URL loses its query, which may hold secrets.
fn differences(before: &Webhook, after: &Webhook) -> serde_json::Value {
    let mut changes = serde_json::Map::new();
    let url = after.url.as_deref().map(without_query);
    for (field, differs, value) in [
        ("name", before.name != after.name, json!(after.name)),
        ("url", before.url != after.url, json!(url)),
        ("events", before.events != after.events, json!(after.events)),
        ("is_active", before.is_active != after.is_active, json!(after.is_active)),
    ] {
        if differs {
            changes.insert(field.to_owned(), value);
        }
    }
    changes.into()
}

fn without_query(url: &str) -> String {
    match url.split_once('?') {
        Some((base, _)) => format!("{base}?..."),
        None => url.to_owned(),
    }
}

fn limit_reached() -> String {
    format!("limit of {MAX_WEBHOOKS} reached; delete a webhook first")
}

/// Purges abandoned deliveries of events older than `RETENTION`. The events themselves are dropped by the day.
pub struct Sweeper {
    queue: Arc<dyn DeliveryQueue>,
}

impl Sweeper {
    pub fn new(queue: Arc<dyn DeliveryQueue>) -> Self {
        Self { queue }
    }

    /// Purges up to `limit` deliveries. Returns true if more may remain.
    pub async fn sweep(&self, limit: i64) -> Result<bool, crate::shared::StoreError> {
        Ok(self.queue.sweep(RETENTION, limit).await? > 0)
    }
}

#[cfg(test)]
mod tests;
