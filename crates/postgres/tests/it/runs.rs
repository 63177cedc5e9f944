//! The run queue, and the sending and end of a run.

use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore, ClaimOutcome, QueuedRun, RunQueue as _, RunReport, RunStart,
    RunStartStore as _, RunStore as _, RunSweepStore as _, SendResult, SendStore as _, Trigger,
};
use recado_domain::contacts::ContactStore;
use recado_domain::shared::{CampaignId, SendId, WriteOutcome};
use recado_domain::templates::TemplateStore;
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::PgProfiles;
use time::Duration;

use crate::support::{DbFixture, LEASE, NOW, event, id};
use crate::whatsapp::profile;

fn sent(message: &str) -> SendResult {
    SendResult::Sent {
        message_id: Some(message.into()),
        wa_id: Some(format!("wa-{message}")),
    }
}

fn failed() -> SendResult {
    SendResult::Failed {
        code: Some(131_026),
        message: "no such user".into(),
    }
}

async fn claimed(fixture: &DbFixture, run: QueuedRun, worker: uuid::Uuid, size: i64) -> Vec<SendId> {
    match fixture.runs().claim(run, worker, None, size, LEASE).await.unwrap() {
        ClaimOutcome::Sends(sends) => sends.into_iter().map(|send| send.id).collect(),
        unexpected => panic!("{unexpected:?}"),
    }
}

#[tokio::test]
async fn concurrent_workers_take_each_run_once() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    for _ in 0..5 {
        let campaign = fixture.stored_draft().await;
        fixture
            .runs()
            .start(&fixture.start_of(&campaign), None, LEASE)
            .await
            .unwrap();
    }
    let takes = (0..15).map(|_| {
        let runs = fixture.runs();
        async move { runs.take(id(), LEASE).await.unwrap() }
    });
    let mut taken: Vec<CampaignId> = futures_util::future::join_all(takes)
        .await
        .into_iter()
        .flatten()
        .map(|run| run.campaign_id)
        .collect();
    // A worker finds no row while concurrent workers lock every free row, so the rest is taken afterwards.
    while let Some(run) = fixture.runs().take(id(), LEASE).await.unwrap() {
        taken.push(run.campaign_id);
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 5);
}

#[tokio::test]
async fn paused_suspended_and_ended_runs_are_not_taken() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let (campaign, run) = fixture.started(id()).await;
    fixture.sql("UPDATE campaign_queue SET worker = NULL").await;
    let runs = fixture.runs();
    runs.pause(run, "token expired", &[event(id())]).await.unwrap();
    runs.pause(run, "again", &[event(id())]).await.unwrap();
    let paused = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    assert!(paused.paused_at.is_some());
    assert_eq!(
        (paused.status, paused.pause_reason.as_deref()),
        (CampaignStatus::Sending, Some("token expired"))
    );
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 1);
    assert_eq!(runs.take(id(), LEASE).await.unwrap(), None);
    let resumed = Campaign {
        paused_at: None,
        pause_reason: None,
        ..paused
    };
    fixture
        .campaigns()
        .update(
            &resumed,
            &fixture.expected(&resumed, CampaignStatus::Sending).await,
            &[],
        )
        .await
        .unwrap();

    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    assert_eq!(runs.take(id(), LEASE).await.unwrap(), None);
    fixture.sql("UPDATE accounts SET status = 'active'").await;
    assert_eq!(runs.take(id(), LEASE).await.unwrap(), Some(run));
    // The sweep deletes the queue entry of an ended run.
    fixture
        .sql("UPDATE campaigns SET status = 'cancelled'; UPDATE campaign_queue SET worker = NULL")
        .await;
    assert_eq!(runs.take(id(), LEASE).await.unwrap(), None);
    assert_eq!(runs.sweep_queue(10).await.unwrap(), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_queue").await, 0);
}

