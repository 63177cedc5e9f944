//! WhatsApp numbers, stored callbacks, and the directory that maps a number to its accounts.

use std::collections::BTreeSet;

use recado_domain::callbacks::CallbackStore;
use recado_domain::media::{MediaPath, MediaType};
use recado_domain::shared::{AccountId, CallbackId, CursorQuery, ProfileId, Sealed, StoreError, UpdateOutcome};
use recado_domain::whatsapp::verification::{NumberFacts, NumberHolder, NumberHolderStore, VerificationRecord};
use recado_domain::whatsapp::{FileIdStore, Profile, ProfileStore, StoredProfile};
use recado_postgres::{PgCallbacks, PgFileIds, PgProfiles, PgVerifications};
use time::Duration;

use crate::support::{DbFixture, LEASE, NOW, id, position};

pub(crate) fn profile(number: &str) -> StoredProfile {
    StoredProfile {
        profile: Profile {
            id: id().into(),
            name: "Loja".into(),
            phone_number_id: number.into(),
            waba_id: "900".into(),
            messages_per_second: Some(80),
            created_at: NOW,
            updated_at: NOW,
            verification: VerificationRecord::verified(NOW).verification,
            number: NumberFacts::default(),
        },
        token: Sealed(vec![0, 1, 255]),
        version: 1,
        credentials_version: 1,
        verification_version: 1,
        history: VerificationRecord::verified(NOW).history,
    }
}

#[tokio::test]
async fn number_is_stored_updated_and_deleted() {
    let fixture = DbFixture::new().await;
    let profiles = PgProfiles::new(fixture.tenants.clone());
    let (account, other_account) = (fixture.account, fixture.another_account().await);
    let first = profile("111");
    let second = profile("222");
    profiles.insert(account, &first, &[]).await.unwrap();
    profiles.insert(account, &second, &[]).await.unwrap();
    assert_eq!(
        profiles.find(account, first.profile.id).await.unwrap(),
        Some(first.clone())
    );
    assert_eq!(profiles.find(other_account, first.profile.id).await.unwrap(), None);
    assert_eq!(profiles.default_profile(account).await.unwrap(), Some(first.clone()));
    assert_eq!(profiles.default_profile(other_account).await.unwrap(), None);

    let page = profiles
        .list(account, &CursorQuery { cursor: None, limit: 1 })
        .await
        .unwrap();
    assert_eq!((page.data, page.has_more), (vec![second.clone()], true));
    let page = profiles
        .list(
            account,
            &CursorQuery {
                cursor: position(page.next_cursor),
                limit: 1,
            },
        )
        .await
        .unwrap();
    assert_eq!((page.data, page.has_more), (vec![first.clone()], false));

    let mut changed = first.clone();
    changed.profile.messages_per_second = None;
    changed.profile.phone_number_id = "333".into();
    changed.token = Sealed(vec![9]);
    let written = profiles.update(account, &changed, &[]).await.unwrap();
    assert_eq!(written, UpdateOutcome::Done(()));
    assert_eq!(
        profiles.update(other_account, &changed, &[]).await.unwrap(),
        UpdateOutcome::Missing
    );
    // Optimistic locking: an update of the previous version would overwrite the new token.
    let stale = profiles.update(account, &first, &[]).await.unwrap();
    assert_eq!(stale, UpdateOutcome::Stale);
    changed.version = first.version + 1;
    assert_eq!(profiles.find(account, first.profile.id).await.unwrap(), Some(changed));
    assert!(
        !profiles
            .delete(other_account, first.profile.id, &[])
            .await
            .unwrap()
            .is_done()
    );
    assert!(profiles.delete(account, first.profile.id, &[]).await.unwrap().is_done());
    assert!(!profiles.delete(account, first.profile.id, &[]).await.unwrap().is_done());
    assert_eq!(profiles.find(account, ProfileId(id())).await.unwrap(), None);
}

