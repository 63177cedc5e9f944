//! Taking in a file of contacts: every line is checked, good ones are written in batches, bad ones are told by line.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::model::ContactDraft;
use super::service::check_name;
use super::{ContactError, ContactStore, CsvDecoder, ImportRow, Phone, Record, Upserted};
use crate::shared::{AccountId, Clock, ContactId, FieldErrors, Ids, Tenant, text};

/// How many lines a file may have.
pub const MAX_ROWS: u64 = 1_000_000;

/// How many lines are written together.
const BATCH_ROWS: usize = 1000;

/// How many faults are told.
const ERRORS_TOLD: usize = 100;

/// How many tags a line may have, and how long one may be.
const TAGS: usize = 50;
const TAG_CHARS: usize = 100;

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineError {
    /// The physical line, the header being 1.
    pub line: u64,
    /// What is wrong.
    pub message: String,
}

/// What became of a file, as published: `imported + updated + skipped` is the number of its lines after the header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// New contacts.
    pub imported: u64,
    /// Lines that changed a contact that was there, or that an earlier line had brought.
    pub updated: u64,
    /// Lines that were not taken.
    pub skipped: u64,
    /// The first 100 faults.
    pub errors: Vec<LineError>,
}

/// What a column of the file is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Phone,
    Email,
    Tags,
    Attribute(String),
}

/// One file being taken in. Feed it the body as it arrives; memory stays flat.
pub struct Import {
    store: Arc<dyn ContactStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    account: AccountId,
    decoder: CsvDecoder,
    columns: Option<Vec<Column>>,
    batch: Vec<ImportRow>,
    positions: HashMap<Phone, usize>,
    rows: u64,
    report: ImportReport,
}

impl Import {
    /// An import into the tenant's account.
    pub fn new(store: Arc<dyn ContactStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>, tenant: &Tenant) -> Self {
        Self {
            store,
            clock,
            ids,
            account: tenant.account_id,
            decoder: CsvDecoder::default(),
            columns: None,
            batch: Vec::with_capacity(BATCH_ROWS),
            positions: HashMap::with_capacity(BATCH_ROWS),
            rows: 0,
            report: ImportReport::default(),
        }
    }

    /// Takes the next piece of the file.
    pub async fn feed(&mut self, piece: &[u8]) -> Result<(), ContactError> {
        for record in self.decoder.feed(piece) {
            self.take(record).await?;
        }
        Ok(())
    }

    /// Ends the file and writes what is left.
    pub async fn finish(mut self) -> Result<ImportReport, ContactError> {
        if let Some(record) = self.decoder.finish() {
            self.take(record).await?;
        }
        if self.columns.is_none() {
            return Err(FieldErrors::one("body", "has no header line").into());
        }
        self.flush().await?;
        Ok(self.report)
    }

    async fn take(&mut self, record: Record) -> Result<(), ContactError> {
        let Some(columns) = &self.columns else {
            self.columns = Some(read_header(record)?);
            return Ok(());
        };
        self.rows += 1;
        let row = if self.rows > MAX_ROWS {
            Err(format!("is beyond the limit of {MAX_ROWS} lines"))
        } else {
            read_row(columns, record.cells)
        };
        match row {
            Ok(row) => self.keep(row),
            Err(message) => self.skip(record.line, message),
        }
        if self.batch.len() >= BATCH_ROWS {
            self.flush().await
        } else {
            Ok(())
        }
    }

    /// A number that the batch has already is an update of it: no batch writes one contact twice.
    fn keep(&mut self, row: ImportRow) {
        let Some(phone) = row.contact.phone.clone() else { return };
        match self
            .positions
            .get(&phone)
            .and_then(|position| self.batch.get_mut(*position))
        {
            Some(earlier) => {
                self.report.updated += 1;
                merge(earlier, row);
            }
            None => {
                self.positions.insert(phone, self.batch.len());
                self.batch.push(row);
            }
        }
    }

    fn skip(&mut self, line: u64, message: String) {
        self.report.skipped += 1;
        if self.report.errors.len() < ERRORS_TOLD {
            self.report.errors.push(LineError { line, message });
        }
    }

    async fn flush(&mut self) -> Result<(), ContactError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let ids: Vec<ContactId> = self.batch.iter().map(|_| self.ids.next().into()).collect();
        let written = self
            .store
            .upsert(self.account, &ids, &self.batch, self.clock.now())
            .await?;
        let Upserted { imported, updated } = written;
        self.report.imported += imported;
        self.report.updated += updated;
        self.batch.clear();
        self.positions.clear();
        Ok(())
    }
}

/// What the store would make of two lines of one number, one after the other.
fn merge(earlier: &mut ImportRow, later: ImportRow) {
    let contact = &mut earlier.contact;
    contact.name = later.contact.name;
    contact.email = later.contact.email.or(contact.email.take());
    contact.attributes.extend(later.contact.attributes);
    for tag in later.tags {
        if !earlier.tags.contains(&tag) {
            earlier.tags.push(tag);
        }
    }
}

