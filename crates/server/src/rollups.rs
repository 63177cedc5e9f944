//! `recado rollups`: whether the kept sums are those of their rows, and making them so.

use std::time::Duration;

use anyhow::Context as _;
use recado_domain::rollups::RollupStore as _;
use recado_domain::shared::AccountId;
use recado_postgres::{OwnerPool, PgRollups, PoolConfig};
use uuid::Uuid;

use crate::config::Config;

/// Counting everything that an account ever recorded may take long.
const STATEMENT_TIME: Duration = Duration::from_secs(60 * 60);

/// What to do with the roll-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Tell what is kept wrong.
    Verify,
    /// Make it right.
    Rebuild,
}

/// Carries the task out for one account (`--account ID`), or for all of them; true when nothing was found wrong, or
/// it was made right.
pub fn run(task: Task, account: Option<&str>) -> anyhow::Result<bool> {
    let url = Config::database_url(&|name| std::env::var(name).ok())?;
    let account = account
        .map(Uuid::parse_str)
        .transpose()
        .context("--account takes a uuid")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = PoolConfig {
        statement_timeout: STATEMENT_TIME,
        idle_in_transaction_timeout: STATEMENT_TIME,
        ..PoolConfig::new(url, 1)
    };
    runtime.block_on(async {
        let store = PgRollups::new(OwnerPool::new(&config)?);
        let accounts = match account {
            Some(account) => vec![account.into()],
            None => store.accounts().await?,
        };
        carry_out(task, &store, &accounts).await
    })
}

async fn carry_out(task: Task, store: &PgRollups, accounts: &[AccountId]) -> anyhow::Result<bool> {
    let mut found = 0;
    for account in accounts {
        match task {
            Task::Verify => {
                for difference in store.verify(*account).await? {
                    say(&difference.to_string());
                    found += 1;
                }
            }
            Task::Rebuild => {
                let rebuilt = store.rebuild(*account).await?;
                if rebuilt > 0 {
                    say(&format!("account {account}: {rebuilt} sums made right"));
                }
            }
        }
    }
    say(&format!("{} accounts looked at, {found} differences", accounts.len()));
    Ok(found == 0)
}

#[expect(clippy::print_stdout, reason = "the answer of a command goes to whoever gave it")]
fn say(text: &str) {
    println!("{text}");
}
