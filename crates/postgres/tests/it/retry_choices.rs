//! The selection of failed sends by a retry, and scheduled retries.

use std::collections::BTreeMap;

use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, CampaignStore as _, Failure, FailureClass, LeftOut, LeftOutReason,
    QueuedRun, RetryOutcome, RetryReport, RetryRequest, RetrySchedule, RunQueue as _, RunRetry, RunRetryStore as _,
    RunStore as _, Scheduler, SendResult, SendStore as _, retry_rules,
};
use recado_domain::shared::{PageQuery, SendId, WriteOutcome};
use time::{Duration, OffsetDateTime};

use crate::error_codes::ERROR_CODES;
use crate::retries::{retry_of, tried};
use crate::support::{DbFixture, LEASE, event, id};

fn failed(code: Option<i64>) -> SendResult {
    let message = "refused".into();
    SendResult::Failed { code, message }
}

/// A finished run whose sends failed with these codes, in the order of the sends.
async fn failed_with(fixture: &DbFixture, codes: &[Option<i64>]) -> (Campaign, QueuedRun, Vec<SendId>) {
    fixture.add_contacts(codes.len()).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 1000).await;
    fail(fixture, run, &sends, codes).await;
    (campaign, run, sends)
}

async fn fail(fixture: &DbFixture, run: QueuedRun, sends: &[SendId], codes: &[Option<i64>]) {
    let results: Vec<_> = sends
        .iter()
        .zip(codes)
        .map(|(send, code)| (*send, failed(*code)))
        .collect();
    fixture.runs().record(run, &results).await.unwrap();
    fixture.runs().finish(run).await.unwrap();
    fixture.assert_recount().await;
}

/// Runs a retry with a large quota.
async fn retry(fixture: &DbFixture, campaign: &Campaign, request: RetryRequest) -> RetryOutcome {
    let run_retry = RunRetry {
        request,
        monthly_limit: 10_000,
        ..retry_of(fixture, campaign).await
    };
    fixture.runs().retry(&run_retry).await.unwrap()
}

fn codes(codes: &[i64], force: bool) -> RetryRequest {
    RetryRequest {
        codes: Some(codes.to_vec()),
        not_before: None,
        force,
    }
}

/// Reason, code and count of the sends that the retry leaves out.
fn left_out(outcome: &RetryOutcome) -> Vec<(LeftOutReason, i64, i64)> {
    let found: &[LeftOut] = match outcome {
        RetryOutcome::Started { report, .. } => &report.left_out,
        RetryOutcome::Refused(CampaignRefusal::NothingToRetry { left_out }) => left_out,
        unexpected => panic!("{unexpected:?}"),
    };
    found
        .iter()
        .map(|sends| (sends.reason, sends.code, sends.count))
        .collect()
}

#[tokio::test]
async fn retry_sql_and_domain_classify_failures_alike() {
    let hours = [0, 1, 25, 49, 24 * 7 - 1, 24 * 7 + 1];
    let all = retry_rules(&ERROR_CODES)
        .into_iter()
        .map(|(code, _)| Some(code))
        .chain([None, Some(131_000)]);
    let mut failures = Vec::new();
    for code in all {
        for times in 1..=4 {
            failures.extend(hours.map(|age| (code, times, Duration::hours(age))));
        }
    }
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    let all: Vec<Option<i64>> = failures.iter().map(|(code, ..)| *code).collect();
    let (campaign, _, sends) = failed_with(&fixture, &all).await;
    for (send, (_, times, age)) in sends.iter().zip(&failures) {
        fixture
            .sql(&format!(
                "UPDATE campaign_sends SET failed_at = now() - interval '{} hours', earlier_error_code = error_code,
                   earlier_failures = {} WHERE id = '{send}'",
                age.whole_hours(),
                times - 1
            ))
            .await;
    }
    let (mut selected, mut expected) = (0, BTreeMap::new());
    for (code, times, age) in failures {
        let failed_at = crate::support::NOW;
        let failure = Failure {
            error: code.map(|code| ERROR_CODES.class(code)),
            times,
            failed_at,
            opted_in_since: false,
            has_phone: true,
        };
        let reason = match failure.class() {
            (FailureClass::Never, _) => "never",
            (FailureClass::Later, Some(after)) if after > failed_at + age => "later",
            _ => {
                selected += 1;
                continue;
            }
        };
        *expected.entry((reason, code.unwrap_or(0))).or_insert(0) += 1;
    }
    let outcome = retry(&fixture, &campaign, RetryRequest::default()).await;
    assert_eq!(tried(&outcome), (selected, selected));
    let found = left_out(&outcome)
        .into_iter()
        .map(|(reason, code, count)| ((reason.as_str(), code), count));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
    let left_out_count: i64 = expected.values().sum();
    assert_eq!(i64::try_from(sends.len()).unwrap(), selected + left_out_count);
    let RetryOutcome::Started { report, .. } = outcome else {
        unreachable!()
    };
    for item in report.left_out {
        assert_eq!(item.earliest.is_some(), item.reason == LeftOutReason::Later, "{item:?}");
        assert!(
            item.earliest.is_none_or(|at| at > OffsetDateTime::now_utc()),
            "{item:?}"
        );
    }
    fixture.assert_recount().await;
}

