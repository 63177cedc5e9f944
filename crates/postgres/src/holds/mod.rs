//! Reads what a policy for due messages needs: an account's settings, and when marketing messages were started.
//!
//! The limit of messages is exact over concurrent transactions: each locks the contacts of a person before it reads their
//! messages, and holds the locks until its own messages are started. Sends and direct messages are locked before contacts,
//! as everywhere.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::holds::HoldPolicy;
use recado_domain::messaging::Category;
use recado_domain::settings::{AccountSettings, MarketingCap};
use recado_domain::shared::{AccountId, ContactId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::settings;
use crate::sql::{FENCE, key_rows, sql};

/// Settings that hold messages.
pub(crate) struct HoldSettings {
    pub(crate) settings: AccountSettings,
    pub(crate) changed_at: OffsetDateTime,
}

/// The account's settings. None: they hold no message.
pub(crate) async fn hold_settings(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<Option<HoldSettings>> {
    let found = settings::find(conn, account).await?;
    let holds = |(settings, _): &(AccountSettings, OffsetDateTime)| {
        settings.quiet_hours.is_some() || settings.max_marketing_per_contact.is_some()
    };
    let found = found.filter(holds);
    Ok(found.map(|(settings, changed_at)| HoldSettings { settings, changed_at }))
}

/// Whether the caller starts the messages that it checks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It starts them in the same transaction.
    Start,
    /// It only holds messages early; the others are checked again.
    Precheck,
}

/// A policy for messages to these contacts, and the person of each.
pub(crate) struct ContactsPolicy {
    pub(crate) policy: HoldPolicy,
    persons: BTreeMap<Uuid, Vec<Uuid>>,
}

impl ContactsPolicy {
    /// A policy that holds nothing.
    pub(crate) fn off(now: OffsetDateTime) -> Self {
        Self {
            policy: HoldPolicy::off(now),
            persons: BTreeMap::new(),
        }
    }

    /// The first of the contacts that are the same person.
    pub(crate) fn person(&self, contact: Uuid) -> ContactId {
        let contacts = self.persons.get(&contact);
        contacts
            .and_then(|contacts| contacts.iter().min().copied())
            .unwrap_or(contact)
            .into()
    }
}

/// Reads what a policy needs. `category`: that of all messages, if they have one.
pub(crate) async fn contacts_policy(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    HoldSettings { settings, .. }: HoldSettings,
    category: Option<Category>,
    contacts: Vec<Uuid>,
    now: OffsetDateTime,
    purpose: Purpose,
) -> DbResult<ContactsPolicy> {
    let Some(cap) = settings.cap_of(category.or(Some(Category::Marketing))) else {
        let policy = HoldPolicy::new(settings, now, BTreeMap::new());
        return Ok(ContactsPolicy {
            policy,
            persons: BTreeMap::new(),
        });
    };
    let mut persons = linked_contacts(conn, account, &contacts).await?;
    let mut members = members(&contacts, &persons);
    if purpose == Purpose::Start {
        lock_contacts(conn, account, &members).await?;
        // A link may have been committed before the contacts were locked. Later ones wait, or count this start.
        persons = linked_contacts(conn, account, &contacts).await?;
        let linked = self::members(&contacts, &persons);
        if linked.iter().any(|contact| members.binary_search(contact).is_err()) {
            lock_contacts(conn, account, &linked).await?;
        }
        members = linked;
    }
    let mut by_person: BTreeMap<ContactId, Vec<OffsetDateTime>> = BTreeMap::new();
    let firsts: BTreeMap<Uuid, Uuid> = persons
        .values()
        .filter_map(|members| members.iter().min().map(|first| (members, *first)))
        .flat_map(|(members, first)| members.iter().map(move |member| (*member, first)))
        .collect();
    for row in marketing_starts(conn, account, members, cap).await? {
        let person = firsts.get(&row.contact_id).copied().unwrap_or(row.contact_id);
        by_person.entry(person.into()).or_default().push(row.started_at);
    }
    let policy = HoldPolicy::new(settings, now, by_person);
    Ok(ContactsPolicy { policy, persons })
}

#[derive(QueryableByName)]
struct MemberRow {
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    member: Uuid,
}

/// These contacts and all that are the same person as one of them, in the order of their ids.
fn members(contacts: &[Uuid], persons: &BTreeMap<Uuid, Vec<Uuid>>) -> Vec<Uuid> {
    let members = contacts.iter().chain(persons.values().flatten());
    let members: BTreeSet<Uuid> = members.copied().collect();
    members.into_iter().collect()
}

/// The contacts that are the same person as each of these that is linked, with itself.
async fn linked_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contacts: &[Uuid],
) -> DbResult<BTreeMap<Uuid, Vec<Uuid>>> {
    let rows: Vec<MemberRow> = sql(format!(
        "SELECT k.contact_id, p.id AS member
         FROM {keys} k CROSS JOIN LATERAL same_person_contacts($1, k.contact_id) p (id)
         WHERE EXISTS (SELECT FROM (SELECT same_person_as FROM contacts
             WHERE account_id = $1 AND id = k.contact_id {FENCE}) c WHERE c.same_person_as IS NOT NULL)
           OR EXISTS (SELECT FROM (SELECT FROM contacts
             WHERE account_id = $1 AND same_person_as = k.contact_id {FENCE}) o)",
        keys = key_rows("$2", "contact_id"),
    ))
    .bind(account)
    .bind(contacts.to_vec())
    .load(conn)
    .await?;
    let mut persons: BTreeMap<Uuid, Vec<Uuid>> = BTreeMap::new();
    for row in rows {
        persons.entry(row.contact_id).or_default().push(row.member);
    }
    Ok(persons)
}

/// Locks contacts in the order of their ids. What is read by a later statement includes what earlier holders wrote.
async fn lock_contacts(conn: &mut AsyncPgConnection, account: AccountId, contacts: &[Uuid]) -> DbResult<()> {
    sql(format!(
        "SELECT FROM (SELECT k.contact_id FROM {keys} k ORDER BY 1) k
         CROSS JOIN LATERAL (SELECT FROM contacts WHERE account_id = $1 AND id = k.contact_id FOR NO KEY UPDATE) c",
        keys = key_rows("$2", "contact_id"),
    ))
    .bind(account)
    .bind(contacts.to_vec())
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct StartRow {
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    started_at: OffsetDateTime,
}

/// When the latest marketing messages to each contact were started, at most as many as the cap.
async fn marketing_starts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contacts: Vec<Uuid>,
    cap: MarketingCap,
) -> DbResult<Vec<StartRow>> {
    let rows = sql(format!(
        include_str!("marketing_starts.sql"),
        keys = key_rows("$2", "contact_id"),
        fence = FENCE,
    ))
    .bind(account)
    .bind(contacts)
    .bind(cap.window())
    .bind(i64::from(cap.n))
    .load(conn)
    .await?;
    Ok(rows)
}
