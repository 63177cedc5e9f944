//! Mutation tests: runs a mutated `record_and_start.sql` as the store runs the original. The store has no hook for it.

use recado_domain::campaigns::{PAIR_INTERVAL, QueuedRun, SendResult, SendStore as _, StartedSends};
use recado_domain::shared::SendId;
use tokio_postgres::SimpleQueryMessage;
use uuid::Uuid;

use crate::support::DbFixture;

/// The store's statement.
pub(super) const RECORD_AND_START: &str = include_str!("../../../src/campaigns/record_and_start.sql");

/// The statement with `words` replaced; they must occur exactly once.
pub(super) fn replace_once(words: &str, replacement: &str) -> String {
    assert_eq!(RECORD_AND_START.matches(words).count(), 1, "{words:?} in the statement");
    RECORD_AND_START.replace(words, replacement)
}

fn array(values: impl Iterator<Item = Option<String>>, element_type: &str) -> String {
    let values: Vec<String> = values.map(|value| value.unwrap_or("NULL".to_owned())).collect();
    format!("'{{{}}}'::{element_type}[]", values.join(","))
}

/// `SendStore::record_and_start` with the statement `text`.
pub(super) async fn record_and_start(
    fixture: &DbFixture,
    text: &str,
    run: QueuedRun,
    worker: Uuid,
    results: &[(SendId, SendResult)],
    next: &[SendId],
) -> StartedSends {
    let message_of = |result: &SendResult| match result {
        SendResult::Sent {
            message_id,
            wa_id: None,
        } => Some(message_id.clone()),
        _ => None,
    };
    let (plain, other): (Vec<_>, Vec<_>) = results
        .iter()
        .cloned()
        .partition(|(_, result)| message_of(result).is_some());
    fixture.runs().record(run, &other).await.unwrap();
    let sent = plain.iter().map(|(id, _)| Some(id.to_string()));
    let messages = plain.iter().map(|(_, result)| message_of(result).flatten());
    let parameters = [
        format!("'{}'::uuid", run.account_id),
        format!("'{}'::uuid", run.campaign_id),
        format!("'{worker}'::uuid"),
        array(next.iter().map(|id| Some(id.to_string())), "uuid"),
        array(sent, "uuid"),
        array(messages, "text"),
        PAIR_INTERVAL.whole_microseconds().to_string(),
        // The smallest id of all.
        format!("'{}'::uuid", Uuid::nil()),
        // No account of the model has an endpoint, so no events are due.
        "false".to_owned(),
    ];
    let mut statement = text.to_owned();
    for (at, parameter) in parameters.iter().enumerate() {
        statement = statement.replace(&format!("${}", at + 1), parameter);
    }
    let rows = fixture.client.simple_query(&statement).await.unwrap();
    let row = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.unwrap();
    let ids = |column: usize| -> Vec<SendId> {
        let text = row.get(column).unwrap().trim_matches(['{', '}']);
        let ids = text.split(',').filter(|id| !id.is_empty());
        ids.map(|id| id.parse::<Uuid>().unwrap().into()).collect()
    };
    let (started, unreachable) = (ids(1), ids(2));
    StartedSends {
        goes_on: row.get(0) == Some("t"),
        sends: next.iter().copied().filter(|send| started.contains(send)).collect(),
        unreachable,
    }
}