#[tokio::test]
async fn retry_by_codes_selects_only_those_sends() {
    use LeftOutReason::{Later, Never, NotChosen};
    let fixture = DbFixture::new().await;
    let failures = [Some(131_026), Some(131_049), Some(131_049), None, Some(131_047)];
    let (campaign, run, sends) = failed_with(&fixture, &failures).await;
    let refused = retry(&fixture, &campaign, codes(&[131_049, 131_047], false)).await;
    let not_chosen = [(NotChosen, 0, 1), (NotChosen, 131_026, 1)];
    let mut expected = vec![(Later, 131_049, 2), (Never, 131_047, 1)];
    expected.extend(not_chosen);
    assert_eq!(left_out(&refused), expected);
    let pending = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM campaign_sends WHERE status = 'pending'";
    assert_eq!(fixture.text(pending).await, None);

    let forced = retry(&fixture, &campaign, codes(&[131_049, 131_047], true)).await;
    assert_eq!(tried(&forced), (2, 2));
    assert_eq!(left_out(&forced), [&[(Never, 131_047, 1)], &not_chosen[..]].concat());
    let mut chosen = [sends[1], sends[2]].map(|send| send.to_string());
    chosen.sort_unstable();
    assert_eq!(fixture.text(pending).await, Some(chosen.join(" ")));
    fixture.runs().finish(run).await.unwrap();
    let failed_again = "UPDATE campaign_sends SET status = 'failed', failed_at = now(), error_code = earlier_error_code
         WHERE status = 'pending';
         UPDATE campaign_counter_slots SET failed = failed + pending, pending = 0";
    fixture.sql(failed_again).await;

    // Code 0 selects the sends without a code. `force` without codes does not skip the wait of any send.
    assert_eq!(tried(&retry(&fixture, &campaign, codes(&[0], false)).await), (1, 1));
    fixture.runs().finish(run).await.unwrap();
    let force = RetryRequest {
        force: true,
        ..RetryRequest::default()
    };
    fixture
        .sql("UPDATE campaign_sends SET status = 'failed', failed_at = now(), error_code = 131049")
        .await;
    assert_eq!(
        left_out(&retry(&fixture, &campaign, force).await),
        [(Later, 131_049, 5)]
    );
}

#[tokio::test]
async fn retry_leaves_out_unreachable_contacts() {
    use LeftOutReason::{Never, OptedOut, Unreachable};
    let fixture = DbFixture::new().await;
    let failures = [
        Some(131_062),
        Some(131_000),
        Some(131_000),
        Some(131_000),
        Some(131_050),
    ];
    let (campaign, run, sends) = failed_with(&fixture, &failures).await;
    for (send, change) in [
        (0, "phone = NULL"),
        (1, "phone = NULL"),
        (2, "deleted_at = now()"),
        (3, "opted_out_at = now()"),
    ] {
        let send = sends[send];
        fixture
            .sql(&format!(
                "UPDATE contacts SET {change} WHERE id = (SELECT contact_id FROM campaign_sends WHERE id = '{send}')"
            ))
            .await;
    }
    let refused = retry(&fixture, &campaign, RetryRequest::default()).await;
    let without_phone = (Never, 131_062, 1);
    let unreachable = [(OptedOut, 131_000, 1), (Unreachable, 131_000, 2)];
    assert_eq!(
        left_out(&refused),
        [&[(Never, 131_050, 1), without_phone], &unreachable[..]].concat()
    );

    // An opt-in before the failure has no effect. An opt-in after the failure makes the send retryable.
    let opt_in = async |when: &str| {
        let change = format!(
            "UPDATE contacts SET opted_out_at = NULL, consent_at = now() {when}
             WHERE id = (SELECT contact_id FROM campaign_sends WHERE id = '{}')",
            sends[4]
        );
        fixture.sql(&change).await;
        retry(&fixture, &campaign, RetryRequest::default()).await
    };
    assert_eq!(left_out(&opt_in("- interval '1 hour'").await).len(), 4);
    let outcome = opt_in("+ interval '1 second'").await;
    assert_eq!(tried(&outcome), (1, 1));
    assert_eq!(left_out(&outcome), [&[without_phone], &unreachable[..]].concat());
    fixture.runs().finish(run).await.unwrap();
}