#[tokio::test]
async fn number_is_connected_once_per_account() {
    let fixture = DbFixture::new().await;
    let profiles = PgProfiles::new(fixture.tenants.clone());
    profiles.insert(fixture.account, &profile("111"), &[]).await.unwrap();
    let twice = profiles.insert(fixture.account, &profile("111"), &[]).await;
    assert!(
        matches!(
            twice,
            Err(StoreError::Duplicate {
                field: "phone_number_id"
            })
        ),
        "{twice:?}"
    );
    let second = profile("222");
    profiles.insert(fixture.account, &second, &[]).await.unwrap();
    let mut moved = second;
    moved.profile.phone_number_id = "111".into();
    let taken = profiles.update(fixture.account, &moved, &[]).await;
    assert!(
        matches!(
            taken,
            Err(StoreError::Duplicate {
                field: "phone_number_id"
            })
        ),
        "{taken:?}"
    );
    profiles
        .insert(fixture.another_account().await, &profile("111"), &[])
        .await
        .unwrap();
}

#[tokio::test]
async fn number_directory_returns_current_profiles() {
    let fixture = DbFixture::new().await;
    let profiles = PgProfiles::new(fixture.tenants.clone());
    let callbacks = PgCallbacks::new(fixture.owner.clone());
    let verifications = PgVerifications::new(fixture.tenants.clone(), fixture.owner.clone());
    let accounts = |holders: Vec<NumberHolder>| holders.into_iter().map(|holder| holder.account_id);
    let of_number = async |number| {
        let holders = verifications.holders_of_number(number).await.unwrap();
        accounts(holders).collect::<Vec<_>>()
    };
    let of_business = async |waba| {
        let holders = verifications.verified_of_business(waba).await.unwrap();
        accounts(holders).collect::<BTreeSet<_>>()
    };
    let other_account = fixture.another_account().await;
    let mine = profile("111");
    profiles.insert(fixture.account, &mine, &[]).await.unwrap();
    profiles.insert(fixture.account, &profile("222"), &[]).await.unwrap();
    profiles.insert(other_account, &profile("111"), &[]).await.unwrap();
    let none: [AccountId; 0] = [];
    assert_eq!(of_number("111").await, [fixture.account, other_account]);
    assert_eq!(of_number("222").await, [fixture.account]);
    assert_eq!(of_number("999").await, none);
    assert_eq!(
        of_business("900").await,
        BTreeSet::from([fixture.account, other_account])
    );

    let mut moved = mine.clone();
    moved.profile.phone_number_id = "333".into();
    moved.profile.waba_id = "901".into();
    profiles.update(fixture.account, &moved, &[]).await.unwrap();
    assert_eq!(of_number("111").await, [other_account]);
    assert_eq!(of_number("333").await, [fixture.account]);
    assert_eq!(of_business("901").await, BTreeSet::from([fixture.account]));
    profiles.delete(fixture.account, mine.profile.id, &[]).await.unwrap();
    assert_eq!(of_number("333").await, none);
    assert_eq!(of_business("901").await, BTreeSet::new());
    // Former accounts of a number are included, because they sent messages from it.
    let past_accounts = async |number| callbacks.accounts_that_had_number(number).await.unwrap();
    assert_eq!(past_accounts("111").await, [fixture.account, other_account]);
    assert_eq!(past_accounts("333").await, [fixture.account]);
    assert_eq!(past_accounts("999").await, none);
}

