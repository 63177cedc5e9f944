//! `recado import`: streams a CSV file of contacts to the server.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use indicatif::{ProgressBar, ProgressStyle};
use recado_gateways::http::{ByteStream, GatewayRequest};

use crate::api::Api;
use crate::{CommandFailure, Connection, field, print_line};

const CHUNK_BYTES: usize = 64 << 10;

/// A million rows take minutes on a small server.
const TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Args, Debug)]
pub struct ImportOptions {
    #[command(flatten)]
    connection: Connection,
    /// The CSV file (UTF-8). The first line names the columns: name, phone, wa_user_id, email, time_zone and tags; every
    /// other column is an attribute.
    file: PathBuf,
    /// Show the progress on standard error. The server writes rows while it receives them.
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(options: &ImportOptions) -> Result<(), CommandFailure> {
    let api = Api::new(&options.connection)?;
    let named = |error: std::io::Error| CommandFailure::Usage(format!("{}: {error}", options.file.display()));
    let file = File::open(&options.file).map_err(named)?;
    let metadata = file.metadata().map_err(named)?;
    if !metadata.is_file() {
        return Err(CommandFailure::Usage(format!(
            "{} is not a regular file",
            options.file.display()
        )));
    }
    let length = metadata.len();
    let progress = match options.watch {
        true => progress_bar(length),
        false => ProgressBar::hidden(),
    };
    let report = api
        .once(&["contacts", "import"], |url| {
            GatewayRequest::post_stream(url, length, chunks(file, progress.clone()))
                .header(CONTENT_TYPE, HeaderValue::from_static("text/csv"))
                .timeout(TIMEOUT)
        })
        .await;
    progress.finish_and_clear();
    let report = report.map_err(|failure| match failure {
        CommandFailure::Unreachable(text) => CommandFailure::Unreachable(format!(
            "{text}; rows may have been written, and running the command again updates them"
        )),
        other => other,
    })?;
    print_line(&format!("{report:#}"))?;
    match field(&report, "skipped").as_u64() {
        None | Some(0) => Ok(()),
        Some(skipped) => Err(CommandFailure::Partial(format!(
            "skipped rows: {skipped}; `errors` names the first of them by line"
        ))),
    }
}

fn progress_bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let template = "{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The file in chunks. The next chunk is read when the previous one is sent.
fn chunks(file: File, progress: ProgressBar) -> ByteStream {
    stream::try_unfold((file, progress), |(mut file, progress)| async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        let read = file.read(&mut chunk)?;
        chunk.truncate(read);
        progress.inc(u64::try_from(read).unwrap_or(0));
        Ok((read > 0).then(|| (Bytes::from(chunk), (file, progress))))
    })
    .boxed()
}
