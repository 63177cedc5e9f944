//! Reads pages by a language model, over chat completions in the form that OpenAI's API gave them.
//!
//! The page is hostile: it goes between two markers that it cannot write itself, the model has no tools, and of its
//! answer nothing is used but six strings.

mod answer;
mod dialect;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use recado_domain::brand::{BrandExtractor, ExtractError, Extraction, PageText};
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use self::answer::{Read, Trouble};
use self::dialect::Dialect;
use crate::http::{CallError, GatewayRequest, GatewayResponse, Http, retry_after};

/// How long a reading may take, with everything that is tried again.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How many readings are under way at once.
const READINGS: usize = 4;

/// How often a call is repeated that the service was too busy or too broken for, and how long after.
const REPEATS: u32 = 2;
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The extraction service at one address.
#[derive(Clone)]
pub struct AiApi {
    http: Http,
    access: Option<Arc<Access>>,
    timeout: Duration,
}

struct Access {
    url: String,
    key: Option<SecretString>,
    model: String,
    dialect: Dialect,
    places: Semaphore,
}

impl AiApi {
    /// `base_url` is origin and version, for example `https://api.openai.com/v1`. Without it, or without a model, every
    /// reading says that the service is not configured; local servers want no key.
    pub fn new(http: Http, base_url: Option<&str>, key: Option<&SecretString>, model: Option<&str>) -> Self {
        let access = base_url.zip(model).map(|(base, model)| {
            Arc::new(Access {
                url: format!("{}/chat/completions", base.trim_end_matches('/')),
                key: key.cloned(),
                model: model.to_owned(),
                dialect: Dialect::default(),
                places: Semaphore::new(READINGS),
            })
        });
        Self {
            http,
            access,
            timeout: TIMEOUT,
        }
    }

    /// The same with another time limit for a reading. Default: 30 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// One reading: what is unreadable, or too long for the answer, is asked for once more.
    async fn read(&self, access: &Access, page: &PageText) -> Result<Extraction, ExtractError> {
        let _place = access.places.acquire().await;
        let mut text = page.text.clone();
        let mut trouble = Trouble::Unreadable;
        for _ in 0..2 {
            match answer::read(&self.complete(access, &text).await?) {
                Read::Done(facts, usage) => {
                    return Ok(Extraction {
                        facts,
                        model: access.model.clone(),
                        usage,
                    });
                }
                Read::Refused => return Err(failed("it refused")),
                Read::Again(why) => trouble = why,
            }
            if trouble == Trouble::TooLong {
                text = text.chars().take(text.chars().count() / 2).collect();
            }
        }
        Err(failed(trouble.as_str()))
    }

    /// One answer with status 200: repeated where the service was busy, and in a simpler dialect where it did not
    /// understand.
    async fn complete(&self, access: &Access, text: &str) -> Result<Value, ExtractError> {
        let mut repeats = 0;
        loop {
            let request =
                GatewayRequest::post(&access.url, &access.dialect.request(&access.model, text)).timeout(self.timeout);
            let request = match &access.key {
                Some(key) => request.bearer(key).map_err(|error| failed(&error.to_string()))?,
                None => request,
            };
            let answer = self.http.call(request).await;
            if let Ok(answer) = &answer {
                if answer.is_success() {
                    return answer.json().ok_or_else(|| failed("no JSON"));
                }
                if answer.status == 400 && access.dialect.simplify(&String::from_utf8_lossy(&answer.body)) {
                    continue;
                }
            }
            let pause = pause(&answer, repeats).filter(|_| repeats < REPEATS);
            let Some(pause) = pause else { return Err(told(answer)) };
            repeats += 1;
            sleep(pause).await;
        }
    }
}

/// How long to wait before a call is repeated; none where it would be in vain.
fn pause(answer: &Result<GatewayResponse, CallError>, repeats: u32) -> Option<Duration> {
    let own = PAUSE * 2_u32.pow(repeats);
    match answer {
        Err(_) => Some(own),
        Ok(answer) if answer.status == 429 || answer.status >= 500 => {
            let wanted = retry_after(&answer.headers).unwrap_or_default();
            Some(wanted.max(own)).filter(|pause| *pause <= LONGEST_PAUSE)
        }
        Ok(_) => None,
    }
}

/// By status alone: bodies of errors may repeat what they were sent.
fn told(answer: Result<GatewayResponse, CallError>) -> ExtractError {
    match answer {
        Ok(answer) => failed(&format!("status {}", answer.status)),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> ExtractError {
    ExtractError::Failed(why.to_owned())
}

#[async_trait]
impl BrandExtractor for AiApi {
    async fn extract(&self, page: &PageText) -> Result<Extraction, ExtractError> {
        let access = self.access.as_ref().ok_or(ExtractError::NotConfigured)?;
        match timeout(self.timeout, self.read(access, page)).await {
            Ok(result) => result,
            Err(_) => Err(failed("no answer in time")),
        }
    }
}
