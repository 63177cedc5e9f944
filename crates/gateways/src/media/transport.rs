//! How a bucket is reached: by the HTTP and TLS that everything else here uses.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use hyper::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, Result};
use tracing::Instrument as _;

use crate::http::pooled;
use crate::meter::{CallOutcome, Meter};

/// How long a request may take until its answer begins: a part has to go out within it.
const TIMEOUT: Duration = Duration::from_secs(45);

/// Makes transports.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = pooled().map_err(|fault| object_store::Error::Generic {
            store: "S3",
            source: fault.into(),
        })?;
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Transport {
            client,
            meter: Meter::new("storage"),
            plain: plain.as_deref() == Some("true"),
        }))
    }
}

struct Transport {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
    meter: Meter,
    /// Whether it may talk without TLS.
    plain: bool,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("plain", &self.plain).finish()
    }
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        if request.uri().scheme_str() != Some("https") && !self.plain {
            let error = std::io::Error::other("plain HTTP is not allowed (AWS_ALLOW_HTTP)");
            return Err(HttpError::new(HttpErrorKind::Unknown, error));
        }
        let call = self.meter.begin();
        let asking = self.client.request(request).instrument(call.span());
        let answer = tokio::time::timeout(TIMEOUT, asking).await;
        call.end(match &answer {
            Ok(Ok(answer)) => CallOutcome::of(answer.status().as_u16()),
            Ok(Err(error)) if error.is_connect() => CallOutcome::NotSent,
            Ok(Err(_)) | Err(_) => CallOutcome::NoResponse,
        });
        let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let answer = answer.map_err(|error| HttpError::new(kind(&error), error))?;
        let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(answer.map(|body| HttpResponseBody::new(body.map_err(broken))))
    }
}

fn kind(error: &ClientError) -> HttpErrorKind {
    if error.is_connect() {
        HttpErrorKind::Connect
    } else {
        HttpErrorKind::Interrupted
    }
}

/// Whether an address is this machine's own.
pub(super) fn is_loopback(address: &str) -> bool {
    let host = address
        .parse::<Uri>()
        .ok()
        .and_then(|uri| uri.host().map(str::to_owned));
    matches!(host.as_deref(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_may_be_talked_to_in_the_clear() {
        for (address, own) in [
            ("http://127.0.0.1:9000", true),
            ("http://localhost:9000/", true),
            ("http://[::1]:9000", true),
            ("http://127.0.0.1.example", false),
            ("http://minio:9000", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(address), own, "{address}");
        }
    }
}
