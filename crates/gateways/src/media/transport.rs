//! Connects `object_store` to the HTTP client and TLS of this crate.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use hyper::Uri;
use hyper_util::client::legacy::Error as ClientError;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, Result};
use tracing::Instrument as _;

use crate::http::{PooledClient, pooled_client};
use crate::meter::{CallOutcome, Meter};

/// Time limit from a request to the head of its response. Sending a part must fit into it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(45);

#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = pooled_client().map_err(|error| object_store::Error::Generic {
            store: "S3",
            source: error.into(),
        })?;
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Transport {
            client,
            meter: Meter::new("storage"),
            allow_http: allow_http.as_deref() == Some("true"),
        }))
    }
}

struct Transport {
    client: PooledClient<HttpRequestBody>,
    meter: Meter,
    allow_http: bool,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("allow_http", &self.allow_http)
            .finish()
    }
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        if request.uri().scheme_str() != Some("https") && !self.allow_http {
            let error = std::io::Error::other("plain HTTP is not allowed to this host");
            return Err(HttpError::new(HttpErrorKind::Unknown, error));
        }
        let call = self.meter.begin();
        let exchange = self.client.request(request).instrument(call.span());
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await;
        call.end(match &response {
            Ok(Ok(response)) => CallOutcome::from_status(response.status().as_u16()),
            Ok(Err(error)) if error.is_connect() => CallOutcome::NotSent,
            Ok(Err(_)) | Err(_) => CallOutcome::NoResponse,
        });
        let response = response.map_err(|elapsed| HttpError::new(HttpErrorKind::Timeout, elapsed))?;
        let response = response.map_err(|error| HttpError::new(error_kind(&error), error))?;
        let interrupted = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(interrupted))))
    }
}

fn error_kind(error: &ClientError) -> HttpErrorKind {
    if error.is_connect() {
        HttpErrorKind::Connect
    } else {
        HttpErrorKind::Interrupted
    }
}

/// Whether a URL names this machine.
pub(super) fn is_loopback(url: &str) -> bool {
    let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    matches!(host.as_deref(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_urls_may_use_plain_http() {
        for (url, expected) in [
            ("http://127.0.0.1:9000", true),
            ("http://localhost:9000/", true),
            ("http://[::1]:9000", true),
            ("http://127.0.0.1.example", false),
            ("http://minio:9000", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(url), expected, "{url}");
        }
    }
}
