//! `PageFetcher`: fetches web pages of tenants through the egress client and reduces them to their text.

mod decode;
mod page_body;
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

pub use self::page_body::PageBody;
use crate::egress::{Egress, EgressError, EgressRequest};
use crate::meter::{CallOutcome, Meter};

/// Default time limit of a page, redirects included.
const TIMEOUT: Duration = Duration::from_secs(10);

const MAX_REDIRECTS: usize = 3;

const AGENT: HeaderValue = HeaderValue::from_static(concat!(
    "Mozilla/5.0 (compatible; RecadoBot/",
    env!("CARGO_PKG_VERSION"),
    ")"
));
const ACCEPTED_TYPES: HeaderValue = HeaderValue::from_static("text/html, text/plain;q=0.8");
/// Compressed bodies are decoded anyway, since some sites ignore this header.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
/// No connection reuse: a site may close an idle connection just when it is reused, which looks like a broken response.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Fetches pages for the brand context.
#[derive(Clone)]
pub struct PageClient {
    egress: Egress,
    timeout: Duration,
    meter: Meter,
}

impl PageClient {
    pub fn new(egress: Egress) -> Self {
        Self {
            egress,
            timeout: TIMEOUT,
            meter: Meter::new("website"),
        }
    }

    /// Sets the time limit of a page. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    async fn follow(&self, url: &str) -> Result<PageText, PageRefusal> {
        let allow = self.egress.allow_list();
        let mut target = Target::parse(url, allow)?;
        for redirects in 0..=MAX_REDIRECTS {
            let response = self
                .get(&target)
                .await
                .map_err(|error| refusal(&error, redirects > 0))?;
            if !is_redirect(response.status().as_u16()) {
                return read_page(target.as_str(), response).await;
            }
            let location = response.headers().get(LOCATION).ok_or(PageRefusal::Broken)?;
            // Like browsers, accepts UTF-8 in this header.
            let location = std::str::from_utf8(location.as_bytes()).map_err(|_| PageRefusal::Broken)?;
            target = target.redirected(location, allow).map_err(PageRefusal::Redirect)?;
        }
        Err(PageRefusal::TooManyRedirects)
    }

    async fn get(&self, target: &Target) -> Result<Response<Incoming>, EgressError> {
        let headers = [
            (USER_AGENT, AGENT),
            (ACCEPT, ACCEPTED_TYPES),
            (ACCEPT_ENCODING, IDENTITY),
            (CONNECTION, CLOSE),
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
        let fetch = self.follow(url).instrument(call.span());
        let result = match tokio::time::timeout(self.timeout, fetch).await {
            Ok(result) => result,
            Err(_) => Err(PageRefusal::TimedOut),
        };
        call.end(result.as_ref().map_or_else(call_outcome, |_| CallOutcome::Done));
        result
    }
}

fn call_outcome(refusal: &PageRefusal) -> CallOutcome {
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

async fn read_page(url: &str, response: Response<Incoming>) -> Result<PageText, PageRefusal> {
    let (head, mut body) = response.into_parts();
    if !head.status.is_success() {
        return Err(PageRefusal::Status(head.status.as_u16()));
    }
    let media_type = header(&head.headers, &CONTENT_TYPE).ok_or(PageRefusal::MediaType)?;
    let encoding = header(&head.headers, &CONTENT_ENCODING).unwrap_or_default();
    let mut page = PageBody::new(media_type, encoding)?;
    page.announce(body.size_hint().lower())?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| PageRefusal::Broken)?;
        if let Some(data) = frame.data_ref() {
            page.push(data)?;
        }
    }
    // Parsing a megabyte of markup takes tens of milliseconds and would block other requests of this thread.
    let parsing = tokio::task::spawn_blocking(move || page.finish());
    let page = parsing.await.map_err(|_| PageRefusal::Broken)??;
    Ok(PageText {
        url: url.to_owned(),
        ..page
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
