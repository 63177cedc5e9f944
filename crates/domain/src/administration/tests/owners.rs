//! Tests of the invites of first owners.

use super::*;
use crate::shared::Role;
use crate::team::InviteStatus;

#[tokio::test]
async fn account_create_invites_the_first_owner() {
    let mut store = MockAdministrationStore::new();
    store.expect_create().times(1).returning(|account, _, owner, entry| {
        assert_eq!(described(&entry), "create account, account true");
        assert_eq!(entry.changes.unwrap()["owner_invited"], true);
        let owner = owner.unwrap();
        assert_eq!((owner.account_id, owner.invited_by), (account.id, admin(false).user_id));
        assert_eq!(
            (owner.invite.role, owner.invite.status),
            (Role::Owner, InviteStatus::Pending)
        );
        Ok((account.clone(), true))
    });
    let input = |email: &str| AccountInput {
        name: Some("Loja".into()),
        owner_email: Some(email.into()),
        ..AccountInput::default()
    };
    let all = administration(store, MockBillingAccountStore::new());
    let created = all.create(&admin(false), &input(" Dona@example.com ")).await.unwrap();
    let created = created.owner_invite.unwrap();
    assert!(created.mailed);
    let invite = created.invite;
    assert_eq!((invite.email.as_str(), invite.role), ("Dona@example.com", Role::Owner));
    let all = administration(MockAdministrationStore::new(), MockBillingAccountStore::new());
    let invalid = AccountInput {
        name: None,
        ..input("dona")
    };
    let created = all.create(&admin(false), &invalid).await;
    assert_eq!(invalid_fields(created), ["name", "owner_email"]);
}

#[tokio::test]
async fn account_update_invites_an_owner_only_if_there_is_none() {
    let patch = |email: &str| AccountPatch {
        owner_email: Some(email.into()),
        ..AccountPatch::default()
    };
    for (outcome, invalid_field) in [
        (AccountUpdate::Done(account(), false), None),
        (AccountUpdate::Owned, Some("owner_email")),
        (AccountUpdate::Member, Some("owner_email")),
    ] {
        let mut store = MockAdministrationStore::new();
        store.expect_account().returning(|_| Ok(Some(account())));
        store
            .expect_update()
            .withf(|_, change, owner, _| *change == AccountChange::default() && owner.is_some())
            .returning(move |_, _, _, _| Ok(outcome.clone()));
        let all = administration(store, MockBillingAccountStore::new());
        let updated = all.update(&admin(false), ACCOUNT, &patch("dona@example.com")).await;
        match invalid_field {
            None => assert!(updated.unwrap().owner_invite.is_some()),
            Some(field) => assert_eq!(invalid_fields(updated), [field]),
        }
    }
    let mut store = MockAdministrationStore::new();
    store.expect_account().returning(|_| Ok(None));
    let all = administration(store, MockBillingAccountStore::new());
    let missing = all.update(&admin(false), ACCOUNT, &patch("dona@example.com")).await;
    assert!(matches!(missing, Err(AdministrationError::NotFound)));
    // An empty form field means no owner, so the account is not read.
    let mut store = MockAdministrationStore::new();
    store.expect_update().returning(|_, _, owner, _| {
        assert!(owner.is_none());
        Ok(AccountUpdate::Missing)
    });
    let all = administration(store, MockBillingAccountStore::new());
    let missing = all.update(&admin(false), ACCOUNT, &patch(" ")).await;
    assert!(matches!(missing, Err(AdministrationError::NotFound)));
}
