//! Options of `cargo xtask schemathesis`: amount, seed and selection.

use anyhow::Result;
use clap::value_parser;
use recado_testkit::secrets;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Examples of every operation.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..))]
    examples: u64,
    /// The approximate number of requests of all operations together.
    #[arg(long, conflicts_with = "examples", value_parser = value_parser!(u64).range(1..))]
    requests: Option<u64>,
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    pub(super) seconds: Option<u64>,
    /// Repeats an earlier run (random).
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub(super) workers: u64,
    /// The path of the only operations to test.
    #[arg(long, value_name = "PATH")]
    pub(super) only: Option<String>,
}

impl Options {
    /// The number of examples per operation.
    pub(super) fn examples(&self, operations: usize) -> u64 {
        let operations = u64::try_from(operations.max(1)).unwrap_or(u64::MAX);
        self.requests
            .map_or(self.examples, |requests| requests.div_ceil(operations))
    }

    pub(super) fn seed(&self) -> Result<u64> {
        match self.seed {
            Some(seed) => Ok(seed),
            None => Ok(u64::from(u32::from_le_bytes(secrets::random::<4>()?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn parsed(text: &str) -> Options {
        let command = Options::augment_args(Command::new("schemathesis").no_binary_name(true));
        Options::from_arg_matches(&command.get_matches_from(text.split_whitespace())).unwrap()
    }

    #[test]
    fn schemathesis_requests_are_shared_by_the_operations() {
        assert_eq!(parsed("").examples(100), 20);
        assert_eq!(parsed("--examples 7").examples(100), 7);
        assert_eq!(parsed("--requests 1000000").examples(106), 9434);
    }

    #[test]
    fn schemathesis_default_seeds_differ() {
        assert_ne!(parsed("").seed().unwrap(), parsed("").seed().unwrap());
        assert_eq!(parsed("--seed 0").seed().unwrap(), 0);
    }
}
