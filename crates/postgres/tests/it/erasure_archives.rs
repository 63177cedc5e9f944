//! Archives of campaigns whose sends are to an erased contact: attempts in progress, and the switch to another file.

use recado_domain::erasures::{
    ArchiveClaim, ArchiveReplacement, BatchEnd, ErasedArchive, ErasureArchives as _, ErasureClaim, ErasureQueue as _,
    ErasureStep,
};
use recado_domain::retention::{ArchiveStep, ArchiveStore as _, StoredArchive};
use recado_domain::shared::{ContactId, SendId};
use uuid::Uuid;

use crate::retention::{ended, file, horizon};
use crate::support::{DbFixture, LEASE, id};

/// The claim of the only erasure, at the step of archives.
async fn claim(fixture: &DbFixture) -> ErasureClaim {
    let step = ErasureStep::ArchivedSends.as_str();
    fixture
        .sql(&format!(
            "UPDATE erasures SET step = '{step}', due_at = now(), claim_id = NULL WHERE state = 'running'"
        ))
        .await;
    fixture.erasures().claim(id(), LEASE).await.unwrap().unwrap()
}

async fn contact_of(fixture: &DbFixture, send: SendId) -> ContactId {
    let query = format!("SELECT contact_id::text FROM campaign_sends WHERE id = '{}'", send.0);
    let contact: Uuid = fixture.text(&query).await.unwrap().parse().unwrap();
    contact.into()
}

async fn next(fixture: &DbFixture, claim: &ErasureClaim, key: Uuid) -> ArchiveClaim {
    fixture.erasures().next_archive(claim, key, LEASE).await.unwrap()
}

/// The file of an attempt that read the contact before the erasure is not verified. The next one reads no ids of it.
#[tokio::test]
async fn attempt_that_read_the_person_is_not_verified() {
    let (fixture, run, sends) = ended().await;
    let (retention, account, campaign) = (fixture.retention(), fixture.account, run.campaign_id);
    let ArchiveStep::Write(first) = retention.next(account, horizon(), id()).await.unwrap() else {
        panic!("no attempt")
    };
    let read = retention
        .sends(account, campaign, SendId(Uuid::nil()), 10)
        .await
        .unwrap();
    let contact = contact_of(&fixture, sends[1]).await;
    assert!(read.iter().any(|send| send.contact_id == Some(contact)));

    fixture.erase(account, contact).await;
    let claim = claim(&fixture).await;
    assert_eq!(next(&fixture, &claim, id()).await, ArchiveClaim::End(BatchEnd::Done));

    let completed = retention
        .complete(account, campaign, &file(first.key, 3))
        .await
        .unwrap();
    assert!(!completed);
    let ArchiveStep::Write(second) = retention.next(account, horizon(), id()).await.unwrap() else {
        panic!("no second attempt")
    };
    assert!(second.abandoned.contains(&first.key) && second.key != first.key);
    let read = retention
        .sends(account, campaign, SendId(Uuid::nil()), 10)
        .await
        .unwrap();
    let emptied: Vec<bool> = read
        .iter()
        .map(|send| (send.contact_id, send.wa_message_id.as_deref()) == (None, None))
        .collect();
    assert_eq!(emptied, [false, true, false]);
    assert!(
        retention
            .complete(account, campaign, &file(second.key, 3))
            .await
            .unwrap()
    );
}

/// An erasure of a contact without sends does not disturb an attempt.
#[tokio::test]
async fn attempt_without_the_person_goes_on() {
    let (fixture, run, _) = ended().await;
    let ArchiveStep::Write(task) = fixture
        .retention()
        .next(fixture.account, horizon(), id())
        .await
        .unwrap()
    else {
        panic!("no attempt")
    };
    let contact = fixture.person(fixture.account).await;
    fixture.erase(fixture.account, contact).await;
    let claim = claim(&fixture).await;
    next(&fixture, &claim, id()).await;
    let stored = file(task.key, 3);
    let retention = fixture.retention();
    let completed = retention.complete(fixture.account, run.campaign_id, &stored).await;
    assert!(completed.unwrap());
}

