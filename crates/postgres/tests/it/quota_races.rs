//! Runs that begin, go on, fail and are cancelled at the same time, at the edge of the month's quota: whoever comes first,
//! no more is sent and held than the month has, and nothing is held for nobody.
//!
//! `RECADO_RUNS` (histories) and `RECADO_SEED` make the test longer, and another one.

use futures_util::future::{join_all, join3};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore, Refusal, RunStart, RunStore, SendResult, StartOutcome,
};

use crate::model::variable;
use crate::support::{LEASE, World, id};

const PEOPLE: i64 = 4;

/// What happens at once.
#[derive(Clone, Debug)]
struct Race {
    /// How many messages the month has left for those who begin.
    left: i64,
    begin: usize,
    /// What becomes of the messages of a run that goes on meanwhile: sent, or not.
    results: Vec<bool>,
    cancelled: bool,
}

fn race() -> impl Strategy<Value = Race> {
    let results = prop::collection::vec(any::<bool>(), 0..=4);
    (0..3 * PEOPLE, 2..6_usize, results, any::<bool>()).prop_map(|(left, begin, results, cancelled)| Race {
        left,
        begin,
        results,
        cancelled,
    })
}

fn cancelled(campaign: &Campaign) -> Campaign {
    Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign.clone()
    }
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

/// What was sent and what is held this month.
async fn used(world: &World) -> (i64, i64) {
    let usage = world.usage().await;
    let (sent, held) = usage.split_once('/').unwrap();
    (sent.parse().unwrap(), held.parse().unwrap())
}

async fn play(world: &World, race: &Race) {
    let (worker, other) = (id(), id());
    let (going, run) = world.started(worker).await;
    let sends = world.in_flight(run, worker, PEOPLE).await;
    let (leaving, _) = world.started(other).await;
    let (sent, held) = used(world).await;
    let limit = sent + held + race.left;
    let mut starts = Vec::new();
    for _ in 0..race.begin {
        let campaign = world.stored_draft().await;
        starts.push(RunStart {
            monthly_limit: limit,
            ..world.start_of(&campaign)
        });
    }
    let begins = join_all(starts.iter().map(|start| async {
        let runs = world.runs();
        runs.start(start, None, LEASE).await.unwrap()
    }));
    let results = async {
        for (send, sent) in sends.into_iter().zip(&race.results) {
            let turn = [(send, result(*sent))];
            world.runs().record_and_start(run, worker, &turn, &[]).await.unwrap();
        }
    };
    let leaves = async {
        if race.cancelled {
            let campaigns = world.campaigns();
            let cancelled = cancelled(&leaving);
            let seen = world.seen(&cancelled, CampaignStatus::Sending).await;
            let update = campaigns.update(&cancelled, &seen, &[]);
            update.await.unwrap();
        }
    };
    let (outcomes, (), ()) = join3(begins, results, leaves).await;
    let (sent, held) = used(world).await;
    assert!(sent + held <= limit, "{sent} sent and {held} held of {limit}");
    let begun = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, StartOutcome::Started { .. }));
    let begun = i64::try_from(begun.count()).unwrap();
    let wanted = i64::try_from(race.begin).unwrap();
    assert!(
        begun >= wanted.min(race.left / PEOPLE),
        "{begun} began, and there was room for more"
    );
    for outcome in &outcomes {
        let refused = matches!(outcome, StartOutcome::Refused(Refusal::QuotaExceeded { .. }));
        assert!(
            refused || matches!(outcome, StartOutcome::Started { .. }),
            "{outcome:?}"
        );
    }
    // Everything ends, and nothing is held any more.
    for campaign in starts.iter().map(|start| &start.campaign).chain([&going, &leaving]) {
        let campaigns = world.campaigns();
        let cancelled = cancelled(campaign);
        let seen = world.seen(&cancelled, CampaignStatus::Sending).await;
        let update = campaigns.update(&cancelled, &seen, &[]);
        update.await.unwrap();
    }
    world.assert_recount().await;
}

#[test]
fn whoever_comes_first_the_month_is_never_exceeded_and_nothing_is_held_in_the_end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(World::new());
    runtime.block_on(world.people(usize::try_from(PEOPLE).unwrap()));
    let seed = variable("RECADO_SEED").unwrap_or(3);
    let mut runner = TestRunner::new(Config {
        cases: variable("RECADO_RUNS").unwrap_or(25),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 20,
        ..Config::default()
    });
    let played = runner.run(&race(), |race| {
        runtime.block_on(async {
            play(&world, &race).await;
            // What was started may be recorded later; here nobody does.
            world
                .sql("UPDATE campaign_queue SET worker = md5('x')::uuid, leased_until = 'infinity'")
                .await;
        });
        Ok(())
    });
    if let Err(wrong) = played {
        panic!("RECADO_SEED={seed}: {wrong}");
    }
    drop(world);
}
