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
    // The archive was claimed again, so the file of the first claim does not replace it.
    let early = erasures
        .replace_archive(&claim, &archive_before, replacement(killed), LEASE)
        .await;
    assert!(!early.unwrap());
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
    let recorded = erasures.record_archive(&claim, after.campaign_id, second, LEASE).await;
    assert!(recorded.unwrap());
    let row = "SELECT (abandoned = '{}') || ' ' || size || ' ' || sends FROM campaign_archives";
    assert_eq!(fixture.text(row).await.as_deref(), Some("true 9 3"));
    assert_eq!(next(&fixture, &claim, id()).await, ArchiveClaim::End(BatchEnd::Done));
    let removed = fixture.text("SELECT removed ->> 'archived_sends' FROM erasures").await;
    assert_eq!(removed.as_deref(), Some("1"));
}

/// The claim of a second erasure of the account, at the step of archives.
async fn claim_second(fixture: &DbFixture, first: &ErasureClaim, second_id: Uuid) -> ErasureClaim {
    let contact = fixture.person(fixture.account).await;
    let receipt = fixture.erase(fixture.account, contact).await;
    fixture
        .sql(&format!(
            "UPDATE erasures SET due_at = now() + interval '1 hour' WHERE id = '{}';
             UPDATE erasures SET step = 'archived_sends', id = '{second_id}' WHERE id = '{}'",
            first.id.0, receipt.id.0
        ))
        .await;
    fixture.erasures().claim(id(), LEASE).await.unwrap().unwrap()
}

/// The erasure that came first has the archives until it is done, whatever the order of the ids. Then the other one takes
/// the file that the first one wrote.
#[tokio::test]
async fn erasure_waits_for_the_one_that_has_the_archives() {
    for second_id in [Uuid::from_u128(1), Uuid::max()] {
        let (fixture, first, _) = archived().await;
        let (erasures, written) = (fixture.erasures(), id());
        let taken = archive(next(&fixture, &first, written).await);
        let second = claim_second(&fixture, &first, second_id).await;
        let waits = ArchiveClaim::End(BatchEnd::Wait);
        assert_eq!(next(&fixture, &second, id()).await, waits);
        let replaced = erasures
            .replace_archive(&first, &taken, replacement(written), LEASE)
            .await;
        assert!(replaced.unwrap());
        assert_eq!(next(&fixture, &second, id()).await, waits);
        let recorded = erasures.record_archive(&first, taken.campaign_id, written, LEASE).await;
        assert!(recorded.unwrap());
        assert_eq!(next(&fixture, &first, id()).await, ArchiveClaim::End(BatchEnd::Done));
        assert_eq!(next(&fixture, &second, id()).await, waits);
        assert!(erasures.advance(&first, None).await.unwrap());
        let after = archive(next(&fixture, &second, id()).await);
        assert_eq!(
            (after.path.key, after.sends, after.abandoned),
            (written, 3, vec![]),
            "{second_id}"
        );
    }
}

/// Two erasures have the same archive all the same: the later claim alone replaces the file, and the other one records
/// nothing of the file that it read.
#[tokio::test]
async fn archive_is_replaced_by_its_last_claim_alone() {
    let (fixture, first, _) = archived().await;
    let (erasures, early, late) = (fixture.erasures(), id(), id());
    let taken = archive(next(&fixture, &first, early).await);
    let second = claim_second(&fixture, &first, Uuid::from_u128(1)).await;
    fixture
        .sql(&format!(
            "UPDATE erasures SET after = '{}' WHERE id = '{}'",
            Uuid::nil(),
            second.id.0
        ))
        .await;
    let taken_again = archive(next(&fixture, &second, late).await);
    assert_eq!(taken_again.abandoned, [early]);
    let replaced = erasures
        .replace_archive(&first, &taken, replacement(early), LEASE)
        .await;
    assert!(!replaced.unwrap());
    assert!(erasures.has_file(taken.campaign_id, &taken.path).await.unwrap());
    let replaced = erasures
        .replace_archive(&second, &taken_again, replacement(late), LEASE)
        .await;
    assert!(replaced.unwrap());
    assert!(!erasures.has_file(taken.campaign_id, &taken.path).await.unwrap());
    // The first erasure begins again with the archive, and deletes the file that was replaced.
    let recorded = erasures
        .record_archive(&first, taken.campaign_id, taken.path.key, LEASE)
        .await;
    assert!(recorded.unwrap());
    let again = archive(next(&fixture, &first, id()).await);
    assert_eq!(
        (again.campaign_id, again.path.key, again.abandoned),
        (taken.campaign_id, late, vec![taken.path.key])
    );
}

#[tokio::test]
async fn lost_claim_rewrites_no_archive() {
    let (fixture, first, _) = archived().await;
    let taken = archive(next(&fixture, &first, id()).await);
    let second = claim_second(&fixture, &first, Uuid::max()).await;
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
    let recorded = erasures
        .record_archive(&first, taken.campaign_id, taken.path.key, LEASE)
        .await;
    assert!(!recorded.unwrap());
}
