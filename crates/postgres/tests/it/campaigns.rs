//! Campaigns, their sends and their statistics.

use futures_util::future::join3;
use recado_domain::campaigns::{
    AudienceFilters, Campaign, CampaignQuery, CampaignSort, CampaignStats, CampaignStatus, CampaignStore,
    SegmentConfig, SendCounts, SendResult, SendStore as _, Variables,
};
use recado_domain::contacts::{ContactStore, Tag, TagStore};
use recado_domain::messaging::HeaderLocation;
use recado_domain::shared::{
    CampaignId, FolderId, PageQuery, SegmentId, SendId, StoreError, TagId, TemplateId, WriteOutcome,
};
use recado_domain::templates::TemplateStore;
use recado_postgres::PgTags;
use serde_json::json;
use time::Duration;

use crate::support::{DbFixture, LEASE, NOW, event, id};

fn query(sort: CampaignSort, descending: bool) -> CampaignQuery {
    CampaignQuery {
        page: PageQuery::new(None, None, 20, 100),
        sort,
        descending,
        folder_id: None,
    }
}

async fn outbox(fixture: &DbFixture) -> i64 {
    fixture.number("SELECT count(*) FROM outbox_events").await
}

#[tokio::test]
async fn campaign_is_stored_as_written() {
    let fixture = DbFixture::new().await;
    let (segment, folder, account) = (SegmentId(id()), FolderId(id()), fixture.account);
    fixture
        .sql(&format!(
            "INSERT INTO segments (account_id, id, name) VALUES ('{account}', '{segment}', 's');
             INSERT INTO folders (account_id, id, name, kind) VALUES ('{account}', '{folder}', 'f', 'campaign')"
        ))
        .await;
    let filters = AudienceFilters {
        created_after: Some(NOW.replace_nanosecond(0).unwrap()),
        has_email: Some(true),
        attributes: json!({ "city": "SP" }).as_object().cloned(),
        ..AudienceFilters::default()
    };
    let full = Campaign {
        template_id: Some(fixture.stored_template().await),
        segment_id: Some(segment),
        segment_config: Some(SegmentConfig {
            tag_ids: Some(vec![TagId(id())]),
            filters: Some(filters),
        }),
        rfm_segments: vec!["champions".into(), "at_risk".into()],
        scheduled_at: Some(NOW + Duration::DAY),
        variables: Some(Variables([("1".to_owned(), "{name}".to_owned())].into())),
        header_location: Some(HeaderLocation {
            latitude: -23.561_4,
            longitude: 0.1,
            name: "Loja".into(),
            address: "Av. Paulista, 1578".into(),
        }),
        offer_expires_at: Some(NOW + Duration::HOUR),
        folder_id: Some(folder),
        status: CampaignStatus::Scheduled,
        ..fixture.draft()
    };
    fixture.campaigns().insert(&full, &[event(full.id.0)]).await.unwrap();
    assert_eq!(
        fixture.campaigns().find(account, full.id).await.unwrap(),
        Some(full.clone())
    );
    assert_eq!(outbox(&fixture).await, 1);
    assert_eq!(
        fixture
            .campaigns()
            .find(fixture.another_account().await, full.id)
            .await
            .unwrap(),
        None
    );
    assert_eq!(fixture.campaigns().find(account, CampaignId(id())).await.unwrap(), None);
}

#[tokio::test]
async fn campaign_unknown_references_are_named() {
    let fixture = DbFixture::new().await;
    let tags = PgTags::new(fixture.tenants.clone());
    let (own_tag, account) = (TagId(id()), fixture.account);
    let tag = |id| Tag {
        id,
        name: format!("{id}"),
        color: None,
    };
    tags.insert(account, &tag(own_tag)).await.unwrap();
    let foreign = TagId(id());
    tags.insert(fixture.another_account().await, &tag(foreign))
        .await
        .unwrap();
    let template = fixture.stored_template().await;
    let config = |tag_ids| {
        Some(SegmentConfig {
            tag_ids: Some(tag_ids),
            ..SegmentConfig::default()
        })
    };
    let right = Campaign {
        template_id: Some(template),
        segment_config: config(vec![own_tag]),
        ..fixture.draft()
    };
    let none: [String; 0] = [];
    assert_eq!(
        fixture.campaigns().unknown_references(account, &right).await.unwrap(),
        none
    );
    let wrong = Campaign {
        template_id: Some(TemplateId(id())),
        segment_id: Some(SegmentId(id())),
        folder_id: Some(FolderId(id())),
        segment_config: config(vec![own_tag, foreign, TagId(id())]),
        ..fixture.draft()
    };
    let paths = [
        "template_id",
        "segment_id",
        "folder_id",
        "segment_config.tag_ids[1]",
        "segment_config.tag_ids[2]",
    ];
    assert_eq!(
        fixture.campaigns().unknown_references(account, &wrong).await.unwrap(),
        paths
    );
    fixture.templates().delete(account, template, NOW, &[]).await.unwrap();
    assert_eq!(
        fixture.campaigns().unknown_references(account, &right).await.unwrap(),
        ["template_id"]
    );
    let lost = fixture.campaigns().insert(&wrong, &[event(id())]).await;
    assert!(matches!(lost, Err(StoreError::UnknownReference { .. })), "{lost:?}");
    assert_eq!(outbox(&fixture).await, 0);
}

