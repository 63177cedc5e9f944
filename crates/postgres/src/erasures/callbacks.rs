//! Removes the person's events from callbacks that are stored and not applied. A callback may have events of other people,
//! numbers and accounts: those stay.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::Identifier;
use recado_domain::erasures::ErasureClaim;
use serde_json::Value;
use uuid::Uuid;

use crate::errors::{DbResult, failed};
use crate::sql::{FlagRow, PlannedEachTime, TextRow, collect_column, sql};

/// The most callbacks that are changed at once.
const BATCH: i64 = 100;

/// Callbacks from before the request with an identifier of the person, as a whole JSON string. $1 identifiers in quotes,
/// $2 time of the request.
const OF_PERSON: &str = "FROM whatsapp_callbacks c WHERE c.received_at <= $2
     AND EXISTS (SELECT FROM unnest($1) t WHERE position(convert_to(t, 'UTF8') IN c.body) > 0)";

/// A callback that waits longer is changed: it is set aside, or is repeated without effect.
const IS_OVERDUE: &str = "(c.due_at = 'infinity' OR c.received_at < now() - interval '10 minutes')";

/// The lists of a change whose items are events of one person.
const LISTS: [&str; 3] = ["messages", "statuses", "contacts"];

/// The fields of an item that identify its person.
const IDENTIFYING: [&str; 8] = [
    "from",
    "to",
    "wa_id",
    "recipient_id",
    "user_id",
    "from_user_id",
    "recipient_user_id",
    "parent_user_id",
];

#[derive(QueryableByName)]
struct CallbackRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Binary)]
    body: Vec<u8>,
}

/// What remains of a callback.
#[derive(Debug, PartialEq)]
enum Rest {
    /// It has no event of the person.
    All,
    Nothing,
    Some(Value),
}

/// Returns how many callbacks were changed, and whether one of the person may still be applied.
pub(super) async fn remove(conn: &mut AsyncPgConnection, claim: &ErasureClaim) -> DbResult<(i64, bool)> {
    let identifiers = claim.marks.identifiers();
    let quoted: Vec<String> = identifiers.iter().map(|id| format!("\"{}\"", id.as_str())).collect();
    let overdue: Vec<CallbackRow> = PlannedEachTime(
        sql(format!(
            "SELECT c.id, c.body {OF_PERSON} AND {IS_OVERDUE} ORDER BY c.id LIMIT {BATCH} FOR UPDATE OF c SKIP LOCKED"
        ))
        .bind(quoted.clone())
        .bind(claim.requested_at),
    )
    .load(&mut *conn)
    .await?;
    let mut changed = 0;
    if !overdue.is_empty() {
        let numbers = own_numbers(conn, claim).await?;
        for callback in overdue {
            changed += change(conn, callback, &numbers, &identifiers).await?;
        }
    }
    let waits: FlagRow = PlannedEachTime(
        sql(format!(
            "SELECT EXISTS (SELECT {OF_PERSON} AND NOT {IS_OVERDUE}) AS yes"
        ))
        .bind(quoted)
        .bind(claim.requested_at),
    )
    .get_result(conn)
    .await?;
    Ok((changed, waits.yes))
}

