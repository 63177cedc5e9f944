//! Tests of whole files with a store that records its batches.

mod user_ids;

use std::sync::Mutex;

use proptest::prelude::*;
use serde_json::json;
use time::macros::datetime;
use uuid::Uuid;

use super::super::{BatchOutcome, ContactError, ImportRow, MockContactStore, RefusedRow, RowRefusal, Upserted};
use super::*;
use crate::shared::{AccountId, Clock, Ids, MockClock, MockIds, Role, StoreError, Tenant, UserId};

type Outcome = (Result<ImportReport, ContactError>, Vec<Vec<ImportRow>>);

/// Runs a CSV file through an import.
async fn import(file: &str) -> Outcome {
    import_as(ImportFormat::Csv, file.as_bytes(), 4096).await
}

/// Imports a file and returns the report and the written batches. A repeated phone number counts as updated.
async fn import_as(format: ImportFormat, file: &[u8], chunk_size: usize) -> Outcome {
    let batches = Arc::new(Mutex::new(Vec::<Vec<ImportRow>>::new()));
    let seen = batches.clone();
    let mut store = MockContactStore::new();
    store.expect_upsert().returning(move |_, ids, rows, _| {
        let mut batches = seen.lock().unwrap();
        let is_update = |row: &&ImportRow| batches.iter().flatten().any(|r| r.contact.phone == row.contact.phone);
        let updated = u64::try_from(rows.iter().filter(is_update).count()).unwrap();
        batches.push(rows.to_vec());
        assert_eq!(ids.len(), rows.len());
        Ok(BatchOutcome::Written(Upserted {
            imported: u64::try_from(rows.len()).unwrap() - updated,
            updated,
        }))
    });
    let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant(), format);
    for chunk in file.chunks(chunk_size) {
        if let Err(error) = import.feed(chunk).await {
            return (Err(error), vec![]);
        }
    }
    let report = import.finish().await;
    let batches = batches.lock().unwrap().clone();
    (report, batches)
}

fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)), Role::Member)
}

fn clock() -> Arc<dyn Clock> {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
    Arc::new(clock)
}

fn ids() -> Arc<dyn Ids> {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(1));
    Arc::new(ids)
}

#[tokio::test]
async fn csv_import_reads_columns_in_any_order() {
    let (report, batches) =
        import("tags,Phone,cupom,name,email\nvip; novo ;vip,'+5511961234567,X5,Ana,a@b.example\n").await;
    assert_eq!(
        report.unwrap(),
        ImportReport {
            imported: 1,
            ..ImportReport::default()
        }
    );
    let row = &batches[0][0];
    assert_eq!(row.tags, ["vip", "novo"]);
    assert_eq!(row.contact.phone.as_ref().unwrap().as_str(), "+5511961234567");
    assert_eq!(row.contact.attributes["cupom"], "X5");
    assert_eq!(row.contact.email.as_deref(), Some("a@b.example"));
}

#[tokio::test]
async fn csv_import_removes_only_the_apostrophe_before_a_plus() {
    let file = "name,phone,email,tags,contato,nota\n\
                '+Ana,'+5511961234567,'+a@b.example,'+vip;'+x, '+55 11 3333 ,'=1\n'Bia,+5511961234568,,'vip,'',''+1\n";
    let (report, batches) = import(file).await;
    assert_eq!(messages(&report.unwrap()), []);
    let (ana, bia) = (&batches[0][0], &batches[0][1]);
    assert_eq!((ana.contact.name.as_str(), bia.contact.name.as_str()), ("+Ana", "'Bia"));
    assert_eq!(ana.contact.email.as_deref(), Some("+a@b.example"));
    assert_eq!(
        (&ana.tags[..], &bia.tags[..]),
        (&["+vip".into(), "'+x".into()][..], &["'vip".into()][..])
    );
    assert_eq!(
        json!(ana.contact.attributes),
        json!({ "contato": "+55 11 3333", "nota": "'=1" })
    );
    assert_eq!(
        json!(bia.contact.attributes),
        json!({ "contato": "''", "nota": "''+1" })
    );
}

