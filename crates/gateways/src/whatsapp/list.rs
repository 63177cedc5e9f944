//! Reads WhatsApp's list of templates, page by page.

use recado_domain::messaging::{Component, RemotePage, RemoteTemplate, WhatsappCredentials};
use recado_domain::shared::GatewayError;
use secrecy::SecretString;
use serde_json::Value;

use super::review_status::review_status;
use super::{CloudApi, NAME, files, graph, segment};
use crate::http::{GatewayRequest, GatewayResponse};

const FIELDS: &str = "id,name,language,category,correct_category,status,components,rejected_reason,quality_score,\
                      parameter_format,message_send_ttl_seconds";

/// Largest page in bytes: a hundred carousels fit.
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;

impl CloudApi {
    /// `GET /{waba_id}/message_templates`
    pub(super) async fn fetch_page(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&str>,
    ) -> Result<RemotePage, GatewayError> {
        let base = self.base.as_ref().ok_or(GatewayError::NotConfigured(NAME))?;
        let waba = segment(&credentials.waba_id);
        let mut url = format!("{base}/{waba}/message_templates?limit=100&fields={FIELDS}");
        if let Some(after) = after {
            url.push_str("&after=");
            url.push_str(&segment(after));
        }
        let unavailable = |error: crate::http::CallError| GatewayError::Unavailable(error.to_string());
        let request = GatewayRequest::get(url)
            .max_response_bytes(MAX_PAGE_BYTES)
            .timeout(self.timeout)
            .bearer(&credentials.token);
        let response = self
            .http
            .call(request.map_err(unavailable)?)
            .await
            .map_err(unavailable)?;
        parse_page(&response, after, &credentials.token)
    }
}

fn parse_page(
    response: &GatewayResponse,
    requested: Option<&str>,
    token: &SecretString,
) -> Result<RemotePage, GatewayError> {
    let body = files::read_success(response, token)?;
    let data = body.get("data").and_then(Value::as_array);
    let data = data.ok_or_else(|| GatewayError::Unavailable("the response has no list of templates".into()))?;
    let text = |path: &str| body.pointer(path).and_then(Value::as_str);
    let next = text("/paging/next").and_then(|_| text("/paging/cursors/after"));
    Ok(RemotePage {
        templates: data.iter().filter_map(parse_template).collect(),
        // A page whose next cursor is its own would loop forever.
        next: next.filter(|next| Some(*next) != requested).map(str::to_owned),
    })
}

/// `None` if a required field is missing.
fn parse_template(item: &Value) -> Option<RemoteTemplate> {
    let text = |field: &str| item.get(field).and_then(Value::as_str).map(str::to_owned);
    let quality = item.get("quality_score");
    let score = quality.and_then(|quality| quality.get("score").or(Some(quality))?.as_str());
    let components = item.get("components").and_then(Value::as_array);
    Some(RemoteTemplate {
        meta_template_id: graph::id(item.get("id"))?,
        name: text("name")?,
        language: text("language")?,
        category: text("category")?,
        correct_category: text("correct_category"),
        status: review_status(&text("status")?),
        rejected_reason: text("rejected_reason"),
        quality_score: score.map(str::to_owned),
        parameter_format: text("parameter_format"),
        // -1 stands for WhatsApp's default.
        message_send_ttl_seconds: item
            .get("message_send_ttl_seconds")
            .and_then(Value::as_i64)
            .filter(|seconds| *seconds > 0),
        components: components.into_iter().flatten().map(Component::from).collect(),
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;

    use super::*;

    fn read(status: u16, body: &str, requested: Option<&str>) -> Result<RemotePage, GatewayError> {
        let response = GatewayResponse {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        parse_page(&response, requested, &SecretString::from("token"))
    }

    #[test]
    fn page_skips_entries_that_are_no_templates() {
        let body = r#"{"data":[{"id":7,"name":"a","language":"pt_BR","category":"UTILITY","status":"APPROVED",
            "quality_score":{"score":"GREEN","date":1},"parameter_format":"NAMED","components":[{"type":"BODY"}],
            "correct_category":"MARKETING","message_send_ttl_seconds":600},
            {"id":"8","name":"b","language":"pt_BR","category":"UTILITY","status":"REJECTED","rejected_reason":"SCAM",
            "quality_score":"RED","message_send_ttl_seconds":-1},{"name":"no id"},7],
            "paging":{"cursors":{"before":"x","after":"y"},"next":"https://h/x"}}"#;
        let found = read(200, body, None).unwrap();
        assert_eq!(found.next.as_deref(), Some("y"));
        let [a, b] = &found.templates[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (a.meta_template_id.as_str(), a.quality_score.as_deref()),
            ("7", Some("GREEN"))
        );
        assert_eq!(
            (a.parameter_format.as_deref(), &b.parameter_format),
            (Some("NAMED"), &None)
        );
        assert_eq!(
            (b.rejected_reason.as_deref(), b.quality_score.as_deref()),
            (Some("SCAM"), Some("RED"))
        );
        assert_eq!(
            (a.correct_category.as_deref(), a.message_send_ttl_seconds),
            (Some("MARKETING"), Some(600))
        );
        assert_eq!((&b.correct_category, b.message_send_ttl_seconds), (&None, None));
        assert_eq!((a.components.len(), b.components.len()), (1, 0));
        assert_eq!(
            read(200, body, Some("y")).unwrap().next,
            None,
            "a cursor to the same page ends the list"
        );
        let last = read(200, r#"{"data":[],"paging":{"cursors":{"after":"y"}}}"#, None);
        assert_eq!(last.unwrap(), RemotePage::default());
    }

    #[test]
    fn page_without_template_list_is_an_error() {
        let refused = read(400, r#"{"error":{"code":100,"message":"m"}}"#, None);
        assert!(
            matches!(refused, Err(GatewayError::Refused { code: 100, .. })),
            "{refused:?}"
        );
        for (status, body) in [(200, "{}"), (200, "{\"data"), (500, "{\"data\":[]}"), (404, "<html>")] {
            let result = read(status, body, None);
            assert!(matches!(result, Err(GatewayError::Unavailable(_))), "{result:?}");
        }
    }
}