#[tokio::test]
async fn claims_stop_with_their_run() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let worker = id();
    let runs = fixture.runs();
    let (campaign, run) = fixture.started(worker).await;
    let sends = claimed(&fixture, run, worker, 2).await;
    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    assert_eq!(
        runs.claim(run, worker, None, 5, LEASE).await.unwrap(),
        ClaimOutcome::Stopped
    );
    fixture.sql("UPDATE accounts SET status = 'active'").await;
    runs.pause(run, "x", &[]).await.unwrap();
    assert_eq!(
        runs.claim(run, worker, None, 5, LEASE).await.unwrap(),
        ClaimOutcome::Stopped
    );
    assert_eq!(fixture.start_sends(run, worker, &sends).await, []);
    fixture.sql("UPDATE campaigns SET paused_at = NULL").await;
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign
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
    assert_eq!(
        runs.claim(run, worker, None, 5, LEASE).await.unwrap(),
        ClaimOutcome::Stopped
    );
    assert_eq!(fixture.start_sends(run, worker, &sends).await, []);
    assert_eq!(fixture.usage().await, "0/0");
}

#[tokio::test]
async fn claims_return_current_contact_data() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(4).await;
    fixture
        .sql(r#"UPDATE contacts SET email = 'a@example.com', attributes = '{"n":1}' WHERE name = 'Contact 1'"#)
        .await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    fixture
        .sql("UPDATE contacts SET opted_out_at = now() WHERE name = 'Contact 2'")
        .await;
    fixture
        .sql("UPDATE contacts SET deleted_at = now() WHERE name = 'Contact 3'")
        .await;
    fixture
        .sql("UPDATE contacts SET phone = NULL WHERE name = 'Contact 4'")
        .await;
    let ClaimOutcome::Sends(sends) = fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap() else {
        panic!()
    };
    assert_eq!(sends.len(), 4);
    assert!(sends.is_sorted_by_key(|send| send.contact_id));
    let reachable: Vec<_> = sends.iter().filter_map(|send| send.recipient.as_ref()).collect();
    assert_eq!(reachable.len(), 1);
    assert_eq!(
        (reachable[0].name.as_str(), reachable[0].phone.as_str()),
        ("Contact 1", "+5511900000001")
    );
    assert_eq!(
        (reachable[0].email.as_deref(), reachable[0].attributes.len()),
        (Some("a@example.com"), 1)
    );
}

#[tokio::test]
async fn results_move_sends_counters_and_quota_together() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(6).await;
    let worker = id();
    let runs = fixture.runs();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 5).await;
    let results = [
        (sends[0], sent("m1")),
        (sends[1], failed()),
        (sends[2], SendResult::Unknown),
        (
            sends[3],
            SendResult::Deferred {
                delay: Duration::minutes(1),
            },
        ),
        (sends[4], SendResult::Released),
        (SendId(id()), sent("unknown")),
    ];
    runs.record(run, &results).await.unwrap();
    assert_eq!(fixture.usage().await, "1/4");
    fixture.assert_recount().await;
    let row = async |send: SendId| {
        let columns = "status || ' ' || attempts || ' ' || (started_at IS NOT NULL)
          || ' ' || (unknown_at IS NOT NULL) || ' ' || (retry_at IS NOT NULL) || ' ' || (sent_at IS NOT NULL)
          || ' ' || (failed_at IS NOT NULL) || ' ' || coalesce(wa_message_id, '-') || ' ' || coalesce(error_code, 0)";
        fixture
            .text(&format!("SELECT {columns} FROM campaign_sends WHERE id = '{send}'"))
            .await
            .unwrap()
    };
    assert_eq!(row(sends[0]).await, "sent 0 true false false true false m1 0");
    assert_eq!(row(sends[1]).await, "failed 0 true false false false true - 131026");
    assert_eq!(row(sends[2]).await, "pending 0 true true false false false - 0");
    assert_eq!(row(sends[3]).await, "pending 1 false false true false false - 0");
    assert_eq!(row(sends[4]).await, "pending 0 false false false false false - 0");
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM contacts WHERE wa_id = 'wa-m1'")
            .await,
        1
    );
    // Recording the same results again changes nothing.
    runs.record(run, &results[..2]).await.unwrap();
    assert_eq!(fixture.usage().await, "1/4");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn deferred_send_is_claimed_again_after_its_delay() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let worker = id();
    let runs = fixture.runs();
    let (_, run) = fixture.started(worker).await;
    let send = fixture.in_flight(run, worker, 1).await[0];
    assert_eq!(
        runs.claim(run, worker, None, 5, LEASE).await.unwrap(),
        ClaimOutcome::Exhausted
    );
    runs.record(
        run,
        &[(
            send,
            SendResult::Deferred {
                delay: Duration::minutes(1),
            },
        )],
    )
    .await
    .unwrap();
    let ClaimOutcome::Wait(wait) = runs.claim(run, worker, None, 5, LEASE).await.unwrap() else {
        panic!()
    };
    assert!(wait > Duration::seconds(50) && wait <= Duration::minutes(1), "{wait}");
    fixture
        .sql("UPDATE campaign_sends SET retry_at = now() + interval '1 millisecond'")
        .await;
    match runs.claim(run, worker, None, 5, LEASE).await.unwrap() {
        ClaimOutcome::Wait(wait) => assert_eq!(wait, Duration::milliseconds(50)),
        ClaimOutcome::Sends(_) => {}
        unexpected => panic!("{unexpected:?}"),
    }
    fixture.sql("UPDATE campaign_sends SET retry_at = now()").await;
    let ClaimOutcome::Sends(again) = runs.claim(run, worker, None, 5, LEASE).await.unwrap() else {
        panic!()
    };
    assert_eq!((again[0].id, again[0].attempts), (send, 1));
}

