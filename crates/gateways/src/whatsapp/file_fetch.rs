//! `FileGateway`: finds and receives the files of messages. The token goes only to the API's host and to the configured
//! media hosts.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http_body_util::BodyDataStream;
use hyper::body::{Body as _, Incoming};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Response, Uri};
use recado_domain::egress::Target;
use recado_domain::messaging::WhatsappCredentials;
use recado_domain::whatsapp::{FileAddress, FileDownload, FileGateway, FileGatewayError};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::graph::{self, TEMPLATE_ERROR_TEXTS};
use super::segment;
use crate::egress::{Egress, EgressError, EgressRequest};
use crate::http::{CallError, GatewayRequest, Http};

/// Default time limit of a request until its response begins, and of each chunk.
const TIMEOUT: Duration = Duration::from_secs(20);

const AGENT: HeaderValue = HeaderValue::from_static(concat!("Recado/", env!("CARGO_PKG_VERSION")));

/// Receives files of the Cloud API.
#[derive(Clone)]
pub struct WhatsappFiles {
    http: Http,
    base: Option<String>,
    egress: Egress,
    /// The hosts, beside the API's, that receive the token: lower-case.
    hosts: Vec<String>,
    timeout: Duration,
}

/// How a file's address is reached.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    /// The API's own origin, which the operator configured.
    Api,
    /// Another origin, checked by the egress rules.
    Egress,
}

impl WhatsappFiles {
    /// `base_url` is the API's origin and version; without it nothing is fetched.
    pub fn new(http: Http, base_url: Option<&str>, egress: Egress, hosts: Vec<String>) -> Self {
        Self {
            http,
            base: base_url.map(|url| url.trim_end_matches('/').to_owned()),
            egress,
            hosts: hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect(),
            timeout: TIMEOUT,
        }
    }

    /// Sets the time limit of a request until its response begins, and of each chunk. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    fn base(&self) -> Result<&str, FileGatewayError> {
        let unset = || FileGatewayError::Interrupted("WhatsApp is not configured".to_owned());
        self.base.as_deref().ok_or_else(unset)
    }

    /// The same parser reads the address for this check and for the call: `Uri` for the API, `Target` for other hosts.
    fn route(&self, url: &str) -> Result<Route, FileGatewayError> {
        let parse = |url: &str| url.parse::<Uri>().map_err(|_| FileGatewayError::Forbidden);
        let (api, address) = (parse(self.base()?)?, parse(url)?);
        let origin = |uri: &Uri| {
            let host = uri.host().map(str::to_ascii_lowercase);
            let is_https = uri.scheme_str() == Some("https");
            let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
            (uri.scheme_str().map(str::to_owned), host, port)
        };
        if origin(&api) == origin(&address) {
            return Ok(Route::Api);
        }
        let target = Target::parse(url, self.egress.allow_list());
        let host = match &target {
            Ok(target) => target.host().to_ascii_lowercase(),
            // A forbidden address is on a foreign host, too, unless its host is one of ours.
            Err(_) => address.host().unwrap_or_default().to_ascii_lowercase(),
        };
        let is_api = api.host().is_some_and(|api| api.eq_ignore_ascii_case(&host));
        let keeps_secret = address.scheme_str() == Some("https") || api.scheme_str() == Some("http");
        if !(is_api || self.hosts.contains(&host)) || !keeps_secret {
            return Err(FileGatewayError::Host);
        }
        target.map(|_| Route::Egress).map_err(|_| FileGatewayError::Forbidden)
    }

    async fn begin(
        &self,
        credentials: &WhatsappCredentials,
        url: &str,
    ) -> Result<Response<Incoming>, FileGatewayError> {
        match self.route(url)? {
            Route::Api => {
                let request = GatewayRequest::get(url)
                    .bearer(&credentials.token)
                    .map_err(call_error)?;
                self.http.open(request).await.map_err(call_error)
            }
            Route::Egress => {
                let target = Target::parse(url, self.egress.allow_list()).map_err(|_| FileGatewayError::Forbidden)?;
                let mut token = HeaderValue::from_str(&format!("Bearer {}", credentials.token.expose_secret()))
                    .map_err(|_| FileGatewayError::Interrupted("the access token is no header value".to_owned()))?;
                token.set_sensitive(true);
                let request = EgressRequest {
                    method: Method::GET,
                    target,
                    headers: HeaderMap::from_iter([(USER_AGENT, AGENT), (AUTHORIZATION, token)]),
                    body: Bytes::new(),
                };
                self.egress.call(request).await.map_err(|error| match error {
                    EgressError::Refused(_) => FileGatewayError::Forbidden,
                    error => FileGatewayError::Interrupted(error.to_string()),
                })
            }
        }
    }

    /// The content, with a time limit for each chunk.
    fn content(&self, body: Incoming) -> BoxStream<'static, Result<Bytes, FileGatewayError>> {
        let timeout = self.timeout;
        let next = move |mut body: BodyDataStream<Incoming>| async move {
            let chunk = match tokio::time::timeout(timeout, body.next()).await {
                Ok(chunk) => chunk?.map_err(|error| FileGatewayError::Interrupted(error.to_string())),
                Err(_) => Err(FileGatewayError::Interrupted(format!("no bytes within {timeout:?}"))),
            };
            Some((chunk, body))
        };
        stream::unfold(BodyDataStream::new(body), next).boxed()
    }
}

