//! `VerificationGateway` on Meta's Graph API: the number, the numbers of its business account, the subscription of the
//! app, the registration and the health. Answers are read tolerantly: a missing or unknown value is no error.

use async_trait::async_trait;
use recado_domain::messaging::WhatsappCredentials;
use recado_domain::whatsapp::verification::{
    CanSend, GraphError, HealthEntity, HealthError, HealthReport, NumberFacts, NumberPage, ReadNumber,
    VerificationGateway,
};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use super::codes::{ERROR_CODES, INVALID_PARAMETER};
use super::{CloudApi, graph, segment};
use crate::http::{CallError, GatewayRequest, GatewayResponse};

const NUMBER_FIELDS: &str = "id,display_phone_number,verified_name,name_status,status,quality_rating,\
                             code_verification_status,platform_type,throughput,account_mode,is_on_biz_app,\
                             whatsapp_business_manager_messaging_limit";

/// The fields that every version of the API has.
const BASIC_FIELDS: &str = "id,display_phone_number,verified_name";

const MAX_RESPONSE_BYTES: usize = 256 * 1024;

/// Limits of a stored health report.
const MAX_ENTRIES: usize = 20;
const MAX_TEXT_CHARS: usize = 300;

#[async_trait]
impl VerificationGateway for CloudApi {
    async fn number(&self, credentials: &WhatsappCredentials) -> Result<ReadNumber, GraphError> {
        match self.read_number(credentials, NUMBER_FIELDS).await {
            Err(GraphError::Refused {
                code: INVALID_PARAMETER,
                ..
            }) => self.read_number(credentials, BASIC_FIELDS).await,
            answer => answer,
        }
    }

    async fn business_numbers<'a>(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&'a str>,
    ) -> Result<NumberPage, GraphError> {
        let waba = segment(&credentials.waba_id);
        let mut path = format!("{waba}/phone_numbers?fields=id,display_phone_number&limit=100");
        if let Some(after) = after {
            path.push_str("&after=");
            path.push_str(&segment(after));
        }
        let body = self.ask(&path, credentials, GatewayRequest::get).await?;
        let data = body.get("data").and_then(Value::as_array);
        let data = data.ok_or_else(|| GraphError::Unavailable("the answer has no list of numbers".into()))?;
        Ok(NumberPage {
            ids: data.iter().filter_map(|item| graph::id(item.get("id"))).collect(),
            // A page whose next cursor is its own would loop forever.
            next: next_cursor(&body).filter(|next| Some(next.as_str()) != after),
        })
    }

    async fn subscribe(&self, credentials: &WhatsappCredentials) -> Result<(), GraphError> {
        let path = format!("{}/subscribed_apps", segment(&credentials.waba_id));
        let body = self.ask(&path, credentials, GatewayRequest::post_empty).await?;
        succeeded(&body)
    }

    async fn register(&self, credentials: &WhatsappCredentials, pin: &SecretString) -> Result<(), GraphError> {
        let path = format!("{}/register", segment(&credentials.phone_number_id));
        let body = json!({ "messaging_product": "whatsapp", "pin": pin.expose_secret() });
        let body = Zeroizing::new(body.to_string().into_bytes());
        let answer = self
            .ask(&path, credentials, |url| GatewayRequest::post_secret(url, body))
            .await;
        match answer {
            Ok(body) => succeeded(&body),
            Err(GraphError::Refused { code, class, message }) => Err(GraphError::Refused {
                code,
                class,
                // The message is stored and shown.
                message: message.replace(pin.expose_secret(), "[PIN]"),
            }),
            Err(error) => Err(error),
        }
    }

    async fn health(&self, credentials: &WhatsappCredentials) -> Result<HealthReport, GraphError> {
        let path = format!("{}?fields=health_status", segment(&credentials.phone_number_id));
        let body = self.ask(&path, credentials, GatewayRequest::get).await?;
        let status = body.get("health_status").filter(|status| status.is_object());
        let status = status.ok_or_else(|| GraphError::Unavailable("the answer has no health".into()))?;
        Ok(health_report(status, &credentials.token))
    }
}

impl CloudApi {
    async fn read_number(&self, credentials: &WhatsappCredentials, fields: &str) -> Result<ReadNumber, GraphError> {
        let path = format!("{}?fields={fields}", segment(&credentials.phone_number_id));
        let body = self.ask(&path, credentials, GatewayRequest::get).await?;
        let id = graph::id(body.get("id"));
        let id = id.ok_or_else(|| GraphError::Unavailable("the answer has no id".into()))?;
        Ok(ReadNumber {
            id,
            facts: number_facts(&body, &credentials.token),
        })
    }