/// The numbers that no other account has: another account may still be given its own events.
async fn own_numbers(conn: &mut AsyncPgConnection, claim: &ErasureClaim) -> DbResult<Vec<String>> {
    let rows: Vec<TextRow> = sql("SELECT DISTINCT p.phone_number_id AS text FROM whatsapp_profiles p
         WHERE p.account_id = $1 AND p.phone_number_id IS NOT NULL AND NOT EXISTS (SELECT FROM whatsapp_profiles o
           WHERE o.account_id <> $1 AND o.phone_number_id = p.phone_number_id)")
    .bind(claim.account_id)
    .load(conn)
    .await?;
    Ok(collect_column(&rows, |row| row.text.clone()))
}

async fn change(
    conn: &mut AsyncPgConnection,
    callback: CallbackRow,
    numbers: &[String],
    identifiers: &[Identifier],
) -> DbResult<i64> {
    let Ok(body) = serde_json::from_slice(&callback.body) else {
        return Ok(0);
    };
    let statement = match without_person(body, numbers, identifiers) {
        Rest::All => return Ok(0),
        Rest::Nothing => sql("DELETE FROM whatsapp_callbacks WHERE id = $1").bind(callback.id),
        Rest::Some(rest) => sql("UPDATE whatsapp_callbacks SET body = $2 WHERE id = $1")
            .bind(callback.id)
            .bind(serde_json::to_vec(&rest).map_err(failed)?),
    };
    let count = statement.execute(conn).await?;
    Ok(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Leaves out the person's events of the account's numbers.
fn without_person(mut body: Value, numbers: &[String], identifiers: &[Identifier]) -> Rest {
    let (mut is_changed, mut is_empty) = (false, true);
    let entries = body.get_mut("entry").and_then(Value::as_array_mut);
    let changes = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get_mut("changes"));
    for change in changes.filter_map(Value::as_array_mut).flatten() {
        let Some(value) = change.get_mut("value") else {
            continue;
        };
        let number = value.pointer("/metadata/phone_number_id").and_then(Value::as_str);
        let is_own = number.is_some_and(|number| numbers.iter().any(|own| own == number));
        let mut has_list = false;
        for list in LISTS {
            let Some(items) = value.get_mut(list).and_then(Value::as_array_mut) else {
                continue;
            };
            has_list = true;
            let count = items.len();
            items.retain(|item| !is_own || !identifies(item, identifiers));
            is_changed |= items.len() < count;
            // Contacts only describe the senders of messages.
            is_empty &= items.is_empty() || list == "contacts";
        }
        is_empty &= has_list;
    }
    match (is_changed, is_empty) {
        (false, _) => Rest::All,
        (true, true) => Rest::Nothing,
        (true, false) => Rest::Some(body),
    }
}

fn identifies(item: &Value, identifiers: &[Identifier]) -> bool {
    let values = IDENTIFYING
        .iter()
        .filter_map(|field| item.get(field).and_then(Value::as_str));
    let mut ids = values.map(str::to_owned);
    ids.any(|id| identifiers.iter().any(|identifier| identifier.as_str() == id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(messages: &Value, statuses: &Value) -> Value {
        let value = json!({
            "metadata": { "display_phone_number": "5511961234567", "phone_number_id": "1" },
            "contacts": [{ "wa_id": "5511961234567" }, { "wa_id": "5511970000000" }],
            "messages": messages,
            "statuses": statuses,
        });
        json!({ "entry": [{ "changes": [{ "value": value }] }] })
    }

    #[test]
    fn events_of_other_people_and_numbers_stay() {
        let eva = [Identifier::phone("+5511961234567"), Identifier::user_id("BR.1")];
        let own = ["1".to_owned()];
        let of = |from: &str| json!({ "from": from, "text": { "body": "5511961234567" } });
        let both = body(&json!([of("5511961234567"), of("5511970000000")]), &json!([]));
        let Rest::Some(rest) = without_person(both.clone(), &own, &eva) else {
            panic!("the other person's message is not left")
        };
        let value = &rest["entry"][0]["changes"][0]["value"];
        assert_eq!(value["messages"], json!([of("5511970000000")]));
        assert_eq!(value["contacts"], json!([{ "wa_id": "5511970000000" }]));
        // Another account's number, or one that another account has too.
        assert_eq!(without_person(both, &[], &eva), Rest::All);
        let only = body(&json!([]), &json!([{ "recipient_id": "5511961234567" }]));
        assert_eq!(without_person(only, &own, &eva), Rest::Nothing);
        let by_id = body(&json!([{ "from_user_id": "BR.1" }]), &json!([]));
        assert_eq!(without_person(by_id, &own, &eva), Rest::Nothing);
        // A template update names no one.
        let other = json!({ "entry": [{ "changes": [{ "value": { "event": "APPROVED" } }] }] });
        assert_eq!(without_person(other, &own, &eva), Rest::All);
    }
}
