//! Fetches pages of websites that tenants name, through the guarded client, and reduces them to their text.

mod decode;
mod text;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    USER_AGENT,
};
use hyper::{Method, Response};
use recado_domain::brand::{PageFetcher, PageRefusal, PageText};
use recado_domain::egress::Target;
use tracing::Instrument as _;

use self::decode::{Charset, Unpacker};
use crate::egress::{Egress, EgressError, EgressRequest};
use crate::meter::{CallOutcome, Meter};

/// How long it may take, redirects included.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many redirects are followed.
const REDIRECTS: usize = 3;

/// The largest page in bytes: declared, as it comes, and unpacked.
const LARGEST: usize = 1 << 20;

const AGENT: HeaderValue = HeaderValue::from_static(concat!(
    "Mozilla/5.0 (compatible; RecadoBot/",
    env!("CARGO_PKG_VERSION"),
    ")"
));
const TEXTS: HeaderValue = HeaderValue::from_static("text/html, text/plain;q=0.8");
/// Packed bodies are read all the same, for the sake of sites that do not ask.
const UNPACKED: HeaderValue = HeaderValue::from_static("identity");
/// A site may close a kept connection just as it is used again, which would look like a broken answer.
const UNKEPT: HeaderValue = HeaderValue::from_static("close");

/// Fetches pages for the brand context.
#[derive(Clone)]
pub struct PageClient {
    egress: Egress,
    timeout: Duration,
    meter: Meter,
}

/// What kind of text a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Html,
    Plain,
}

impl PageClient {
    pub fn new(egress: Egress) -> Self {
        Self {
            egress,
            timeout: TIMEOUT,
            meter: Meter::new("website"),
        }
    }

    /// The same with another time limit. Default: 10 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    async fn follow(&self, url: &str) -> Result<PageText, PageRefusal> {
        let allow = self.egress.allow_list();
        let mut target = Target::parse(url, allow)?;
        for redirects in 0..=REDIRECTS {
            let answer = self
                .get(&target)
                .await
                .map_err(|error| refusal(&error, redirects > 0))?;
            if !is_redirect(answer.status().as_u16()) {
                return read(target.as_str(), answer).await;
            }
            let location = answer.headers().get(LOCATION).ok_or(PageRefusal::Broken)?;
            // Browsers read UTF-8 here too.
            let location = std::str::from_utf8(location.as_bytes()).map_err(|_| PageRefusal::Broken)?;
            target = target.redirected(location, allow).map_err(PageRefusal::Redirect)?;
        }
        Err(PageRefusal::TooManyRedirects)
    }

    async fn get(&self, target: &Target) -> Result<Response<Incoming>, EgressError> {
        let headers = [
            (USER_AGENT, AGENT),
            (ACCEPT, TEXTS),
            (ACCEPT_ENCODING, UNPACKED),
            (CONNECTION, UNKEPT),
        ];
        let call = EgressRequest {
            method: Method::GET,
            target: target.clone(),
            headers: HeaderMap::from_iter(headers),
            body: Bytes::new(),
        };
        self.egress.call(call).await
    }
}

#[async_trait]
impl PageFetcher for PageClient {
    async fn fetch(&self, url: &str) -> Result<PageText, PageRefusal> {
        let call = self.meter.begin();
        let following = self.follow(url).instrument(call.span());
        let fetched = match tokio::time::timeout(self.timeout, following).await {
            Ok(result) => result,
            Err(_) => Err(PageRefusal::TimedOut),
        };
        call.end(fetched.as_ref().map_or_else(end, |_| CallOutcome::Done));
        fetched
    }
}

fn end(refusal: &PageRefusal) -> CallOutcome {
    match refusal {
        PageRefusal::Url(_) | PageRefusal::Redirect(_) | PageRefusal::Resolution | PageRefusal::Connection => {
            CallOutcome::NotSent
        }
        PageRefusal::TimedOut => CallOutcome::NoResponse,
        _ => CallOutcome::Failed,
    }
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn refusal(error: &EgressError, redirected: bool) -> PageRefusal {
    match error {
        EgressError::Refused(refusal) if redirected => PageRefusal::Redirect(*refusal),
        EgressError::Refused(refusal) => PageRefusal::Url(*refusal),
        EgressError::Resolution(_) => PageRefusal::Resolution,
        EgressError::Connection(_) | EgressError::Tls(_) => PageRefusal::Connection,
        EgressError::TimedOut => PageRefusal::TimedOut,
        EgressError::Broken(_) => PageRefusal::Broken,
    }
}

async fn read(url: &str, answer: Response<Incoming>) -> Result<PageText, PageRefusal> {
    let (head, body) = answer.into_parts();
    if !head.status.is_success() {
        return Err(PageRefusal::Status(head.status.as_u16()));
    }
    let media_type = header(&head.headers, &CONTENT_TYPE).ok_or(PageRefusal::MediaType)?;
    let kind = kind(media_type).ok_or(PageRefusal::MediaType)?;
    let unpacker = Unpacker::new(header(&head.headers, &CONTENT_ENCODING).unwrap_or_default(), LARGEST)?;
    let bytes = collect(body, unpacker).await?;
    let charset = Charset::of(media_type, &bytes);
    // A megabyte of nothing but markup takes tens of milliseconds, in which the other requests of the thread would wait.
    let reading = tokio::task::spawn_blocking(move || reduce(kind, charset, bytes));
    let page = reading.await.map_err(|_| PageRefusal::Broken)??;
    Ok(PageText {
        url: url.to_owned(),
        ..page
    })
}

/// What a reader sees of a page.
fn reduce(kind: Kind, charset: Charset, bytes: Vec<u8>) -> Result<PageText, PageRefusal> {
    let text = charset.decode(&bytes)?;
    drop(bytes);
    let page = match kind {
        Kind::Html => text::of_html(&text),
        Kind::Plain => text::of_plain(&text),
    };
    if page.text.is_empty() {
        return Err(PageRefusal::Empty);
    }
    Ok(page)
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn kind(media_type: &str) -> Option<Kind> {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "text/html" => Some(Kind::Html),
        "text/plain" => Some(Kind::Plain),
        _ => None,
    }
}

/// Counts what comes and what it becomes.
async fn collect(mut body: Incoming, mut unpacker: Unpacker) -> Result<Vec<u8>, PageRefusal> {
    let too_large = |bytes: u64| usize::try_from(bytes).map_or(true, |bytes| bytes > LARGEST);
    if too_large(body.size_hint().lower()) {
        return Err(PageRefusal::TooLarge);
    }
    let mut came = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| PageRefusal::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        came += data.len();
        if came > LARGEST {
            return Err(PageRefusal::TooLarge);
        }
        unpacker.push(data)?;
    }
    unpacker.finish()
}
