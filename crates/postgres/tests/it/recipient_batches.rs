//! Large audiences: frozen at the start in recipient batches, which become sends while the run goes on.

use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, CampaignStore, ClaimOutcome, ClaimPosition, Field, QueuedRun,
    RequiredPlaceholder, RetryOutcome, RetryReport, RunRetryStore as _, RunStart, RunStartStore as _, RunStore as _,
    RunSweepStore as _, SendResult, SendStore as _, StartOutcome,
};
use recado_domain::shared::ContactId;
use uuid::Uuid;

use crate::retries::retry_of;
use crate::support::{DbFixture, LEASE, id};

/// The first 5000 recipients get send rows at the start. The others are in three recipient batches.
const CONTACTS: usize = 9300;

const SENDS: &str = "SELECT count(*) FROM campaign_sends";
const BATCHES: &str = "SELECT count(*) FROM campaign_recipient_batches";

/// Starts a run with recipient batches.
async fn started(worker: Uuid) -> (DbFixture, Campaign, QueuedRun) {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(CONTACTS).await;
    let (campaign, run) = fixture.started(worker).await;
    assert_eq!((fixture.number(SENDS).await, fixture.number(BATCHES).await), (5000, 3));
    (fixture, campaign, run)
}

/// The position after a contact, with nothing in flight.
fn position(after: ContactId) -> ClaimPosition {
    ClaimPosition {
        after,
        in_flight: vec![],
    }
}

