//! Tests of the team use cases with mocked ports: reads, their order, and writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::*;
use crate::accounts::Session;
use crate::mail::{MockRecipientHasher, RecipientHash};
use crate::shared::{
    AccountId, AuditAction, Cipher, Event, GuardOutcome, InviteId, MockCipher, MockIds, MockSecrets, Role, Sealed,
    Tenant, UserId, WriteOutcome, secret_hash,
};

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
const ANA: UserId = UserId(Uuid::from_u128(2));
const BIA: UserId = UserId(Uuid::from_u128(3));
const INVITE: InviteId = InviteId(Uuid::from_u128(4));

fn tenant(role: Role) -> Tenant {
    Tenant::for_tests(ACCOUNT, ANA, role)
}

fn fields<T: std::fmt::Debug>(result: Result<T, TeamError>) -> Vec<String> {
    match result {
        Err(TeamError::Invalid(errors)) => errors.0.into_keys().collect(),
        other => panic!("{other:?}"),
    }
}

fn member(role: Role) -> Member {
    Member {
        user_id: BIA,
        email: "bia@example.com".into(),
        name: None,
        role,
        last_active_at: None,
        created_at: NOW,
    }
}

fn member_facts(target: Option<Role>, other_owners: bool) -> MemberFacts {
    MemberFacts {
        actor: Some(Role::Owner),
        target,
        other_owners,
    }
}

fn members(store: MockMemberStore) -> Members {
    Members::new(Arc::new(store))
}

#[tokio::test]
async fn role_change_is_written_with_its_facts_and_audited() {
    let mut store = MockMemberStore::new();
    let facts = member_facts(Some(Role::Member), false);
    store
        .expect_facts()
        .withf(|account, actor, target| (*account, *actor, *target) == (ACCOUNT, ANA, BIA))
        .returning(move |_, _, _| Ok(facts));
    store.expect_write().times(1).returning(move |write| {
        let Event::Audit(audit) = &write.events[0] else {
            panic!()
        };
        assert_eq!(
            (audit.action, audit.entity_type.as_str()),
            (AuditAction::Update, "account_user")
        );
        assert_eq!((audit.user_id, audit.entity_id), (Some(ANA), Some(BIA.0)));
        assert_eq!(
            audit.changes,
            Some(json!({ "role": "admin", "previousRole": "member" }))
        );
        let step = MemberStep::SetRole {
            from: Role::Member,
            to: Role::Admin,
        };
        assert_eq!((write.facts, write.step, write.events.len()), (facts, step, 1));
        Ok(GuardOutcome::Done)
    });
    store.expect_member().returning(|_, _| Ok(Some(member(Role::Admin))));
    let changed = members(store)
        .change_role(&tenant(Role::Owner), BIA, Some("admin"))
        .await;
    assert_eq!(changed.unwrap(), member(Role::Admin));
}

#[tokio::test]
async fn member_removal_is_audited_and_equal_role_is_not_written() {
    let mut store = MockMemberStore::new();
    store
        .expect_facts()
        .returning(|_, _, _| Ok(member_facts(Some(Role::Member), false)));
    store.expect_write().times(1).returning(|write| {
        let Event::Audit(audit) = &write.events[0] else {
            panic!()
        };
        assert_eq!(
            (audit.action, write.step),
            (AuditAction::Delete, MemberStep::Remove { from: Role::Member })
        );
        Ok(GuardOutcome::Done)
    });
    members(store).remove(&tenant(Role::Owner), BIA).await.unwrap();

    let mut store = MockMemberStore::new();
    store
        .expect_facts()
        .returning(|_, _, _| Ok(member_facts(Some(Role::Member), false)));
    store.expect_member().returning(|_, _| Ok(Some(member(Role::Member))));
    let same = members(store)
        .change_role(&tenant(Role::Owner), BIA, Some("member"))
        .await;
    assert_eq!(same.unwrap().role, Role::Member);
}

