//! Reads what decides on new messages, and on messages that are due.

use std::collections::HashMap;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Bool, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::Recipient;
use recado_domain::direct_messages::{
    ContactFacts, CreationFacts, DirectMessage, MessageRequest, NumberChoice, RemovedMessage, Requested,
    RequestedContent, RequestedTemplate,
};
use recado_domain::messaging::ErrorCodes;
use recado_domain::shared::{AccountId, StoreError};
use recado_domain::templates::Template;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::rows::{COLUMNS, FROM, MessageRow};
use crate::errors::{DbResult, corrupt, parse_enum};
use crate::filters::HAS_OPTED_OUT;
use crate::sql::{key_rows, sql};
use crate::whatsapp::USER_ID_SCOPE;
use crate::{billing, templates};

#[derive(QueryableByName)]
struct NumberRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Bool)]
    is_verified: bool,
}

#[derive(QueryableByName)]
pub(super) struct ContactRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    email: Option<String>,
    #[diesel(sql_type = Jsonb)]
    attributes: Value,
    #[diesel(sql_type = Nullable<Text>)]
    wa_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    /// The user id for each of the account's numbers. Null if the contact has a phone.
    #[diesel(sql_type = Nullable<Jsonb>)]
    user_ids: Option<Value>,
    /// The key by which the contact was looked up.
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Bool)]
    opted_out: bool,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_inbound_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    conversation_profile: Option<Uuid>,
}

impl TryFrom<ContactRow> for ContactFacts {
    type Error = StoreError;

    fn try_from(row: ContactRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            recipient: Recipient {
                name: row.name,
                phone: row.phone.unwrap_or_default(),
                user_id: None,
                email: row.email,
                attributes: serde_json::from_value(row.attributes).map_err(corrupt)?,
            },
            wa_id: row.wa_id,
            wa_user_id: row.wa_user_id,
            user_ids: match row.user_ids {
                Some(user_ids) => serde_json::from_value(user_ids).map_err(corrupt)?,
                None => HashMap::new(),
            },
            opted_out: row.opted_out,
            last_inbound_at: row.last_inbound_at,
            conversation_profile: row.conversation_profile.map(Into::into),
        })
    }
}

/// How a contact is looked up.
#[derive(Clone, Copy)]
pub(super) enum ContactKey {
    Id,
    Phone,
    User,
}

impl ContactKey {
    /// The contacts with the keys `$2`, as rows of `key` and `id`. A user id may be known for any portfolio.
    fn contacts(self) -> String {
        let keys = key_rows(if matches!(self, Self::Id) { "$2::uuid[]" } else { "$2" }, "key");
        let by = |table: &str, id: &str, column: &str| {
            format!(
                "SELECT k.key::text, c.{id} AS id FROM {keys} k JOIN {table} c ON c.account_id = $1 AND c.{column} = k.key"
            )
        };
        match self {
            Self::Id => by("contacts", "id", "id"),
            Self::Phone => by("contacts", "id", "phone") + " WHERE c.deleted_at IS NULL",
            Self::User => format!(
                "{latest} WHERE c.deleted_at IS NULL UNION {reported} UNION {parent}",
                latest = by("contacts", "id", "wa_user_id"),
                reported = by("contact_identities", "contact_id", "wa_user_id"),
                parent = by("contact_identities", "contact_id", "parent_user_id"),
            ),
        }
    }
}

/// The contacts with these keys that are not deleted, by their keys.
pub(super) async fn contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    key: ContactKey,
    keys: Vec<String>,
) -> DbResult<HashMap<String, ContactFacts>> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<ContactRow> = sql(format!(
        "SELECT k.key, c.id, c.name, c.phone, c.email, c.attributes, c.wa_id, c.wa_user_id,
           {HAS_OPTED_OUT} AS opted_out, v.last_inbound_at, v.profile_id AS conversation_profile,
           CASE WHEN c.phone IS NULL THEN (
             SELECT jsonb_object_agg(p.id, n.user_id) FROM whatsapp_profiles p CROSS JOIN LATERAL (
               SELECT fitting_user_id($1, c.id, c.wa_user_id, {USER_ID_SCOPE}) AS user_id) n
             WHERE p.account_id = $1 AND n.user_id IS NOT NULL) END AS user_ids
         FROM ({found}) k JOIN contacts c ON c.account_id = $1 AND c.id = k.id
         LEFT JOIN conversations v ON v.account_id = c.account_id AND v.contact_id = c.id
         WHERE c.deleted_at IS NULL ORDER BY c.id DESC",
        found = key.contacts(),
    ))
    .bind(account)
    .bind(keys)
    .load(conn)
    .await?;
    let mut found = HashMap::new();
    for row in rows {
        found.insert(row.key.clone(), ContactFacts::try_from(row)?);
    }
    Ok(found)
}