/// The failure class of the only send, and the time from its failure until it may be retried.
async fn listed(fixture: &DbFixture, campaign: &Campaign) -> (Option<FailureClass>, Option<Duration>) {
    let page = PageQuery::new(None, None, 20, 100);
    let page = fixture.sends(fixture.account, campaign.id, page).await.unwrap();
    let send = page.unwrap().data.remove(0);
    let failed_at: i64 = fixture
        .number("SELECT coalesce(max(extract(epoch FROM failed_at) * 1000000), 0) FROM campaign_sends")
        .await;
    let failed_at = OffsetDateTime::UNIX_EPOCH + Duration::microseconds(failed_at);
    (send.failure_class, send.retry_after.map(|after| after - failed_at))
}

#[tokio::test]
async fn consecutive_failures_with_one_code_are_counted() {
    let fixture = DbFixture::new().await;
    let code = Some(131_026);
    let (campaign, run, _) = failed_with(&fixture, &[code]).await;
    let (runs, later) = (fixture.runs(), Some(FailureClass::Later));
    let again = async |code| {
        assert_eq!(
            tried(&retry(&fixture, &campaign, RetryRequest::default()).await),
            (1, 1)
        );
        assert_eq!(listed(&fixture, &campaign).await, (None, None));
        let worker = id();
        runs.take(worker, LEASE).await.unwrap();
        let sends = fixture.in_flight(run, worker, 10).await;
        fail(&fixture, run, &sends, &[code]).await;
    };
    assert_eq!(listed(&fixture, &campaign).await, (later, Some(Duration::ZERO)));
    again(code).await;
    assert_eq!(listed(&fixture, &campaign).await, (later, Some(Duration::ZERO)));
    again(code).await;
    assert_eq!(listed(&fixture, &campaign).await, (later, Some(Duration::WEEK)));
    let refused = retry(&fixture, &campaign, RetryRequest::default()).await;
    assert_eq!(left_out(&refused), [(LeftOutReason::Later, 131_026, 1)]);
    fixture
        .sql("UPDATE campaign_sends SET failed_at = failed_at - interval '8 days'")
        .await;
    // Another code resets the count, and the first code after it resets the count again.
    again(None).await;
    assert_eq!(listed(&fixture, &campaign).await, (Some(FailureClass::Again), None));
    again(code).await;
    assert_eq!(listed(&fixture, &campaign).await, (later, Some(Duration::ZERO)));
}

async fn schedule_of(fixture: &DbFixture, campaign: &Campaign, due: OffsetDateTime) -> RetrySchedule {
    let stored = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    RetrySchedule {
        expected_version: stored.version,
        campaign: Campaign {
            retry_scheduled_at: Some(due),
            updated_at: stored.updated_at + Duration::MICROSECOND,
            ..stored
        },
        request: RetryRequest {
            not_before: Some(due),
            ..codes(&[131_049], false)
        },
        scheduler: Scheduler {
            user_id: fixture.user,
            support_admin: Some("admin@example.com".into()),
        },
        events: vec![event(id())],
    }
}

const SCHEDULED: &str = "SELECT count(*) FROM campaign_retries";

