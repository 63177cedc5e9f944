//! Verifications of WhatsApp numbers, and the messages that are held for numbers that are not verified.

use recado_domain::messaging::ProfileKey;
use recado_domain::shared::{Sealed, UpdateOutcome};
use recado_domain::whatsapp::verification::{
    CanSend, Check, CheckName, CheckState, HealthReport, HeldMessage, HeldMessageStore, NumberFacts, NumberHolderStore,
    VerificationRecord, VerificationState, VerificationStore, VerificationUpdate,
};
use recado_domain::whatsapp::{KnownPhones, ProfileStore, StoredProfile};
use recado_postgres::{PgHeldMessages, PgProfileStates, PgProfiles, PgVerifications};
use time::Duration;

use crate::support::{DbFixture, LEASE, NOW, id};
use crate::whatsapp::profile;

fn stores(fixture: &DbFixture) -> (PgProfiles, PgVerifications) {
    let verifications = PgVerifications::new(fixture.tenants.clone(), fixture.owner.clone());
    (PgProfiles::new(fixture.tenants.clone()), verifications)
}

/// A profile that was made now and is not verified.
fn pending(number: &str) -> StoredProfile {
    let mut stored = profile(number);
    let record = VerificationRecord::new(NOW);
    stored.profile.verification = record.verification;
    stored.history = record.history;
    stored
}

/// The update after a check of this profile.
fn checked(stored: &StoredProfile, state: CheckState) -> VerificationUpdate {
    let checks = vec![Check::with_remedy(CheckName::Token, state, "found", "remedy")];
    VerificationUpdate {
        credentials_version: stored.credentials_version,
        verification_version: stored.verification_version,
        record: stored.verification_record().after(checks, stored.profile.id, NOW),
        number: NumberFacts {
            verified_name: Some("Loja".into()),
            ..NumberFacts::default()
        },
    }
}

#[tokio::test]
async fn check_is_recorded_once_and_only_for_its_credentials() {
    let fixture = DbFixture::new().await;
    let (profiles, verifications) = stores(&fixture);
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    let stored = pending("111");
    let id = stored.profile.id;
    profiles.insert(account, &stored, &[]).await.unwrap();
    assert_eq!(profiles.find(account, id).await.unwrap(), Some(stored.clone()));

    let update = checked(&stored, CheckState::Failed);
    let foreign = verifications.record(other_account, id, &update, &[]).await.unwrap();
    assert_eq!(foreign, UpdateOutcome::Missing);
    let first = verifications.record(account, id, &update, &[]).await.unwrap();
    assert_eq!(first, UpdateOutcome::Done(()));
    let second = verifications.record(account, id, &update, &[]).await.unwrap();
    assert_eq!(second, UpdateOutcome::Stale);
    let failed = profiles.find(account, id).await.unwrap().unwrap();
    assert_eq!(failed.verification_record(), update.record);
    assert_eq!(failed.profile.number, update.number);

    // New credentials make the profile pending and outdate a check of the earlier ones.
    let record = failed.verification_record().restarted(false, NOW);
    let mut changed = failed.clone();
    changed.credentials_version += 1;
    changed.profile.verification = record.verification.clone();
    changed.history = record.history.clone();
    profiles.update(account, &changed, &[]).await.unwrap();
    let stale = checked(&failed, CheckState::Passed);
    assert_eq!(
        verifications.record(account, id, &stale, &[]).await.unwrap(),
        UpdateOutcome::Stale
    );
    let restarted = profiles.find(account, id).await.unwrap().unwrap();
    assert_eq!(restarted.verification_record(), record);
    assert_eq!(restarted.profile.number, update.number);

    // A change of other fields keeps what a check recorded meanwhile.
    let verified = checked(&restarted, CheckState::Passed);
    verifications.record(account, id, &verified, &[]).await.unwrap();
    profiles.update(account, &restarted, &[]).await.unwrap();
    let kept = profiles.find(account, id).await.unwrap().unwrap();
    assert_eq!(kept.profile.verification.state, VerificationState::Verified);
    assert_eq!(
        PgProfileStates::new(fixture.owner.clone()).count().await.unwrap(),
        [(VerificationState::Verified, 1)]
    );
}