#[tokio::test]
async fn csv_import_reports_invalid_lines_by_number() {
    let file = "name,phone,email\nAna,11961234567,\n,11961234568,\nBia,961234567,\nCaio,,\n\"Du\no\",11961234569,x@\n\
                Eva,551161234567,e@b.example\nTo,11961234560,,extra\n";
    let (report, batches) = import(file).await;
    let report = report.unwrap();
    assert_eq!((report.imported, report.updated, report.skipped), (1, 1, 5));
    let lines: Vec<u64> = report.errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 9]);
    let merged = &batches[0][0].contact;
    assert_eq!(
        (merged.name.as_str(), merged.email.as_deref()),
        ("Eva", Some("e@b.example"))
    );
}

#[tokio::test]
async fn import_bounds_batches_and_reported_errors() {
    let mut file = String::from("name,phone\n");
    for number in 0..2500 {
        file.push_str(&format!("N,119{number:08}\nbad,1\n"));
    }
    let (report, batches) = import(&file).await;
    let report = report.unwrap();
    assert_eq!(
        (report.imported, report.skipped, report.errors.len()),
        (2500, 2500, 100)
    );
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1000, 500]);
}

#[tokio::test]
async fn csv_import_without_header_is_rejected() {
    for file in [
        "",
        "\n",
        "name,email\nAna,a@b.example\n",
        "name,phone,phone\n",
        "name,wa_user_id,phone,WA_USER_ID\n",
        "name,phone,a\0b\nAna,11961234567,x\n",
    ] {
        let (report, batches) = import(file).await;
        assert!(matches!(report, Err(ContactError::Invalid(_))), "{file:?}");
        assert_eq!(batches.len(), 0);
    }
}

#[tokio::test]
async fn import_fails_if_the_store_fails() {
    let mut store = MockContactStore::new();
    store
        .expect_upsert()
        .returning(|_, _, _, _| Err(StoreError::Corrupt("x".into())));
    let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant(), ImportFormat::Csv);
    import.feed(b"name,phone\nAna,11961234567").await.unwrap();
    assert!(matches!(import.finish().await, Err(ContactError::Store(_))));
}

/// The errors of the skipped lines, in order.
fn messages(report: &ImportReport) -> Vec<(u64, &str)> {
    let line_and_message = |error: &LineError| (error.line, error.message.clone());
    assert_eq!(report.errors.len(), usize::try_from(report.skipped).unwrap());
    let errors: Vec<(u64, String)> = report.errors.iter().map(line_and_message).collect();
    assert!(errors.is_sorted_by_key(|(line, _)| *line));
    report
        .errors
        .iter()
        .map(|error| (error.line, error.message.as_str()))
        .collect()
}

#[tokio::test]
async fn json_import_reads_contacts_and_attributes() {
    let file = r#"{"name":" João  <i>S.</i> ","phone":"(11) 96123-4567","email":"j@loja.example","tags":["vip"," a;b "],
"cidade":"São Paulo"}
{"phone":"'+5511961234567","name":"João","tags":"vip; novo","cidade":"Santos","pontos":3.5,"ativo":true,"nada":null,"lista":[1],
"#;
    // An object over two lines is two invalid lines.
    let (report, _) = import_as(ImportFormat::JsonLines, file.as_bytes(), 7).await;
    assert_eq!(messages(&report.unwrap()).len(), 3);
    let whole = json!({ "name": " João  <i>S.</i> ", "phone": "(11) 96123-4567", "email": "j@loja.example",
        "tags": ["vip", " novo "], "cidade": "São Paulo", "pontos": 3.5, "ativo": true, "nada": null, "lista": [1],
        "attributes": { "cidade": "Santos", "cupom": null }, "opted_out": true, "id": "x", "created_at": "y",
        "wa_user_id": null, "opted_out_at": null });
    let (report, batches) = import_as(ImportFormat::JsonLines, format!("\u{feff}{whole}\r\n\n").as_bytes(), 5).await;
    assert_eq!(report.unwrap().imported, 1);
    let ImportRow { contact, tags } = batches[0][0].clone();
    assert_eq!(
        (contact.name.as_str(), tags),
        ("João S.", vec!["vip".to_owned(), "novo".to_owned()])
    );
    assert_eq!(
        (contact.email.as_deref(), contact.opted_out),
        (Some("j@loja.example"), Some(true))
    );
    let expected = json!({ "cidade": "Santos", "cupom": null, "pontos": 3.5, "ativo": true });
    assert_eq!(json!(contact.attributes), expected);
}