async fn requested_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    requests: &[MessageRequest],
) -> DbResult<HashMap<Requested, ContactFacts>> {
    let mut found = HashMap::new();
    for key in [ContactKey::Id, ContactKey::Phone, ContactKey::User] {
        let of_key = |request: &MessageRequest| match (key, &request.to) {
            (ContactKey::Id, Requested::Contact(id)) => Some(id.to_string()),
            (ContactKey::Phone, Requested::Phone(phone)) => Some(phone.to_string()),
            (ContactKey::User, Requested::User(id)) => Some(id.clone()),
            _ => None,
        };
        let keys: Vec<String> = requests.iter().filter_map(of_key).collect();
        let contacts = contacts(conn, account, key, keys).await?;
        for request in requests {
            let contact = of_key(request).and_then(|text| contacts.get(&text));
            if let Some(contact) = contact {
                found.insert(request.to.clone(), contact.clone());
            }
        }
    }
    Ok(found)
}

/// The templates that the contents name and that are not deleted.
pub(super) async fn requested_templates(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contents: impl Iterator<Item = &RequestedContent>,
) -> DbResult<HashMap<RequestedTemplate, Template>> {
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for content in contents {
        match content {
            RequestedContent::Template {
                key: RequestedTemplate::Id(id),
                ..
            } => ids.push(id.0),
            RequestedContent::Template {
                key: RequestedTemplate::Name { name, .. },
                ..
            } => names.push(name.clone()),
            RequestedContent::FreeForm(_) => {}
        }
    }
    if ids.is_empty() && names.is_empty() {
        return Ok(HashMap::new());
    }
    let mut found = HashMap::new();
    for template in templates::find_all(conn, account, &ids, &names).await? {
        let (name, language) = (template.name.clone(), template.language.clone());
        found.insert(RequestedTemplate::Name { name, language }, template.clone());
        found.insert(RequestedTemplate::Id(template.id), template);
    }
    Ok(found)
}

#[derive(QueryableByName)]
struct ReferenceRow {
    #[diesel(embed)]
    message: MessageRow,
    #[diesel(sql_type = Jsonb)]
    request: Value,
}

async fn references(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    requests: &[MessageRequest],
    codes: ErrorCodes,
) -> DbResult<HashMap<String, (DirectMessage, Value)>> {
    let references: Vec<String> = requests
        .iter()
        .filter_map(|request| request.client_reference.clone())
        .collect();
    if references.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<ReferenceRow> = sql(format!(
        "SELECT {COLUMNS}, m.request FROM {keys} k JOIN ({FROM})
           ON m.account_id = $1 AND m.client_reference = k.reference",
        keys = key_rows("$2", "reference"),
    ))
    .bind(account)
    .bind(references)
    .load(conn)
    .await?;
    let mut found = HashMap::new();
    for row in rows {
        let message = row.message.into_message(codes)?;
        if let Some(reference) = message.client_reference.clone() {
            found.insert(reference, (message, row.request));
        }
    }
    Ok(found)
}

#[derive(QueryableByName)]
struct RemovedRow {
    #[diesel(sql_type = SqlUuid)]
    message_id: Uuid,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Text)]
    client_reference: String,
    #[diesel(sql_type = Nullable<Binary>)]
    request_hash: Option<Vec<u8>>,
}

/// The removed messages that had one of the references.
async fn removed(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    requests: &[MessageRequest],
) -> DbResult<HashMap<String, RemovedMessage>> {
    let references = requests.iter().filter_map(|request| request.client_reference.clone());
    let references: Vec<String> = references.collect();
    if references.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<RemovedRow> = sql(format!(
        "SELECT r.message_id, r.status, r.client_reference, r.request_hash FROM {keys} k
         JOIN direct_message_references r ON r.account_id = $1 AND r.client_reference = k.reference",
        keys = key_rows("$2", "reference"),
    ))
    .bind(account)
    .bind(references)
    .load(conn)
    .await?;
    let mut found = HashMap::new();
    for row in rows {
        let removed = RemovedMessage {
            id: row.message_id.into(),
            status: parse_enum(&row.status)?,
            client_reference: row.client_reference.clone(),
            request_hash: row.request_hash,
        };
        found.insert(row.client_reference, removed);
    }
    Ok(found)
}

/// The account's numbers: verified ones first, then the oldest.
pub(super) async fn numbers(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<Vec<NumberChoice>> {
    let rows: Vec<NumberRow> = sql(
        "SELECT id, verification_state = 'verified' AS is_verified FROM whatsapp_profiles WHERE account_id = $1
         ORDER BY verification_state <> 'verified', created_at, id",
    )
    .bind(account)
    .load(conn)
    .await?;
    let numbers = rows.into_iter().map(|row| NumberChoice {
        id: row.id.into(),
        is_verified: row.is_verified,
    });
    Ok(numbers.collect())
}

/// Reads what decides on these requests.
pub(super) async fn creation(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    requests: &[MessageRequest],
    codes: ErrorCodes,
) -> DbResult<CreationFacts> {
    let (billing, now) = billing::entitlement(conn, account).await?;
    Ok(CreationFacts {
        now,
        billing,
        numbers: numbers(conn, account).await?,
        contacts: requested_contacts(conn, account, requests).await?,
        templates: requested_templates(conn, account, requests.iter().map(|request| &request.content)).await?,
        references: references(conn, account, requests, codes).await?,
        // Read after the messages: a message that is removed meanwhile is in one of the two.
        removed: removed(conn, account, requests).await?,
    })
}
