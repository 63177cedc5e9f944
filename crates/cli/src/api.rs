//! The client of the public API.

use std::path::Path;
use std::time::Duration;

use http::header::{HeaderValue, RETRY_AFTER};
use recado_gateways::http::{CallError, GatewayRequest, GatewayResponse, Http};
use recado_gateways::tls::{self, Authorities};
use secrecy::SecretString;
use serde_json::Value;
use url::{Host, Url};

use crate::{CommandFailure, Connection};

const API_KEY: &str = "RECADO_API_KEY";

/// Attempts of a request that is safe to repeat, the first included.
const ATTEMPTS: u32 = 4;

/// The longest pause between two attempts, also if the server asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Statuses of a server or proxy that is busy or restarts.
const BUSY: [u16; 4] = [429, 502, 503, 504];

/// A page of the event feed may be larger than the client's default.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

pub(crate) struct Api {
    http: Http,
    base_url: Url,
    key: SecretString,
}

impl Api {
    /// Reads the address and the key. Sends nothing.
    pub(crate) fn new(connection: &Connection) -> Result<Self, CommandFailure> {
        let base_url = parse_base_url(&connection.url)?;
        let key = std::env::var(API_KEY).ok().filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| {
            CommandFailure::Usage(format!(
                "set {API_KEY} to an API key of the account (POST /api/api-keys creates one)"
            ))
        })?;
        if HeaderValue::from_str(&key).is_err() {
            let problem = "has characters that no key has, such as a line break";
            return Err(CommandFailure::Usage(format!("{API_KEY} {problem}")));
        }
        Ok(Self {
            http: client()?,
            base_url,
            key: SecretString::from(key),
        })
    }

    /// Returns the `data` of a GET. Repeats it while the server is busy or not reachable.
    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, CommandFailure> {
        let url = self.url(path, query)?;
        self.repeat(|| GatewayRequest::get(url.as_str())).await
    }

    /// Returns the `data` of a POST. Repeats it while the server is busy or not reachable: the body MUST contain an
    /// idempotency key, as `client_reference` is.
    pub(crate) async fn post_unique(&self, path: &[&str], body: &Value) -> Result<Value, CommandFailure> {
        let url = self.url(path, &[])?;
        self.repeat(|| GatewayRequest::post(url.as_str(), body)).await
    }

    /// Returns the `data` of a request, which is made once.
    pub(crate) async fn once(
        &self,
        path: &[&str],
        request: impl FnOnce(&str) -> GatewayRequest,
    ) -> Result<Value, CommandFailure> {
        let url = self.url(path, &[])?;
        data(self.call(request(url.as_str())).await.map_err(unreachable)?)
    }

    async fn repeat(&self, request: impl Fn() -> GatewayRequest) -> Result<Value, CommandFailure> {
        let mut attempt = 1;
        loop {
            let result = self.call(request()).await;
            let pause = match &result {
                Ok(response) if BUSY.contains(&response.status) => pause(attempt, response.headers.get(RETRY_AFTER)),
                Err(_) => pause(attempt, None),
                Ok(_) => return data(result.map_err(unreachable)?),
            };
            if attempt == ATTEMPTS {
                return data(result.map_err(unreachable)?);
            }
            attempt += 1;
            tokio::time::sleep(pause).await;
        }
    }

    async fn call(&self, request: GatewayRequest) -> Result<GatewayResponse, CallError> {
        let request = request.bearer(&self.key)?.max_response_bytes(MAX_RESPONSE_BYTES);
        self.http.call(request).await
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, CommandFailure> {
        let mut url = self.base_url.clone();
        url.path_segments_mut()
            .map_err(|()| CommandFailure::Usage("the address of the server has no path".into()))?
            .pop_if_empty()
            .push("api")
            .extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

/// A client that trusts the authorities of the system and of `SSL_CERT_FILE`.
pub(crate) fn client() -> Result<Http, CommandFailure> {
    if let Some(file) = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
        let authorities = Authorities::system().with_file(Path::new(&file));
        // A second client of the process finds them installed.
        tls::install(authorities.map_err(|error| CommandFailure::Usage(format!("SSL_CERT_FILE {error}")))?);
    }
    Http::new().map_err(CommandFailure::Usage)
}

fn parse_base_url(text: &str) -> Result<Url, CommandFailure> {
    let wrong = |problem: &str| CommandFailure::Usage(format!("--url (RECADO_URL) {problem}"));
    let url: Url = text
        .parse()
        .map_err(|_| wrong("must be an absolute URL, for example https://recado.example.com"))?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("must have no user name, query or fragment"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_this_machine(&url) => Ok(url),
        "http" => Err(wrong(
            "must begin with https://, because the API key is sent to it; http:// is allowed to this machine only",
        )),
        _ => Err(wrong("must begin with https://")),
    }
}

/// Whether the host is a loopback address.
pub(crate) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// One second, doubled with each attempt; longer if the server asks for it.
fn pause(attempt: u32, retry_after: Option<&HeaderValue>) -> Duration {
    let seconds = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let asked = Duration::from_secs(seconds.unwrap_or(0));
    asked.max(Duration::from_secs(1 << (attempt - 1).min(6))).min(MAX_PAUSE)
}

fn unreachable(error: CallError) -> CommandFailure {
    CommandFailure::Unreachable(match error {
        CallError::NotSent(reason) => format!("the server is not reachable: {reason}"),
        CallError::MaybeSent(reason) => {
            format!("the server did not respond, and may have received the request: {reason}")
        }
    })
}

/// The `data` of a response, or why there is none.
fn data(response: GatewayResponse) -> Result<Value, CommandFailure> {
    let mut body: Value = response.json().unwrap_or_default();
    if response.is_success() {
        return match body.get_mut("data") {
            Some(data) => Ok(data.take()),
            None => Err(not_recado()),
        };
    }
    let text = refusal(response.status, &body);
    Err(match BUSY.contains(&response.status) {
        true => CommandFailure::Unreachable(text),
        false => CommandFailure::Refused(text),
    })
}

/// The response is not in the form of the API.
pub(crate) fn not_recado() -> CommandFailure {
    CommandFailure::Refused("the server does not answer as Recado does; check --url (RECADO_URL)".into())
}

/// `400 VALIDATION_ERROR: message {details}`.
fn refusal(status: u16, body: &Value) -> String {
    let error = body.get("error").unwrap_or(&Value::Null);
    let field = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let details = error.get("details").filter(|details| !details.is_null());
    let details = details.map(|details| format!(" {details}")).unwrap_or_default();
    format!(
        "the server returned {status} {}: {}{details}",
        field("code"),
        field("message")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn api_key_is_sent_to_https_and_to_this_machine_only() {
        for url in [
            "https://recado.example.com",
            "http://127.0.0.1:8080",
            "http://localhost",
            "http://[::1]:1",
        ] {
            assert!(parse_base_url(url).is_ok(), "{url}");
        }
        for url in [
            "http://recado.example.com",
            "http://10.0.0.1",
            "ftp://127.0.0.1",
            "recado.example.com",
            "",
        ] {
            assert!(matches!(parse_base_url(url), Err(CommandFailure::Usage(_))), "{url}");
        }
    }

    #[test]
    fn pause_doubles_and_follows_the_server_up_to_a_minute() {
        let seconds = |attempt, header: Option<&'static str>| {
            pause(attempt, header.map(HeaderValue::from_static).as_ref()).as_secs()
        };
        assert_eq!([1, 2, 3].map(|attempt| seconds(attempt, None)), [1, 2, 4]);
        assert_eq!(seconds(1, Some("30")), 30);
        assert_eq!(seconds(1, Some("3600")), 60);
        assert_eq!(seconds(2, Some("soon")), 2);
    }

    #[test]
    fn refusal_has_code_message_and_details() {
        let body =
            json!({ "error": { "code": "VALIDATION_ERROR", "message": "no", "details": { "reason": "budget" } } });
        let text = refusal(400, &body);
        assert_eq!(
            text,
            r#"the server returned 400 VALIDATION_ERROR: no {"reason":"budget"}"#
        );
        assert!(refusal(502, &Value::Null).starts_with("the server returned 502"));
    }
}
