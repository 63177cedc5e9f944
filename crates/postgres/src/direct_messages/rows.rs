//! The rows of direct messages as the API shows them.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::campaigns::{Failure, FailureClass};
use recado_domain::direct_messages::{DirectMessage, DirectStatus, HoldReason, MessageTemplate};
use recado_domain::messaging::{AddressKind, ErrorCodes};
use recado_domain::shared::{StoreError, UserId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::read_profile;
use crate::errors::parse_enum;
use crate::pricing::published;

/// The columns of a [`MessageRow`], from [`FROM`]. A message is held by a setting until it is due.
pub(super) const COLUMNS: &str = "m.id, m.contact_id, c.phone, c.wa_user_id, m.profile_id, m.kind, m.template_id,
    t.name AS template_name, t.language AS template_language, t.category AS template_category, m.status, m.started_at,
    m.unknown_at IS NOT NULL AS is_unknown,
    coalesce(CASE WHEN m.due_at > now() THEN m.hold_rule END, m.hold_reason, q.hold_reason) AS hold_reason,
    CASE WHEN coalesce(CASE WHEN m.due_at > now() THEN m.hold_rule END, m.hold_reason) IS NULL THEN greatest(q.held_until, q.due_at) ELSE m.due_at END
      AS retry_at, m.send_at, m.expires_at, m.sent_at,
    m.client_reference, m.wa_message_id, m.error_code, m.error_message,
    coalesce(m.failed_at, m.updated_at) AS failed_at,
    (c.opted_out_at IS NULL AND c.consent_at >= coalesce(m.failed_at, m.updated_at)) IS TRUE AS opted_in_since, m.pricing, m.by_user_id, m.conversation_id, m.created_by,
    m.api_key_id, m.created_at, m.updated_at, now() AS now";

/// Messages with what the API shows of their contacts, templates and queues, each looked up by its key.
pub(super) const FROM: &str = "direct_messages m
    LEFT JOIN contacts c ON c.account_id = m.account_id AND c.id = m.contact_id
    LEFT JOIN message_templates t ON t.account_id = m.account_id AND t.id = m.template_id
    LEFT JOIN direct_message_queues q ON q.account_id = m.account_id AND q.profile_id = m.profile_id";

#[derive(QueryableByName)]
pub(super) struct MessageRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    #[diesel(sql_type = SqlUuid)]
    profile_id: Uuid,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    template_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    template_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    template_language: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    template_category: Option<String>,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    started_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Bool)]
    is_unknown: bool,
    #[diesel(sql_type = Nullable<Text>)]
    hold_reason: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    retry_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    send_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    expires_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    sent_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    client_reference: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_message_id: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    error_code: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    error_message: Option<String>,
    #[diesel(sql_type = Bool)]
    opted_in_since: bool,
    /// Its last change, unless it failed.
    #[diesel(sql_type = Timestamptz)]
    failed_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<Jsonb>)]
    pricing: Option<Value>,
    #[diesel(sql_type = Bool)]
    by_user_id: bool,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    conversation_id: Option<Uuid>,
    #[diesel(sql_type = SqlUuid)]
    created_by: Uuid,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    api_key_id: Option<Uuid>,
    #[diesel(sql_type = Timestamptz)]
    pub(super) created_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    updated_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

impl MessageRow {
    fn template(&self) -> Result<Option<MessageTemplate>, StoreError> {
        let (Some(id), Some(name), Some(language), Some(category)) = (
            self.template_id,
            &self.template_name,
            &self.template_language,
            &self.template_category,
        ) else {
            return Ok(None);
        };
        Ok(Some(MessageTemplate {
            id: id.into(),
            name: name.clone(),
            language: language.clone(),
            category: parse_enum(category)?,
        }))
    }
}

impl MessageRow {
    /// The class of a failed message, and the earliest time of a further attempt.
    fn failure(&self, status: DirectStatus, codes: ErrorCodes) -> (Option<FailureClass>, Option<OffsetDateTime>) {
        if status != DirectStatus::Failed {
            return (None, None);
        }
        let failure = Failure {
            error: self.error_code.map(|code| codes.class(code)),
            times: 1,
            failed_at: self.failed_at,
            opted_in_since: self.opted_in_since,
            has_phone: self.phone.is_some(),
        };
        let (class, retry_after) = failure.class();
        (Some(class), retry_after)
    }

    pub(super) fn into_message(self, codes: ErrorCodes) -> Result<DirectMessage, StoreError> {
        let row = self;
        let status = parse_enum(&row.status)?;
        let (failure_class, retry_after) = row.failure(status, codes);
        Ok(DirectMessage {
            template: row.template()?,
            id: row.id.into(),
            contact_id: row.contact_id.into(),
            phone: row.phone,
            wa_user_id: row.wa_user_id,
            profile_id: read_profile(row.profile_id),
            kind: parse_enum(&row.kind)?,
            status,
            started_at: row.started_at,
            is_unknown: row.is_unknown,
            hold_reason: row.hold_reason.as_deref().map(parse_enum::<HoldReason>).transpose()?,
            retry_at: row.retry_at,
            send_at: row.send_at,
            expires_at: row.expires_at,
            sent_at: row.sent_at,
            client_reference: row.client_reference,
            wa_message_id: row.wa_message_id,
            error_code: row.error_code,
            error_message: row.error_message,
            failure_class,
            retry_after,
            pricing: published(row.pricing.as_ref())?,
            address: row.started_at.map(|_| AddressKind::of(row.by_user_id)),
            conversation_id: row.conversation_id.map(Into::into),
            created_by: UserId(row.created_by),
            api_key_id: row.api_key_id.map(Into::into),
            created_at: row.created_at,
            updated_at: row.updated_at,
            now: row.now,
        })
    }
}