fn call_error(error: CallError) -> FileGatewayError {
    FileGatewayError::Interrupted(error.to_string())
}

#[async_trait]
impl FileGateway for WhatsappFiles {
    async fn locate(&self, credentials: &WhatsappCredentials, media_id: &str) -> Result<FileAddress, FileGatewayError> {
        let base = self.base()?;
        let (id, number) = (segment(media_id), segment(&credentials.phone_number_id));
        let request = GatewayRequest::get(format!("{base}/{id}?phone_number_id={number}"))
            .bearer(&credentials.token)
            .map_err(call_error)?;
        let response = tokio::time::timeout(self.timeout, self.http.call(request)).await;
        let response = response
            .map_err(|_| FileGatewayError::Rejected(format!("no response within {:?}", self.timeout)))?
            .map_err(call_error)?;
        let body = response.json::<Value>().unwrap_or_default();
        if !response.is_success() || body.get("error").is_some() {
            let error = graph::error(&body, TEMPLATE_ERROR_TEXTS, &credentials.token);
            let detail = error.map_or_else(String::new, |error| format!(", code {}", error.code));
            return Err(FileGatewayError::Rejected(format!("HTTP {}{detail}", response.status)));
        }
        let url = body.get("url").and_then(Value::as_str);
        let url = url.ok_or_else(|| FileGatewayError::Rejected("no address in the response".to_owned()))?;
        let size = body.get("file_size").and_then(|size| match size {
            Value::String(size) => size.parse().ok(),
            size => size.as_u64(),
        });
        Ok(FileAddress {
            url: url.to_owned(),
            sha256: body.get("sha256").and_then(Value::as_str).and_then(decode_sha256),
            size,
        })
    }

    async fn download(&self, credentials: &WhatsappCredentials, url: &str) -> Result<FileDownload, FileGatewayError> {
        let response = tokio::time::timeout(self.timeout, self.begin(credentials, url)).await;
        let response =
            response.map_err(|_| FileGatewayError::Rejected(format!("no response within {:?}", self.timeout)))??;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Err(FileGatewayError::Rejected(format!("HTTP {}", head.status.as_u16())));
        }
        Ok(FileDownload {
            size: body.size_hint().exact(),
            content: self.content(body),
        })
    }
}

/// SHA-256 as WhatsApp writes it: hex in responses, base64 in callbacks.
pub(super) fn decode_sha256(text: &str) -> Option<[u8; 32]> {
    let bytes = match text.len() {
        64 => hex::decode(text).ok(),
        _ => STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok(),
    };
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use recado_domain::egress::AllowList;

    use super::*;
    use crate::egress::EgressConfig;

    fn files(base: &str) -> WhatsappFiles {
        let egress = Egress::new(EgressConfig::new(AllowList::default())).unwrap();
        let hosts = vec!["lookaside.fbsbx.com".to_owned()];
        WhatsappFiles::new(Http::new().unwrap(), Some(base), egress, hosts)
    }

    #[tokio::test]
    async fn token_goes_to_the_api_and_the_media_hosts_alone() {
        let files = files("https://graph.facebook.com/v25.0");
        let route = |url: &str| match files.route(url) {
            Ok(route) => format!("{route:?}"),
            Err(error) => error.to_string(),
        };
        for (url, expected) in [
            ("https://graph.facebook.com/any", "Api"),
            ("https://GRAPH.facebook.com:443/any", "Api"),
            ("https://lookaside.fbsbx.com/a?mid=1", "Egress"),
            ("https://LOOKASIDE.fbsbx.com/", "Egress"),
            ("http://lookaside.fbsbx.com/a", "a foreign host"),
            ("http://graph.facebook.com/a", "a foreign host"),
            ("https://lookaside.fbsbx.com.evil.example/", "a foreign host"),
            ("https://lookaside.fbsbx.com@evil.example/", "a foreign host"),
            ("https://evil.example/lookaside.fbsbx.com", "a foreign host"),
            ("https://10.0.0.1/a", "a foreign host"),
            ("https://127.0.0.1:1/a", "a foreign host"),
            ("https://lookaside.fbsbx.com:8080/", "a forbidden address"),
            ("file:///etc/passwd", "a forbidden address"),
            ("not a url", "a forbidden address"),
            ("https://lookaside.fbsbx.com\\@evil.example/", "a forbidden address"),
        ] {
            assert_eq!(route(url), expected, "{url}");
        }
    }

    #[test]
    fn sha256_is_hex_or_base64() {
        assert_eq!(decode_sha256(&"07".repeat(32)), Some([7; 32]));
        assert_eq!(decode_sha256(&STANDARD.encode([7; 32])), Some([7; 32]));
        assert_eq!(decode_sha256("abc"), None);
        assert_eq!(decode_sha256(&STANDARD.encode([7; 31])), None);
    }
}
