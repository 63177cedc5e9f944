//! Test sends of campaigns: their facts and their share of the month's quota.

use futures_util::future::join_all;
use recado_domain::campaigns::{
    CampaignRefusal, CampaignStore, RunStart, RunStartStore as _, StartOutcome, TestRecipient, TestSendStore,
};
use recado_domain::contacts::Phone;
use recado_domain::shared::AccountId;
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::{PgProfiles, PgTestSends};

use crate::support::{DbFixture, LEASE, event, id};
use crate::whatsapp::profile;

const PHONE: &str = "+5511961234567";

fn test_sends(fixture: &DbFixture) -> PgTestSends {
    PgTestSends::new(fixture.tenants.clone())
}

fn phone() -> Phone {
    Phone::parse(PHONE).unwrap()
}

async fn contact(fixture: &DbFixture, account: AccountId, name: &str) {
    let statement = format!(
        "INSERT INTO contacts (account_id, id, name, phone, email, attributes)
         VALUES ('{account}', '{}', '{name}', '{PHONE}', 'a@example.com', '{{\"city\":\"SP\"}}')",
        id()
    );
    fixture.sql(&statement).await;
}

/// `sent/reserved/test_sends` of the month.
async fn usage(fixture: &DbFixture) -> String {
    let usage = fixture.text("SELECT sent || '/' || reserved || '/' || test_sends FROM message_usage");
    usage.await.unwrap_or_default()
}

#[tokio::test]
async fn test_send_facts_hold_campaign_number_and_contact() {
    let fixture = DbFixture::new().await;
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    let campaign = fixture.stored_draft().await;
    let facts = async || {
        test_sends(&fixture)
            .facts(account, campaign.id, &TestRecipient::Phone(phone()))
            .await
            .unwrap()
            .unwrap()
    };
    contact(&fixture, other_account, "Foreign").await;
    let unconnected = facts().await;
    assert_eq!((unconnected.profile, unconnected.contact), (None, None));
    assert_eq!(unconnected.run.campaign, campaign);
    assert_eq!(
        unconnected.run.template.map(|template| template.id),
        campaign.template_id
    );

    let number = profile("111");
    PgProfiles::new(fixture.tenants.clone())
        .insert(account, &number, &[])
        .await
        .unwrap();
    contact(&fixture, account, "Gone").await;
    fixture
        .sql("UPDATE contacts SET deleted_at = now() WHERE name = 'Gone'")
        .await;
    contact(&fixture, account, "Bia").await;
    let found = facts().await;
    assert_eq!(found.profile.map(|stored| stored.profile.id), Some(number.profile.id));
    let bia = found.contact.unwrap();
    assert_eq!(
        (bia.recipient.name.as_str(), bia.recipient.phone.as_str()),
        ("Bia", PHONE)
    );
    assert_eq!(
        (bia.recipient.email.as_deref(), bia.opted_out),
        (Some("a@example.com"), false)
    );
    assert_eq!(bia.recipient.attributes["city"], "SP");
    fixture
        .sql("UPDATE contacts SET opted_out_at = now() WHERE name = 'Bia'")
        .await;
    assert!(facts().await.contact.unwrap().opted_out);

    let facts_in = async |account| {
        test_sends(&fixture)
            .facts(account, campaign.id, &TestRecipient::Phone(phone()))
            .await
            .unwrap()
    };
    assert_eq!(facts_in(other_account).await, None);
    fixture
        .campaigns()
        .delete(&campaign, campaign.status, &[])
        .await
        .unwrap();
    assert_eq!(facts_in(account).await, None);
}

#[tokio::test]
async fn concurrent_test_sends_never_exceed_the_quota() {
    let fixture = DbFixture::new().await;
    let reserve = |_| {
        let (store, account) = (test_sends(&fixture), fixture.account);
        async move { store.reserve_message(account, 5, &[event(id())]).await.unwrap() }
    };
    let reserved: Vec<_> = join_all((0..20).map(reserve)).await.into_iter().flatten().collect();
    assert_eq!((reserved.len(), usage(&fixture).await.as_str()), (5, "0/0/5"));
    // A refused reservation appends no event.
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 5);
    test_sends(&fixture)
        .release_message(fixture.account, reserved[0])
        .await
        .unwrap();
    assert_eq!(usage(&fixture).await, "0/0/4");
    assert_eq!(reserve(0).await, Some(reserved[0]));
    assert_eq!(reserve(0).await, None);
    // Another account has a quota of its own, and a reservation that it does not have is not released.
    let other_account = fixture.another_account().await;
    test_sends(&fixture)
        .release_message(other_account, reserved[0])
        .await
        .unwrap();
    assert!(
        test_sends(&fixture)
            .reserve_message(other_account, 1, &[])
            .await
            .unwrap()
            .is_some()
    );
    fixture.sql("UPDATE message_usage_slots SET test_sends = 0").await;
    test_sends(&fixture)
        .release_message(fixture.account, reserved[0])
        .await
        .unwrap();
    assert_eq!(fixture.number("SELECT sum(test_sends) FROM message_usage").await, 0);
}

#[tokio::test]
async fn replies_count_in_the_month_they_were_sent() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    fixture
        .sql(&format!(
            "INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, sent, delivered, read, failed,
               received)
             SELECT '{}', bucket_minutes, bucket_start, 1, 1, 1, 5, 9 FROM (VALUES (15, 0), (180, 0), (1440, 0), (1440,
               1)) AS s (bucket_minutes, before)
             CROSS JOIN LATERAL (SELECT date_trunc('month', now(), 'UTC') - before * interval '1 day'
               AS bucket_start) b",
            fixture.account
        ))
        .await;
    let reserve = async |limit| {
        test_sends(&fixture)
            .reserve_message(fixture.account, limit, &[])
            .await
            .unwrap()
    };
    assert_eq!(reserve(3).await, None);
    assert!(reserve(4).await.is_some());
    let campaign = fixture.stored_draft().await;
    let start = |limit| RunStart {
        monthly_limit: limit,
        ..fixture.start_of(&campaign)
    };
    let refused = fixture.runs().start(&start(5), None, LEASE).await.unwrap();
    let exceeded = CampaignRefusal::QuotaExceeded {
        limit: 5,
        left: 1,
        wanted: 2,
    };
    assert_eq!(refused, StartOutcome::Refused(exceeded));
    let started = fixture.runs().start(&start(6), None, LEASE).await.unwrap();
    assert_eq!(started, StartOutcome::Started { recipients: 2 });
}
