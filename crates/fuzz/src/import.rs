//! `Import`: a file gives the same contacts and the same report in chunks of any size, and every row is counted once.

use std::iter;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use recado_domain::contacts::{
    BatchOutcome, ContactError, Import, ImportFormat, ImportReport, ImportRow, MockContactStore, Upserted,
};
use recado_domain::shared::{AccountId, MockClock, MockIds, Role, Tenant, UserId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::control;

/// The most errors of a report.
const MAX_REPORTED_ERRORS: usize = 100;

/// The most rows of a batch.
const MAX_BATCH_ROWS: usize = 1000;

type Batches = Vec<Vec<ImportRow>>;

/// The first byte chooses the format and, divided by two, the size of the chunks. The rest is the file.
pub(super) fn run(input: &[u8]) {
    let (choice, file) = control(input);
    let format = match choice % 2 {
        0 => ImportFormat::Csv,
        _ => ImportFormat::JsonLines,
    };
    let at_once = import(format, iter::once(file));
    let in_chunks = import(format, file.chunks(1 + choice / 2));
    assert_eq!(format!("{:?}", in_chunks.0), format!("{:?}", at_once.0));
    let (Ok(report), batches) = at_once else {
        return;
    };
    assert_eq!(in_chunks.1, batches);
    let lines = file.split(|byte| matches!(byte, b'\n' | b'\r')).count();
    let rows = report.imported + report.updated + report.skipped;
    assert!(
        usize::try_from(rows).is_ok_and(|rows| rows <= lines),
        "{rows} rows of {lines} lines"
    );
    assert!(report.errors.len() <= MAX_REPORTED_ERRORS);
    assert!(report.errors.is_sorted_by_key(|error| error.line));
    for batch in &batches {
        assert!(batch.len() <= MAX_BATCH_ROWS);
        assert!(
            batch
                .iter()
                .all(|row| row.contact.phone.is_some() || row.contact.wa_user_id.is_some())
        );
    }
}

fn import<'a>(
    format: ImportFormat,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> (Result<ImportReport, ContactError>, Batches) {
    let batches = Arc::new(Mutex::new(Batches::new()));
    let mut import = Import::new(Arc::new(store(batches.clone())), clock(), ids(), &tenant(), format);
    let run = async {
        for chunk in chunks {
            import.feed(chunk).await?;
        }
        import.finish().await
    };
    let report = run.now_or_never();
    let batches = std::mem::take(&mut *batches.lock().unwrap_or_else(PoisonError::into_inner));
    // No future of this import waits.
    (report.unwrap_or_else(|| unreachable!("the import waits")), batches)
}

/// A store that collects the batches. Every row is a new contact.
fn store(batches: Arc<Mutex<Batches>>) -> MockContactStore {
    let mut store = MockContactStore::new();
    store.expect_upsert().returning(move |_, _, rows, _| {
        let imported = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        batches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(rows.to_vec());
        Ok(BatchOutcome::Written(Upserted { imported, updated: 0 }))
    });
    store
}

fn clock() -> Arc<MockClock> {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(OffsetDateTime::UNIX_EPOCH);
    Arc::new(clock)
}

fn ids() -> Arc<MockIds> {
    let mut ids = MockIds::new();
    ids.expect_next().returning(Uuid::max);
    Arc::new(ids)
}

fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::nil()), UserId(Uuid::nil()), Role::Member)
}