/// A verified archive, and an erasure of a contact in it.
async fn archived() -> (DbFixture, ErasureClaim, Uuid) {
    let (fixture, run, sends) = ended().await;
    let (retention, account) = (fixture.retention(), fixture.account);
    let ArchiveStep::Write(task) = retention.next(account, horizon(), id()).await.unwrap() else {
        panic!("no attempt")
    };
    assert!(
        retention
            .complete(account, run.campaign_id, &file(task.key, 3))
            .await
            .unwrap()
    );
    let contact = contact_of(&fixture, sends[1]).await;
    fixture.erase(account, contact).await;
    let claim = claim(&fixture).await;
    (fixture, claim, task.key)
}

fn archive(next: ArchiveClaim) -> ErasedArchive {
    match next {
        ArchiveClaim::Archive(archive) => archive,
        ArchiveClaim::End(end) => panic!("{end:?}"),
    }
}

fn replacement(key: Uuid) -> ArchiveReplacement {
    let stored = StoredArchive {
        size: 9,
        sha256: [2; 32],
    };
    ArchiveReplacement { key, stored, lines: 1 }
}

/// A worker that was killed before the switch, and one that was killed after it: the row names one file, and the keys of
/// the others until they are deleted.
#[tokio::test]
async fn killed_worker_leaves_the_keys_of_all_files() {
    let (fixture, claim, first) = archived().await;
    let erasures = fixture.erasures();
    let (killed, second) = (id(), id());
    let archive_before = archive(next(&fixture, &claim, killed).await);
    assert_eq!(
        (archive_before.path.key, archive_before.abandoned.as_slice()),
        (first, &[][..])
    );
    let again = archive(next(&fixture, &claim, second).await);
    assert_eq!(again.abandoned, [killed]);
    let replaced = erasures
        .replace_archive(&claim, &again, replacement(second), LEASE)
        .await;
    assert!(replaced.unwrap());
    // The file that was replaced is not there for another switch.
    let late = erasures
        .replace_archive(&claim, &again, replacement(killed), LEASE)
        .await;
    assert!(!late.unwrap());
    let after = archive(next(&fixture, &claim, id()).await);
    assert_eq!(
        (after.path.key, after.stored, after.abandoned),
        (second, replacement(second).stored, vec![first])
    );
    assert!(erasures.record_archive(&claim, after.campaign_id, LEASE).await.unwrap());
    let row = "SELECT (abandoned = '{}') || ' ' || size || ' ' || sends FROM campaign_archives";
    assert_eq!(fixture.text(row).await.as_deref(), Some("true 9 3"));
    assert_eq!(next(&fixture, &claim, id()).await, ArchiveClaim::End(BatchEnd::Done));
    let removed = fixture.text("SELECT removed ->> 'archived_sends' FROM erasures").await;
    assert_eq!(removed.as_deref(), Some("1"));
}

/// Of two erasures of an account the earlier one rewrites archives first; a lost claim rewrites none.
#[tokio::test]
async fn archives_are_rewritten_by_one_erasure_at_a_time() {
    let (fixture, first, _) = archived().await;
    let taken = archive(next(&fixture, &first, id()).await);
    let contact = fixture.person(fixture.account).await;
    fixture.erase(fixture.account, contact).await;
    fixture
        .sql(&format!(
            "UPDATE erasures SET due_at = now() + interval '1 hour' WHERE id = '{}'",
            first.id.0
        ))
        .await;
    let second = fixture.erasures().claim(id(), LEASE).await.unwrap().unwrap();
    fixture
        .sql(&format!(
            "UPDATE erasures SET step = 'archived_sends' WHERE id = '{}'",
            second.id.0
        ))
        .await;
    assert_eq!(next(&fixture, &second, id()).await, ArchiveClaim::End(BatchEnd::Wait));
    fixture.erasures().advance(&first, None).await.unwrap();
    archive(next(&fixture, &second, id()).await);
    let erasures = fixture.erasures();
    assert_eq!(next(&fixture, &first, id()).await, ArchiveClaim::End(BatchEnd::Lost));
    assert!(
        !erasures
            .replace_archive(&first, &taken, replacement(id()), LEASE)
            .await
            .unwrap()
    );
    assert!(!erasures.record_archive(&first, taken.campaign_id, LEASE).await.unwrap());
}
