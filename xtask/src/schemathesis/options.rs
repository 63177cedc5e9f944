//! Options of `cargo xtask schemathesis`: amount, seed and selection.

use anyhow::{Context, Result, bail};
use recado_testkit::secrets;

/// Default number of examples per operation.
const EXAMPLES: u64 = 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    amount: Amount,
    pub(super) seconds: Option<u64>,
    pub(super) seed: u64,
    pub(super) workers: u64,
    pub(super) only: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Amount {
    /// Examples per operation.
    Examples(u64),
    /// Approximate number of requests of all operations together.
    Requests(u64),
}

impl Options {
    /// The number of examples per operation.
    pub(super) fn examples(&self, operations: usize) -> u64 {
        match self.amount {
            Amount::Examples(examples) => examples,
            Amount::Requests(requests) => requests.div_ceil(u64::try_from(operations.max(1)).unwrap_or(u64::MAX)),
        }
    }
}

pub(super) fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        amount: Amount::Examples(EXAMPLES),
        seconds: None,
        seed: u64::from(u32::from_le_bytes(secrets::random::<4>()?)),
        workers: 1,
        only: None,
    };
    let mut rest = args.iter();
    while let Some(option) = rest.next() {
        let Some(value) = rest.next() else {
            bail!("{option} needs a value");
        };
        let number = || match value.parse::<u64>() {
            Ok(0) => bail!("{option} must be at least 1"),
            number => number.with_context(|| format!("{option} is not a number")),
        };
        match option.as_str() {
            "--examples" => options.amount = Amount::Examples(number()?),
            "--requests" => options.amount = Amount::Requests(number()?),
            "--seconds" => options.seconds = Some(number()?),
            "--seed" => options.seed = value.parse().context("--seed is not a number")?,
            "--workers" => options.workers = number()?,
            "--only" => options.only = Some(value.clone()),
            unknown => bail!("schemathesis has no option {unknown}"),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn schemathesis_options_are_parsed() {
        assert_eq!(parsed("").unwrap().examples(100), EXAMPLES);
        assert_eq!(parsed("--examples 7").unwrap().examples(100), 7);
        assert_eq!(parsed("--requests 1000000").unwrap().examples(106), 9434);
        let all = parsed("--seed 0 --workers 8 --seconds 60 --only /api/tags").unwrap();
        assert_eq!((all.seed, all.workers, all.seconds), (0, 8, Some(60)));
        assert_eq!(all.only.as_deref(), Some("/api/tags"));
        for args in ["--examples", "--examples 0", "--workers x", "--frobnicate 1"] {
            assert!(parsed(args).is_err(), "{args}");
        }
    }

    #[test]
    fn schemathesis_default_seeds_differ() {
        assert_ne!(parsed("").unwrap().seed, parsed("").unwrap().seed);
    }
}
