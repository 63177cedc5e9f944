//! The limit of marketing messages to a contact: what counts, also under concurrent starts.

use recado_domain::campaigns::{
    CampaignStats, CampaignStore as _, ClaimOutcome, HeldSends, QueuedRun, RunQueue as _, RunRetryStore as _,
    RunStore as _, SendResult, SendStore as _,
};
use recado_domain::shared::SendId;
use uuid::Uuid;

use crate::retries::retry_of;
use crate::support::{DbFixture, LEASE, id};

/// Sets the limit to `n` messages in `days`.
pub(crate) async fn set_cap(fixture: &DbFixture, n: u16, days: u16) {
    fixture
        .sql(&format!(
            "INSERT INTO account_settings (account_id, max_marketing_per_contact, holds_changed_at, updated_at)
             VALUES ('{}', '{{\"n\": {n}, \"days\": {days}}}', clock_timestamp(), now())
             ON CONFLICT (account_id) DO UPDATE
               SET max_marketing_per_contact = excluded.max_marketing_per_contact,
                 holds_changed_at = excluded.holds_changed_at",
            fixture.account
        ))
        .await;
}

pub(crate) async fn claimed(fixture: &DbFixture, run: QueuedRun, worker: Uuid) -> Vec<SendId> {
    let claim = fixture.runs().claim(run, worker, None, 100, LEASE).await.unwrap();
    let ClaimOutcome::Sends(sends) = claim else {
        panic!("{claim:?}")
    };
    sends.iter().map(|send| send.id).collect()
}

pub(crate) async fn start(fixture: &DbFixture, run: QueuedRun, worker: Uuid, sends: &[SendId]) -> usize {
    let started = fixture.runs().record_and_start(run, worker, &[], sends).await.unwrap();
    assert!(started.goes_on);
    started.sends.len()
}

/// The most started sends of a contact, and the number of contacts with so many.
async fn most_starts(fixture: &DbFixture) -> String {
    let starts = "SELECT count || '/' || count(*) FROM (SELECT count(*) FROM campaign_sends
        WHERE started_at IS NOT NULL AND status <> 'failed' GROUP BY contact_id) c GROUP BY count
        ORDER BY count DESC LIMIT 1";
    fixture.text(starts).await.unwrap()
}

#[tokio::test]
async fn concurrent_starts_never_exceed_the_cap() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(8).await;
    let mut runs = vec![];
    for _ in 0..5 {
        let worker = id();
        let (_, run) = fixture.started(worker).await;
        runs.push((run, worker, claimed(&fixture, run, worker).await));
    }
    // All sends were claimed before there was a limit, so only their starts are checked.
    set_cap(&fixture, 2, 1).await;
    let starts = runs
        .iter()
        .map(|(run, worker, sends)| start(&fixture, *run, *worker, sends));
    let started: usize = futures_util::future::join_all(starts).await.into_iter().sum();
    assert_eq!((started, most_starts(&fixture).await.as_str()), (16, "2/8"));
    let held =
        "SELECT count(*) FROM campaign_sends WHERE started_at IS NULL AND hold_reason = 'cap' AND held_since <= now()
      AND retry_at BETWEEN now() + interval '23 hours' AND now() + interval '1 day'";
    assert_eq!(fixture.number(held).await, 24);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn linked_contacts_count_as_one_person() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let (first, second) = (id(), id());
    let (_, run) = fixture.started(first).await;
    let (_, other) = fixture.started(second).await;
    let sends = claimed(&fixture, run, first).await;
    let others = claimed(&fixture, other, second).await;
    fixture
        .sql("UPDATE contacts c SET same_person_as = o.id FROM contacts o WHERE o.account_id = c.account_id AND o.id < c.id")
        .await;
    set_cap(&fixture, 1, 1).await;
    assert_eq!(start(&fixture, run, first, &sends).await, 1);
    assert_eq!(start(&fixture, other, second, &others).await, 0);
}

#[tokio::test]
async fn failed_and_old_messages_do_not_count() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    set_cap(&fixture, 1, 1).await;
    let (first, second) = (id(), id());
    let (_, run) = fixture.started(first).await;
    let (_, other) = fixture.started(second).await;
    let sends = claimed(&fixture, run, first).await;
    let others = claimed(&fixture, other, second).await;
    assert_eq!(start(&fixture, run, first, &sends).await, 3);
    let failed = SendResult::Failed {
        code: Some(131_026),
        message: "no".into(),
    };
    let released = SendResult::Released;
    fixture
        .runs()
        .record(run, &[(sends[0], failed), (sends[1], released)])
        .await
        .unwrap();
    assert_eq!(start(&fixture, other, second, &others).await, 2);
    fixture
        .sql("UPDATE campaign_sends SET started_at = now() - interval '1 day' WHERE started_at IS NOT NULL")
        .await;
    assert_eq!(start(&fixture, other, second, &others).await, 1);
    fixture.assert_recount().await;
}

pub(crate) async fn stats(fixture: &DbFixture, run: QueuedRun) -> CampaignStats {
    let stats = fixture
        .campaigns()
        .stats(run.account_id, run.campaign_id)
        .await
        .unwrap();
    stats.unwrap()
}

pub(crate) async fn claim_until_held(fixture: &DbFixture, run: QueuedRun, worker: Uuid) -> HeldSends {
    loop {
        match fixture.runs().claim(run, worker, None, 2, LEASE).await.unwrap() {
            ClaimOutcome::Skipped(_) => {}
            ClaimOutcome::Held(held) => return held,
            claim => panic!("{claim:?}"),
        }
    }
}

