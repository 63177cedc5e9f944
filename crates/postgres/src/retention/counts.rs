//! Counts what is over a term: at most a million rows of each kind.

use recado_domain::retention::RetentionKind;
use recado_domain::shared::{AccountId, StoreError};
use time::OffsetDateTime;

use super::conditions;
use crate::pool::OwnerPool;
use crate::sql::{NumberRow, sql};

const MAX_COUNT: &str = "LIMIT 1000000";

pub(super) async fn count(
    owner: &OwnerPool,
    account: AccountId,
    kind: RetentionKind,
    horizon: OffsetDateTime,
) -> Result<i64, StoreError> {
    let old = match kind {
        // By the counters: the sends are not read.
        RetentionKind::CampaignSends => {
            let over = conditions::over();
            let statement = format!(
                "SELECT coalesce(sum(n.total), 0)::bigint AS n FROM campaigns c
                 JOIN campaign_counters n ON n.account_id = c.account_id AND n.campaign_id = c.id
                 WHERE c.account_id = $1 AND c.archived_at IS NULL AND {over}"
            );
            return counted(owner, statement, account, horizon).await;
        }
        RetentionKind::Messages => format!(
            "(SELECT 1 FROM messages WHERE account_id = $1 AND created_at < $2 AND status <> 'pending' {MAX_COUNT})
             UNION ALL (SELECT 1 FROM direct_messages m WHERE {} {MAX_COUNT})",
            conditions::removable_message(),
        ),
        RetentionKind::Media => format!(
            "SELECT 1 FROM message_media WHERE account_id = $1 AND written_at < $2 AND message_id IS NOT NULL
               AND (state IN ('pending', 'ready') OR abandoned <> '{{}}') {MAX_COUNT}"
        ),
        RetentionKind::MetricEvents => format!(
            "SELECT 1 FROM metrics m JOIN metric_events e ON e.account_id = $1 AND e.metric_name = m.metric_name
               AND e.occurred_at < $2 WHERE m.account_id = $1 {MAX_COUNT}"
        ),
        RetentionKind::Orders => {
            format!("SELECT 1 FROM orders WHERE account_id = $1 AND id < first_id($2) {MAX_COUNT}")
        }
        RetentionKind::Notifications => {
            format!("SELECT 1 FROM notifications WHERE account_id = $1 AND id < first_id($2) {MAX_COUNT}")
        }
        RetentionKind::Audit => {
            format!("SELECT 1 FROM audit_logs WHERE account_id = $1 AND created_at < $2 {MAX_COUNT}")
        }
    };
    let statement = format!("SELECT count(*) AS n FROM (SELECT * FROM ({old}) o {MAX_COUNT}) c");
    counted(owner, statement, account, horizon).await
}

async fn counted(
    owner: &OwnerPool,
    statement: String,
    account: AccountId,
    horizon: OffsetDateTime,
) -> Result<i64, StoreError> {
    let query = sql(statement).bind(account).bind(horizon);
    Ok(owner.row::<NumberRow>(query).await?.n)
}
