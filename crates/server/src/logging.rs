//! Structured logs: one line a request, JSON or pretty. Never logged: tokens, cookies, bodies, keys, card data.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Pretty,
    /// For machines: one JSON object a line.
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "pretty" => Ok(Self::Pretty),
            "json" => Ok(Self::Json),
            other => Err(format!("{other} is no log format")),
        }
    }
}

impl Format {
    /// For commands that read no other configuration: what `LOG_FORMAT` says, else pretty.
    pub fn from_env() -> Self {
        std::env::var("LOG_FORMAT")
            .ok()
            .and_then(|word| word.parse().ok())
            .unwrap_or(Self::Pretty)
    }
}

/// Starts logging to standard error; `RUST_LOG` chooses what (default `info`).
pub fn start(format: Format) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        Format::Pretty => lines.with_target(false).finish().try_init()?,
        // The list of spans would only say the request's id twice.
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_span_list(false);
            lines.finish().try_init()?;
        }
    }
    Ok(())
}