#[tokio::test]
async fn finish_sets_the_final_status_and_emits_events() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let worker = id();
    let runs = fixture.runs();
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 3).await;
    runs.record(
        run,
        &[
            (sends[0], sent("a")),
            (sends[1], failed()),
            (sends[2], SendResult::Unknown),
        ],
    )
    .await
    .unwrap();
    let report = runs.finish(run).await.unwrap().unwrap();
    let expected = RunReport {
        total: 3,
        sent: 1,
        failed: 2,
        simulated: false,
        status: CampaignStatus::Partial,
        waiting: 0,
        waiting_until: None,
        paused: false,
    };
    assert_eq!(report, expected);
    assert_eq!(runs.report(run).await.unwrap(), Some(report));
    let stored = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    assert!(stored.completed_at.is_some());
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_queue").await, 0);
    // The send with an unknown outcome keeps its reservation.
    assert_eq!(fixture.usage().await, "1/1");
    let audit = "SELECT count(*) FROM outbox_events WHERE payload ->> 'kind' = 'audit'
      AND payload ->> 'ip_address' = '10.0.0.1'";
    assert_eq!(fixture.number(audit).await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 2);
    // A second finish changes nothing.
    runs.finish(run).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 2);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn postponed_run_is_not_taken_before_its_time() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let (a, b) = (id(), id());
    let (campaign, run) = fixture.started(a).await;
    let runs = fixture.runs();
    assert_eq!(runs.postponements(run).await.unwrap(), 0);
    runs.postpone(run, b, Duration::ZERO).await.unwrap();
    assert_eq!(
        runs.postponements(run).await.unwrap(),
        0,
        "another worker holds the lease"
    );
    runs.postpone(run, a, Duration::HOUR).await.unwrap();
    assert_eq!(
        (runs.take(b, LEASE).await.unwrap(), runs.has_waiting().await.unwrap()),
        (None, false)
    );
    // A postponed run has no lease, so only `retry_at` decides when it is taken.
    fixture.sql("UPDATE campaign_queue SET retry_at = now()").await;
    assert_eq!(
        (runs.has_waiting().await.unwrap(), runs.take(b, LEASE).await.unwrap()),
        (true, Some(run))
    );
    runs.postpone(run, b, Duration::HOUR).await.unwrap();
    assert_eq!(runs.postponements(run).await.unwrap(), 2);
    // A resume ends the delay.
    runs.pause(run, "x", &[]).await.unwrap();
    let paused = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    let resumed = Campaign {
        paused_at: None,
        pause_reason: None,
        ..paused.clone()
    };
    let written = fixture.campaigns().update(&resumed, &paused, &[]).await.unwrap();
    assert_eq!(
        (written, runs.postponements(run).await.unwrap()),
        (WriteOutcome::Done, 0)
    );
    assert_eq!(runs.take(a, LEASE).await.unwrap(), Some(run));
    // A release resets the count.
    runs.postpone(run, a, Duration::ZERO).await.unwrap();
    assert_eq!(runs.take(a, LEASE).await.unwrap(), Some(run));
    runs.release(run, a).await.unwrap();
    assert_eq!(runs.postponements(run).await.unwrap(), 0);
}

