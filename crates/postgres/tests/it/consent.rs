//! The consent that each writer's statement stores, compared with the domain's state machine.

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore};
use recado_domain::contacts::{ContactChange, ContactDraft, ContactStore, ContactUpsert};
use recado_domain::conversations::Consent;
use recado_domain::shared::ContactId;
use time::{Duration, OffsetDateTime};

use crate::contact_updates::update;
use crate::contacts::{add, draft, row, upserted};
use crate::status_updates::{in_flight, status_update};
use crate::support::{DbFixture, NOW, id};

const PHONE: &str = "+5511961234567";

/// The time of an SQL expression, with the precision of the database.
async fn time(fixture: &DbFixture, expression: &str, rest: &str) -> Option<OffsetDateTime> {
    let query = format!("SELECT ((extract(epoch FROM {expression}) * 1000000)::bigint)::text {rest}");
    let micros: i128 = fixture.text(&query).await?.parse().unwrap();
    Some(OffsetDateTime::from_unix_timestamp_nanos(micros * 1000).unwrap())
}

async fn now(fixture: &DbFixture) -> OffsetDateTime {
    time(fixture, "now()", "").await.unwrap()
}

async fn consent(fixture: &DbFixture, id: ContactId) -> Consent {
    let rest = format!("FROM contacts WHERE id = '{id}'");
    Consent {
        opted_out_at: time(fixture, "opted_out_at", &rest).await,
        changed_at: time(fixture, "consent_at", &rest).await,
    }
}

async fn set_consent(fixture: &DbFixture, id: ContactId, opted_out_at: &str, consent_at: &str) {
    let statement =
        format!("UPDATE contacts SET opted_out_at = {opted_out_at}, consent_at = {consent_at} WHERE id = '{id}'");
    fixture.sql(&statement).await;
}

fn draft_with_consent(opted_out: Option<bool>) -> ContactDraft {
    ContactDraft {
        opted_out,
        ..draft("Ana", Some(PHONE))
    }
}

/// The ways in which an account changes the consent of an existing contact.
#[derive(Clone, Copy, Debug)]
enum Writer {
    Put,
    Import,
    System,
}

async fn change_consent(fixture: &DbFixture, writer: Writer, contact: ContactId, opted_out: Option<bool>) {
    let (contacts, account, draft) = (fixture.contacts(), fixture.account, draft_with_consent(opted_out));
    match writer {
        Writer::Put => {
            let change = ContactChange {
                opted_out,
                ..ContactChange::default()
            };
            update(fixture, contact, &change, NOW).await;
        }
        Writer::Import => {
            let mut rows = [row("Ana", PHONE, &[])];
            rows[0].contact.opted_out = opted_out;
            assert_eq!(
                upserted(contacts.upsert(account, &[ContactId(id())], &rows, NOW).await).updated,
                1
            );
        }
        Writer::System => {
            let upsert = ContactUpsert {
                contact: draft,
                tag_ids: vec![],
                tags: vec![],
            };
            contacts
                .upsert_one(account, ContactId(id()), &upsert, NOW)
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn consent_statements_match_the_state_machine() {
    let fixture = DbFixture::new().await;
    let ana = add(&fixture, &draft_with_consent(None), &[]).await.id;
    assert_eq!(consent(&fixture, ana).await, Consent::default());
    let times = [
        "NULL",
        "timestamptz '2001-01-01 00:00:00.5Z'",
        "timestamptz '2101-01-01Z'",
    ];
    let states = times
        .iter()
        .flat_map(|out| times.iter().map(move |changed| (out, changed)));
    let writers = [
        (Writer::Put, Some(true)),
        (Writer::Put, Some(false)),
        (Writer::Put, None),
        (Writer::Import, Some(true)),
        (Writer::Import, None),
        (Writer::System, Some(true)),
        // An external system cannot opt a contact in.
        (Writer::System, Some(false)),
    ];
    for (out, changed) in states {
        for (writer, opted_out) in writers {
            set_consent(&fixture, ana, out, changed).await;
            let before = consent(&fixture, ana).await;
            let began = now(&fixture).await;
            change_consent(&fixture, writer, ana, opted_out).await;
            let after = consent(&fixture, ana).await;
            let context = format!("{before:?} {writer:?} {opted_out:?}");
            let decided = opted_out.filter(|out| *out || matches!(writer, Writer::Put));
            let Some(decided) = decided else {
                assert_eq!(after, before, "{context}");
                continue;
            };
            // A decision stores the current time; an opt-in rounds it down to the second.
            let ended = now(&fixture).await;
            let at = after.changed_at.filter(|at| *at <= ended);
            assert!(
                at.is_none_or(|at| at >= began - Duration::SECOND),
                "{context}: {after:?}"
            );
            assert_eq!(after, before.decided(decided, at.unwrap_or(ended)), "{context}");
        }
    }
}

#[tokio::test]
async fn contact_created_with_consent_stores_its_time() {
    let fixture = DbFixture::new().await;
    for opted_out in [true, false] {
        let began = now(&fixture).await;
        let created = add(&fixture, &draft_with_consent(Some(opted_out)), &[]).await.id;
        let stored = consent(&fixture, created).await;
        let at = stored.changed_at.unwrap();
        assert!(at >= began - Duration::SECOND && at <= now(&fixture).await);
        assert_eq!(stored, Consent::default().decided(opted_out, at));
        fixture.contacts().delete(fixture.account, created, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn opt_in_wins_over_an_opt_out_of_the_same_second() {
    let fixture = DbFixture::new().await;
    let ana = add(&fixture, &draft_with_consent(None), &[]).await.id;
    let second = "date_trunc('second', now())";
    set_consent(&fixture, ana, second, second).await;
    let before = consent(&fixture, ana).await;
    change_consent(&fixture, Writer::Put, ana, Some(false)).await;
    let after = consent(&fixture, ana).await;
    assert_eq!(after.opted_out_at, None);
    assert!(after.changed_at > before.changed_at);
}

/// WhatsApp reports error 131050 at least once. Older and repeated reports of an opted-out contact emit no event.
#[tokio::test]
async fn repeated_opt_outs_from_whatsapp_emit_one_event() {
    let (fixture, _, sends) = in_flight().await;
    crate::webhook_events::endpoint(&fixture, fixture.account, "{contact.updated}", true).await;
    let stopped = |seconds: i64| StatusUpdate {
        error_code: Some(131_050),
        at: NOW + Duration::seconds(seconds),
        ..status_update(Some(sends[0]), "m0", recado_domain::messaging::SendStatus::Failed)
    };
    let emitted = "SELECT count(*) FROM outbox_events WHERE payload->>'type' = 'contact.updated'";
    let contact = "FROM contacts WHERE opted_out_at IS NOT NULL";
    fixture
        .status_updates()
        .apply(fixture.account, &[stopped(0)])
        .await
        .unwrap();
    let updated = time(&fixture, "updated_at", contact).await;
    assert_eq!(fixture.number(emitted).await, 1);
    for seconds in [0, -5, 5, 5] {
        fixture
            .status_updates()
            .apply(fixture.account, &[stopped(seconds)])
            .await
            .unwrap();
    }
    assert_eq!(fixture.number(emitted).await, 1);
    assert_eq!(time(&fixture, "opted_out_at", contact).await, Some(NOW));
    assert_eq!(time(&fixture, "updated_at", contact).await, updated);
    assert_eq!(
        time(&fixture, "consent_at", contact).await,
        Some(NOW + Duration::seconds(5))
    );
}
