//! The use case of exports.

use std::sync::Arc;

use super::super::{AnalyticsError, ReportPeriod, Window};
use super::csv::{BYTE_ORDER_MARK, write_record};
use super::{ExportKind, ExportPosition, ExportStore};
use crate::shared::{AccountId, Clock, FieldErrors, StoreError, Tenant};

/// The most records of an export.
const MAX_RECORDS: i64 = 10_000;
/// The number of records that one query reads.
const PAGE_RECORDS: i64 = 500;

pub struct Exports {
    store: Arc<dyn ExportStore>,
    clock: Arc<dyn Clock>,
}

impl Exports {
    pub fn new(store: Arc<dyn ExportStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Starts an export without reading any record.
    pub fn begin(
        &self,
        tenant: &Tenant,
        kind: ExportKind,
        report_period: &ReportPeriod,
    ) -> Result<Export, AnalyticsError> {
        let window = Window::new(report_period.period, &report_period.zone, self.clock.now());
        let window = window.ok_or_else(|| FieldErrors::one("tz", "has no calendar days for this period"))?;
        Ok(Export {
            store: self.store.clone(),
            account: tenant.account_id,
            kind,
            window,
            started: false,
            after: None,
            remaining: MAX_RECORDS,
        })
    }
}

/// A running export.
pub struct Export {
    store: Arc<dyn ExportStore>,
    account: AccountId,
    kind: ExportKind,
    window: Window,
    started: bool,
    after: Option<ExportPosition>,
    remaining: i64,
}

impl Export {
    /// Returns the next chunk of the file, or `None` at its end. The first chunk has the header line, even without
    /// records.
    pub async fn next(&mut self) -> Result<Option<String>, StoreError> {
        let mut text = String::new();
        if !self.started {
            text.push_str(BYTE_ORDER_MARK);
            write_record(&mut text, self.kind.columns().iter().copied());
        } else if self.remaining == 0 {
            return Ok(None);
        }
        let limit = self.remaining.min(PAGE_RECORDS);
        let page = self
            .store
            .part(self.account, self.kind, &self.window, self.after, limit);
        let records = page.await?;
        self.started = true;
        let read = i64::try_from(records.len()).unwrap_or(i64::MAX);
        self.remaining = if read < limit { 0 } else { self.remaining - read };
        for (position, record) in records {
            self.after = Some(position);
            let cells = record.into_cells();
            write_record(&mut text, cells.iter().map(String::as_str));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::super::{Period, Zone};
    use super::super::{ExportRecord, MockExportStore};
    use super::*;
    use crate::shared::{MockClock, Role, UserId};

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    /// An export of this many campaigns.
    fn export(campaigns: u128) -> Export {
        let mut store = MockExportStore::new();
        store.expect_part().returning(move |_, _, _, after, limit| {
            let first = after.map_or(0, |after| after.id.as_u128() + 1);
            let last = campaigns.min(first + u128::try_from(limit).unwrap());
            let record = |n: u128| {
                let position = ExportPosition {
                    at: NOW,
                    id: Uuid::from_u128(n),
                    part: Uuid::nil(),
                };
                let record = ExportRecord::Campaign {
                    name: format!("={n}"),
                    status: "draft".into(),
                    created_at: NOW,
                    scheduled_at: None,
                };
                (position, record)
            };
            Ok((first..last).map(record).collect())
        });
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        let tenant = Tenant::for_tests(AccountId(Uuid::nil()), UserId(Uuid::nil()), Role::Viewer);
        let report_period = ReportPeriod {
            period: Period::Month,
            zone: Zone::UTC,
        };
        let exports = Exports::new(Arc::new(store), Arc::new(clock));
        exports.begin(&tenant, ExportKind::Campaigns, &report_period).unwrap()
    }

    async fn chunks(campaigns: u128) -> Vec<String> {
        let (mut export, mut chunks) = (export(campaigns), Vec::new());
        while let Some(chunk) = export.next().await.unwrap() {
            chunks.push(chunk);
        }
        chunks
    }

    #[tokio::test]
    async fn empty_export_has_only_the_header() {
        assert_eq!(chunks(0).await, ["\u{feff}Nome,Status,Criado em,Agendado para\r\n"]);
    }

    #[tokio::test]
    async fn export_has_every_record_and_the_mark_once() {
        for (records, chunk_count) in [(1, 1), (499, 1), (500, 1), (501, 2), (1200, 3)] {
            let chunks = chunks(records).await;
            assert_eq!(chunks.len(), chunk_count, "{records}");
            let text = chunks.concat();
            assert_eq!(text.matches('\u{feff}').count(), 1);
            let lines: Vec<&str> = text.lines().skip(1).collect();
            assert_eq!(lines.len(), usize::try_from(records).unwrap());
            assert_eq!(lines[0], "'=0,draft,2026-03-01T12:00:00.000Z,");
        }
    }

    #[tokio::test]
    async fn export_is_limited_to_ten_thousand_records() {
        let text = chunks(10_001).await.concat();
        assert_eq!(text.lines().count(), 10_001);
        assert!(text.ends_with("'=9999,draft,2026-03-01T12:00:00.000Z,\r\n"));
    }
}
