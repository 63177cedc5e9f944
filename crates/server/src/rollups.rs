//! `recado rollups`: compares rollups with their source rows, or recalculates them.

use std::time::Duration;

use recado_domain::rollups::RollupStore as _;
use recado_domain::shared::AccountId;
use recado_postgres::{OwnerPool, PgRollups, PoolConfig};

use crate::config::Config;

/// A statement that aggregates all rows of a large account takes long.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A subcommand of `recado rollups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Print every difference between a rollup and its source rows.
    Verify,
    /// Set every rollup to the sums of its source rows.
    Rebuild,
    /// As `Rebuild`, after setting the rates of all priced messages again.
    Reprice,
}

/// Runs the task for one account (`--account ID`) or for all accounts. Returns false if `Verify` finds a difference.
pub fn run(task: Task, account: Option<AccountId>) -> anyhow::Result<bool> {
    let source = |name: &str| std::env::var(name).ok();
    let (url, tls) = (Config::database_url(&source)?, Config::database_tls(&source)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = PoolConfig {
        statement_timeout: STATEMENT_TIMEOUT,
        idle_in_transaction_timeout: STATEMENT_TIMEOUT,
        ..PoolConfig::new(url.clone(), 1).tls(tls.clone())
    };
    runtime.block_on(async {
        recado_postgres::check_tls(&url, &tls).await?;
        let store = PgRollups::new(OwnerPool::new(&config)?);
        let accounts = match account {
            Some(account) => vec![account],
            None => store.accounts().await?,
        };
        run_task(task, &store, &accounts).await
    })
}

async fn run_task(task: Task, store: &PgRollups, accounts: &[AccountId]) -> anyhow::Result<bool> {
    let mut differences = 0;
    for account in accounts {
        match task {
            Task::Verify => {
                for difference in store.verify(*account).await? {
                    print_line(&difference.to_string());
                    differences += 1;
                }
            }
            Task::Rebuild | Task::Reprice => {
                if task == Task::Reprice {
                    let repriced = store.reprice(*account).await?;
                    print_line(&format!("account {account}: {repriced} prices set again"));
                }
                let rebuilt = store.rebuild(*account).await?;
                if rebuilt > 0 {
                    print_line(&format!("account {account}: {rebuilt} rollups rebuilt"));
                }
            }
        }
    }
    print_line(&format!(
        "{} accounts checked, {differences} differences found",
        accounts.len()
    ));
    Ok(differences == 0)
}

#[expect(clippy::print_stdout, reason = "the result of a command goes to standard output")]
fn print_line(text: &str) {
    println!("{text}");
}
