//! The start of a run.

use futures_util::future::{join, join_all};
use recado_domain::billing::{SubscriptionState, SubscriptionStatus};
use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, CampaignStore, Command, RunStart, RunStartStore as _,
    RunSweepStore as _, SendCounts, SendResult, SendStore as _, StartOutcome,
};
use recado_domain::shared::{CampaignId, ProfileId};
use recado_domain::templates::{Template, TemplateStore};
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::PgProfiles;

use crate::support::{DbFixture, LEASE, NOW, id};
use crate::whatsapp::profile;

#[tokio::test]
async fn start_writes_sends_counters_and_quota_together() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let campaign = fixture.stored_draft().await;
    let worker = id();
    let start = fixture.start_of(&campaign);
    let outcome = fixture.runs().start(&start, Some(worker), LEASE).await.unwrap();
    assert_eq!(outcome, StartOutcome::Started { recipients: 3 });
    let stored = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((stored.status, stored.total_recipients), (CampaignStatus::Sending, 3));
    assert_eq!((stored.executed_at, stored.completed_at), (Some(NOW), None));
    let counts = SendCounts {
        total: 3,
        pending: 3,
        ..SendCounts::default()
    };
    assert_eq!(
        fixture
            .campaigns()
            .stats(fixture.account, campaign.id)
            .await
            .unwrap()
            .unwrap()
            .counts,
        counts
    );
    assert_eq!(fixture.usage().await, "0/3");
    let month = fixture
        .text("SELECT quota_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date FROM campaigns")
        .await;
    assert_eq!(month.unwrap(), "true");
    let queued = fixture
        .text(
            "SELECT trigger || ' ' || ip_address || ' ' || (leased_until > now()) || ' ' || worker FROM campaign_queue",
        )
        .await;
    assert_eq!(queued.unwrap(), format!("execute 10.0.0.1 true {worker}"));
    fixture.assert_recount().await;
}

#[tokio::test]
async fn refused_start_writes_nothing() {
    let fixture = DbFixture::new().await;
    let campaign = fixture.stored_draft().await;
    let start = fixture.start_of(&campaign);
    let begin = async |start: RunStart| fixture.runs().start(&start, None, LEASE).await.unwrap();
    let without_recipients = begin(start.clone()).await;
    assert_eq!(without_recipients, StartOutcome::Refused(CampaignRefusal::NoRecipients));

    fixture.add_contacts(3).await;
    let over_quota = begin(RunStart {
        monthly_limit: 2,
        ..start.clone()
    })
    .await;
    let exceeded = CampaignRefusal::QuotaExceeded {
        limit: 2,
        left: 2,
        wanted: 3,
    };
    assert_eq!(over_quota, StartOutcome::Refused(exceeded));
    let stale = begin(RunStart {
        expected: CampaignStatus::Scheduled,
        ..start.clone()
    })
    .await;
    // A draft can be sent, too, so the caller must decide again.
    assert_eq!(stale, StartOutcome::Changed);
    let unknown = Campaign {
        id: CampaignId(id()),
        ..start.campaign.clone()
    };
    let missing = begin(RunStart {
        campaign: unknown,
        ..start.clone()
    })
    .await;
    assert_eq!(missing, StartOutcome::Missing);
    let foreign = Campaign {
        account_id: fixture.another_account().await,
        ..start.campaign.clone()
    };
    let missing = begin(RunStart {
        campaign: foreign,
        ..start.clone()
    })
    .await;
    assert_eq!(missing, StartOutcome::Missing);

    assert_untouched(&fixture, &campaign).await;
}

