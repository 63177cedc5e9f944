//! Inbound events of people whose erasure is running: those from before the request are not stored. They would make a
//! new contact of the erased person.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::Identifier;
use recado_domain::conversations::{InboundEvent, InboundItem, InboxKeys};
use recado_domain::erasures::PersonMarks;
use recado_domain::shared::AccountId;
use serde_json::Value;
use time::OffsetDateTime;

use crate::errors::{DbResult, corrupt};
use crate::sql::sql;

#[derive(QueryableByName)]
struct RunningRow {
    #[diesel(sql_type = Timestamptz)]
    requested_at: OffsetDateTime,
    #[diesel(sql_type = Jsonb)]
    marks: Value,
}

/// The time of an event. None: WhatsApp reports none.
fn time_of(event: &InboundEvent) -> Option<OffsetDateTime> {
    match event {
        InboundEvent::Message(message) | InboundEvent::Echo(message) => Some(message.at),
        InboundEvent::Preference { at, .. } | InboundEvent::Recipient { at, .. } | InboundEvent::Revoked { at, .. } => {
            Some(*at)
        }
        InboundEvent::NumberChanged { .. } | InboundEvent::Edited { .. } => None,
    }
}

fn identifiers(item: &InboundItem) -> Vec<Identifier> {
    let keys = InboxKeys::of(std::slice::from_ref(item));
    let numbers = keys
        .phones
        .iter()
        .chain(&keys.wa_ids)
        .map(|number| Identifier::phone(number));
    numbers
        .chain(keys.user_ids.iter().map(|id| Identifier::user_id(id)))
        .collect()
}

/// Removes the events of people that were erased after the event. The contacts of the batch are locked.
pub(super) async fn remove(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    mut items: Vec<InboundItem>,
) -> DbResult<Vec<InboundItem>> {
    let running: Vec<RunningRow> =
        sql("SELECT requested_at, marks FROM erasures WHERE account_id = $1 AND state = 'running'")
            .bind(account)
            .load(conn)
            .await?;
    for row in running {
        let marks: PersonMarks = serde_json::from_value(row.marks).map_err(corrupt)?;
        let erased = marks.identifiers();
        items.retain(|item| {
            let is_later = time_of(&item.event).is_some_and(|at| at > row.requested_at);
            is_later || !identifiers(item).iter().any(|identifier| erased.contains(identifier))
        });
    }
    Ok(items)
}
