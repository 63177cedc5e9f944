//! The invites of first owners.

use super::*;
use crate::shared::Role;
use crate::team::InviteStatus;

#[tokio::test]
async fn whoever_shall_own_an_account_is_invited_with_it() {
    let mut store = MockAdministrationStore::new();
    store.expect_create().times(1).returning(|account, _, owner| {
        let owner = owner.unwrap();
        assert_eq!((owner.account_id, owner.invited_by), (account.id, admin(false).user_id));
        assert_eq!(
            (owner.invite.role, owner.invite.status),
            (Role::Owner, InviteStatus::Pending)
        );
        Ok(account.clone())
    });
    let input = |email: &str| AccountInput {
        name: Some("Loja".into()),
        owner_email: Some(email.into()),
        ..AccountInput::default()
    };
    let all = administration(store, MockSubscriptionStore::new());
    let made = all.create(&admin(false), &input(" Dona@example.com ")).await.unwrap();
    let invite = made.owner_invite.unwrap().invite;
    assert_eq!((invite.email.as_str(), invite.role), ("Dona@example.com", Role::Owner));
    let all = administration(MockAdministrationStore::new(), MockSubscriptionStore::new());
    let both = AccountInput {
        name: None,
        ..input("dona")
    };
    assert_eq!(blamed(all.create(&admin(false), &both).await), ["name", "owner_email"]);
}

#[tokio::test]
async fn an_owner_is_invited_later_only_where_there_is_none() {
    let patch = |email: &str| AccountPatch {
        owner_email: Some(email.into()),
        ..AccountPatch::default()
    };
    for (outcome, blame) in [
        (AccountUpdate::Done(account()), None),
        (AccountUpdate::Owned, Some("owner_email")),
        (AccountUpdate::Member, Some("owner_email")),
    ] {
        let mut store = MockAdministrationStore::new();
        store.expect_account().returning(|_| Ok(Some(account())));
        store
            .expect_update()
            .withf(|_, change, owner| *change == AccountChange::default() && owner.is_some())
            .returning(move |_, _, _| Ok(outcome.clone()));
        let all = administration(store, MockSubscriptionStore::new());
        let updated = all.update(&admin(false), ACCOUNT, &patch("dona@example.com")).await;
        match blame {
            None => assert!(updated.unwrap().owner_invite.is_some()),
            Some(field) => assert_eq!(blamed(updated), [field]),
        }
    }
    let mut store = MockAdministrationStore::new();
    store.expect_account().returning(|_| Ok(None));
    let all = administration(store, MockSubscriptionStore::new());
    let missing = all.update(&admin(false), ACCOUNT, &patch("dona@example.com")).await;
    assert!(matches!(missing, Err(AdministrationError::NotFound)));
    // An empty field of a form says nothing, and needs no account to be looked at.
    let mut store = MockAdministrationStore::new();
    store.expect_update().returning(|_, _, owner| {
        assert!(owner.is_none());
        Ok(AccountUpdate::Missing)
    });
    let all = administration(store, MockSubscriptionStore::new());
    let missing = all.update(&admin(false), ACCOUNT, &patch(" ")).await;
    assert!(matches!(missing, Err(AdministrationError::NotFound)));
}