#[tokio::test]
async fn scheduled_retry_is_evaluated_at_its_due_time() {
    let fixture = DbFixture::new().await;
    let (campaign, run, _) = failed_with(&fixture, &[Some(131_049), Some(131_000)]).await;
    let (runs, store, now) = (fixture.runs(), fixture.campaigns(), OffsetDateTime::now_utc());
    for (due, selected) in [(Duration::hours(1), 0), (Duration::hours(25), 1)] {
        let due = now.replace_nanosecond(0).unwrap() + due;
        let schedule = schedule_of(&fixture, &campaign, due).await;
        let (written, report) = runs.schedule_retry(&schedule).await.unwrap();
        assert_eq!((written, report.tried), (WriteOutcome::Done, selected));
        let left_out: i64 = report.left_out.iter().map(|sends| sends.count).sum();
        assert_eq!(report.tried + left_out, 2);
        let stored = store.find(fixture.account, campaign.id).await.unwrap().unwrap();
        assert_eq!(
            (stored.status, stored.retry_scheduled_at),
            (CampaignStatus::Partial, Some(due))
        );
        // The same schedule again was decided on an older version of the campaign.
        let (written, _) = runs.schedule_retry(&schedule).await.unwrap();
        assert_eq!(written, WriteOutcome::Stale(CampaignStatus::Partial));
    }
    assert_eq!(runs.due_retries(10).await.unwrap(), []);
    let past = "now() - interval '1 second'";
    fixture
        .sql(&format!(
            "UPDATE campaign_retries SET due_at = {past}; UPDATE campaigns SET retry_scheduled_at = {past}"
        ))
        .await;
    let due = runs.due_retries(10).await.unwrap();
    assert_eq!(
        (due.len(), due[0].run, due[0].scheduler.user_id),
        (1, run, fixture.user)
    );
    assert_eq!(
        (due[0].request.codes.as_deref(), due[0].request.force),
        (Some(&[131_049][..]), false)
    );
    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    assert_eq!(runs.due_retries(10).await.unwrap(), []);
    fixture.sql("UPDATE accounts SET status = 'active'").await;
    // An immediate retry replaces the scheduled one.
    retry(&fixture, &campaign, RetryRequest::default()).await;
    let stored = store.find(fixture.account, campaign.id).await.unwrap().unwrap();
    assert_eq!((stored.retry_scheduled_at, fixture.number(SCHEDULED).await), (None, 0));
}

#[tokio::test]
async fn scheduled_retry_ends_when_cancelled_or_campaign_deleted() {
    let fixture = DbFixture::new().await;
    let (campaign, ..) = failed_with(&fixture, &[None]).await;
    let (runs, store) = (fixture.runs(), fixture.campaigns());
    let due = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap() + Duration::DAY;
    runs.schedule_retry(&schedule_of(&fixture, &campaign, due).await)
        .await
        .unwrap();
    let stored = store.find(fixture.account, campaign.id).await.unwrap().unwrap();
    // Another change of the campaign keeps the scheduled retry.
    store.update(&stored, &stored, &[]).await.unwrap();
    assert_eq!(fixture.number(SCHEDULED).await, 1);
    let stored = store.find(fixture.account, campaign.id).await.unwrap().unwrap();
    let without = Campaign {
        late_policy: None,
        skipped_at: None,
        retry_scheduled_at: None,
        ..stored.clone()
    };
    store.update(&without, &stored, &[]).await.unwrap();
    assert_eq!(fixture.number(SCHEDULED).await, 0);

    runs.schedule_retry(&schedule_of(&fixture, &campaign, due).await)
        .await
        .unwrap();
    store.delete(&stored, CampaignStatus::Partial, &[]).await.unwrap();
    assert_eq!(fixture.number(SCHEDULED).await, 0);
}

#[tokio::test]
async fn preview_matches_the_retry_report() {
    let fixture = DbFixture::new().await;
    let failures = [Some(131_049), Some(131_047), None, Some(131_026)];
    let (campaign, ..) = failed_with(&fixture, &failures).await;
    let preview_facts = fixture
        .campaigns()
        .preview_facts(fixture.account, campaign.id, 3)
        .await
        .unwrap()
        .unwrap();
    let RetryOutcome::Started { report, .. } = retry(&fixture, &campaign, RetryRequest::default()).await else {
        panic!("no send was retried")
    };
    assert_eq!((preview_facts.retry, report.tried), (report, 2));
    let preview_facts = fixture
        .campaigns()
        .preview_facts(fixture.account, campaign.id, 3)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(preview_facts.retry, RetryReport::default());
}