/// A run that waits because its contacts got a message of another run.
pub(crate) async fn waiting_run(fixture: &DbFixture) -> (QueuedRun, HeldSends) {
    fixture.add_contacts(5).await;
    set_cap(fixture, 1, 1).await;
    let (first, second) = (id(), id());
    let (_, run) = fixture.started(first).await;
    let sends = claimed(fixture, run, first).await;
    assert_eq!(start(fixture, run, first, &sends).await, 5);
    let (_, waiting) = fixture.started(second).await;
    let held = claim_until_held(fixture, waiting, second).await;
    fixture.runs().wait(waiting, second, held).await.unwrap();
    (waiting, held)
}

#[tokio::test]
async fn message_counts_by_its_category_when_it_started() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    set_cap(&fixture, 1, 1).await;
    let category = async |name| {
        let set = format!("UPDATE message_templates SET category = '{name}'");
        fixture.sql(&set).await;
    };
    let started = async || {
        let worker = id();
        let (_, run) = fixture.started(worker).await;
        let ClaimOutcome::Sends(sends) = fixture.runs().claim(run, worker, None, 100, LEASE).await.unwrap() else {
            return 0;
        };
        let sends: Vec<SendId> = sends.iter().map(|send| send.id).collect();
        start(&fixture, run, worker, &sends).await
    };
    // Drafts are stored with templates of their own, whose category is set before they start.
    fixture.started(id()).await;
    for name in ["UTILITY", "AUTHENTICATION"] {
        let (worker, run) = (id(), fixture.started(id()).await.1);
        fixture
            .sql(&format!("UPDATE campaign_queue SET worker = '{worker}'"))
            .await;
        category(name).await;
        let sends = claimed(&fixture, run, worker).await;
        assert_eq!(start(&fixture, run, worker, &sends).await, 3, "{name} is never held");
    }
    category("MARKETING").await;
    assert_eq!(started().await, 3, "what started in another category does not count");
    category("UTILITY").await;
    assert_eq!(started().await, 0, "what started as a marketing message does");
    // The previous version does not store the category.
    fixture.sql("UPDATE campaign_sends SET is_marketing = NULL").await;
    assert_eq!(started().await, 3, "the template's category now");
}

#[tokio::test]
async fn contact_that_is_linked_during_a_start_counts() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    set_cap(&fixture, 1, 1).await;
    let (first, second) = (id(), id());
    let (_, run) = fixture.started(first).await;
    let sends = claimed(&fixture, run, first).await;
    assert_eq!(start(&fixture, run, first, &sends[..1]).await, 1);
    let contact = |send: SendId| format!("(SELECT contact_id FROM campaign_sends WHERE id = '{}')", send.0);
    let (_, other) = fixture.started(second).await;
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET hold_reason = NULL, retry_at = NULL WHERE campaign_id = '{}'",
            other.campaign_id.0
        ))
        .await;
    let ClaimOutcome::Sends(free) = fixture.runs().claim(other, second, None, 100, LEASE).await.unwrap() else {
        panic!("nothing is free")
    };
    let free: Vec<SendId> = free.iter().map(|send| send.id).collect();
    assert_eq!(free.len(), 1);
    let link = fixture.db.client().await;
    link.batch_execute(&format!(
        "BEGIN; UPDATE contacts SET same_person_as = {} WHERE id = {}",
        contact(sends[0]),
        contact(free[0])
    ))
    .await
    .unwrap();
    let runs = fixture.runs();
    let starting = tokio::spawn(async move { runs.record_and_start(other, second, &[], &free).await });
    fixture.blocked(1).await;
    link.batch_execute("COMMIT").await.unwrap();
    assert_eq!(starting.await.unwrap().unwrap().sends, []);
}

#[tokio::test]
async fn retry_is_held_and_counts_once() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let (first, second, third) = (id(), id(), id());
    let (campaign, run) = fixture.started(first).await;
    let sends = fixture.in_flight(run, first, 1).await;
    let failed = SendResult::Failed {
        code: Some(131_026),
        message: "no".into(),
    };
    fixture.runs().record(run, &[(sends[0], failed)]).await.unwrap();
    fixture.runs().finish(run).await.unwrap();
    let (_, other) = fixture.started(second).await;
    assert_eq!(fixture.in_flight(other, second, 1).await.len(), 1);
    fixture
        .sql("UPDATE campaign_sends SET failed_at = failed_at - interval '2 days' WHERE failed_at IS NOT NULL")
        .await;
    set_cap(&fixture, 1, 1).await;
    let retry = retry_of(&fixture, &campaign).await;
    fixture.runs().retry(&retry).await.unwrap();
    assert_eq!(fixture.runs().take(third, LEASE).await.unwrap(), Some(run));
    let held = claim_until_held(&fixture, run, third).await;
    assert_eq!(held.count, 1);
    set_cap(&fixture, 2, 1).await;
    let again = claimed(&fixture, run, third).await;
    assert_eq!((&again, start(&fixture, run, third, &again).await), (&sends, 1));
    // Two messages of two days: the failed attempt does not count.
    let fourth = id();
    let (_, last) = fixture.started(fourth).await;
    assert_eq!(claim_until_held(&fixture, last, fourth).await.count, 1);
    set_cap(&fixture, 3, 1).await;
    let free = claimed(&fixture, last, fourth).await;
    assert_eq!(start(&fixture, last, fourth, &free).await, 1);
}