#[tokio::test]
async fn member_change_refusal_names_the_field() {
    let refusing = |facts: MemberFacts| {
        let mut store = MockMemberStore::new();
        store.expect_facts().returning(move |_, _, _| Ok(facts));
        members(store)
    };
    let owner = tenant(Role::Owner);
    let last = refusing(member_facts(Some(Role::Owner), false));
    assert_eq!(fields(last.change_role(&owner, ANA, Some("viewer")).await), ["role"]);
    assert_eq!(fields(last.remove(&owner, ANA).await), ["user_id"]);
    assert_eq!(fields(last.change_role(&owner, ANA, None).await), ["role"]);
    let unknown = refusing(member_facts(None, true)).remove(&owner, BIA).await;
    assert!(matches!(unknown, Err(TeamError::NotFound)));
    // A caller without permission for the role does not learn whether the member exists: nothing is read.
    let admin = tenant(Role::Admin);
    let granted = members(MockMemberStore::new())
        .change_role(&admin, BIA, Some("owner"))
        .await;
    assert!(matches!(granted, Err(TeamError::NotPermitted)));
    let missing = refusing(member_facts(None, true))
        .change_role(&admin, BIA, Some("viewer"))
        .await;
    assert!(matches!(missing, Err(TeamError::NotFound)));
    // The access check saw an owner, who has since become an admin.
    let demoted = refusing(MemberFacts {
        actor: Some(Role::Admin),
        ..member_facts(Some(Role::Owner), true)
    });
    assert!(matches!(
        demoted.remove(&owner, BIA).await,
        Err(TeamError::NotPermitted)
    ));
}

#[tokio::test]
async fn member_change_is_decided_again_after_concurrent_change() {
    let mut store = MockMemberStore::new();
    let reads = Arc::new(AtomicUsize::new(0));
    let read_count = reads.clone();
    // The first read finds another owner; the second read finds that owner demoted.
    store.expect_facts().returning(move |_, _, _| {
        Ok(member_facts(
            Some(Role::Owner),
            read_count.fetch_add(1, Ordering::SeqCst) == 0,
        ))
    });
    store.expect_write().times(1).returning(|_| Ok(GuardOutcome::Stale));
    let refused = members(store).remove(&tenant(Role::Owner), ANA).await;
    assert_eq!(fields(refused), ["user_id"]);
    assert_eq!(reads.load(Ordering::SeqCst), 2);

    let mut busy = MockMemberStore::new();
    busy.expect_facts()
        .returning(|_, _, _| Ok(member_facts(Some(Role::Member), true)));
    busy.expect_write().returning(|_| Ok(GuardOutcome::Stale));
    let refused = members(busy).remove(&tenant(Role::Owner), BIA).await;
    assert!(matches!(refused, Err(TeamError::Conflict(_))));
}

fn cipher() -> MockCipher {
    let mut cipher = MockCipher::new();
    cipher
        .expect_seal()
        .returning(|secret, _| Sealed(secret.expose_secret().bytes().rev().collect()));
    cipher
}

fn invites(store: MockInviteStore, mails: bool) -> Invites {
    let mut secrets = MockSecrets::new();
    secrets
        .expect_token()
        .withf(|bytes| *bytes == 32)
        .returning(|_| SecretString::from("t0k3n"));
    let mut ids = MockIds::new();
    ids.expect_next().return_const(INVITE.0);
    let cipher = mails.then(|| -> Arc<dyn Cipher> { Arc::new(cipher()) });
    Invites::new(
        Arc::new(store),
        Arc::new(secrets),
        Arc::new(ids),
        cipher,
        Arc::new(recipients()),
        "https://recado.example",
    )
}

fn recipients() -> MockRecipientHasher {
    let mut recipients = MockRecipientHasher::new();
    recipients
        .expect_hash()
        .returning(|address| RecipientHash(address.to_lowercase().into_bytes()));
    recipients
}

fn input(email: &str, role: Role) -> InviteInput {
    InviteInput {
        email: Some(email.into()),
        role: Some(role.to_string()),
        expires_in_hours: None,
    }
}

fn invitation_facts() -> InvitationFacts {
    InvitationFacts {
        now: NOW,
        account: "Loja".into(),
        inviter: "Ana".into(),
    }
}

#[tokio::test]
async fn invite_expires_in_a_week_and_stores_a_token_hash() {
    for mails in [false, true] {
        let mut store = MockInviteStore::new();
        store.expect_facts().returning(|_, _| Ok(invitation_facts()));
        store.expect_insert().times(1).returning(move |insert, at_most| {
            assert_eq!(at_most, 100);
            assert_eq!(insert.recipient, RecipientHash(b"bia@example.com".to_vec()));
            assert_eq!(insert.token_hash, secret_hash(&SecretString::from("t0k3n")));
            assert_eq!(insert.superseded, (InviteStatus::Pending, InviteStatus::Revoked));
            assert_eq!((insert.invited_by, insert.mail.is_some()), (ANA, mails));
            Ok(InviteOutcome::Done { mailed: mails })
        });
        let created = invites(store, mails)
            .create(&tenant(Role::Admin), input(" Bia@example.com ", Role::Admin))
            .await;
        let created = created.unwrap();
        assert_eq!(
            (created.invite.email.as_str(), created.mailed),
            ("Bia@example.com", mails)
        );
        assert_eq!(created.invite.expires_at, NOW + Duration::days(7));
        assert_eq!(
            (created.invite.status, created.invite.created_at),
            (InviteStatus::Pending, NOW)
        );
        assert_eq!(created.token.expose_secret(), "t0k3n");
        let url = "https://recado.example/accept-invite?token=t0k3n";
        assert_eq!(created.accept_url.expose_secret(), url);
    }
}