#[tokio::test]
async fn due_check_is_claimed_by_one_worker() {
    let fixture = DbFixture::new().await;
    let (profiles, verifications) = stores(&fixture);
    let account = fixture.account;
    let mut stored = pending("111");
    stored.profile.verification.next_check_at = None;
    let id = stored.profile.id;
    profiles.insert(account, &stored, &[]).await.unwrap();
    assert_eq!(verifications.claim_due(10, LEASE).await.unwrap(), []);
    verifications.request_check(account, id).await.unwrap();
    let key = ProfileKey {
        account_id: account,
        profile_id: id,
    };
    assert_eq!(verifications.claim_due(10, LEASE).await.unwrap(), [key]);
    assert_eq!(verifications.claim_due(10, LEASE).await.unwrap(), []);
    fixture
        .sql("UPDATE whatsapp_profiles SET check_leased_until = now()")
        .await;
    assert_eq!(verifications.claim_due(10, LEASE).await.unwrap(), [key]);
    fixture
        .sql("UPDATE whatsapp_profiles SET check_leased_until = NULL")
        .await;
    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    assert_eq!(verifications.claim_due(10, LEASE).await.unwrap(), []);
}

#[tokio::test]
async fn activity_counts_messages_of_the_month_and_keeps_health() {
    let fixture = DbFixture::new().await;
    let (profiles, verifications) = stores(&fixture);
    let account = fixture.account;
    let stored = profile("111");
    let id = stored.profile.id;
    profiles.insert(account, &stored, &[]).await.unwrap();
    let holders = verifications.holders_of_number("111").await.unwrap();
    assert_eq!(holders.len(), 1);
    assert_eq!(verifications.verified_of_business("900").await.unwrap(), holders);
    verifications.note_callback("111").await.unwrap();
    verifications.note_accepted(account, id, 0).await.unwrap();
    verifications.note_accepted(account, id, 2).await.unwrap();
    let report = HealthReport {
        can_send: CanSend::Available,
        entities: vec![],
    };
    verifications.record_health(account, id, 2, &report).await.unwrap();
    assert_eq!(verifications.activity(account, id).await.unwrap().unwrap().health, None);
    verifications.record_health(account, id, 1, &report).await.unwrap();
    let activity = verifications.activity(account, id).await.unwrap().unwrap();
    assert_eq!(activity.service_messages, 2);
    verifications.note_accepted(account, id, 3).await.unwrap();
    let by_month =
        "SELECT messages FROM service_message_months WHERE month = date_trunc('month', now() AT TIME ZONE 'UTC')";
    assert_eq!(fixture.number(by_month).await, 5);
    assert!(activity.last_callback_at.is_some() && activity.last_accepted_at.is_some());
    assert_eq!(activity.last_inbound_at, None);
    assert_eq!(activity.health.map(|(health, _)| health), Some(report));
    fixture
        .sql("UPDATE whatsapp_profiles SET service_month = '2020-01-01', verification_state = 'failed'")
        .await;
    assert_eq!(
        verifications
            .activity(account, id)
            .await
            .unwrap()
            .unwrap()
            .service_messages,
        0
    );
    assert_eq!(verifications.verified_of_business("900").await.unwrap(), []);
}

#[tokio::test]
async fn held_messages_are_kept_once_and_purged_after_their_time() {
    let fixture = DbFixture::new().await;
    let held = PgHeldMessages::new(fixture.owner.clone());
    let message = |key: u8| HeldMessage {
        key: vec![key],
        event: Sealed(vec![key, key]),
    };
    held.hold("111", &[message(1), message(2), message(1)], false)
        .await
        .unwrap();
    held.hold("111", &[message(2), message(3)], false).await.unwrap();
    held.hold("222", &[message(1)], true).await.unwrap();
    let since = NOW - Duration::days(36_500);
    let all = held.held_since("111", since, 0, 10).await.unwrap();
    let events: Vec<_> = all.iter().map(|message| message.event.0[0]).collect();
    assert_eq!(events, [1, 2, 3]);
    assert_eq!(held.held_since("111", since, all[0].seq, 1).await.unwrap(), all[1..2]);
    let later = NOW + Duration::days(36_500);
    assert_eq!(held.held_since("111", later, 0, 10).await.unwrap(), []);
    held.mark_given("111", &[all[0].seq]).await.unwrap();
    assert_eq!(held.purge(Duration::days(7), 10).await.unwrap().removed, 0);
    fixture
        .sql("UPDATE whatsapp_held_messages SET received_at = now() - interval '8 days'")
        .await;
    let purged = held.purge(Duration::days(7), 10).await.unwrap();
    assert_eq!((purged.removed, purged.unclaimed), (4, 2));
}

