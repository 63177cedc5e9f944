//! Tests of the fetch of files, their types and their paths.

use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::*;

const WRITTEN: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

fn facts(attempts: u16, mismatches: u16) -> FetchFacts {
    FetchFacts {
        attempts,
        mismatches,
        written_at: WRITTEN,
    }
}

#[test]
fn fetch_is_retried_by_its_schedule_for_seven_days() {
    let (mut now, mut attempts, mut delays) = (WRITTEN, 0, Vec::new());
    let end = loop {
        match decide(facts(attempts, 0), FetchOutcome::Unavailable, now) {
            FetchDecision::Retry {
                due_at,
                attempts: next,
                mismatches: 0,
            } => {
                delays.push((due_at - now).whole_seconds());
                assert_eq!(next, attempts + 1);
                (now, attempts) = (due_at, next);
            }
            decision => break decision,
        }
    };
    assert_eq!(delays[..7], [5, 30, 120, 600, 3600, 3600, 3600]);
    assert_eq!((end, now), (FetchDecision::Expired, WRITTEN + Duration::days(7)));
    assert!(is_over(WRITTEN, now) && !is_over(WRITTEN, now - Duration::MICROSECOND));
}

#[test]
fn third_content_with_a_wrong_hash_ends_the_fetch() {
    let mismatch = |mismatches| decide(facts(4, mismatches), FetchOutcome::Mismatch, WRITTEN);
    for known in [0, 1] {
        let FetchDecision::Retry { mismatches, .. } = mismatch(known) else {
            panic!("ended early")
        };
        assert_eq!(mismatches, known + 1);
    }
    assert_eq!(mismatch(2), FetchDecision::Failed(FileFailure::HashMismatch));
}

#[test]
fn permanent_failures_have_their_reason() {
    for (outcome, reason) in [
        (FetchOutcome::TooLarge, FileFailure::TooLarge),
        (FetchOutcome::Refused, FileFailure::Refused),
        (FetchOutcome::Host, FileFailure::Host),
    ] {
        assert_eq!(decide(facts(0, 0), outcome, WRITTEN), FetchDecision::Failed(reason));
    }
}

#[test]
fn failed_store_is_no_failed_attempt() {
    let FetchDecision::Retry { attempts, .. } = decide(facts(3, 1), FetchOutcome::StoreFailed, WRITTEN) else {
        panic!("ended")
    };
    assert_eq!(attempts, 3);
    let late = WRITTEN + FETCH_FOR;
    assert_eq!(
        decide(facts(3, 1), FetchOutcome::StoreFailed, late),
        FetchDecision::Expired
    );
}

fn archive(names: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend_from_slice(b"PK\x03\x04");
        bytes.extend_from_slice(&[0; 26]);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b"(content)");
    }
    bytes
}

#[test]
fn file_type_is_found_in_the_content() {
    use MessageFileType as T;
    let ogg = [b"OggS".as_slice(), &[0; 24], b"OpusHead"].concat();
    let vorbis = [b"OggS".as_slice(), &[0; 24], b"\x01vorbis"].concat();
    for (head, name, expected) in [
        (b"\xFF\xD8\xFF\xE0".to_vec(), "", Some(T::Jpeg)),
        (b"\x89PNG\r\n\x1A\n".to_vec(), "a.jpg", Some(T::Png)),
        (b"RIFF\0\0\0\0WEBPVP8 ".to_vec(), "", Some(T::Webp)),
        (b"\0\0\0\x18ftypisom".to_vec(), "", Some(T::Mp4)),
        (b"\0\0\0\x18ftyp3gp4".to_vec(), "", Some(T::ThreeGpp)),
        (b"\0\0\0\x18ftypM4A ".to_vec(), "", Some(T::Mp4Audio)),
        (b"\0\0\0\x18ftypheic".to_vec(), "", None),
        (b"\xFF\xF1\x50\x80".to_vec(), "", Some(T::Aac)),
        (b"#!AMR\n".to_vec(), "", Some(T::Amr)),
        (b"ID3\x04".to_vec(), "", Some(T::Mpeg)),
        (b"\xFF\xFB\x90\x00".to_vec(), "", Some(T::Mpeg)),
        (ogg, "", Some(T::Ogg)),
        (vorbis, "", None),
        (b"%PDF-1.7".to_vec(), "", Some(T::Pdf)),
        ("Olá,\n\tmundo".as_bytes().to_vec(), "", Some(T::Text)),
        (OLE_HEAD.to_vec(), "plano.XLS", Some(T::Excel)),
        (OLE_HEAD.to_vec(), "", Some(T::Word)),
        (
            archive(&["[Content_Types].xml", "word/document.xml"]),
            "",
            Some(T::WordXml),
        ),
        (archive(&["xl/workbook.xml"]), "a.docx", Some(T::ExcelXml)),
        (
            archive(&["_rels/.rels", "ppt/presentation.xml"]),
            "",
            Some(T::PowerPointXml),
        ),
        (archive(&["virus.exe"]), "a.docx", None),
        (b"MZ\x90\x00".to_vec(), "a.pdf", None),
        (Vec::new(), "a.txt", None),
    ] {
        assert_eq!(T::detect(&head, name), expected, "{:?}", String::from_utf8_lossy(&head));
    }
    let mut long = "a".repeat(SNIFFED_FILE_BYTES - 1).into_bytes();
    long.push("é".as_bytes()[0]);
    assert_eq!(T::detect(&long, ""), Some(T::Text), "a character is cut off");
}

const OLE_HEAD: &[u8] = b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1\0\0";

#[test]
fn upload_limits_are_those_of_whatsapp() {
    let limit = |kind: MessageFileType| kind.limit();
    assert_eq!(limit(MessageFileType::Png), 5_242_880);
    assert_eq!(limit(MessageFileType::ThreeGpp), 16_777_216);
    assert_eq!(limit(MessageFileType::Ogg), 16_777_216);
    assert_eq!(limit(MessageFileType::Webp), 512_000);
    assert_eq!(limit(MessageFileType::WordXml), 104_857_600);
    assert_eq!(MessageFileType::largest(), 104_857_600);
}

#[test]
fn message_file_path_is_no_public_path() {
    let path = MessageFilePath {
        account_id: AccountId(Uuid::nil()),
        key: Uuid::nil(),
    };
    assert_eq!(path.to_string().split('/').count(), 3);
    assert!(path.to_string().parse::<crate::media::MediaPath>().is_err());
}