async fn cancel(fixture: &DbFixture, campaign: Campaign) {
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign
    };
    let campaigns = fixture.campaigns();
    campaigns
        .update(
            &cancelled,
            &fixture.expected(&cancelled, CampaignStatus::Sending).await,
            &[],
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn recipients_in_batches_are_counted_and_claimed_once() {
    let worker = id();
    let (fixture, campaign, run) = started(worker).await;
    let stats = fixture.campaigns().stats(fixture.account, campaign.id).await.unwrap();
    let stats = stats.unwrap();
    assert_eq!(
        (stats.counts.total, stats.counts.pending, fixture.usage().await.as_str()),
        (9300, 9300, "0/9300")
    );
    let expected = fixture
        .text("SELECT string_agg(id::text, ' ' ORDER BY id) FROM contacts")
        .await;
    // A contact that is created after the start is no recipient.
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone)
             VALUES ('{}', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'late', '+5511988887777')",
            fixture.account
        ))
        .await;
    let mut seen: Vec<ContactId> = vec![];
    while seen.len() < CONTACTS {
        let claim = fixture
            .runs()
            .claim(run, worker, seen.last().copied().map(position), 1000, LEASE)
            .await;
        let ClaimOutcome::Sends(sends) = claim.unwrap() else {
            panic!("{} recipients are missing", CONTACTS - seen.len());
        };
        seen.extend(sends.iter().map(|send| send.contact_id));
    }
    let seen: Vec<String> = seen.iter().map(ToString::to_string).collect();
    assert_eq!(seen.join(" "), expected.unwrap());
    assert_eq!(fixture.number(BATCHES).await, 0);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn cancel_releases_batches_and_still_materializes_sends() {
    let (fixture, campaign, _) = started(id()).await;
    cancel(&fixture, campaign).await;
    assert_eq!(fixture.usage().await, "0/0");
    let mut rounds = 0;
    while fixture.runs().materialize_sends().await.unwrap().has_more() {
        rounds += 1;
    }
    assert_eq!((rounds, fixture.number(SENDS).await), (3, 9300));
    // All sends have the time of the freeze, and so have their counters.
    let creation_times = "SELECT count(DISTINCT at) FROM
      (SELECT created_at AS at FROM campaign_sends UNION ALL SELECT created_at FROM campaign_counters) AS m";
    assert_eq!(fixture.number(creation_times).await, 1);
    assert_eq!(fixture.usage().await, "0/0");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn materialization_during_a_cancel_counts_once() {
    let (fixture, campaign, _) = started(id()).await;
    let materializer = fixture.db.client().await;
    // Like `materialize_sends`, but open in the middle of its transaction.
    materializer
        .batch_execute(
            "BEGIN; WITH batch AS (DELETE FROM campaign_recipient_batches WHERE batch_no = 0 RETURNING *)
             INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
             SELECT account_id, send_id(created_at, campaign_id, c), campaign_id, c FROM batch, unnest(contact_ids) c",
        )
        .await
        .unwrap();
    // The end of the run counts by the counters: it neither waits for the materialization nor sees a part of it.
    cancel(&fixture, campaign).await;
    materializer.batch_execute("COMMIT").await.unwrap();
    assert_eq!((fixture.number(SENDS).await, fixture.number(BATCHES).await), (7000, 2));
    assert_eq!(fixture.usage().await, "0/0");
}

#[tokio::test]
async fn claim_waits_for_concurrent_materialization() {
    let worker = id();
    let (fixture, _, run) = started(worker).await;
    while fixture.runs().materialize_sends().await.unwrap().has_more() {
        if fixture.number(BATCHES).await == 1 {
            break;
        }
    }
    fixture
        .sql("UPDATE campaign_sends SET status = 'failed', started_at = now()")
        .await;
    let materializer = fixture.db.client().await;
    materializer
        .batch_execute(
            "BEGIN; WITH batch AS (DELETE FROM campaign_recipient_batches RETURNING *)
             INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
             SELECT account_id, send_id(created_at, campaign_id, c), campaign_id, c FROM batch, unnest(contact_ids) c",
        )
        .await
        .unwrap();
    let commit = async {
        fixture.blocked(1).await;
        materializer.batch_execute("COMMIT").await.unwrap();
    };
    let runs = fixture.runs();
    let (claim, ()) = tokio::join!(runs.claim(run, worker, None, 1000, LEASE), commit);
    let ClaimOutcome::Sends(sends) = claim.unwrap() else {
        panic!("the run would end without its last 300 sends");
    };
    assert_eq!(sends.len(), 300);
}

#[tokio::test]
async fn retry_includes_batches_left_by_an_early_end() {
    let worker = id();
    let (fixture, campaign, run) = started(worker).await;
    let sends = fixture.in_flight(run, worker, 2).await;
    let failed = |send: &_| {
        let message = "no".into();
        (*send, SendResult::Failed { code: None, message })
    };
    let results: Vec<_> = sends.iter().map(failed).collect();
    fixture.runs().record(run, &results).await.unwrap();
    fixture.runs().finish(run).await.unwrap();
    assert_eq!(fixture.usage().await, "0/0");
    let retry = recado_domain::campaigns::RunRetry {
        monthly_limit: 10_000,
        ..retry_of(&fixture, &campaign).await
    };
    let outcome = fixture.runs().retry(&retry).await.unwrap();
    let report = RetryReport {
        tried: 2,
        left_out: vec![],
    };
    let recipients = 9300;
    assert_eq!(outcome, RetryOutcome::Started { recipients, report });
    assert_eq!(fixture.usage().await, "0/9300");
    while fixture.runs().materialize_sends().await.unwrap().has_more() {}
    let untried = "SELECT count(*) FROM campaign_sends WHERE status = 'pending' AND retry_at <= now()";
    assert_eq!(fixture.number(untried).await, 9300);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn start_checks_placeholders_of_recipients_in_batches() {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(CONTACTS).await;
    fixture.sql("UPDATE contacts SET email = 'a@example.com'").await;
    let last = "UPDATE contacts SET email = NULL WHERE id = (SELECT max(id::text)::uuid FROM contacts)";
    fixture.sql(last).await;
    let campaign = fixture.stored_draft().await;
    let start = RunStart {
        required_placeholders: vec![RequiredPlaceholder {
            placeholder: "1".into(),
            fields: vec![Field::Email],
        }],
        ..fixture.start_of(&campaign)
    };
    let refused = fixture.runs().start(&start, None, LEASE).await.unwrap();
    let placeholder = "1".into();
    assert_eq!(
        refused,
        StartOutcome::Refused(CampaignRefusal::EmptyPlaceholder { placeholder })
    );
    assert_eq!((fixture.number(SENDS).await, fixture.number(BATCHES).await), (0, 0));
}
