//! Runs that start, send, fail and are cancelled concurrently at the limit of the month's quota. In any order, sent and
//! reserved messages never exceed the quota, and no reservation is left in the end.

use futures_util::future::{join_all, join3};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, CampaignStore, RunStart, RunStartStore as _, SendResult, SendStore as _,
    StartOutcome,
};

use crate::histories::env_value;
use crate::support::{DbFixture, LEASE, id};

const CONTACTS: i64 = 4;

/// The operations that run concurrently.
#[derive(Clone, Debug)]
struct Race {
    /// The messages that the month has left for the new runs.
    left: i64,
    starts: usize,
    /// The results of another run's sends: sent or failed.
    results: Vec<bool>,
    /// Whether a third run is cancelled.
    cancelled: bool,
}

fn race() -> impl Strategy<Value = Race> {
    let results = prop::collection::vec(any::<bool>(), 0..=4);
    (0..3 * CONTACTS, 2..6_usize, results, any::<bool>()).prop_map(|(left, starts, results, cancelled)| Race {
        left,
        starts,
        results,
        cancelled,
    })
}

async fn cancel(fixture: &DbFixture, campaign: &Campaign) {
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign.clone()
    };
    let expected = fixture.expected(&cancelled, CampaignStatus::Sending).await;
    let campaigns = fixture.campaigns();
    campaigns.update(&cancelled, &expected, &[]).await.unwrap();
}

fn result(sent: bool) -> SendResult {
    match sent {
        true => SendResult::Sent {
            message_id: None,
            wa_id: None,
        },
        false => SendResult::Failed {
            code: None,
            message: "no".into(),
        },
    }
}

/// The sent and the reserved messages of the month.
async fn used(fixture: &DbFixture) -> (i64, i64) {
    let usage = fixture.usage().await;
    let (sent, reserved) = usage.split_once('/').unwrap();
    (sent.parse().unwrap(), reserved.parse().unwrap())
}

async fn play(fixture: &DbFixture, race: &Race) {
    let (worker, other_worker) = (id(), id());
    let (sending, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, CONTACTS).await;
    let (cancelling, _) = fixture.started(other_worker).await;
    let (sent, reserved) = used(fixture).await;
    let limit = sent + reserved + race.left;
    let mut starts = Vec::new();
    for _ in 0..race.starts {
        let campaign = fixture.stored_draft().await;
        starts.push(RunStart {
            monthly_limit: limit,
            ..fixture.start_of(&campaign)
        });
    }
    let start_runs = join_all(starts.iter().map(|start| async {
        let runs = fixture.runs();
        runs.start(start, None, LEASE).await.unwrap()
    }));
    let record_results = async {
        for (send, sent) in sends.into_iter().zip(&race.results) {
            let results = [(send, result(*sent))];
            fixture
                .runs()
                .record_and_start(run, worker, &results, &[])
                .await
                .unwrap();
        }
    };
    let cancel_run = async {
        if race.cancelled {
            cancel(fixture, &cancelling).await;
        }
    };
    let (outcomes, (), ()) = join3(start_runs, record_results, cancel_run).await;
    let (sent, reserved) = used(fixture).await;
    assert!(
        sent + reserved <= limit,
        "{sent} sent and {reserved} reserved of {limit}"
    );
    let started = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, StartOutcome::Started { .. }));
    let started = i64::try_from(started.count()).unwrap();
    let requested = i64::try_from(race.starts).unwrap();
    assert!(
        started >= requested.min(race.left / CONTACTS),
        "only {started} runs started although the quota allows more"
    );
    for outcome in &outcomes {
        let refused = matches!(outcome, StartOutcome::Refused(CampaignRefusal::QuotaExceeded { .. }));
        assert!(
            refused || matches!(outcome, StartOutcome::Started { .. }),
            "{outcome:?}"
        );
    }
    // After all runs have ended, no message is reserved.
    for campaign in starts
        .iter()
        .map(|start| &start.campaign)
        .chain([&sending, &cancelling])
    {
        cancel(fixture, campaign).await;
    }
    fixture.assert_recount().await;
}

/// Histories per database: a recount reads the rows of all earlier histories.
const HISTORIES_PER_DATABASE: u32 = 50;

/// `RECADO_RUNS` sets the number of histories (10,000 before a release), `RECADO_SEED` the first seed.
#[test]
fn racing_runs_never_exceed_the_month_quota() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut remaining = env_value("RECADO_RUNS").unwrap_or(25_u32);
    for seed in env_value("RECADO_SEED").unwrap_or(1_u64).. {
        let fixture = runtime.block_on(DbFixture::new());
        runtime.block_on(fixture.on_plan("scale"));
        runtime.block_on(fixture.add_contacts(usize::try_from(CONTACTS).unwrap()));
        let mut runner = TestRunner::new(Config {
            cases: remaining.min(HISTORIES_PER_DATABASE),
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(seed),
            max_shrink_iters: 20,
            ..Config::default()
        });
        let played = runner.run(&race(), |race| {
            runtime.block_on(async {
                play(&fixture, &race).await;
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