#[tokio::test]
async fn campaign_list_sorts_nulls_last_and_counts_all() {
    let fixture = DbFixture::new().await;
    let folder = FolderId(id());
    fixture
        .sql(&format!(
            "INSERT INTO folders (account_id, id, name, kind) VALUES ('{}', '{folder}', 'f', 'campaign')",
            fixture.account
        ))
        .await;
    let days = [None, Some(1), Some(2), None];
    for (name, day) in ["b", "a", "c", "a"].into_iter().zip(days) {
        let campaign = Campaign {
            name: name.into(),
            scheduled_at: day.map(|day| NOW + Duration::days(day)),
            status: if day.is_some() {
                CampaignStatus::Scheduled
            } else {
                CampaignStatus::Draft
            },
            folder_id: day.map(|_| folder),
            ..fixture.draft()
        };
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
    }
    let other = Campaign {
        account_id: fixture.another_account().await,
        ..fixture.draft()
    };
    fixture.campaigns().insert(&other, &[]).await.unwrap();
    let days_of = async |query| {
        let page = fixture.campaigns().list(fixture.account, &query).await.unwrap();
        assert_eq!(page.total, 4);
        page.data
            .iter()
            .map(|c| c.scheduled_at.map(|at| (at - NOW).whole_days()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        days_of(query(CampaignSort::ScheduledAt, false)).await,
        [Some(1), Some(2), None, None]
    );
    assert_eq!(
        days_of(query(CampaignSort::ScheduledAt, true)).await,
        [Some(2), Some(1), None, None]
    );
    let names_of = async |query| {
        let page = fixture.campaigns().list(fixture.account, &query).await.unwrap();
        page.data.into_iter().map(|campaign| campaign.name).collect::<String>()
    };
    assert_eq!(names_of(query(CampaignSort::Name, false)).await, "aabc");
    assert_eq!(names_of(query(CampaignSort::CreatedAt, true)).await, "acab");
    assert_eq!(names_of(query(CampaignSort::UpdatedAt, false)).await, "baca");
    assert_eq!(names_of(query(CampaignSort::Status, true)).await, "caab");
    let folder = CampaignQuery {
        folder_id: Some(folder),
        ..query(CampaignSort::Name, false)
    };
    assert_eq!(names_of(folder).await, "ac");
    let last = CampaignQuery {
        page: PageQuery::new(Some(2), Some(3), 20, 100),
        ..query(CampaignSort::Name, false)
    };
    assert_eq!(names_of(last).await, "c");
}

#[tokio::test]
async fn campaign_writes_require_the_expected_status() {
    let fixture = DbFixture::new().await;
    let draft = fixture.stored_draft().await;
    let renamed = Campaign {
        name: "New".into(),
        template_id: None,
        ..draft.clone()
    };
    let foreign = Campaign {
        account_id: fixture.another_account().await,
        ..renamed.clone()
    };
    let stale = WriteOutcome::Stale(CampaignStatus::Draft);
    assert_eq!(update(&fixture, &renamed, CampaignStatus::Scheduled).await, stale);
    assert_eq!(delete(&fixture, &draft, CampaignStatus::Sent).await, stale);
    assert_eq!(
        update(&fixture, &foreign, CampaignStatus::Draft).await,
        WriteOutcome::Missing
    );
    assert_eq!(
        delete(&fixture, &foreign, CampaignStatus::Draft).await,
        WriteOutcome::Missing
    );
    assert_eq!(outbox(&fixture).await, 0);
    assert_eq!(
        update(&fixture, &renamed, CampaignStatus::Draft).await,
        WriteOutcome::Done
    );
    let stored = fixture.campaigns().find(fixture.account, draft.id).await.unwrap();
    let version = draft.version + 1;
    assert_eq!(stored, Some(Campaign { version, ..renamed }));
    assert_eq!(outbox(&fixture).await, 1);
}

/// Updates with one event, so that the number of outbox events equals the number of commits.
async fn update(fixture: &DbFixture, campaign: &Campaign, expected: CampaignStatus) -> WriteOutcome<CampaignStatus> {
    let seen = fixture.expected(campaign, expected).await;
    fixture
        .campaigns()
        .update(campaign, &seen, &[event(id())])
        .await
        .unwrap()
}

/// Deletes with one event, as in `update`.
async fn delete(fixture: &DbFixture, campaign: &Campaign, expected: CampaignStatus) -> WriteOutcome<CampaignStatus> {
    fixture
        .campaigns()
        .delete(campaign, expected, &[event(id())])
        .await
        .unwrap()
}

#[tokio::test]
async fn campaign_deleted_is_not_found() {
    let fixture = DbFixture::new().await;
    let draft = fixture.stored_draft().await;
    assert_eq!(
        delete(&fixture, &draft, CampaignStatus::Draft).await,
        WriteOutcome::Done
    );
    assert_eq!(
        delete(&fixture, &draft, CampaignStatus::Draft).await,
        WriteOutcome::Missing
    );
    assert_eq!(
        update(&fixture, &draft, CampaignStatus::Draft).await,
        WriteOutcome::Missing
    );
    assert_eq!(outbox(&fixture).await, 1);
    let campaigns = fixture.campaigns();
    assert_eq!(campaigns.find(fixture.account, draft.id).await.unwrap(), None);
    assert_eq!(campaigns.stats(fixture.account, draft.id).await.unwrap(), None);
    let all = campaigns
        .list(fixture.account, &query(CampaignSort::Name, false))
        .await
        .unwrap();
    assert_eq!(all.total, 0);
}

/// A run of four sends: the first is sent, the second failed.
async fn half_finished_run() -> (DbFixture, Campaign, Vec<SendId>) {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(4).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 2).await;
    let sent = SendResult::Sent {
        message_id: Some("wamid.1".into()),
        wa_id: None,
    };
    let failed = SendResult::Failed {
        code: Some(131_026),
        message: "no".into(),
    };
    let results = [(sends[0], sent), (sends[1], failed)];
    fixture.runs().record(run, &results).await.unwrap();
    (fixture, campaign, sends)
}

#[tokio::test]
async fn campaign_stats_are_zero_before_the_run() {
    let (fixture, campaign, _) = half_finished_run().await;
    let campaigns = fixture.campaigns();
    let draft = fixture.stored_draft().await;
    let before = campaigns.stats(fixture.account, draft.id).await.unwrap();
    assert_eq!(before, Some(CampaignStats::default()));
    let expected = SendCounts {
        total: 4,
        pending: 2,
        sent: 1,
        failed: 1,
        ..SendCounts::default()
    };
    assert_eq!(
        campaigns.stats(fixture.account, campaign.id).await.unwrap(),
        Some(CampaignStats {
            counts: expected,
            ..CampaignStats::default()
        })
    );
    let foreign = fixture.another_account().await;
    assert_eq!(campaigns.stats(foreign, campaign.id).await.unwrap(), None);
}

#[tokio::test]
async fn campaign_sends_are_listed_with_contacts_unsent_last() {
    let (fixture, campaign, sends) = half_finished_run().await;
    let page = async |account, id, number| {
        let page = PageQuery::new(Some(number), Some(3), 20, 100);
        fixture.sends(account, id, page).await.unwrap()
    };
    let first = page(fixture.account, campaign.id, 1).await.unwrap();
    assert_eq!((first.total, first.data.len()), (4, 3));
    let sent = &first.data[0];
    assert_eq!((sent.id, sent.wa_message_id.as_deref()), (sends[0], Some("wamid.1")));
    assert!(sent.sent_at.is_some() && first.data[1].sent_at.is_none());
    assert!(sent.contacts.name.starts_with("Contact "));
    let second = page(fixture.account, campaign.id, 2).await.unwrap();
    assert_eq!(second.data.len(), 1);
    let mut all: Vec<_> = first.data.iter().chain(&second.data).collect();
    let failed = all.iter().find(|send| send.id == sends[1]).unwrap();
    let error = (failed.error_code, failed.error_message.as_deref());
    assert_eq!(error, (Some(131_026), Some("no")));
    all.sort_unstable_by_key(|send| send.id);
    all.dedup_by_key(|send| send.id);
    assert_eq!(all.len(), 4);

    fixture
        .contacts()
        .delete(fixture.account, sent.contact_id, NOW)
        .await
        .unwrap();
    assert_eq!(page(fixture.account, campaign.id, 1).await.unwrap().total, 3);
    assert!(page(fixture.another_account().await, campaign.id, 1).await.is_none());
    assert!(page(fixture.account, CampaignId(id()), 1).await.is_none());
}

#[tokio::test]
async fn campaign_cancel_ends_the_run_and_releases_quota() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(10).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    assert_eq!(fixture.usage().await, "0/10");
    let sends = fixture.in_flight(run, worker, 4).await;
    let sent = SendResult::Sent {
        message_id: None,
        wa_id: None,
    };
    fixture
        .runs()
        .record(run, &[(sends[0], sent.clone()), (sends[1], SendResult::Unknown)])
        .await
        .unwrap();
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign.clone()
    };
    let done = fixture
        .campaigns()
        .update(
            &cancelled,
            &fixture.expected(&cancelled, CampaignStatus::Sending).await,
            &[],
        )
        .await
        .unwrap();
    assert_eq!(done, WriteOutcome::Done);
    // One send is sent, one has an unknown outcome and two are in flight.
    assert_eq!(fixture.usage().await, "1/3");
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_queue").await, 0);
    fixture.assert_recount().await;
    // Results after the cancel resolve their reservations, and no send starts.
    let deferred = SendResult::Deferred { delay: LEASE };
    fixture
        .runs()
        .record(run, &[(sends[2], deferred), (sends[3], SendResult::Released)])
        .await
        .unwrap();
    assert_eq!(fixture.usage().await, "1/1");
    fixture.runs().record(run, &[(sends[1], sent)]).await.unwrap();
    assert_eq!(fixture.usage().await, "2/0");
    fixture.assert_recount().await;
    assert_eq!(fixture.in_flight(run, worker, 10).await, []);
}