    /// Makes one call. `path` follows the base URL and may have a query.
    async fn ask(
        &self,
        path: &str,
        credentials: &WhatsappCredentials,
        request: impl FnOnce(String) -> GatewayRequest + Send,
    ) -> Result<Value, GraphError> {
        let base = self.base.as_ref().ok_or(GraphError::NotConfigured)?;
        let unavailable = |error: CallError| GraphError::Unavailable(error.to_string());
        let request = request(format!("{base}/{path}"))
            .timeout(self.timeout)
            .max_response_bytes(MAX_RESPONSE_BYTES)
            .bearer(&credentials.token)
            .map_err(unavailable)?;
        let response = self.http.call(request).await.map_err(unavailable)?;
        read_answer(&response, &credentials.token)
    }
}

/// The JSON object of a successful answer.
fn read_answer(response: &GatewayResponse, token: &SecretString) -> Result<Value, GraphError> {
    let status = response.status;
    if status == 429 || status >= 500 {
        return Err(GraphError::Unavailable(format!("HTTP {status}")));
    }
    let body = response.json::<Value>().filter(Value::is_object);
    let body = body.ok_or_else(|| GraphError::Unavailable(format!("HTTP {status} without a JSON object")))?;
    match graph::error(&body, graph::TEMPLATE_ERROR_TEXTS, token) {
        Some(error) => Err(GraphError::Refused {
            code: error.code,
            class: ERROR_CODES.class(error.code),
            message: error.message,
        }),
        None if response.is_success() => Ok(body),
        None => Err(GraphError::Unavailable(format!("HTTP {status} without an error code"))),
    }
}

fn succeeded(body: &Value) -> Result<(), GraphError> {
    match body.get("success") {
        Some(Value::Bool(true)) => Ok(()),
        _ => Err(GraphError::Unavailable("the answer does not report success".into())),
    }
}

/// The cursor after this page. A page without `paging.next` is the last one.
fn next_cursor(body: &Value) -> Option<String> {
    let next = body.pointer("/paging/next")?.as_str()?;
    let cursor = body.pointer("/paging/cursors/after").and_then(Value::as_str);
    cursor.map(str::to_owned).or_else(|| {
        let url = Url::parse(next).ok()?;
        let after = url.query_pairs().find(|(name, _)| name == "after")?;
        Some(after.1.into_owned())
    })
}

