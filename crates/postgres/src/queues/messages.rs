//! Messages and files that wait, for the operator's metrics.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Text};
use recado_domain::direct_messages::Phase;
use recado_domain::shared::StoreError;

use super::DEPTH;
use crate::errors::parse_enum;
use crate::pool::OwnerPool;
use crate::sql::{NumberRow, PlannedEachTime, sql};

/// Direct messages by their phase, as `DirectMessage::phase` computes it. The order, and a limit that the planner knows,
/// make it read the partial indexes of pending messages instead of a large table.
const PHASES: &str = "SELECT phase, count(*) AS n FROM (
    (SELECT CASE WHEN m.send_at > now() THEN 'scheduled'
         WHEN m.due_at > now() AND m.hold_rule IS NOT NULL OR coalesce(m.hold_reason, q.hold_reason) IS NOT NULL
           THEN 'held' ELSE 'waiting' END AS phase
     FROM (SELECT account_id, profile_id, send_at, due_at, hold_reason, hold_rule FROM direct_messages
       WHERE due_at IS NOT NULL ORDER BY account_id, profile_id, due_at LIMIT $1) m
     LEFT JOIN direct_message_queues q ON q.account_id = m.account_id AND q.profile_id = m.profile_id)
    UNION ALL
    (SELECT CASE WHEN unknown_at IS NULL THEN 'leaving' ELSE 'unknown' END FROM direct_messages
     WHERE status = 'pending' AND started_at IS NOT NULL ORDER BY started_at LIMIT $1)) AS p GROUP BY phase";

#[derive(QueryableByName)]
struct PhaseRow {
    #[diesel(sql_type = Text)]
    phase: String,
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// What waits, at most `DEPTH` of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingMessages {
    /// Direct messages by phase. Every phase has a count.
    pub messages: Vec<(Phase, i64)>,
    /// Files of messages that are not fetched yet.
    pub files: i64,
}

#[derive(Clone, Debug)]
pub struct PgWaitingMessages(OwnerPool);

impl PgWaitingMessages {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    pub async fn count(&self) -> Result<WaitingMessages, StoreError> {
        let phases = PlannedEachTime(sql(PHASES).bind(DEPTH));
        let rows = self.0.rows::<PhaseRow>(phases).await?;
        let mut messages: Vec<(Phase, i64)> = Phase::ALL.iter().map(|phase| (*phase, 0)).collect();
        for row in rows {
            let phase: Phase = parse_enum(&row.phase)?;
            let count = messages.iter_mut().find(|(counted, _)| *counted == phase);
            count.into_iter().for_each(|(_, count)| *count = row.n);
        }
        let files = sql("SELECT count(*) AS n FROM
            (SELECT 1 FROM message_media WHERE state = 'pending' ORDER BY due_at LIMIT $1) AS waiting");
        let files = self
            .0
            .row_if_any::<NumberRow>(PlannedEachTime(files.bind(DEPTH)))
            .await?;
        Ok(WaitingMessages {
            messages,
            files: files.map_or(0, |row| row.n),
        })
    }
}