#[tokio::test]
async fn invite_of_an_owner_requires_an_owner() {
    for role in [Role::Admin, Role::Member, Role::Viewer] {
        let refused = invites(MockInviteStore::new(), false)
            .create(&tenant(role), input("b@e.example", Role::Owner))
            .await;
        assert!(matches!(refused, Err(TeamError::NotPermitted)), "{role}");
    }
    let mut store = MockInviteStore::new();
    store.expect_facts().returning(|_, _| Ok(invitation_facts()));
    store
        .expect_insert()
        .returning(|_, _| Ok(InviteOutcome::Done { mailed: false }));
    let created = invites(store, false)
        .create(&tenant(Role::Owner), input("b@e.example", Role::Owner))
        .await;
    assert_eq!(created.unwrap().invite.role, Role::Owner);
}

#[tokio::test]
async fn invite_with_invalid_input_reads_nothing() {
    let refused = async |input| {
        fields(
            invites(MockInviteStore::new(), false)
                .create(&tenant(Role::Owner), input)
                .await,
        )
    };
    assert_eq!(refused(InviteInput::default()).await, ["email", "role"]);
    assert_eq!(refused(input("bia", Role::Member)).await, ["email"]);
    for hours in [0, -1, 8761, i64::MAX] {
        let wrong = InviteInput {
            expires_in_hours: Some(hours),
            ..input("b@e.example", Role::Member)
        };
        assert_eq!(refused(wrong).await, ["expires_in_hours"], "{hours}");
    }
}

#[tokio::test]
async fn invite_beyond_the_pending_limit_names_the_email() {
    let mut store = MockInviteStore::new();
    store.expect_facts().returning(|_, _| Ok(invitation_facts()));
    store.expect_insert().returning(|_, _| Ok(InviteOutcome::Full));
    let refused = invites(store, true)
        .create(&tenant(Role::Admin), input("b@e.example", Role::Member))
        .await;
    assert_eq!(fields(refused), ["email"]);
}

fn invite(status: InviteStatus) -> Invite {
    Invite {
        id: INVITE,
        email: "BIA@example.com".into(),
        role: Role::Member,
        status,
        expires_at: NOW + Duration::HOUR,
        created_at: NOW,
    }
}

#[tokio::test]
async fn invite_can_be_revoked_only_while_pending() {
    for &status in InviteStatus::ALL {
        let mut store = MockInviteStore::new();
        store.expect_invite().returning(move |_, _| Ok(Some(invite(status))));
        store
            .expect_set_status()
            .withf(|_, _, from, to| (*from, *to) == (InviteStatus::Pending, InviteStatus::Revoked))
            .returning(|_, _, _, _| Ok(WriteOutcome::Done));
        let revoked = invites(store, false).revoke(&tenant(Role::Admin), INVITE).await;
        match status {
            InviteStatus::Pending => revoked.unwrap(),
            _ => assert!(matches!(revoked, Err(TeamError::NotFound)), "{status}"),
        }
    }
    for outcome in [WriteOutcome::Missing, WriteOutcome::Stale(InviteStatus::Accepted)] {
        let mut late = MockInviteStore::new();
        late.expect_invite()
            .returning(|_, _| Ok(Some(invite(InviteStatus::Pending))));
        late.expect_set_status().returning(move |_, _, _, _| Ok(outcome));
        let revoked = invites(late, false).revoke(&tenant(Role::Admin), INVITE).await;
        assert!(matches!(revoked, Err(TeamError::NotFound)));
    }
}

fn presented(left: Duration) -> PresentedInvite {
    PresentedInvite {
        account_id: ACCOUNT,
        account: "Loja".into(),
        invite: Invite {
            expires_at: NOW + left,
            ..invite(InviteStatus::Pending)
        },
        invited_by: ANA,
        inviter_email: Some("ana@example.com".into()),
        now: NOW,
        is_member: false,
    }
}