#[tokio::test]
async fn user_ids_move_to_the_portfolio_once_it_is_known() {
    let fixture = DbFixture::new().await;
    let (profiles, verifications) = stores(&fixture);
    let account = fixture.account;
    let stored = pending("111");
    profiles.insert(account, &stored, &[]).await.unwrap();
    let waba = &stored.profile.waba_id;
    let other = fixture.another_account().await;
    let (moves, stays) = (id(), id());
    for (account, contact, ids) in [
        (account, moves, vec![(waba.as_str(), "BR.1")]),
        (account, stays, vec![(waba.as_str(), "BR.2"), ("77", "BR.3")]),
        (other, id(), vec![(waba.as_str(), "BR.4")]),
    ] {
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{contact}', 'c')"
            ))
            .await;
        for (scope, user_id) in ids {
            fixture
                .sql(&format!(
                    "INSERT INTO contact_identities
                     VALUES ('{account}', '{scope}', '{user_id}', '{contact}', NULL, NULL, now(), now())"
                ))
                .await;
        }
    }
    let update = VerificationUpdate {
        number: NumberFacts {
            portfolio_id: Some("77".into()),
            ..NumberFacts::default()
        },
        ..checked(&stored, CheckState::Passed)
    };
    verifications
        .record(account, stored.profile.id, &update, &[])
        .await
        .unwrap();
    let ids = "SELECT string_agg(wa_user_id || ' ' || scope, ', ' ORDER BY wa_user_id) FROM contact_identities";
    let expected = format!("BR.1 77, BR.3 77, BR.4 {waba}");
    assert_eq!(fixture.text(ids).await, Some(expected));
}

/// A number of the portfolio reported the same id for another contact: WhatsApp says that both are one person.
#[tokio::test]
async fn contacts_with_one_id_in_a_portfolio_are_linked() {
    let fixture = DbFixture::new().await;
    let (profiles, verifications) = stores(&fixture);
    let (account, other) = (fixture.account, fixture.another_account().await);
    let stored = pending("111");
    profiles.insert(account, &stored, &[]).await.unwrap();
    let waba = stored.profile.waba_id.clone();
    for (account, name, phone, scope, user_id) in [
        (account, "ana", "NULL", waba.as_str(), "BR.1"),
        (account, "ana2", "'+5511961234501'", "77", "BR.1"),
        (account, "ana3", "NULL", "x", "BR.9"),
        (account, "bia", "NULL", waba.as_str(), "BR.2"),
        (other, "eva", "NULL", "77", "BR.2"),
    ] {
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name, phone) VALUES ('{account}', md5('{name}')::uuid, '{name}', {phone});
                 INSERT INTO contact_identities
                   VALUES ('{account}', '{scope}', '{user_id}', md5('{name}')::uuid, NULL, NULL, now(), now())"
            ))
            .await;
    }
    fixture
        .sql(
            "UPDATE contacts c SET same_person_as = o.id FROM contacts o
             WHERE (c.name, o.name) IN (('ana', 'ana3'), ('ana3', 'ana'))",
        )
        .await;
    let update = VerificationUpdate {
        number: NumberFacts {
            portfolio_id: Some("77".into()),
            ..NumberFacts::default()
        },
        ..checked(&stored, CheckState::Passed)
    };
    let id = stored.profile.id;
    verifications.record(account, id, &update, &[]).await.unwrap();
    let linked = "SELECT string_agg(c.name || ' ' || o.name, ', ' ORDER BY c.name) FROM contacts c
                  JOIN contacts o ON o.id = c.same_person_as";
    // Those who were linked already stay so. All name the one with a phone.
    let names = fixture.text(linked).await.unwrap();
    let mut links: Vec<_> = names.split(", ").collect();
    links.retain(|link| !link.starts_with("ana2 "));
    assert_eq!(links, ["ana ana2", "ana3 ana2"]);
    assert!(names.contains("ana2 "), "{names}");
    let ids = "SELECT string_agg(concat_ws(' ', wa_user_id, scope), ', ' ORDER BY wa_user_id, scope)
               FROM contact_identities";
    assert_eq!(fixture.text(ids).await.unwrap(), "BR.1 77, BR.2 77, BR.2 77, BR.9 x");
}