#[tokio::test]
async fn json_import_reports_every_kind_of_error() {
    let long = format!(r#"{{"name":"A","phone":"11961234567","x":"{}"}}"#, "x".repeat(70_000));
    let many: String = (0..101).map(|n| format!(",\"a{n}\":1")).collect();
    let invalid_lines = [
        (r#"{"name":"A","phone":"11961234567""#, "line is not valid JSON"),
        (r#"[{"name":"A","phone":"11961234567"}]"#, "line is not a JSON object"),
        (
            r#"{"name":"A\u0000","phone":"11961234567"}"#,
            "line contains a NUL character",
        ),
        (
            r#"{"name":"A","phone":"11961234567","a\u0000":1}"#,
            "line contains a NUL character",
        ),
        (r#"{"name":7,"phone":"11961234567"}"#, "name must be a string"),
        (r#"{"name":"A"}"#, "has neither phone nor wa_user_id"),
        (r#"{"name":"A","wa_user_id":1}"#, "wa_user_id must be a string"),
        (
            r#"{"name":"A","wa_user_id":"BR-1"}"#,
            "wa_user_id is not a valid WhatsApp user id",
        ),
        (
            r#"{"name":"A","phone":"11961234567","tag_ids":[]}"#,
            "tag_ids cannot be imported; leave it out",
        ),
        (
            r#"{"name":"A","phone":"11961234567","tags":[{}]}"#,
            "tags must be a list of strings, or one string with names separated by semicolons",
        ),
        (
            r#"{"name":"A","phone":"11961234567","opted_out":"yes"}"#,
            "opted_out must be true or false",
        ),
        (r#"{"phone":"11961234567"}"#, "name must have 1 to 200 characters"),
        (long.as_str(), "line must have at most 65536 bytes"),
    ];
    let mut file: String = invalid_lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    file.push_str(&format!("{{\"name\":\"A\",\"phone\":\"11961234567\"{many}}}\n"));
    file.push_str("{\"name\":\"Ana\",\"phone\":\"11961234567\"}");
    let (report, batches) = import_as(ImportFormat::JsonLines, file.as_bytes(), 1000).await;
    let report = report.unwrap();
    let errors: Vec<(u64, &str)> = messages(&report);
    for (number, (line, message)) in (1_u64..).zip(invalid_lines) {
        assert_eq!(
            errors[usize::try_from(number).unwrap() - 1],
            (number, message),
            "{line:.60}"
        );
    }
    assert_eq!(
        errors[13],
        (14, "attributes must have at most 100 values and 16384 bytes in total")
    );
    assert_eq!((report.imported, report.skipped, batches[0].len()), (1, 14, 1));
    let (empty, _) = import_as(ImportFormat::JsonLines, b"\n \n", 1).await;
    assert_eq!(empty.unwrap(), ImportReport::default());
}

#[tokio::test]
async fn import_keeps_an_earlier_opt_out() {
    let file = "{\"name\":\"A\",\"phone\":\"11961234567\",\"opted_out\":true}\n\
                {\"name\":\"B\",\"phone\":\"1161234567\",\"opted_out\":false}\n";
    let (report, batches) = import_as(ImportFormat::JsonLines, file.as_bytes(), 9).await;
    assert_eq!(report.unwrap().updated, 1);
    assert_eq!(
        (batches[0][0].contact.name.as_str(), batches[0][0].contact.opted_out),
        ("B", Some(true))
    );
}

/// The refusal of a batch's first row.
fn refused(reason: RowRefusal) -> BatchOutcome {
    BatchOutcome::Refused(vec![RefusedRow { position: 0, reason }])
}

/// A store whose only contact has this many attributes, and the batches that it received.
fn store_with(attributes: usize) -> (MockContactStore, Arc<Mutex<Vec<Vec<ImportRow>>>>) {
    let batches = Arc::new(Mutex::new(Vec::<Vec<ImportRow>>::new()));
    let (seen, stored) = (batches.clone(), Mutex::new(wide("a", attributes)));
    let mut store = MockContactStore::new();
    store.expect_upsert().returning(move |_, _, rows, _| {
        seen.lock().unwrap().push(rows.to_vec());
        let mut stored = stored.lock().unwrap();
        let mut merged = stored.clone();
        merged.extend(rows[0].contact.attributes.clone());
        if merged.len() > 100 {
            let attributes = stored.clone();
            return Ok(refused(RowRefusal::Attributes(attributes)));
        }
        *stored = merged;
        Ok(BatchOutcome::Written(Upserted {
            imported: u64::try_from(rows.len()).unwrap() - 1,
            updated: 1,
        }))
    });
    (store, batches)
}

fn wide(prefix: &str, count: usize) -> serde_json::Map<String, serde_json::Value> {
    (0..count).map(|n| (format!("{prefix}{n}"), json!("x"))).collect()
}

fn wide_line(name: &str, count: usize) -> String {
    format!(
        "{}\n",
        json!({ "name": name, "phone": "11961234567", "attributes": wide(name, count) })
    )
}

#[tokio::test]
async fn import_skips_lines_beyond_the_attribute_limits() {
    let (store, batches) = store_with(60);
    let file = [
        wide_line("b", 30),
        wide_line("c", 30),
        "bad\n".to_owned(),
        wide_line("d", 10),
        "{\"name\":\"Bia\",\"phone\":\"11961234568\"}\n".to_owned(),
    ];
    let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant(), ImportFormat::JsonLines);
    import.feed(file.concat().as_bytes()).await.unwrap();
    let report = import.finish().await.unwrap();
    let rule = "attributes merged with the stored ones must have at most 100 values and 16384 bytes in total";
    assert_eq!(messages(&report), [(2, rule), (3, "line is not valid JSON")]);
    assert_eq!((report.imported, report.updated, report.skipped), (1, 2, 2));
    // The first batch has all lines. The second lacks the rejected one.
    let batches = batches.lock().unwrap();
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(batches[1][0].contact.attributes.len(), 40);
    assert_eq!(batches[1][0].contact.name, "d");
}

#[tokio::test]
async fn import_splits_oversized_lines_of_one_number() {
    let (store, batches) = store_with(0);
    let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant(), ImportFormat::JsonLines);
    let file = [wide_line("b", 60), wide_line("c", 60), wide_line("d", 40)].concat();
    import.feed(file.as_bytes()).await.unwrap();
    let report = import.finish().await.unwrap();
    assert_eq!(messages(&report).len(), 1);
    assert_eq!(
        (report.imported, report.updated, report.skipped, report.errors[0].line),
        (0, 2, 1, 2)
    );
    let sizes = batches
        .lock()
        .unwrap()
        .iter()
        .map(|rows| rows[0].contact.attributes.len())
        .collect::<Vec<_>>();
    assert_eq!(sizes, [60, 100, 40]);
}

/// A store that always rejects a row, because its contact changes concurrently, does not block the import.
#[tokio::test]
async fn import_skips_rows_rejected_after_a_concurrent_change() {
    let mut store = MockContactStore::new();
    store.expect_upsert().times(1).returning(|_, _, _, _| {
        let attributes = wide("a", 1);
        Ok(refused(RowRefusal::Attributes(attributes)))
    });
    let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant(), ImportFormat::JsonLines);
    let file = [wide_line("b", 1), wide_line("c", 1)].concat();
    import.feed(file.as_bytes()).await.unwrap();
    assert_eq!(messages(&import.finish().await.unwrap()).len(), 2);
}

/// One row of a random file.
#[derive(Clone, Debug)]
enum Row {
    /// A valid row with this name and the phone number of this index.
    Good(String, u32),
    NoName(u32),
    NoPhone(String),
    WrongPhone(String),
    Nul(u32),
    Overlong(u32),
    /// An empty line.
    EmptyLine,
}

fn row() -> impl Strategy<Value = Row> {
    // In Windows-1252, none of these characters is a UTF-8 continuation byte.
    let name = "[A-Za-z][a-zàáâãçéêíóôõúü ]{0,11}[a-z]";
    prop_oneof![
        6 => (name, 0..30_u32).prop_map(|(name, number)| Row::Good(name, number)),
        1 => (0..30_u32).prop_map(Row::NoName),
        1 => name.prop_map(Row::NoPhone),
        1 => name.prop_map(Row::WrongPhone),
        1 => (0..30_u32).prop_map(Row::Nul),
        1 => (0..30_u32).prop_map(Row::Overlong),
        1 => Just(Row::EmptyLine),
    ]
}

impl Row {
    /// Returns the name and phone number as the file has them, or `None` for an empty line.
    fn cells(&self) -> Option<(String, String)> {
        let phone = |number: &u32| match number % 3 {
            0 => format!("11961{number:06}"),
            1 => format!("+55 11 6100-{number:04}"),
            _ => format!("(11) 96100-{number:04}"),
        };
        Some(match self {
            Self::Good(name, number) => (name.clone(), phone(number)),
            Self::NoName(number) => (String::new(), phone(number)),
            Self::NoPhone(name) => (name.clone(), String::new()),
            Self::WrongPhone(name) => (name.clone(), "961234567".to_owned()),
            Self::Nul(number) => ("A\0".to_owned(), phone(number)),
            Self::Overlong(number) => ("x".repeat(70_000), phone(number)),
            Self::EmptyLine => return None,
        })
    }

    fn csv(&self, separator: char) -> String {
        let Some((name, phone)) = self.cells() else {
            return "\r\n".to_owned();
        };
        // A quoted cell with a separator and a line break.
        format!("{phone}{separator}\"{name}\"{separator}\"a{separator}\n\"\"b\"\n")
    }

    fn json(&self) -> String {
        match self.cells() {
            None => " \n".to_owned(),
            Some((name, phone)) => format!("{}\n", json!({ "name": name, "phone": phone, "obs": "a\nb" })),
        }
    }
}

fn encoded(text: &str, encoding: u8) -> Vec<u8> {
    match encoding {
        0 => text.as_bytes().to_vec(),
        1 => [b"\xef\xbb\xbf", text.as_bytes()].concat(),
        _ => text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In every format, encoding and chunk size, each row is counts and each valid row is written.
    #[test]
    fn import_counts_every_row(
        rows in prop::collection::vec(row(), 0..40), form in 0..3_u8, encoding in 0..3_u8, chunk_size in 1..5000_usize,
    ) {
        let (format, text) = match form {
            0 => (ImportFormat::JsonLines, rows.iter().map(Row::json).collect::<String>()),
            _ => {
                let separator = if form == 1 { ',' } else { ';' };
                let head = format!("phone{separator}Name{separator}obs\n");
                (ImportFormat::Csv, head + &rows.iter().map(|row| row.csv(separator)).collect::<String>())
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (report, batches) = runtime.block_on(import_as(format, &encoded(&text, encoding), chunk_size));
        let report = report.unwrap();
        let written = rows.iter().filter(|row| !matches!(row, Row::EmptyLine)).count();
        let good: Vec<(&String, u32)> = rows.iter().filter_map(|row| match row {
            Row::Good(name, number) => Some((name, *number)),
            _ => None,
        }).collect();
        let distinct_contacts: std::collections::BTreeSet<u32> = good.iter().map(|(_, number)| *number).collect();
        let counts = [report.imported, report.updated, report.skipped].map(|count| usize::try_from(count).unwrap());
        prop_assert_eq!(counts, [distinct_contacts.len(), good.len() - distinct_contacts.len(), written - good.len()]);
        prop_assert_eq!(messages(&report).len(), written - good.len());
        let names: Vec<String> = batches.iter().flatten().map(|row| row.contact.name.clone()).collect();
        let expected: Vec<String> = last_names(&good);
        prop_assert_eq!(names, expected);
    }
}

/// The name in each contact's last row, in the order of their first rows.
fn last_names(good: &[(&String, u32)]) -> Vec<String> {
    let mut order: Vec<u32> = Vec::new();
    for (_, number) in good {
        if !order.contains(number) {
            order.push(*number);
        }
    }
    let last = |number: &u32| good.iter().rev().find(|(_, other)| other == number).unwrap().0;
    order
        .iter()
        .map(|number| crate::shared::text::sanitize(last(number)))
        .collect()
}
