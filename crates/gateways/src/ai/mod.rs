//! `BrandExtractor` over an OpenAI-compatible chat completions API.
//!
//! The page is untrusted (prompt injection): it is enclosed in markers that it cannot contain, the model has no tools,
//! and only six strings of the response are used.

mod dialect;
mod response;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use recado_domain::brand::{BrandExtractor, ExtractError, Extraction, PageText};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use self::dialect::Dialect;
use self::response::{CompletionDefect, CompletionOutcome};
use crate::http::{CallError, GatewayRequest, GatewayResponse, Http, retry_after};

/// Default time limit of an extraction, retries included.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit of a test of the access.
const TEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Concurrent extractions.
const MAX_EXTRACTIONS: usize = 4;

/// Retries of a call that failed with no response, 429 or 5xx. The wait doubles from `RETRY_DELAY`. A longer
/// `Retry-After` applies instead; one beyond `MAX_RETRY_DELAY` ends the retries.
const MAX_RETRIES: u32 = 2;
const RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Client of the AI service at one base URL.
#[derive(Clone)]
pub struct AiApi {
    http: Http,
    access: Option<Arc<Access>>,
    timeout: Duration,
}

struct Access {
    base: String,
    url: String,
    key: Option<SecretString>,
    model: String,
    dialect: Dialect,
    permits: Semaphore,
}

impl AiApi {
    /// `base_url` is origin and version, for example `https://api.openai.com/v1`. Without it or without a model every
    /// extraction fails as not configured. The key is optional, since local servers require none.
    pub fn new(http: Http, base_url: Option<&str>, key: Option<&SecretString>, model: Option<&str>) -> Self {
        let access = base_url.zip(model).map(|(base, model)| {
            Arc::new(Access {
                base: base.trim_end_matches('/').to_owned(),
                url: format!("{}/chat/completions", base.trim_end_matches('/')),
                key: key.cloned(),
                model: model.to_owned(),
                dialect: Dialect::default(),
                permits: Semaphore::new(MAX_EXTRACTIONS),
            })
        });
        Self {
            http,
            access,
            timeout: TIMEOUT,
        }
    }

    /// Sets the time limit of an extraction. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Checks URL, key and model with the list of models, which costs nothing. Without a URL and a model it is not
    /// configured.
    pub async fn test_access(&self) -> Result<AiAccessTest, ExtractError> {
        let access = self.access.as_ref().ok_or(ExtractError::NotConfigured)?;
        let request = GatewayRequest::get(format!("{}/models", access.base)).timeout(TEST_TIMEOUT);
        let response = self.http.call(access.authorized(request)?).await;
        match response {
            Ok(response) if response.is_success() => Ok(match response.json::<ModelList>() {
                Some(list) if list.has(&access.model) => AiAccessTest::ModelFound,
                Some(_) => AiAccessTest::ModelMissing,
                None => AiAccessTest::Reachable,
            }),
            // Not every compatible service lists its models.
            Ok(response) if matches!(response.status, 404 | 405 | 501) => Ok(AiAccessTest::Reachable),
            other => Err(extract_error(other)),
        }
    }

    /// Extracts facts. Retries once if the response is unreadable or cut off; in the second case with half the page.
    async fn extract_facts(&self, access: &Access, page: &PageText) -> Result<Extraction, ExtractError> {
        let _permit = access.permits.acquire().await;
        let mut text = page.text.clone();
        let mut defect = CompletionDefect::Unreadable;
        for _ in 0..2 {
            match response::parse_completion(&self.complete(access, &text).await?) {
                CompletionOutcome::Done(facts, usage) => {
                    return Ok(Extraction {
                        facts,
                        model: access.model.clone(),
                        usage,
                    });
                }
                CompletionOutcome::Refused => return Err(failed("the model refused")),
                CompletionOutcome::Retry(reason) => defect = reason,
            }
            if defect == CompletionDefect::TooLong {
                text = text.chars().take(text.chars().count() / 2).collect();
            }
        }
        Err(failed(defect.as_str()))
    }

    /// Returns a completion. Retries if the service is busy or failed, and with fewer parameters if it rejects one.
    async fn complete(&self, access: &Access, text: &str) -> Result<Value, ExtractError> {
        let mut retries = 0;
        loop {
            let request = GatewayRequest::post(&access.url, &access.dialect.request_body(&access.model, text))
                .timeout(self.timeout);
            let result = self.http.call(access.authorized(request)?).await;
            if let Ok(response) = &result {
                if response.is_success() {
                    return response.json().ok_or_else(|| failed("the response is not JSON"));
                }
                if response.status == 400 && access.dialect.simplify(&String::from_utf8_lossy(&response.body)) {
                    continue;
                }
            }
            let delay = retry_delay(&result, retries).filter(|_| retries < MAX_RETRIES);
            let Some(delay) = delay else {
                return Err(extract_error(result));
            };
            retries += 1;
            sleep(delay).await;
        }
    }
}

impl Access {
    fn authorized(&self, request: GatewayRequest) -> Result<GatewayRequest, ExtractError> {
        match &self.key {
            Some(key) => request.bearer(key).map_err(|error| failed(&error.to_string())),
            None => Ok(request),
        }
    }
}

/// The result of [`AiApi::test_access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AiAccessTest {
    /// The service lists the configured model.
    ModelFound,
    /// The service lists its models, and the configured one is not among them.
    ModelMissing,
    /// The service answers, but does not list its models.
    Reachable,
}

/// The list of models of the service.
#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

impl ModelList {
    fn has(&self, model: &str) -> bool {
        self.data.iter().any(|listed| listed.id == model)
    }
}

/// The wait before a retry; `None` if a retry would not help.
fn retry_delay(result: &Result<GatewayResponse, CallError>, retries: u32) -> Option<Duration> {
    let backoff = RETRY_DELAY * 2_u32.pow(retries);
    match result {
        Err(_) => Some(backoff),
        Ok(response) if response.status == 429 || response.status >= 500 => {
            let requested = retry_after(&response.headers).unwrap_or_default();
            Some(requested.max(backoff)).filter(|delay| *delay <= MAX_RETRY_DELAY)
        }
        Ok(_) => None,
    }
}

/// Reports only the status, since the body of an error may repeat the request.
fn extract_error(result: Result<GatewayResponse, CallError>) -> ExtractError {
    match result {
        Ok(response) => failed(&format!("HTTP status {}", response.status)),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(reason: &str) -> ExtractError {
    ExtractError::Failed(reason.to_owned())
}

#[async_trait]
impl BrandExtractor for AiApi {
    async fn extract(&self, page: &PageText) -> Result<Extraction, ExtractError> {
        let access = self.access.as_ref().ok_or(ExtractError::NotConfigured)?;
        match timeout(self.timeout, self.extract_facts(access, page)).await {
            Ok(result) => result,
            Err(_) => Err(failed("no response in time")),
        }
    }
}
