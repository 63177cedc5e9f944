//! `recado secrets rotate`: seals every stored secret under `APP_SECRET`.
//!
//! The command may be killed at any time and repeated: it reads only values that do not name the current key, and
//! each batch is one transaction. Servers go on meanwhile, because they open values under each configured secret.

use std::collections::BTreeMap;
use std::time::Duration;

use recado_domain::shared::{Resealer, SealContext, SealPurpose, UnsealError};
use recado_postgres::{OwnerPool, PgSealedValues, PoolConfig, SEALED_COLUMNS, SealedColumn};

use crate::config::{Config, Source, app_secrets};
use crate::sealing::AppCipher;

/// A statement that looks for the few remaining values of a large table reads all of it.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Values that one transaction seals anew.
const BATCH: i64 = 200;

/// The passes over all tables before the command gives up, and the pause before each repetition. A pass skips rows that
/// a writer has locked, and a server may seal under an earlier secret until it is restarted.
const MAX_PASSES: usize = 10;
const PASS_PAUSE: Duration = Duration::from_secs(1);

/// Unreadable values that are printed one by one.
const MAX_NAMED: usize = 20;

/// What the command did with the values of one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    resealed: usize,
    current: i64,
    earlier: i64,
}

/// Rotates all sealed values, and prints their numbers. Returns false if some value does not name the current key.
pub fn rotate() -> anyhow::Result<bool> {
    let source: Source<'_> = &|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let cipher = AppCipher::new(&app_secrets(source)?)?;
    let config = PoolConfig {
        statement_timeout: STATEMENT_TIMEOUT,
        ..PoolConfig::new(Config::database_url(source)?, 1).tls(Config::database_tls(source)?)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let values = PgSealedValues::new(OwnerPool::new(&config)?);
        let totals = rotate_all(&values, &cipher).await?;
        for (purpose, counts) in &totals {
            print_line(&format!(
                "{purpose}: {} sealed anew, {} under the current key, {} under an earlier key",
                counts.resealed, counts.current, counts.earlier
            ));
        }
        Ok(totals.values().all(|counts| counts.earlier == 0))
    })
}

/// Repeats passes until no value is left, or until a pass finds only values that cannot be opened.
async fn rotate_all(
    values: &PgSealedValues,
    resealer: &dyn Resealer,
) -> anyhow::Result<BTreeMap<&'static str, Totals>> {
    let mut totals: BTreeMap<&'static str, Totals> = BTreeMap::new();
    for number in 1..=MAX_PASSES {
        let pass = run_pass(values, resealer, &mut totals).await?;
        let counts = values.counts(&resealer.current_marker()).await?;
        let remaining: i64 = counts.iter().map(|count| count.earlier).sum();
        for count in counts {
            let entry = totals.entry(count.purpose.as_str()).or_default();
            (entry.current, entry.earlier) = (count.current, count.earlier);
        }
        // The values that are left cannot be opened, and another pass would not open them either.
        let is_final = number == MAX_PASSES || remaining <= pass.unreadable;
        if is_final || remaining == 0 {
            pass.named.iter().for_each(|text| print_line(text));
            break;
        }
        tokio::time::sleep(PASS_PAUSE).await;
    }
    Ok(totals)
}

/// The outcome of one pass over all tables.
#[derive(Debug, Default)]
struct Pass {
    /// The number of values that cannot be opened, and a line for each of the first `MAX_NAMED`.
    unreadable: i64,
    named: Vec<String>,
}

impl Pass {
    fn add_unreadable(&mut self, column: &SealedColumn, context: &SealContext, error: &UnsealError) {
        self.unreadable += 1;
        if self.named.len() < MAX_NAMED {
            // An idempotency key is the client's text, which may hold anything.
            let row = match context.purpose {
                SealPurpose::StoredResponse => "an idempotency key",
                _ => context.row.as_str(),
            };
            let (table, name, account) = (column.table, column.column, context.account);
            self.named
                .push(format!("{table}.{name} of {row}, account {account}, {error}"));
        }
    }
}

async fn run_pass(
    values: &PgSealedValues,
    resealer: &dyn Resealer,
    totals: &mut BTreeMap<&'static str, Totals>,
) -> anyhow::Result<Pass> {
    let mut pass = Pass::default();
    for column in SEALED_COLUMNS {
        let mut position = None;
        loop {
            let batch = values.reseal(column, position, BATCH, resealer).await?;
            totals.entry(column.purpose.as_str()).or_default().resealed += batch.resealed;
            for (context, error) in &batch.unreadable {
                pass.add_unreadable(column, context, error);
            }
            position = batch.next;
            if position.is_none() {
                break;
            }
        }
    }
    Ok(pass)
}

#[expect(clippy::print_stdout, reason = "the result of a command goes to standard output")]
fn print_line(text: &str) {
    println!("{text}");
}
