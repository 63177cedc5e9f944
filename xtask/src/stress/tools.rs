//! Stress suites that run other tools.

use anyhow::Result;

use crate::deny;
use crate::deny::Advisories;

/// Checks the rules of `.deny.toml` with the current advisories. Fails if the advisory database is not reachable.
pub(super) fn supply() -> Result<()> {
    deny::check(Advisories::Online)
}
