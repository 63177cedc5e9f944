//! Fills a table by COPY.

use std::io::Write as _;

use anyhow::{Context, Result};
use postgres::Client;

/// PostgreSQL keeps the pending foreign-key checks in memory until the end of a COPY.
const ROWS_PER_COPY: u64 = 100_000;

/// A table and the function that generates its rows.
pub(super) struct Table<'y> {
    columns: &'static str,
    rows: u64,
    row: Box<dyn Fn(u64) -> String + 'y>,
}

impl<'y> Table<'y> {
    pub(super) fn new(columns: &'static str, rows: u64, row: impl Fn(u64) -> String + 'y) -> Self {
        let row = Box::new(row);
        Self { columns, rows, row }
    }

    pub(super) fn copy(&self, client: &mut Client) -> Result<()> {
        let name = self.columns.split(' ').next().unwrap_or_default();
        let mut first = 0;
        while first < self.rows {
            let end = self.rows.min(first + ROWS_PER_COPY);
            println!("seed: {name} {end}/{}", self.rows);
            self.copy_part(client, first, end)
                .with_context(|| format!("cannot fill {name}"))?;
            first = end;
        }
        Ok(())
    }

    fn copy_part(&self, client: &mut Client, first: u64, end: u64) -> std::io::Result<()> {
        let copy = format!("COPY {} FROM STDIN", self.columns);
        let mut writer = client.copy_in(&copy).map_err(std::io::Error::other)?;
        let mut text = String::new();
        for number in first..end {
            text.push_str(&(self.row)(number));
            text.push('\n');
            if text.len() > 1 << 16 {
                writer.write_all(text.as_bytes())?;
                text.clear();
            }
        }
        writer.write_all(text.as_bytes())?;
        writer.finish().map_err(std::io::Error::other)?;
        Ok(())
    }
}
