//! Run content: stored in the transaction of the start, read by every worker that continues the run.

use std::collections::BTreeSet;

use recado_domain::analytics::{ExportKind, ExportRecord, ExportStore, Period, Window, Zone};
use recado_domain::campaigns::{
    Campaign, CampaignRefusal, QueuedRun, RetryOutcome, RunContent, RunInputs, RunQueue as _, RunQuota,
    RunRetryStore as _, RunStartStore as _, RunStore as _, SendResult, SendStore as _, StartOutcome, Variables,
};
use recado_domain::messaging::{MetaStatus, ParameterFormat};
use recado_domain::templates::{SyncedTemplate, Template, TemplateStore};
use recado_postgres::PgExports;

use crate::retries::{retry_of, tried};
use crate::support::{DbFixture, LEASE, NOW, id};

async fn inputs(fixture: &DbFixture, run: QueuedRun) -> RunInputs {
    fixture.runs().inputs(run).await.unwrap().unwrap()
}

async fn template_of(fixture: &DbFixture, campaign: &Campaign) -> Template {
    let id = campaign.template_id.unwrap();
    fixture.templates().find(fixture.account, id).await.unwrap().unwrap()
}

/// Changes the template by synchronization, then edits it, then deletes it.
async fn change_and_delete_template(fixture: &DbFixture, stored: &Template) {
    let (templates, account) = (fixture.templates(), fixture.account);
    let synced = Template {
        parameter_format: ParameterFormat::Named,
        body_text: Some("Tchau {{nome}}".into()),
        variables: vec!["Bia".into()],
        updated_at: NOW + time::Duration::HOUR,
        ..stored.clone()
    };
    let changed = SyncedTemplate::Changed {
        template: synced.clone(),
        pause_reason: None,
    };
    assert_eq!(templates.sync(account, &[changed]).await.unwrap().updated, 1);
    let synced = Template {
        version: stored.version + 1,
        ..synced
    };
    let edited = Template {
        name: "outro".into(),
        footer_text: Some("Loja".into()),
        buttons: vec![],
        meta_status: MetaStatus::Draft,
        updated_at: NOW + time::Duration::DAY,
        ..synced.clone()
    };
    templates.update(&edited, &synced, &[]).await.unwrap();
    assert!(
        templates
            .delete(account, stored.id, edited.updated_at, &[])
            .await
            .unwrap()
            .is_done()
    );
}

/// The texts of all exported messages.
async fn exported_texts(fixture: &DbFixture) -> BTreeSet<Option<String>> {
    let now = time::OffsetDateTime::now_utc() + time::Duration::HOUR;
    let window = Window::new(Period::Month, &Zone::UTC, now).unwrap();
    let exports = PgExports::new(fixture.tenants.clone());
    let part = exports
        .part(fixture.account, ExportKind::Messages, &window, None, 100)
        .await;
    let records = part.unwrap().into_iter().map(|(_, record)| match record {
        ExportRecord::Message { text, .. } => text,
        other => panic!("{other:?}"),
    });
    records.collect()
}

#[tokio::test]
async fn started_run_keeps_its_content_after_template_changes() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let stored = template_of(&fixture, &campaign).await;
    let content = RunContent::of(&campaign, &stored);
    let texts = BTreeSet::from([stored.body_text.clone()]);
    assert_eq!(exported_texts(&fixture).await, texts);
    change_and_delete_template(&fixture, &stored).await;
    assert_eq!(exported_texts(&fixture).await, texts);
    fixture
        .sql(r#"UPDATE campaigns SET variables = '{"1":"{email}"}'"#)
        .await;
    for _ in 0..2 {
        let inputs = inputs(&fixture, run).await;
        assert_eq!(RunContent::of(&inputs.campaign, &inputs.template), content);
        let facts = fixture
            .runs()
            .facts(fixture.account, campaign.id)
            .await
            .unwrap()
            .unwrap();
        assert!(facts.content_frozen);
        assert_eq!(RunContent::of(&facts.campaign, &facts.template.unwrap()), content);
        // Another worker takes over the run.
        fixture.runs().abandon(run, worker).await.unwrap();
    }
    // Another account does not find the run.
    let elsewhere = QueuedRun {
        account_id: fixture.another_account().await,
        ..run
    };
    assert_eq!(fixture.runs().inputs(elsewhere).await.unwrap(), None);
}

#[tokio::test]
async fn start_with_an_edited_template_returns_changed() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let campaign = fixture.stored_draft().await;
    let start = fixture.start_of(&campaign);
    fixture
        .sql("UPDATE message_templates SET body_text = 'Tchau {{1}}'")
        .await;
    let outcome = fixture.runs().start(&start, None, LEASE).await.unwrap();
    assert_eq!(outcome, StartOutcome::Changed);
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_run_contents").await, 0);
    let facts = fixture
        .runs()
        .facts(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    assert!(!facts.content_frozen);
}