#[tokio::test]
async fn callbacks_are_leased_deferred_and_deleted() {
    let fixture = DbFixture::new().await;
    let callbacks = PgCallbacks::new(fixture.owner.clone());
    let (first, second) = (CallbackId(id()), CallbackId(id()));
    callbacks.store(first, b"{\"a\":1}", Duration::ZERO).await.unwrap();
    callbacks.store(second, b"\xff", LEASE).await.unwrap();
    let claimed = callbacks.claim(LEASE).await.unwrap().unwrap();
    assert_eq!(
        (claimed.id, claimed.body.as_slice(), claimed.attempts),
        (first, b"{\"a\":1}".as_slice(), 0)
    );
    assert_eq!(callbacks.claim(LEASE).await.unwrap(), None);
    callbacks.defer(first, LEASE).await.unwrap();
    assert_eq!(callbacks.claim(LEASE).await.unwrap(), None);
    callbacks.defer(first, Duration::ZERO).await.unwrap();
    assert_eq!(callbacks.claim(LEASE).await.unwrap().unwrap().attempts, 2);
    callbacks.delete(first).await.unwrap();
    callbacks.defer(second, Duration::ZERO).await.unwrap();
    assert_eq!(callbacks.claim(LEASE).await.unwrap().unwrap().id, second);
    callbacks.delete(second).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM whatsapp_callbacks").await, 0);
}

#[tokio::test]
async fn claims_are_counted_until_a_callback_is_applied() {
    let fixture = DbFixture::new().await;
    let callbacks = PgCallbacks::new(fixture.owner.clone());
    let callback = CallbackId(id());
    callbacks.store(callback, b"{}", Duration::ZERO).await.unwrap();
    let mut claims = Vec::new();
    for step in 0..5 {
        claims.push(callbacks.claim(Duration::ZERO).await.unwrap().unwrap().claims);
        match step {
            // The worker died after the claim.
            0 => {}
            // The callback could not be applied.
            1 => callbacks.postpone(callback, Duration::ZERO).await.unwrap(),
            // The callback was applied and waits for a message that is not stored yet.
            _ => callbacks.defer(callback, Duration::ZERO).await.unwrap(),
        }
    }
    assert_eq!(claims, [1, 2, 3, 0, 0]);
    callbacks.postpone(callback, LEASE).await.unwrap();
    assert_eq!(callbacks.claim(LEASE).await.unwrap(), None);
    callbacks.set_aside(callback).await.unwrap();
    fixture
        .sql("UPDATE whatsapp_callbacks SET due_at = due_at - interval '100 years'")
        .await;
    assert_eq!(
        callbacks.claim(LEASE).await.unwrap(),
        None,
        "a callback that is set aside is never due"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM whatsapp_callbacks").await, 1);
}

#[tokio::test]
async fn concurrent_claims_return_each_callback_once() {
    let fixture = DbFixture::new().await;
    let callbacks = PgCallbacks::new(fixture.owner.clone());
    for _ in 0..10 {
        callbacks.store(CallbackId(id()), b"{}", Duration::ZERO).await.unwrap();
    }
    let claims = (0..20).map(|_| callbacks.claim(LEASE));
    let claimed = futures_util::future::join_all(claims).await;
    let mut ids: Vec<_> = claimed
        .into_iter()
        .filter_map(|claim| claim.unwrap().map(|callback| callback.id))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 10);
}

#[tokio::test]
async fn file_id_is_found_until_it_expires() {
    let fixture = DbFixture::new().await;
    let ids = PgFileIds::new(fixture.tenants.clone());
    let path = MediaPath {
        account_id: fixture.account,
        id: id(),
        kind: MediaType::Png,
    };
    let path = path.to_string();
    let find = async |account, number: &'static str| ids.find(account, number, &path).await.unwrap();
    assert_eq!(find(fixture.account, "1065").await, None);
    for (file, days) in [("1", 1), ("2", 25)] {
        let stored = ids
            .store(fixture.account, "1065", &path, file, Duration::days(days))
            .await;
        stored.unwrap();
    }
    assert_eq!(find(fixture.account, "1065").await.as_deref(), Some("2"));
    assert_eq!(find(fixture.account, "1066").await, None);
    assert_eq!(find(fixture.another_account().await, "1065").await, None);
    fixture.sql("UPDATE whatsapp_files SET expires_at = now()").await;
    assert_eq!(find(fixture.account, "1065").await, None);
}