fn presenting(presented: PresentedInvite) -> MockInviteStore {
    let mut store = MockInviteStore::new();
    store
        .expect_presented()
        .withf(|hash, user| hash == secret_hash(&SecretString::from("t0k3n")) && *user == BIA)
        .returning(move |_, _| Ok(Some(presented.clone())));
    store
}

async fn accept(store: MockInviteStore, email: &str, token: Option<&str>) -> Result<Accepted, TeamError> {
    let session = Session {
        email: email.into(),
        ..Session::for_tests(BIA, NOW)
    };
    let token = token.map(SecretString::from);
    Invitations::new(Arc::new(store))
        .accept(&session, token, Some("10.0.0.1".into()))
        .await
}

#[tokio::test]
async fn invite_acceptance_is_audited_with_the_joining_user() {
    let mut store = presenting(presented(Duration::HOUR));
    store.expect_accept().times(1).returning(|acceptance| {
        assert_eq!(acceptance.status, (InviteStatus::Pending, InviteStatus::Accepted));
        assert_eq!(
            (acceptance.account_id, acceptance.user, acceptance.role),
            (ACCOUNT, BIA, Role::Member)
        );
        let [Event::Audit(audit)] = acceptance.events.as_slice() else {
            panic!()
        };
        assert_eq!(
            (audit.action, audit.entity_type.as_str()),
            (AuditAction::Create, "account_user")
        );
        assert_eq!((audit.user_id, audit.entity_id), (Some(BIA), Some(BIA.0)));
        assert_eq!(audit.ip_address.as_deref(), Some("10.0.0.1"));
        let changes = json!({ "role": "member", "invited_by": ANA, "invited_by_email": "ana@example.com",
                              "invite_id": INVITE });
        assert_eq!(audit.changes, Some(changes));
        Ok(GuardOutcome::Done)
    });
    let accepted = accept(store, "bia@EXAMPLE.com", Some("t0k3n")).await.unwrap();
    let expected = json!({ "message": "You are now a member of Loja", "account_id": ACCOUNT, "role": "member" });
    assert_eq!(json!(accepted), expected);
    let published = json!(schemars::schema_for!(super::Accepted));
    let example = published["properties"]["message"]["examples"][0].clone();
    assert_eq!(example, format!("{} da Ana", accepted.message));
}

#[tokio::test]
async fn invite_acceptance_with_empty_or_unknown_token_fails() {
    for token in [None, Some(""), Some("  ")] {
        assert_eq!(
            fields(accept(MockInviteStore::new(), "bia@example.com", token).await),
            ["token"]
        );
    }
    let mut store = MockInviteStore::new();
    store.expect_presented().returning(|_, _| Ok(None));
    let unknown = accept(store, "bia@example.com", Some("x")).await;
    assert!(matches!(unknown, Err(TeamError::NotFound)));
}

#[tokio::test]
async fn expired_invite_is_marked_expired_and_refused() {
    let mut store = presenting(presented(Duration::ZERO));
    store
        .expect_expire()
        .withf(|_, _, from, to| (*from, *to) == (InviteStatus::Pending, InviteStatus::Expired))
        .times(1)
        .returning(|_, _, _, _| Ok(GuardOutcome::Done));
    assert_eq!(fields(accept(store, "bia@example.com", Some("t0k3n")).await), ["token"]);
}

#[tokio::test]
async fn invite_stays_pending_for_other_user_or_member() {
    let other = accept(presenting(presented(Duration::HOUR)), "caio@example.com", Some("t0k3n")).await;
    assert!(matches!(other, Err(TeamError::OtherAddress)));
    let inside = PresentedInvite {
        is_member: true,
        ..presented(Duration::HOUR)
    };
    assert_eq!(
        fields(accept(presenting(inside), "bia@example.com", Some("t0k3n")).await),
        ["token"]
    );
}

#[tokio::test]
async fn second_concurrent_acceptance_is_not_found() {
    let mut store = MockInviteStore::new();
    let reads = AtomicUsize::new(0);
    store.expect_presented().returning(move |_, _| {
        let first = reads.fetch_add(1, Ordering::SeqCst) == 0;
        Ok(first.then(|| presented(Duration::HOUR)))
    });
    store.expect_accept().times(1).returning(|_| Ok(GuardOutcome::Stale));
    let second = accept(store, "bia@example.com", Some("t0k3n")).await;
    assert!(matches!(second, Err(TeamError::NotFound)));
}
