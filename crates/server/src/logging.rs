//! Structured logs, JSON or pretty. A request is one line. `docs/operating/logs.md` lists what is never logged: tokens,
//! cookies, bodies, keys, card data, phone numbers, the text of messages. Text from outside cannot forge a line.

use std::io::{self, BufWriter, Write};
use std::str::FromStr;
use std::time::Duration;

use recado_domain::shared::TRACED;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::telemetry::traces::Traces;

/// Lines are collected for `BATCH` and written in blocks of at most `BATCH_BYTES`.
const BATCH: Duration = Duration::from_millis(5);
const BATCH_BYTES: usize = 64 * 1024;

/// How many lines may wait for the log thread. If the queue is full, the logging thread blocks: no line is lost.
const MAX_QUEUED_LINES: usize = 8192;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Pretty,
    /// For machines: one JSON object per line.
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pretty" => Ok(Self::Pretty),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text} is not a log format; use pretty or json")),
        }
    }
}

impl Format {
    /// `LOG_FORMAT`, or pretty if it is missing or malformed. For commands that read no other configuration.
    pub fn from_env() -> Self {
        std::env::var("LOG_FORMAT")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(Self::Pretty)
    }
}

/// Starts logging without traces.
pub fn start(format: Format) -> anyhow::Result<LogGuard> {
    start_with(format, &Traces::start(None)?)
}

/// Starts logging to standard error, and tracing. `RUST_LOG` selects what is logged (default `info`). The caller MUST
/// hold the guard as long as it logs.
pub fn start_with(format: Format, traces: &Traces) -> anyhow::Result<LogGuard> {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(false)
        .buffered_lines_limit(MAX_QUEUED_LINES)
        .thread_name("log")
        .finish(LineEscaper(BatchWriter(BufWriter::with_capacity(
            BATCH_BYTES,
            io::stderr(),
        ))));
    let lines = fmt::layer().with_writer(writer);
    match format {
        Format::Pretty => install(lines.with_target(false), traces),
        // The span list would only repeat the request id.
        Format::Json => install(lines.json().flatten_event(true).with_span_list(false), traces),
    }?;
    Ok(LogGuard(guard))
}

fn install(lines: impl Layer<Registry> + Send + Sync, traces: &Traces) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = filter.add_directive(format!("{TRACED}=off").parse()?);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter));
    #[cfg(feature = "otel")]
    let subscriber = subscriber.with(traces.layer());
    #[cfg(not(feature = "otel"))]
    let _ = traces;
    Ok(subscriber.try_init()?)
}

/// The guard of the log thread. Dropping it writes the remaining lines.
#[derive(Debug)]
pub struct LogGuard(#[expect(dead_code, reason = "held for its drop")] WorkerGuard);

/// Batches lines. The log thread flushes whenever its queue is empty: it writes the line of an idle server at once and
/// the lines of a busy server together. One system call per line would take a sixth of the time of a fast response.
struct BatchWriter<W: Write>(BufWriter<W>);

impl<W: Write> Write for BatchWriter<W> {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.0.write(lines)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        std::thread::sleep(BATCH);
        Ok(())
    }
}

/// Prevents log injection: escapes line breaks inside a line as `\n` and `\r`, so that text from outside cannot forge
/// a line.
struct LineEscaper<W>(W);

impl<W: Write> Write for LineEscaper<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if memchr::memchr2(b'\n', b'\r', text).is_none() {
            self.0.write_all(line)?;
            return Ok(line.len());
        }
        let mut escaped = Vec::with_capacity(line.len() + 16);
        for byte in text {
            match byte {
                b'\n' => escaped.extend_from_slice(b"\\n"),
                b'\r' => escaped.extend_from_slice(b"\\r"),
                _ => escaped.push(*byte),
            }
        }
        escaped.push(b'\n');
        self.0.write_all(&escaped)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_inside_a_line_are_escaped() {
        for (written, expected) in [
            (&b"a b\n"[..], &b"a b\n"[..]),
            (b"a\nINFO b\n", b"a\\nINFO b\n"),
            (b"a\r\nb", b"a\\r\\nb\n"),
            (b"\n", b"\n"),
        ] {
            let mut out = LineEscaper(Vec::new());
            assert_eq!(out.write(written).unwrap(), written.len());
            assert_eq!(out.0, expected);
        }
    }
}