#[tokio::test]
async fn finish_skips_paused_and_foreign_runs() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let worker = id();
    let runs = fixture.runs();
    let (campaign, run) = fixture.started(worker).await;
    let send = fixture.in_flight(run, worker, 1).await[0];
    runs.record(run, &[(send, SendResult::Released)]).await.unwrap();
    runs.pause(run, "x", &[]).await.unwrap();
    let report = runs.finish(run).await.unwrap().unwrap();
    assert_eq!(
        (report.status, report.paused, report.failed),
        (CampaignStatus::Sending, true, 0)
    );
    assert_eq!(fixture.usage().await, "0/1");
    let foreign = QueuedRun {
        account_id: fixture.another_account().await,
        ..run
    };
    assert_eq!(runs.finish(foreign).await.unwrap(), None);
    assert_eq!(runs.report(foreign).await.unwrap(), None);
    assert_eq!(runs.inputs(foreign).await.unwrap(), None);
    assert_eq!(
        runs.claim(foreign, worker, None, 5, LEASE).await.unwrap(),
        ClaimOutcome::Stopped
    );
    let deleted = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign
    };
    fixture
        .campaigns()
        .update(
            &deleted,
            &fixture.expected(&deleted, CampaignStatus::Sending).await,
            &[],
        )
        .await
        .unwrap();
    fixture
        .campaigns()
        .delete(&deleted, CampaignStatus::Cancelled, &[])
        .await
        .unwrap();
    assert_eq!(runs.finish(run).await.unwrap(), None);
    assert_eq!(runs.report(run).await.unwrap(), None);
}

#[tokio::test]
async fn run_inputs_hold_deleted_template_and_connected_number() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let profiles = PgProfiles::new(fixture.tenants.clone());
    let number = profile("111");
    profiles.insert(fixture.account, &number, &[]).await.unwrap();
    let campaign = fixture.stored_draft().await;
    let start = RunStart {
        profile_id: Some(number.profile.id),
        trigger: Trigger::Send,
        ..fixture.start_of(&campaign)
    };
    fixture.runs().start(&start, None, LEASE).await.unwrap();
    let run = QueuedRun {
        account_id: fixture.account,
        campaign_id: campaign.id,
    };
    let template = campaign.template_id.unwrap();
    fixture
        .templates()
        .delete(fixture.account, template, NOW, &[])
        .await
        .unwrap();
    let inputs = fixture.runs().inputs(run).await.unwrap().unwrap();
    assert_eq!((inputs.campaign.id, inputs.template.id), (campaign.id, template));
    assert_eq!(inputs.profile, Some(number.clone()));
    profiles.delete(fixture.account, number.profile.id, &[]).await.unwrap();
    assert_eq!(fixture.runs().inputs(run).await.unwrap().unwrap().profile, None);
}