/// With counters, `stats` reads none of the possibly millions of sends: the policy makes reading a send an error.
#[tokio::test]
async fn campaign_stats_count_sends_only_without_counters() {
    let (fixture, campaign, _) = half_finished_run().await;
    let looked_at = "CREATE POLICY looked_at ON campaign_sends AS RESTRICTIVE USING (1 / (id IS NULL)::int = 1)";
    fixture.sql(looked_at).await;
    let counted = fixture.campaigns().stats(fixture.account, campaign.id).await.unwrap();
    fixture.sql("DELETE FROM campaign_counter_slots").await;
    assert!(fixture.campaigns().stats(fixture.account, campaign.id).await.is_err());
    fixture.sql("DROP POLICY looked_at ON campaign_sends").await;
    let recounted = fixture.campaigns().stats(fixture.account, campaign.id).await.unwrap();
    assert_eq!(recounted, counted);
}

/// The row is locked, so that both writers read it before the first of them writes.
#[tokio::test]
async fn campaign_updates_of_one_version_are_written_once() {
    let fixture = DbFixture::new().await;
    let seen = fixture
        .expected(&fixture.stored_draft().await, CampaignStatus::Draft)
        .await;
    let renamed = Campaign {
        name: "Outro".into(),
        updated_at: seen.updated_at + Duration::MICROSECOND,
        ..seen.clone()
    };
    let narrowed = Campaign {
        rfm_segments: vec!["champions".into()],
        updated_at: seen.updated_at + Duration::milliseconds(1),
        ..seen.clone()
    };
    let holder = fixture.db.client().await;
    holder
        .batch_execute("BEGIN; SELECT 1 FROM campaigns FOR UPDATE")
        .await
        .unwrap();
    let store = fixture.campaigns();
    let unlock = async {
        fixture.blocked(2).await;
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let (first, second, ()) = join3(
        store.update(&renamed, &seen, &[]),
        store.update(&narrowed, &seen, &[]),
        unlock,
    )
    .await;
    let written = [first.unwrap(), second.unwrap()];
    let stale = WriteOutcome::Stale(CampaignStatus::Draft);
    assert!(
        written == [WriteOutcome::Done, stale] || written == [stale, WriteOutcome::Done],
        "{written:?}"
    );
    let stored = store.find(seen.account_id, seen.id).await.unwrap().unwrap();
    let winner = if written[0] == WriteOutcome::Done {
        renamed
    } else {
        narrowed
    };
    let version = seen.version + 1;
    assert_eq!(stored, Campaign { version, ..winner });
    // An update based on the stored version succeeds.
    let both = Campaign {
        name: "Outro".into(),
        rfm_segments: vec!["champions".into()],
        updated_at: stored.updated_at + Duration::MICROSECOND,
        ..stored.clone()
    };
    assert_eq!(store.update(&both, &stored, &[]).await.unwrap(), WriteOutcome::Done);
}

/// A run changes its counters, queue entry and sends, but not the version that a cancel requires.
#[tokio::test]
async fn campaign_cancel_succeeds_while_the_run_progresses() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(4).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let seen = fixture.expected(&campaign, CampaignStatus::Sending).await;
    let sends = fixture.in_flight(run, worker, 4).await;
    let sent = SendResult::Sent {
        message_id: Some("w0".into()),
        wa_id: None,
    };
    let results = [(sends[0], sent), (sends[1], SendResult::Unknown)];
    fixture.runs().record(run, &results).await.unwrap();
    fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap();
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..seen.clone()
    };
    let store = fixture.campaigns();
    assert_eq!(store.update(&cancelled, &seen, &[]).await.unwrap(), WriteOutcome::Done);
}
