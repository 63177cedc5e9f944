//! Runs that begin, go on, fail and are cancelled at the same time, at the edge of the month's quota: whoever comes first,
//! no more is sent and held than the month has, and nothing is held for nobody.

use futures_util::future::{join_all, join3};
use proptest::prelude::*;
use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore, Refusal, RunStart, RunStore, SendResult, StartOutcome,
};

use crate::histories::tried;
use crate::support::{DbFixture, LEASE, id};

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
async fn used(fixture: &DbFixture) -> (i64, i64) {
    let usage = fixture.usage().await;
    let (sent, held) = usage.split_once('/').unwrap();
    (sent.parse().unwrap(), held.parse().unwrap())
}

async fn play(fixture: &DbFixture, race: &Race) {
    let (worker, other) = (id(), id());
    let (going, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, PEOPLE).await;
    let (leaving, _) = fixture.started(other).await;
    let (sent, held) = used(fixture).await;
    let limit = sent + held + race.left;
    let mut starts = Vec::new();
    for _ in 0..race.begin {
        let campaign = fixture.stored_draft().await;
        starts.push(RunStart {
            monthly_limit: limit,
            ..fixture.start_of(&campaign)
        });
    }
    let begins = join_all(starts.iter().map(|start| async {
        let runs = fixture.runs();
        runs.start(start, None, LEASE).await.unwrap()
    }));
    let results = async {
        for (send, sent) in sends.into_iter().zip(&race.results) {
            let turn = [(send, result(*sent))];
            fixture.runs().record_and_start(run, worker, &turn, &[]).await.unwrap();
        }
    };
    let leaves = async {
        if race.cancelled {
            let campaigns = fixture.campaigns();
            let cancelled = cancelled(&leaving);
            let seen = fixture.seen(&cancelled, CampaignStatus::Sending).await;
            let update = campaigns.update(&cancelled, &seen, &[]);
            update.await.unwrap();
        }
    };
    let (outcomes, (), ()) = join3(begins, results, leaves).await;
    let (sent, held) = used(fixture).await;
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
        let campaigns = fixture.campaigns();
        let cancelled = cancelled(campaign);
        let seen = fixture.seen(&cancelled, CampaignStatus::Sending).await;
        let update = campaigns.update(&cancelled, &seen, &[]);
        update.await.unwrap();
    }
    fixture.assert_recount().await;
}

#[test]
fn whoever_comes_first_the_month_is_never_exceeded_and_nothing_is_held_in_the_end() {
    let contacts = usize::try_from(PEOPLE).unwrap();
    tried(contacts, 25, 20, &race(), async |fixture: &DbFixture, race| {
        play(fixture, &race).await
    });
}