#[tokio::test]
async fn phone_is_found_by_the_user_id_that_the_number_may_use() {
    let fixture = DbFixture::new().await;
    let (profiles, _) = stores(&fixture);
    let (account, other) = (fixture.account, fixture.another_account().await);
    let stored = pending("111");
    for account in [account, other] {
        profiles.insert(account, &stored, &[]).await.unwrap();
    }
    let waba = stored.profile.waba_id.as_str();
    for (account, user_id, scope, phone, deleted_at) in [
        (account, "BR.1", waba, "'+5511961234501'", "NULL"),
        (account, "BR.2", "77", "'+5511961234502'", "NULL"),
        (account, "BR.3", waba, "NULL", "NULL"),
        (account, "BR.4", waba, "'+5511961234504'", "now()"),
        (other, "BR.5", waba, "'+5511961234505'", "NULL"),
    ] {
        let contact = id();
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name, phone, wa_user_id, deleted_at)
                   VALUES ('{account}', '{contact}', 'c', {phone}, '{user_id}', {deleted_at});
                 INSERT INTO contact_identities
                   VALUES ('{account}', '{scope}', '{user_id}', '{contact}', NULL, NULL, now(), now())"
            ))
            .await;
    }
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone, wa_user_id)
             VALUES ('{account}', '{}', 'c', '+5511961234506', 'BR.6')",
            id()
        ))
        .await;
    let number = ProfileKey {
        account_id: account,
        profile_id: stored.profile.id,
    };
    // BR.2 is the id of another portfolio. No number reported BR.6, so it fits each.
    for (user_id, phone) in [
        ("BR.1", Some("+5511961234501")),
        ("BR.2", None),
        ("BR.3", None),
        ("BR.4", None),
        ("BR.5", None),
        ("BR.6", Some("+5511961234506")),
    ] {
        let found = profiles.phone_of(number, user_id).await.unwrap();
        assert_eq!(found.as_deref(), phone, "{user_id}");
    }
}

/// Every kind of message, and none of another account.
#[tokio::test]
async fn message_that_was_sent_to_a_phone_instead_has_that_address() {
    let fixture = DbFixture::new().await;
    let (profiles, _) = stores(&fixture);
    let (account, other) = (fixture.account, fixture.another_account().await);
    for account in [account, other] {
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{account}', 'c');
                 INSERT INTO conversations (account_id, id, contact_id, last_message_at)
                   VALUES ('{account}', '{account}', '{account}', now());
                 INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, send_at, expires_at,
                   created_by, created_at, updated_at, by_user_id)
                   SELECT '{account}', md5('direct')::uuid, '{account}', '{account}', 'text', '{{}}', now(), now(), '{account}',
                     now(), now(), true"
            ))
            .await;
    }
    fixture.add_contacts(2).await;
    let (campaign, _) = fixture.started(id()).await;
    let reply = id();
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET by_user_id = true;
             INSERT INTO messages (account_id, id, conversation_id, direction, type, status, created_at, by_user_id)
               VALUES ('{account}', '{reply}', '{account}', 'outbound', 'text', 'pending', now(), true)"
        ))
        .await;
    let send = format!(
        "SELECT min(id::text) FROM campaign_sends WHERE campaign_id = '{}'",
        campaign.id
    );
    let direct = fixture.text("SELECT md5('direct')::uuid::text").await;
    let send = fixture.text(&send).await;
    let by_phone = "SELECT concat_ws(' ', (SELECT count(*) FROM campaign_sends WHERE NOT by_user_id),
        (SELECT count(*) FROM direct_messages WHERE NOT by_user_id), (SELECT count(*) FROM messages WHERE NOT by_user_id))";
    for (message, expected) in [
        (Some(id().to_string()), "0 0 0"),
        (send, "1 0 0"),
        (direct, "1 1 0"),
        (Some(reply.to_string()), "1 1 1"),
    ] {
        let message = message.unwrap().parse().unwrap();
        profiles.note_sent_to_phone(account, message).await.unwrap();
        assert_eq!(fixture.text(by_phone).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn verified_profile_waits_for_held_messages_until_the_hold_ends() {
    let fixture = DbFixture::new().await;
    let (profiles, verifications) = stores(&fixture);
    let account = fixture.account;
    let stored = pending("111");
    let id = stored.profile.id;
    profiles.insert(account, &stored, &[]).await.unwrap();
    assert_eq!(verifications.waiting_for_held(10).await.unwrap(), []);
    let verified = checked(&stored, CheckState::Passed);
    verifications.record(account, id, &verified, &[]).await.unwrap();
    assert_eq!(verifications.waiting_for_held(10).await.unwrap().len(), 1);
    verifications
        .end_hold(account, id, NOW - Duration::SECOND)
        .await
        .unwrap();
    assert_eq!(verifications.waiting_for_held(10).await.unwrap().len(), 1);
    verifications.end_hold(account, id, NOW).await.unwrap();
    assert_eq!(verifications.waiting_for_held(10).await.unwrap(), []);
    let now = profiles.find(account, id).await.unwrap().unwrap();
    assert_eq!((now.history.held_since, now.verification_version), (None, 3));
}
