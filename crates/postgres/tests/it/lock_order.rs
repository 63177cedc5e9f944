//! The lock order of transactions over a campaign: whatever a transaction waits for, it holds nothing that comes later.
//!
//! Each test locks all rows of one table, starts an operation, and, while the operation waits, takes every later lock
//! itself without waiting. An operation that held one of them could deadlock with an operation in the common order.

use std::future::Future;
use std::pin::Pin;

use recado_domain::callbacks::StatusUpdateStore;
use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore, QueuedRun, RunQueue as _, RunRetryStore as _, RunStore as _,
    RunSweepStore as _, SendResult, SendStore as _,
};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::SendId;

use crate::retries::retry_of;
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};

/// The order that `campaigns/mod.rs` documents.
const ORDER: [&str; 9] = [
    "campaigns",
    "message_templates",
    "campaign_queue",
    "campaign_retry_batches",
    "campaign_sends",
    "campaign_claims",
    "contacts",
    "campaign_counter_slots",
    "message_usage_slots",
];

/// A run with sends that are pending, in flight and failed.
struct RunningCampaign {
    fixture: DbFixture,
    campaign: Campaign,
    run: QueuedRun,
    worker: uuid::Uuid,
    in_flight: Vec<SendId>,
}

impl RunningCampaign {
    async fn new() -> Self {
        let fixture = DbFixture::new().await;
        fixture.add_contacts(6).await;
        Self::start(fixture).await
    }

    async fn start(fixture: DbFixture) -> Self {
        let worker = id();
        let (campaign, run) = fixture.started(worker).await;
        let in_flight = fixture.in_flight(run, worker, 3).await;
        Self {
            fixture,
            campaign,
            run,
            worker,
            in_flight,
        }
    }

    async fn end_with_failures(&self) {
        self.fixture
            .sql(
                "DELETE FROM campaign_queue; UPDATE campaigns SET status = 'partial';
                 UPDATE campaign_counter_slots SET failed = total, pending = 0;
                 UPDATE campaign_sends SET status = 'failed', failed_at = now(), started_at = now()",
            )
            .await;
    }

    fn accepted(&self, at: usize) -> (SendId, SendResult) {
        let sent = SendResult::Sent {
            message_id: Some(format!("m{at}")),
            wa_id: Some(format!("55119{at}")),
        };
        (self.in_flight[at], sent)
    }
}

type Operation = for<'a> fn(&'a RunningCampaign) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

const OPERATIONS: [(&str, Operation); 9] = [
    ("retry", |running| {
        Box::pin(async {
            let retry = retry_of(&running.fixture, &running.campaign).await;
            running.fixture.runs().retry(&retry).await.unwrap();
        })
    }),
    ("record", |running| {
        Box::pin(async {
            let results = [running.accepted(0), running.accepted(1)];
            running.fixture.runs().record(running.run, &results).await.unwrap();
        })
    }),
    ("record_and_start", |running| {
        Box::pin(async {
            let RunningCampaign {
                fixture, run, worker, ..
            } = running;
            let results = [running.accepted(0)];
            fixture
                .runs()
                .record_and_start(*run, *worker, &results, &[])
                .await
                .unwrap();
        })
    }),
    ("status updates", |running| {
        Box::pin(async {
            let updates = [
                status_update(Some(running.in_flight[0]), "m0", SendStatus::Delivered),
                status_update(Some(running.in_flight[1]), "m1", SendStatus::Failed),
            ];
            let account = running.fixture.account;
            running.fixture.status_updates().apply(account, &updates).await.unwrap();
        })
    }),
    ("finish", |running| {
        Box::pin(async {
            running.fixture.runs().finish(running.run).await.unwrap();
        })
    }),
    ("cancel", |running| {
        Box::pin(async {
            let cancelled = Campaign {
                status: CampaignStatus::Cancelled,
                ..running.campaign.clone()
            };
            let expected = running
                .fixture
                .expected(&running.campaign, CampaignStatus::Sending)
                .await;
            running
                .fixture
                .campaigns()
                .update(&cancelled, &expected, &[])
                .await
                .unwrap();
        })
    }),
    ("abandon", |running| {
        Box::pin(async {
            running
                .fixture
                .runs()
                .abandon(running.run, running.worker)
                .await
                .unwrap();
        })
    }),
    ("fail_unknown", |running| {
        Box::pin(async {
            running
                .fixture
                .runs()
                .fail_unknown(time::Duration::ZERO, 10)
                .await
                .unwrap();
        })
    }),
    ("claim", |running| {
        Box::pin(async {
            let RunningCampaign {
                fixture, run, worker, ..
            } = running;
            fixture.runs().claim(*run, *worker, None, 2, LEASE).await.unwrap();
        })
    }),
];

/// What an operation did while each table in turn was locked: how often it waited, and which later locks it held then.
#[derive(Default)]
struct Observations {
    waits: usize,
    violations: Vec<String>,
}

impl Observations {
    async fn observe(&mut self, running: &RunningCampaign, operation: Operation, at: usize) {
        let holder = running.fixture.db.client().await;
        let lock = |table: &str, wait: &str| format!("SELECT 1 FROM {table} FOR UPDATE {wait}");
        holder
            .batch_execute(&format!("BEGIN; {}", lock(ORDER[at], "")))
            .await
            .unwrap();
        let observe = async {
            if is_blocked(&running.fixture).await {
                self.waits += 1;
                for later in &ORDER[at + 1..] {
                    holder.batch_execute("SAVEPOINT s").await.unwrap();
                    if holder.batch_execute(&lock(later, "NOWAIT")).await.is_err() {
                        self.violations
                            .push(format!("waits for {} and holds {later}", ORDER[at]));
                        holder.batch_execute("ROLLBACK TO s").await.unwrap();
                    }
                }
            }
            holder.batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(operation(running), observe);
    }
}

/// Whether a connection waits for a lock within the time in which every operation reaches its first one.
async fn is_blocked(fixture: &DbFixture) -> bool {
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..30 {
        if fixture.number(waiting).await > 0 {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_take_their_locks_in_the_common_order() {
    let mut all = Observations::default();
    for (name, operation) in OPERATIONS {
        let mut running = RunningCampaign::new().await;
        for at in 0..ORDER.len() {
            match name {
                "fail_unknown" => running
                    .fixture
                    .runs()
                    .abandon(running.run, running.worker)
                    .await
                    .unwrap(),
                "retry" => running.end_with_failures().await,
                _ => {}
            }
            all.observe(&running, operation, at).await;
            assert_eq!(all.violations, Vec::<String>::new(), "{name}");
            running = RunningCampaign::start(running.fixture).await;
        }
    }
    assert!(all.waits > 15, "the operations waited {} times only", all.waits);
}

/// An operation in another order is found.
#[tokio::test(flavor = "multi_thread")]
async fn violation_of_the_common_order_is_found() {
    let reversed: Operation = |running| {
        Box::pin(async {
            let client = running.fixture.db.client().await;
            let locks = "BEGIN; SELECT 1 FROM contacts FOR UPDATE; SELECT 1 FROM campaign_queue FOR UPDATE; COMMIT";
            client.batch_execute(locks).await.unwrap();
        })
    };
    let running = RunningCampaign::new().await;
    let mut observed = Observations::default();
    observed.observe(&running, reversed, 2).await;
    assert_eq!(observed.violations, ["waits for campaign_queue and holds contacts"]);
}
