//! The sends of the store under test. Mutation tests run a mutated `record_and_start.sql` as the store runs the original:
//! the store has no hook for it.

use async_trait::async_trait;
use recado_domain::campaigns::{
    ClaimOutcome, ClaimPosition, PAIR_INTERVAL, QueuedRun, SendResult, SendStore, StartedSends,
};
use recado_domain::shared::{SendId, StoreError};
use recado_postgres::PgRuns;
use time::Duration;
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

/// The sends of the store, which a model may start at any time.
pub(super) struct ModelSends<'a> {
    pub(super) fixture: &'a DbFixture,
    pub(super) runs: PgRuns,
    /// Replaces the store's statement.
    pub(super) statement: Option<&'a str>,
}

#[async_trait]
impl SendStore for ModelSends<'_> {
    async fn claim(
        &self,
        run: QueuedRun,
        worker: Uuid,
        position: Option<ClaimPosition>,
        size: i64,
        lease: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        self.runs.claim(run, worker, position, size, lease).await
    }

    async fn record_and_start(
        &self,
        run: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<StartedSends, StoreError> {
        // The model starts sends at any time. A worker starts only sends of its latest claim: here it claimed all.
        let claim = format!(
            "INSERT INTO campaign_claims (account_id, campaign_id, send_ids)
               SELECT account_id, campaign_id, array_agg(id) FROM campaign_sends
               WHERE campaign_id = '{}' GROUP BY account_id, campaign_id
             ON CONFLICT (account_id, campaign_id) DO UPDATE SET send_ids = excluded.send_ids",
            run.campaign_id
        );
        self.fixture.sql(&claim).await;
        let started = match self.statement {
            None => self.runs.record_and_start(run, worker, results, next).await,
            Some(text) => Ok(record_and_start(self.fixture, text, run, worker, results, next).await),
        };
        // Only `Step::PassTime` lets time pass: until then, a start in the future marks the send as recently started.
        let recently_started = "UPDATE campaign_sends SET started_at = now() + interval '1 hour'
             WHERE started_at BETWEEN now() - interval '10 minutes' AND now()";
        self.fixture.sql(recently_started).await;
        started
    }

    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        self.runs.record(run, results).await
    }
}

/// `SendStore::record_and_start` with the statement `text`.
async fn record_and_start(
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
        // No campaign of the model has a budget.
        "false".to_owned(),
    ];
    let mut statement = text.to_owned();
    // The last one first: the name of a parameter may begin with that of an earlier one.
    for (at, parameter) in parameters.iter().enumerate().rev() {
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
        is_over_budget: false,
    }
}