async fn assert_untouched(fixture: &DbFixture, campaign: &Campaign) {
    for table in [
        "campaign_sends",
        "campaign_queue",
        "campaign_counters",
        "message_usage",
        "outbox_events",
    ] {
        let rows = fixture.number(&format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(rows, 0, "{table}");
    }
    let stored = fixture.campaigns().find(fixture.account, campaign.id).await.unwrap();
    assert_eq!(stored.as_ref(), Some(campaign));
}

#[tokio::test]
async fn concurrent_starts_of_one_campaign_succeed_once() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(50).await;
    let campaign = fixture.stored_draft().await;
    let start = fixture.start_of(&campaign);
    let starts = (0..20).map(|_| {
        let (runs, start) = (fixture.runs(), start.clone());
        async move { runs.start(&start, None, LEASE).await.unwrap() }
    });
    let outcomes = join_all(starts).await;
    let started = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, StartOutcome::Started { .. }))
        .count();
    let refusal = CampaignRefusal::Status {
        status: CampaignStatus::Sending,
        command: Command::Start,
    };
    let refused = outcomes
        .iter()
        .filter(|&outcome| *outcome == StartOutcome::Refused(refusal.clone()))
        .count();
    assert_eq!((started, refused), (1, 19));
    assert_eq!(fixture.usage().await, "0/50");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn campaigns_racing_for_the_quota_never_exceed_it() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(10).await;
    // Concurrently, another run writes counter slots of the same month.
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 10).await;
    let mut starts = Vec::new();
    for _ in 0..20 {
        let campaign = fixture.stored_draft().await;
        starts.push(RunStart {
            monthly_limit: 45,
            ..fixture.start_of(&campaign)
        });
    }
    let starts = starts.into_iter().map(|start| {
        let runs = fixture.runs();
        async move { runs.start(&start, None, LEASE).await.unwrap() }
    });
    let sent = |send| {
        (
            send,
            SendResult::Sent {
                message_id: None,
                wa_id: None,
            },
        )
    };
    let record_results = async {
        for send in sends {
            let results = [sent(send)];
            fixture
                .runs()
                .record_and_start(run, worker, &results, &[])
                .await
                .unwrap();
        }
    };
    let (outcomes, ()) = join(join_all(starts), record_results).await;
    let exceeded = StartOutcome::Refused(CampaignRefusal::QuotaExceeded {
        limit: 45,
        left: 5,
        wanted: 10,
    });
    let started = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, StartOutcome::Started { .. }))
        .count();
    assert_eq!(
        (started, outcomes.iter().filter(|&outcome| *outcome == exceeded).count()),
        (3, 17)
    );
    assert_eq!(fixture.usage().await, "10/30");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn start_facts_hold_template_number_and_billing() {
    let fixture = DbFixture::new().await;
    let (account, campaign) = (fixture.account, fixture.stored_draft().await);
    let runs = fixture.runs();
    let facts = runs.facts(account, campaign.id).await.unwrap().unwrap();
    assert_eq!(
        (&facts.campaign, facts.template.as_ref().map(|t| t.id)),
        (&campaign, campaign.template_id)
    );
    assert_eq!(
        (
            facts.profile_id,
            facts.billing.plan.as_str(),
            facts.billing.subscriptions.len()
        ),
        (None, "free", 0)
    );

    // The number of the template, or else the account's first number.
    let profiles = PgProfiles::new(fixture.tenants.clone());
    let (first, second) = (profile("111"), profile("222"));
    profiles.insert(account, &first, &[]).await.unwrap();
    profiles.insert(account, &second, &[]).await.unwrap();
    let profile_of = async || runs.facts(account, campaign.id).await.unwrap().unwrap().profile_id;
    assert_eq!(profile_of().await, Some(first.profile.id));
    let template = facts.template.unwrap();
    let with = |profile_id: Option<ProfileId>| Template {
        profile_id,
        ..template.clone()
    };
    fixture
        .templates()
        .update(&with(Some(second.profile.id)), &template, &[])
        .await
        .unwrap();
    assert_eq!(profile_of().await, Some(second.profile.id));
    profiles.delete(account, second.profile.id, &[]).await.unwrap();
    assert_eq!(profile_of().await, Some(first.profile.id));

    fixture
        .templates()
        .delete(account, template.id, NOW, &[])
        .await
        .unwrap();
    assert_eq!(runs.facts(account, campaign.id).await.unwrap().unwrap().template, None);
    assert_eq!(
        runs.facts(fixture.another_account().await, campaign.id).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn start_facts_hold_all_subscriptions() {
    let fixture = DbFixture::new().await;
    let (account, runs) = (fixture.account, fixture.runs());
    let campaign = fixture.stored_draft().await;
    fixture
        .sql(&format!(
            "INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, created_at) VALUES
               ('{account}', '{}', 'growth', 'MONTHLY', 'cancelled', 'PIX', 1, now()),
               ('{account}', '{}', 'scale', 'MONTHLY', 'active', 'PIX', 1, now() - interval '1 day');
             UPDATE accounts SET plan = 'growth', granted_plan = 'starter' WHERE id = '{account}'",
            id(),
            id()
        ))
        .await;
    let billing = runs.facts(account, campaign.id).await.unwrap().unwrap().billing;
    let mut subscriptions = billing.subscriptions;
    subscriptions.sort_by_key(|subscription| subscription.plan.clone());
    let state = |plan: &str, status| SubscriptionState {
        plan: plan.into(),
        status,
        current_period_end: None,
    };
    let expected = [
        state("growth", SubscriptionStatus::Cancelled),
        state("scale", SubscriptionStatus::Active),
    ];
    assert_eq!(
        (
            billing.plan.as_str(),
            billing.granted.as_deref(),
            subscriptions.as_slice()
        ),
        ("growth", Some("starter"), &expected[..])
    );
}

#[tokio::test]
async fn large_audience_is_frozen_within_timeouts() {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(20_000).await;
    let campaign = fixture.stored_draft().await;
    let outcome = fixture
        .runs()
        .start(&fixture.start_of(&campaign), None, LEASE)
        .await
        .unwrap();
    assert_eq!(outcome, StartOutcome::Started { recipients: 20_000 });
    while fixture.runs().materialize_sends().await.unwrap().has_more() {}
    fixture.assert_recount().await;
}

#[tokio::test]
async fn start_decided_on_outdated_facts_is_rejected() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let campaign = fixture.stored_draft().await;
    let start = fixture.start_of(&campaign);
    let edited = Campaign {
        name: "Other".into(),
        ..campaign.clone()
    };
    fixture.campaigns().update(&edited, &campaign, &[]).await.unwrap();
    let outcome = fixture.runs().start(&start, None, LEASE).await.unwrap();
    assert_eq!(outcome, StartOutcome::Changed);
    fixture.sql("UPDATE message_templates SET meta_status = 'paused'").await;
    let outcome = fixture
        .runs()
        .start(&fixture.start_of(&edited), None, LEASE)
        .await
        .unwrap();
    assert_eq!(outcome, StartOutcome::Refused(CampaignRefusal::TemplateNotApproved));
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 0);
    fixture
        .sql("UPDATE message_templates SET meta_status = 'approved'")
        .await;
    let outcome = fixture
        .runs()
        .start(&fixture.start_of(&edited), None, LEASE)
        .await
        .unwrap();
    assert_eq!(outcome, StartOutcome::Started { recipients: 2 });
}

#[tokio::test]
async fn start_in_another_status_is_refused_or_changed() {
    use CampaignStatus::{Cancelled, Draft, Partial, Scheduled, Sending};
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let start = fixture.start_of(&fixture.stored_draft().await);
    for (expected, found, decides_again) in [
        (Scheduled, Draft, true),
        (Draft, Scheduled, true),
        (Draft, Sending, false),
        (Draft, Cancelled, false),
        (Draft, Partial, false),
        // A queued start whose campaign was set back to draft or scheduled is refused.
        (Sending, Draft, false),
        (Sending, Scheduled, false),
    ] {
        let set_status = format!("UPDATE campaigns SET status = '{found}'");
        fixture.sql(&set_status).await;
        let start = RunStart {
            expected,
            ..start.clone()
        };
        let (status, command) = (found, Command::Start);
        let expected_outcome = match decides_again {
            true => StartOutcome::Changed,
            false => StartOutcome::Refused(CampaignRefusal::Status { status, command }),
        };
        let outcome = fixture.runs().start(&start, None, LEASE).await.unwrap();
        assert_eq!(outcome, expected_outcome, "{expected} {found}");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 0);
}
