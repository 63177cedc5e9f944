//! The database: does it have every migration, is its clock equal to ours, does the account of `--account` exist?

use recado_domain::shared::{AccountId, Clock as _, StoreError};
use recado_postgres::PgDiagnostics;
use time::Duration;

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;
use recado_api::error_chain::chain;
use recado_api::system::SystemClock;

/// The largest difference between the clocks of this machine and of the database. Leases and rate limits compare them.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::seconds(2);

/// A check that failed because the database did.
pub(super) fn unavailable(name: &'static str, error: &StoreError) -> Diagnosis {
    Diagnosis::fail(
        name,
        format!("the database does not answer: {}", chain(error)),
        "check that PostgreSQL runs, that DATABASE_URL is right, and that its role may connect",
    )
}

pub(super) async fn check_migrations(context: &DoctorContext) -> AreaOutcome {
    let check = match recado_postgres::pending(context.owner()?).await {
        Ok(0) => Diagnosis::ok("migrations", "the database has every migration of this version"),
        Ok(count) => Diagnosis::fail(
            "migrations",
            format!("{count} migrations are not applied"),
            "run recado migrate",
        ),
        Err(error) => unavailable("migrations", &error),
    };
    Ok(vec![check])
}

pub(super) async fn check_clock(context: &DoctorContext) -> AreaOutcome {
    let database = PgDiagnostics::new(context.owner()?.clone());
    let check = match clock_difference(&database).await {
        Ok(difference) => diagnose_clock(difference),
        Err(error) => unavailable("clock", &error),
    };
    Ok(vec![check])
}

/// The smallest difference that the answer proves: the database read its clock at some time between call and answer.
async fn clock_difference(database: &PgDiagnostics) -> Result<Duration, StoreError> {
    // The first call opens the connection.
    database.time().await?;
    let before = SystemClock.now();
    let theirs = database.time().await?;
    let after = SystemClock.now();
    Ok(if theirs < before {
        before - theirs
    } else if theirs > after {
        theirs - after
    } else {
        Duration::ZERO
    })
}

fn diagnose_clock(difference: Duration) -> Diagnosis {
    if difference <= MAX_CLOCK_DIFFERENCE {
        return Diagnosis::ok("clock", "equal to the clock of the database");
    }
    Diagnosis::fail(
        "clock",
        format!(
            "differs from the clock of the database by {} s",
            difference.whole_seconds()
        ),
        "synchronize both machines with NTP",
    )
}

/// Checks the account of `--account`. Without it there is no line.
pub(super) async fn check_account(context: &DoctorContext) -> AreaOutcome {
    let Some(account) = context.options.account else {
        return Ok(Vec::new());
    };
    let database = PgDiagnostics::new(context.owner()?.clone());
    let check = match database.account_status(account).await {
        Ok(status) => diagnose_account(account, status.as_deref()),
        Err(error) => unavailable("account", &error),
    };
    Ok(vec![check])
}

fn diagnose_account(account: AccountId, status: Option<&str>) -> Diagnosis {
    match status {
        Some("active") => Diagnosis::ok("account", format!("{account} is active")),
        Some(status) => Diagnosis::warn(
            "account",
            format!("{account} is {status}, so nothing is sent for it"),
            "activate the account as a platform administrator",
        ),
        None => Diagnosis::fail(
            "account",
            format!("no account has the id {account}"),
            "give --account the id of an account, as GET /api/admin/accounts lists it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::diagnosis::DiagnosisState;
    use super::*;

    #[test]
    fn clock_may_differ_by_two_seconds() {
        for (milliseconds, state) in [
            (0, DiagnosisState::Ok),
            (2000, DiagnosisState::Ok),
            (2001, DiagnosisState::Fail),
            (3_600_000, DiagnosisState::Fail),
        ] {
            assert_eq!(diagnose_clock(Duration::milliseconds(milliseconds)).state, state);
        }
        assert!(diagnose_clock(Duration::HOUR).found.contains("3600 s"));
    }

    #[test]
    fn account_must_exist_and_should_be_active() {
        let state = |status| diagnose_account(AccountId(Uuid::nil()), status).state;
        assert_eq!(state(Some("active")), DiagnosisState::Ok);
        assert_eq!(state(Some("suspended")), DiagnosisState::Warn);
        assert_eq!(state(None), DiagnosisState::Fail);
    }
}