fn read_header(record: Record) -> Result<Vec<Column>, FieldErrors> {
    let cells = record
        .cells
        .ok_or_else(|| FieldErrors::one("body", "has an unreadable header line"))?;
    let columns: Vec<Column> = cells.iter().map(|cell| read_column(cell)).collect();
    for required in [Column::Name, Column::Phone] {
        if columns.iter().filter(|column| **column == required).count() != 1 {
            return Err(FieldErrors::one(
                "body",
                "needs a header line with one column name and one column phone",
            ));
        }
    }
    Ok(columns)
}

fn read_column(cell: &str) -> Column {
    let title = cell.trim().trim_start_matches('\u{feff}');
    match title.to_lowercase().as_str() {
        "name" => Column::Name,
        "phone" => Column::Phone,
        "email" => Column::Email,
        "tags" => Column::Tags,
        _ => Column::Attribute(title.to_owned()),
    }
}

fn read_row(columns: &[Column], cells: Option<Vec<String>>) -> Result<ImportRow, String> {
    let cells = cells.ok_or("is too long, or is not UTF-8")?;
    if cells.len() > columns.len() {
        return Err("has more cells than the header line".to_owned());
    }
    let (mut name, mut phone, mut email, mut tags) = ("", "", "", "");
    let mut attributes = Map::new();
    for (column, cell) in columns.iter().zip(&cells) {
        let cell = cell.trim();
        if cell.contains('\0') {
            return Err("holds a NUL character".to_owned());
        }
        match column {
            Column::Name => name = cell,
            Column::Phone => phone = cell,
            Column::Email => email = cell,
            Column::Tags => tags = cell,
            Column::Attribute(title) if !title.is_empty() && !cell.is_empty() => {
                attributes.insert(title.clone(), Value::String(cell.to_owned()));
            }
            Column::Attribute(_) => {}
        }
    }
    // A spreadsheet export protects `+55...` with an apostrophe.
    let phone = phone.strip_prefix('\'').unwrap_or(phone);
    if phone.is_empty() {
        return Err("has no phone".to_owned());
    }
    let phone = Phone::parse(phone).ok_or("has a phone that is not a number of the plan")?;
    let name = check_name(name).ok_or("has no name, or one of more than 200 characters")?;
    let email = match email {
        "" => None,
        email => Some(text::email(email).ok_or("has an e-mail that is none")?),
    };
    Ok(ImportRow {
        contact: ContactDraft {
            name,
            phone: Some(phone),
            email,
            attributes,
        },
        tags: read_tags(tags)?,
    })
}

fn read_tags(cell: &str) -> Result<Vec<String>, String> {
    let mut tags: Vec<String> = Vec::new();
    for tag in cell
        .split(';')
        .map(crate::shared::text::sanitize)
        .filter(|tag| !tag.is_empty())
    {
        if tag.chars().count() > TAG_CHARS {
            return Err(format!("has a tag of more than {TAG_CHARS} characters"));
        }
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if tags.len() > TAGS {
        Err(format!("has more than {TAGS} tags"))
    } else {
        Ok(tags)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockContactStore;
    use super::*;
    use crate::shared::{MockClock, MockIds, Role, StoreError, UserId};

    /// Runs a file through an import whose store remembers the batches; a number seen before counts as updated.
    async fn import(file: &str) -> (Result<ImportReport, ContactError>, Vec<Vec<ImportRow>>) {
        let batches = Arc::new(Mutex::new(Vec::<Vec<ImportRow>>::new()));
        let seen = batches.clone();
        let mut store = MockContactStore::new();
        store.expect_upsert().returning(move |_, ids, rows, _| {
            let mut batches = seen.lock().unwrap();
            let known = |row: &&ImportRow| batches.iter().flatten().any(|r| r.contact.phone == row.contact.phone);
            let updated = u64::try_from(rows.iter().filter(known).count()).unwrap();
            batches.push(rows.to_vec());
            assert_eq!(ids.len(), rows.len());
            Ok(Upserted {
                imported: u64::try_from(rows.len()).unwrap() - updated,
                updated,
            })
        });
        let tenant = Tenant::for_tests(AccountId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)), Role::Member);
        let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant);
        for piece in file.as_bytes().chunks(4096) {
            if let Err(error) = import.feed(piece).await {
                return (Err(error), vec![]);
            }
        }
        let report = import.finish().await;
        let batches = batches.lock().unwrap().clone();
        (report, batches)
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
    async fn columns_in_any_order_and_the_rest_as_attributes() {
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
    async fn every_line_is_accounted_for_and_faults_name_their_line() {
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
    async fn batches_are_bounded_and_faults_told_up_to_a_hundred() {
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
    async fn a_file_without_its_header_changes_nothing() {
        for file in ["", "\n", "name,email\nAna,a@b.example\n", "name,phone,phone\n"] {
            let (report, batches) = import(file).await;
            assert!(matches!(report, Err(ContactError::Invalid(_))), "{file:?}");
            assert_eq!(batches.len(), 0);
        }
    }

    #[tokio::test]
    async fn a_failing_store_fails_the_import() {
        let mut store = MockContactStore::new();
        store
            .expect_upsert()
            .returning(|_, _, _, _| Err(StoreError::Corrupt("x".into())));
        let tenant = Tenant::for_tests(AccountId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)), Role::Member);
        let mut import = Import::new(Arc::new(store), clock(), ids(), &tenant);
        import.feed(b"name,phone\nAna,11961234567").await.unwrap();
        assert!(matches!(import.finish().await, Err(ContactError::Store(_))));
    }
}