/// A text of an answer in one line: at most 300 characters.
fn text(value: Option<&Value>, token: &SecretString) -> Option<String> {
    let text = graph::safe_text(value?.as_str()?, token);
    let text: String = text.trim().chars().take(MAX_TEXT_CHARS).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// A word of WhatsApp in lower case.
fn word(value: Option<&Value>, token: &SecretString) -> Option<String> {
    text(value, token).map(|word| word.to_lowercase())
}

fn number_facts(body: &Value, token: &SecretString) -> NumberFacts {
    let quality = word(body.get("quality_rating"), token);
    let throughput = body.get("throughput");
    let facts = NumberFacts {
        display_phone_number: text(body.get("display_phone_number"), token),
        verified_name: text(body.get("verified_name"), token),
        name_status: word(body.get("name_status"), token),
        status: word(body.get("status"), token),
        quality_rating: quality.map(|quality| if quality == "na" { "unknown".to_owned() } else { quality }),
        throughput: word(
            throughput.and_then(|throughput| throughput.get("level")).or(throughput),
            token,
        ),
        max_messages_per_second: None,
        messaging_limit: body
            .get("whatsapp_business_manager_messaging_limit")
            .and_then(graph::messaging_limit),
        on_business_app: body.get("is_on_biz_app").and_then(Value::as_bool),
        portfolio_id: None,
    };
    facts.with_max_rate()
}

fn health_report(status: &Value, token: &SecretString) -> HealthReport {
    let entities = status.get("entities").and_then(Value::as_array);
    let entities: Vec<HealthEntity> = entities
        .into_iter()
        .flatten()
        .take(MAX_ENTRIES)
        .filter_map(|entity| health_entity(entity, token))
        .collect();
    let worst = [CanSend::Blocked, CanSend::Limited, CanSend::Available]
        .into_iter()
        .find(|state| entities.iter().any(|entity| entity.can_send == *state));
    let can_send = match can_send(status.get("can_send_message"), token) {
        CanSend::Unknown => worst.unwrap_or(CanSend::Unknown),
        known => known,
    };
    HealthReport { can_send, entities }
}

fn can_send(value: Option<&Value>, token: &SecretString) -> CanSend {
    let word = word(value, token).and_then(|word| word.parse().ok());
    word.unwrap_or(CanSend::Unknown)
}

/// `None` if the entity has no type.
fn health_entity(entity: &Value, token: &SecretString) -> Option<HealthEntity> {
    let errors = entity.get("errors").and_then(Value::as_array);
    let info = match entity.get("additional_info") {
        Some(Value::Array(texts)) => texts.iter().collect(),
        Some(single) => vec![single],
        None => vec![],
    };
    Some(HealthEntity {
        kind: word(entity.get("entity_type"), token)?,
        id: graph::id(entity.get("id")),
        can_send: can_send(entity.get("can_send_message"), token),
        errors: errors
            .into_iter()
            .flatten()
            .take(MAX_ENTRIES)
            .map(|error| health_error(error, token))
            .collect(),
        info: info
            .into_iter()
            .take(MAX_ENTRIES)
            .filter_map(|info| text(Some(info), token))
            .collect(),
    })
}

fn health_error(error: &Value, token: &SecretString) -> HealthError {
    let code = error.get("error_code");
    HealthError {
        code: code.and_then(|code| code.as_i64().or_else(|| code.as_str()?.parse().ok())),
        description: text(error.get("error_description"), token),
        solution: text(error.get("possible_solution"), token),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::header::HeaderMap;

    use recado_domain::messaging::{BlockCause, ErrorClass};

    use super::*;

    fn token() -> SecretString {
        SecretString::from("EAAG1")
    }

    fn answer(status: u16, body: &str) -> Result<Value, GraphError> {
        let response = GatewayResponse {
            status,
            headers: HeaderMap::new(),
            body: Bytes::from(body.to_owned()),
        };
        read_answer(&response, &token())
    }

    #[test]
    fn answers_that_say_nothing_about_the_number_are_unavailable() {
        let error = r#"{"error":{"code":190,"message":"token EAAG1 expired"}}"#;
        for (status, body) in [
            (429, error),
            (500, error),
            (200, "[]"),
            (200, "<html>"),
            (404, ""),
            (404, "{}"),
            (302, "{}"),
        ] {
            let answer = answer(status, body);
            assert!(matches!(answer, Err(GraphError::Unavailable(_))), "{status} {body}");
        }
        let refused = GraphError::Refused {
            code: 190,
            class: ErrorClass::Blocked(BlockCause::Token),
            message: "token [token] expired".into(),
        };
        assert_eq!(answer(401, error), Err(refused));
        assert!(answer(200, r#"{"id":"1"}"#).is_ok());
    }

    #[test]
    fn number_is_read_with_lower_case_words_and_its_rate() {
        let body = json!({ "id": "1", "display_phone_number": "+1 631", "verified_name": "Loja\u{0}",
            "name_status": "APPROVED", "status": "CONNECTED", "quality_rating": "NA",
            "throughput": { "level": "HIGH" }, "whatsapp_business_manager_messaging_limit": "TIER_UNLIMITED" });
        let facts = number_facts(&body, &token());
        assert_eq!(
            (
                facts.quality_rating.as_deref(),
                facts.status.as_deref(),
                facts.verified_name.as_deref()
            ),
            (Some("unknown"), Some("connected"), Some("Loja"))
        );
        assert_eq!(
            (facts.max_messages_per_second, facts.messaging_limit),
            (Some(1000), Some(-1))
        );
        assert_eq!(number_facts(&json!({ "id": "1" }), &token()), NumberFacts::default());
    }

    #[test]
    fn last_page_has_no_next_link() {
        let page = json!({ "paging": { "cursors": { "after": "b" }, "next": "https://g/x?after=b" } });
        assert_eq!(next_cursor(&page).as_deref(), Some("b"));
        assert_eq!(next_cursor(&json!({ "paging": { "cursors": { "after": "b" } } })), None);
        let link_alone = json!({ "paging": { "next": "https://g/x?limit=1&after=c%3D" } });
        assert_eq!(next_cursor(&link_alone).as_deref(), Some("c="));
    }

    #[test]
    fn health_takes_texts_and_lists() {
        let status = json!({ "entities": [
            { "entity_type": "WABA", "id": 7, "can_send_message": "BLOCKED",
              "errors": [{ "error_code": "141006", "error_description": "d", "possible_solution": "s" }] },
            { "entity_type": "BUSINESS", "id": "5", "can_send_message": "LIMITED", "additional_info": "why" },
            { "id": "no type" }] });
        let report = health_report(&status, &token());
        assert_eq!((report.can_send, report.entities.len()), (CanSend::Blocked, 2));
        assert_eq!(report.portfolio_id(), Some("5"));
        let [waba, business] = &report.entities[..] else {
            panic!()
        };
        assert_eq!((waba.errors[0].code, waba.id.as_deref()), (Some(141_006), Some("7")));
        assert_eq!(business.info, ["why"]);
    }
}