/// A finished run of two failed sends.
async fn failed_run(fixture: &DbFixture) -> (Campaign, QueuedRun, Template) {
    fixture.add_contacts(2).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let stored = template_of(fixture, &campaign).await;
    let failed = SendResult::Failed {
        code: Some(131_026),
        message: "undeliverable".into(),
    };
    let sends = fixture.in_flight(run, worker, 5).await;
    let results: Vec<_> = sends.into_iter().map(|send| (send, failed.clone())).collect();
    fixture.runs().record(run, &results).await.unwrap();
    fixture.runs().finish(run).await.unwrap();
    (campaign, run, stored)
}

#[tokio::test]
async fn retry_sends_the_content_of_the_start() {
    let fixture = DbFixture::new().await;
    let (campaign, run, stored) = failed_run(&fixture).await;
    change_and_delete_template(&fixture, &stored).await;
    for status in ["pending", "rejected", "paused", "disabled"] {
        fixture
            .sql(&format!("UPDATE message_templates SET meta_status = '{status}'"))
            .await;
        let refused = fixture
            .runs()
            .retry(&retry_of(&fixture, &campaign).await)
            .await
            .unwrap();
        assert_eq!(
            refused,
            RetryOutcome::Refused(CampaignRefusal::TemplateNotApproved),
            "{status}"
        );
    }
    fixture.sql("UPDATE message_templates SET meta_status = 'draft'").await;
    let outcome = fixture
        .runs()
        .retry(&retry_of(&fixture, &campaign).await)
        .await
        .unwrap();
    assert_eq!(tried(&outcome).0, 2);
    assert_eq!(inputs(&fixture, run).await.template.content(), stored.content());
}

#[tokio::test]
async fn run_without_content_is_frozen_when_it_continues() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let (campaign, run) = fixture.started(id()).await;
    let stored = template_of(&fixture, &campaign).await;
    fixture.sql("DELETE FROM campaign_run_contents").await;
    assert_eq!(inputs(&fixture, run).await.template, stored);
    change_and_delete_template(&fixture, &stored).await;
    assert_eq!(inputs(&fixture, run).await.template.content(), stored.content());
}

#[tokio::test]
async fn retry_without_content_requires_an_approved_template() {
    let fixture = DbFixture::new().await;
    let (campaign, run, stored) = failed_run(&fixture).await;
    fixture
        .sql("DELETE FROM campaign_run_contents; UPDATE message_templates SET meta_status = 'draft'")
        .await;
    let refused = fixture
        .runs()
        .retry(&retry_of(&fixture, &campaign).await)
        .await
        .unwrap();
    assert_eq!(refused, RetryOutcome::Refused(CampaignRefusal::TemplateNotApproved));
    fixture
        .sql("UPDATE message_templates SET meta_status = 'approved'")
        .await;
    let outcome = fixture
        .runs()
        .retry(&retry_of(&fixture, &campaign).await)
        .await
        .unwrap();
    assert_eq!(tried(&outcome).0, 2);
    change_and_delete_template(&fixture, &stored).await;
    assert_eq!(inputs(&fixture, run).await.template.content(), stored.content());
}

#[tokio::test]
async fn resume_facts_count_the_reservations_of_this_month() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(5).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let facts = async || {
        let facts = fixture.runs().resume_facts(fixture.account, campaign.id).await.unwrap();
        facts.unwrap()
    };
    let sends = fixture.in_flight(run, worker, 2).await;
    let sent = |message: &str| SendResult::Sent {
        message_id: Some(message.into()),
        wa_id: None,
    };
    let results = [(sends[0], sent("a")), (sends[1], sent("b"))];
    fixture.runs().record(run, &results).await.unwrap();
    let found = facts().await;
    assert_eq!(found.quota, Some(RunQuota { used: 5, pending: 3 }));
    assert_eq!((found.number_lost, found.run.content_frozen), (true, true));
    fixture.sql("UPDATE campaigns SET simulated = true").await;
    assert!(!facts().await.number_lost);
    // The month of the start has ended; the sends of a retry in the new month count in it.
    fixture
        .sql("UPDATE campaigns SET run_quota_month = run_quota_month - interval '1 month'")
        .await;
    assert_eq!(facts().await.quota, None);
    fixture
        .sql("UPDATE campaigns SET run_quota_month = date_trunc('month', now() AT TIME ZONE 'UTC')")
        .await;
    assert_eq!(facts().await.quota, Some(RunQuota { used: 5, pending: 3 }));
}

#[tokio::test]
async fn mapping_is_part_of_the_content() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let campaign = fixture.stored_draft().await;
    let mapped = Campaign {
        variables: Some(Variables([("1".to_owned(), "{name}".to_owned())].into())),
        ..campaign
    };
    fixture
        .sql(r#"UPDATE campaigns SET variables = '{"1":"{name}"}'"#)
        .await;
    let outcome = fixture
        .runs()
        .start(&fixture.start_of(&mapped), None, LEASE)
        .await
        .unwrap();
    assert_eq!(outcome, StartOutcome::Started { recipients: 1 });
    let stored = fixture
        .text("SELECT content ->> 'variables' FROM campaign_run_contents")
        .await;
    assert_eq!(stored.as_deref(), Some(r#"{"1": "{name}"}"#));
}
