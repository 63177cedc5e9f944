//! Random histories of runs: after every step, counters and usage equal a recount of the sends.
//!
//! `RECADO_RUNS` sets the number of histories (10,000 before a release), `RECADO_SEED` the first seed.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use recado_domain::callbacks::StatusUpdateStore;
use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore, QueuedRun, RunQueue as _, RunStore as _, RunSweepStore as _, SendResult,
    SendStore as _,
};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::SendId;
use time::Duration;
use uuid::Uuid;

use crate::model::env_value;
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};

#[derive(Clone, Debug)]
enum Step {
    StartSends(i64),
    Record(Vec<(usize, u8)>),
    StatusUpdates(Vec<(usize, SendStatus)>),
    Retake,
    FailUnknown,
    Pause,
    Finish,
    Cancel,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..12_usize;
    prop_oneof![
        4 => (1..6_i64).prop_map(Step::StartSends),
        4 => prop::collection::vec((which.clone(), 0..5_u8), 1..6).prop_map(Step::Record),
        4 => prop::collection::vec((which, prop::sample::select(SendStatus::ALL)), 1..6).prop_map(Step::StatusUpdates),
        1 => Just(Step::Retake),
        1 => Just(Step::FailUnknown),
        1 => Just(Step::Pause),
        1 => Just(Step::Finish),
        1 => Just(Step::Cancel),
    ]
}

fn result(kind: u8) -> SendResult {
    match kind {
        0 => SendResult::Sent {
            message_id: None,
            wa_id: None,
        },
        1 => SendResult::Failed {
            code: None,
            message: "no".into(),
        },
        2 => SendResult::Unknown,
        3 => SendResult::Deferred { delay: Duration::ZERO },
        _ => SendResult::Released,
    }
}

async fn play(fixture: &DbFixture, worker: Uuid, campaign: &Campaign, run: QueuedRun, sends: &[SendId], step: Step) {
    let runs = fixture.runs();
    let pick = |at: usize| sends[at % sends.len()];
    match step {
        Step::StartSends(size) => {
            fixture.in_flight(run, worker, size).await;
        }
        // Only a started send can have a result; the database says which sends started.
        Step::Record(results) => {
            let mut started = Vec::new();
            for (at, kind) in results {
                let query = format!(
                    "SELECT count(*) FROM campaign_sends WHERE id = '{}' AND started_at IS NOT NULL",
                    pick(at)
                );
                if fixture.number(&query).await > 0 {
                    started.push((pick(at), result(kind)));
                }
            }
            runs.record(run, &started).await.unwrap();
        }
        Step::StatusUpdates(items) => {
            let batch: Vec<_> = items
                .into_iter()
                .map(|(at, status)| status_update(Some(pick(at)), &pick(at).to_string(), status))
                .collect();
            fixture.status_updates().apply(fixture.account, &batch).await.unwrap();
        }
        Step::Retake => {
            runs.release(run, worker).await.unwrap();
            runs.take(worker, LEASE).await.unwrap();
        }
        Step::FailUnknown => {
            runs.fail_unknown(Duration::ZERO, 1).await.unwrap();
        }
        Step::Pause => runs.pause(run, "x", &[]).await.unwrap(),
        Step::Finish => {
            runs.finish(run).await.unwrap();
        }
        Step::Cancel => {
            let cancelled = Campaign {
                status: CampaignStatus::Cancelled,
                ..campaign.clone()
            };
            fixture
                .campaigns()
                .update(
                    &cancelled,
                    &fixture.expected(&cancelled, CampaignStatus::Sending).await,
                    &[],
                )
                .await
                .unwrap();
        }
    }
}

/// Histories per database: a recount reads the rows of all earlier histories.
const HISTORIES_PER_DATABASE: u32 = 50;

/// Runs `RECADO_RUNS` random histories, by default `default_runs`, in databases of `contacts` contacts. Setting
/// `RECADO_SEED` to the seed of a failure repeats it.
pub(crate) fn run_histories<S: Strategy>(
    contacts: usize,
    default_runs: u32,
    shrinks: u32,
    histories: &S,
    play: impl AsyncFn(&DbFixture, S::Value),
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut remaining = env_value("RECADO_RUNS").unwrap_or(default_runs);
    for seed in env_value("RECADO_SEED").unwrap_or(1_u64).. {
        let fixture = runtime.block_on(DbFixture::new());
        runtime.block_on(fixture.on_plan("scale"));
        runtime.block_on(fixture.add_contacts(contacts));
        let mut runner = TestRunner::new(Config {
            cases: remaining.min(HISTORIES_PER_DATABASE),
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(seed),
            max_shrink_iters: shrinks,
            ..Config::default()
        });
        let played = runner.run(histories, |history| {
            runtime.block_on(async {
                play(&fixture, history).await;
                // The next history starts with an empty queue.
                fixture
                    .sql("UPDATE campaign_queue SET worker = md5('x')::uuid, leased_until = 'infinity'")
                    .await;
            });
            Ok(())
        });
        if let Err(failure) = played {
            panic!("RECADO_SEED={seed} RECADO_RUNS={HISTORIES_PER_DATABASE}: {failure}");
        }
        remaining = remaining.saturating_sub(HISTORIES_PER_DATABASE);
        if remaining == 0 {
            return;
        }
    }
}

#[test]
fn counters_and_usage_equal_a_recount_after_any_history() {
    run_histories(
        12,
        40,
        1000,
        &prop::collection::vec(step(), 1..25),
        async |fixture: &DbFixture, steps| {
            let worker = id();
            let (campaign, run) = fixture.started(worker).await;
            let query = format!(
                "SELECT string_agg(id::text, ' ' ORDER BY id) FROM campaign_sends WHERE campaign_id = '{}'",
                campaign.id
            );
            let ids = fixture.text(&query).await.unwrap();
            let sends: Vec<SendId> = ids.split(' ').map(|id| id.parse::<Uuid>().unwrap().into()).collect();
            for step in steps {
                play(fixture, worker, &campaign, run, &sends, step).await;
                fixture.assert_recount().await;
            }
        },
    );
}