#[tokio::test]
async fn sends_unknown_too_long_fail() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(5).await;
    let worker = id();
    let runs = fixture.runs();
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 4).await;
    let unknown: Vec<_> = sends.iter().map(|&send| (send, SendResult::Unknown)).collect();
    runs.record(run, &unknown[..3]).await.unwrap();
    assert_eq!(runs.fail_unknown(Duration::hours(1), 10).await.unwrap(), 0);
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET started_at = now() - interval '3 hours', unknown_at = now() - interval '2 hours'
             WHERE id IN ('{}', '{}')",
            sends[0], sends[1]
        ))
        .await;
    // A send whose result was never recorded, because the run was cancelled and its worker died.
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
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET unknown_at = unknown_at - interval '2 hours' WHERE id = '{}'",
            sends[3]
        ))
        .await;
    assert_eq!(runs.fail_unknown(Duration::hours(1), 1).await.unwrap(), 1);
    assert_eq!(runs.fail_unknown(Duration::hours(1), 10).await.unwrap(), 2);
    assert_eq!(runs.fail_unknown(Duration::hours(1), 10).await.unwrap(), 0);
    let failed_as_unknown = fixture
        .number("SELECT count(*) FROM campaign_sends WHERE error_message LIKE '%unknown%'")
        .await;
    assert_eq!(failed_as_unknown, 3);
    assert_eq!(fixture.usage().await, "0/1");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn send_to_a_deleted_contact_is_still_counted() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let contact = fixture
        .text("SELECT id FROM contacts")
        .await
        .unwrap()
        .parse::<uuid::Uuid>()
        .unwrap();
    fixture
        .contacts()
        .delete(fixture.account, contact.into(), NOW)
        .await
        .unwrap();
    let sends = fixture.in_flight(run, worker, 1).await;
    fixture.runs().record(run, &[(sends[0], failed())]).await.unwrap();
    let stats = fixture
        .campaigns()
        .stats(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((stats.counts.total, stats.counts.failed), (1, 1));
}

#[tokio::test]
async fn cancel_waits_for_sends_being_started() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(5).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let sends = claimed(&fixture, run, worker, 5).await;
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign
    };
    let holder = fixture.db.client().await;
    holder
        .batch_execute("BEGIN; SELECT 1 FROM campaign_sends FOR UPDATE")
        .await
        .unwrap();
    let (runs, campaigns) = (fixture.runs(), fixture.campaigns());
    let starting = runs.record_and_start(run, worker, &[], &sends);
    let cancelling = async {
        fixture.blocked(1).await;
        campaigns
            .update(
                &cancelled,
                &fixture.expected(&cancelled, CampaignStatus::Sending).await,
                &[],
            )
            .await
            .unwrap();
    };
    let commit = async {
        fixture.blocked(2).await;
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let (started, (), ()) = tokio::join!(starting, cancelling, commit);
    assert_eq!(started.unwrap().sends, sends);
    assert_eq!(fixture.usage().await, "0/5");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn late_deferrals_of_a_finished_run_are_ignored() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 1).await;
    fixture
        .runs()
        .record(run, &[(sends[0], SendResult::Unknown)])
        .await
        .unwrap();
    fixture.runs().finish(run).await.unwrap().unwrap();
    let late = [
        (sends[0], SendResult::Deferred { delay: Duration::ZERO }),
        (sends[0], SendResult::Released),
    ];
    fixture.runs().record(run, &late).await.unwrap();
    assert_eq!(fixture.runs().fail_unknown(Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(fixture.usage().await, "0/0");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn run_is_held_by_one_worker_until_released() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let campaign = fixture.stored_draft().await;
    let runs = fixture.runs();
    assert_eq!(runs.take(id(), LEASE).await.unwrap(), None);
    runs.start(&fixture.start_of(&campaign), None, LEASE).await.unwrap();
    let (a, b) = (id(), id());
    let run = runs.take(a, LEASE).await.unwrap().unwrap();
    assert_eq!(
        run,
        QueuedRun {
            account_id: fixture.account,
            campaign_id: campaign.id
        }
    );
    assert_eq!(runs.take(b, LEASE).await.unwrap(), None);
    assert_eq!(runs.claim(run, b, None, 5, LEASE).await.unwrap(), ClaimOutcome::Lost);
    runs.release(run, b).await.unwrap();
    assert_eq!(runs.take(b, LEASE).await.unwrap(), None);
    runs.release(run, a).await.unwrap();
    assert_eq!(runs.take(b, LEASE).await.unwrap(), Some(run));
    assert!(!runs.has_waiting().await.unwrap());
    // An expired lease.
    fixture
        .sql("UPDATE campaign_queue SET leased_until = now() - interval '1 second'")
        .await;
    assert_eq!(runs.take(a, LEASE).await.unwrap(), Some(run));
    assert_eq!(runs.claim(run, b, None, 5, LEASE).await.unwrap(), ClaimOutcome::Lost);
}
