//! Maps WhatsApp's response to a send to a `SendOutcome`, by Meta's error code: retry, fail this message, stop the run,
//! or outcome unknown.

use recado_domain::messaging::{BlockCause, ErrorClass, SendOutcome, ThrottleScope};
use secrecy::SecretString;
use serde_json::Value;
use time::Duration;

use super::codes::{ERROR_CODES, TEMPLATE_PAUSED};
use super::graph::{self, GraphError};
use crate::http::{CallError, GatewayResponse, retry_after};

/// What an error means for a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consequence {
    /// WhatsApp rejected it before processing: safe to send again.
    Retry(Option<ThrottleScope>),
    /// Only this message fails.
    Fail,
    /// Every message of the run would fail.
    BlockRun(BlockCause),
    /// An internal error of WhatsApp: the message may have been sent.
    Ambiguous,
}

/// The consequence of a class; `None` for a class that concerns no message.
fn consequence(class: ErrorClass) -> Option<Consequence> {
    Some(match class {
        ErrorClass::Throttled(ThrottleScope::Management)
        | ErrorClass::WrongPin
        | ErrorClass::NumberUnverified
        | ErrorClass::RegistrationTooEarly
        | ErrorClass::Other => return None,
        ErrorClass::Throttled(scope) => Consequence::Retry(Some(scope)),
        ErrorClass::Blocked(cause) => Consequence::BlockRun(cause),
        ErrorClass::NotFound
        | ErrorClass::InvalidMessage
        | ErrorClass::UnsupportedMessage
        | ErrorClass::ParameterFormat
        | ErrorClass::ParameterText
        | ErrorClass::MediaFailed
        | ErrorClass::RecipientRefused
        | ErrorClass::WindowClosed
        | ErrorClass::RecipientUnreachable
        | ErrorClass::RecipientLimited
        | ErrorClass::OptedOut
        | ErrorClass::PhoneRequired
        | ErrorClass::SpamLimited => Consequence::Fail,
        ErrorClass::ServiceFailed | ErrorClass::OutcomeUnknown => Consequence::Ambiguous,
    })
}

/// Whether the same request may succeed later.
pub(super) fn is_transient(code: i64) -> bool {
    matches!(
        consequence(ERROR_CODES.class(code)),
        Some(Consequence::Retry(_) | Consequence::Ambiguous)
    )
}

/// Maps the result of a call that sends one message.
pub(super) fn outcome(result: Result<GatewayResponse, CallError>, token: &SecretString) -> SendOutcome {
    let response = match result {
        Ok(response) => response,
        Err(CallError::NotSent(message)) => {
            return SendOutcome::Throttled {
                code: None,
                scope: None,
                message,
                retry_after: None,
            };
        }
        Err(error @ CallError::MaybeSent(_)) => {
            return SendOutcome::Unknown {
                detail: error.to_string(),
            };
        }
    };
    let body = response.json::<Value>();
    match body
        .as_ref()
        .and_then(|body| graph::error(body, graph::SEND_ERROR_TEXTS, token))
    {
        Some(error) => rejection_outcome(&response, error),
        None => match body {
            Some(body) if response.is_success() => acceptance_outcome(&body),
            _ => unreadable_outcome(&response),
        },
    }
}

fn rejection_outcome(response: &GatewayResponse, GraphError { code, message }: GraphError) -> SendOutcome {
    let status = response.status;
    if status >= 500 {
        return SendOutcome::Unknown {
            detail: format!("HTTP {status}, code {code}: {message}"),
        };
    }
    let by_status = match status {
        429 => Consequence::Retry(None),
        400..=499 => Consequence::Fail,
        _ => Consequence::Ambiguous,
    };
    let class = ERROR_CODES.class(code);
    match consequence(class).unwrap_or(by_status) {
        Consequence::Retry(scope) => SendOutcome::Throttled {
            code: Some(code),
            scope,
            message,
            retry_after: requested_delay(response),
        },
        Consequence::Fail => SendOutcome::Failed { code, class, message },
        Consequence::BlockRun(cause) => SendOutcome::RunBlocked { code, cause, message },
        Consequence::Ambiguous => SendOutcome::Unknown {
            detail: format!("HTTP {status}, code {code}: {message}"),
        },
    }
}

/// A response that is not Meta's: the message may have been sent. A 4xx comes from a proxy or a wrong URL, so every
/// other message would get it too.
fn unreadable_outcome(response: &GatewayResponse) -> SendOutcome {
    let status = response.status;
    let message = format!("HTTP {status} without a readable body");
    match status {
        429 => SendOutcome::Throttled {
            code: None,
            scope: None,
            message,
            retry_after: requested_delay(response),
        },
        408 => SendOutcome::Unknown { detail: message },
        400..=499 => SendOutcome::OpaqueRejection { detail: message },
        _ => SendOutcome::Unknown { detail: message },
    }
}

fn acceptance_outcome(body: &Value) -> SendOutcome {
    let text = |path: &str| body.pointer(path).and_then(Value::as_str);
    if text("/messages/0/message_status") == Some("paused") {
        return SendOutcome::RunBlocked {
            code: TEMPLATE_PAUSED,
            cause: BlockCause::TemplatePaused,
            message: "WhatsApp has paused the template".into(),
        };
    }
    match graph::id(body.pointer("/messages/0/id")) {
        Some(message_id) => SendOutcome::Accepted {
            message_id,
            wa_id: graph::id(body.pointer("/contacts/0/wa_id")),
        },
        None => SendOutcome::Unknown {
            detail: "the response accepts the message without an id".into(),
        },
    }
}

/// The delay of `Retry-After`; `None` if it exceeds [`Duration`].
fn requested_delay(response: &GatewayResponse) -> Option<Duration> {
    retry_after(&response.headers)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
    use serde_json::json;

    use super::*;

    fn outcome_of(status: u16, body: &str, retry_after: Option<&'static str>) -> SendOutcome {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
        }
        let response = GatewayResponse {
            status,
            headers,
            body: body.to_owned().into(),
        };
        outcome(Ok(response), &SecretString::from("token"))
    }

    fn outcome_of_code(status: u16, code: i64) -> SendOutcome {
        outcome_of(
            status,
            &json!({ "error": { "code": code, "message": "m" } }).to_string(),
            None,
        )
    }

    #[test]
    fn error_code_decides_the_outcome() {
        type Expected = fn(i64, &SendOutcome) -> bool;
        let throttled: Expected = |given, outcome| matches!(outcome, SendOutcome::Throttled { code: Some(code), scope: Some(_), .. } if *code == given);
        let blocked: Expected =
            |given, outcome| matches!(outcome, SendOutcome::RunBlocked { code, .. } if *code == given);
        let failed: Expected = |given, outcome| matches!(outcome, SendOutcome::Failed { code, .. } if *code == given);
        let unknown: Expected = |_, outcome| matches!(outcome, SendOutcome::Unknown { .. });
        let table: [(Expected, &[i64]); 4] = [
            (throttled, &[4, 80_007, 130_429, 131_056]),
            (
                blocked,
                &[
                    0, 190, 3, 10, 200, 250, 299, 131_005, 131_064, 368, 131_031, 130_497, 131_042, 132_000, 132_001,
                    132_015, 132_016, 133_010, 133_016,
                ],
            ),
            (
                failed,
                &[
                    131_048, 100, 33, 131_008, 131_009, 131_021, 135_000, 131_026, 131_047, 131_049, 131_050, 131_062,
                    130_472, 131_051, 131_052, 131_053, 132_005, 132_007, 132_012, 132_018,
                ],
            ),
            (unknown, &[1, 2, 131_000, 131_016, 131_057, 133_004]),
        ];
        for (expected, codes) in table {
            for code in codes {
                // The status alone would say something else.
                for status in [200, 400, 429] {
                    let outcome = outcome_of_code(status, *code);
                    assert!(expected(*code, &outcome), "{status} {code}: {outcome:?}");
                }
                assert!(
                    matches!(outcome_of_code(500, *code), SendOutcome::Unknown { .. }),
                    "{code} with HTTP 500"
                );
            }
        }
    }

    #[test]
    fn unknown_error_code_is_classified_by_status() {
        for code in [-1, 5, 199, 300, 80_008, 131_001, 133_005, 133_006, 133_009, 2_388_019] {
            assert_eq!(consequence(ERROR_CODES.class(code)), None, "{code}");
        }
        assert_eq!(
            outcome_of_code(400, 999),
            SendOutcome::Failed {
                code: 999,
                class: ErrorClass::Other,
                message: "m".into()
            }
        );
        assert!(matches!(
            outcome_of_code(429, 999),
            SendOutcome::Throttled { code: Some(999), .. }
        ));
        assert!(matches!(outcome_of_code(200, 999), SendOutcome::Unknown { .. }));
        assert!(matches!(outcome_of_code(503, 999), SendOutcome::Unknown { .. }));
    }

    #[test]
    fn throttled_send_reports_requested_delay() {
        let requested = |body: &str, value| match outcome_of(429, body, value) {
            SendOutcome::Throttled { code, retry_after, .. } => (code, retry_after.map(Duration::whole_seconds)),
            outcome => panic!("{outcome:?}"),
        };
        let body = r#"{"error":{"code":80007,"message":"m"}}"#;
        assert_eq!(requested(body, Some("7")), (Some(80_007), Some(7)));
        assert_eq!(requested("", Some(" 7 ")), (None, Some(7)));
        assert_eq!(requested("", Some("Wed, 21 Oct 2015 07:28:00 GMT")), (None, Some(0)));
        for invalid in [None, Some("-7"), Some("soon")] {
            assert_eq!(requested("<html>", invalid), (None, None));
        }
    }

    #[test]
    fn unreadable_response_is_never_retried() {
        let unknown = |status, body: &str| matches!(outcome_of(status, body, None), SendOutcome::Unknown { .. });
        assert!(unknown(200, "{\"mess"));
        assert!(unknown(200, ""));
        assert!(unknown(200, "{}"));
        assert!(unknown(200, r#"{"messages":[{"message_status":"accepted"}]}"#));
        assert!(unknown(200, r#"{"messages":[{"id":""}]}"#));
        assert!(unknown(302, ""));
        assert!(unknown(408, ""));
        assert!(unknown(502, "<html>"));
        for status in [400, 401, 403, 404, 413, 499] {
            for body in [
                "<html>",
                "",
                "{}",
                "[]",
                r#"{"error":{}}"#,
                r#"{"error":"no"}"#,
                "{\"err",
            ] {
                let outcome = outcome_of(status, body, None);
                assert!(
                    matches!(outcome, SendOutcome::OpaqueRejection { .. }),
                    "{status} {body}: {outcome:?}"
                );
            }
        }
        for body in ["<html>", "", "{}"] {
            assert!(matches!(outcome_of(429, body, None), SendOutcome::Throttled { .. }));
        }
    }

    #[test]
    fn acceptance_requires_only_a_message_id() {
        let accepted = |id: &str, wa_id: Option<&str>| SendOutcome::Accepted {
            message_id: id.into(),
            wa_id: wa_id.map(str::to_owned),
        };
        let full =
            r#"{"contacts":[{"input":"+55","wa_id":"55"}],"messages":[{"id":"wamid.1","message_status":"accepted"}]}"#;
        assert_eq!(outcome_of(200, full, None), accepted("wamid.1", Some("55")));
        assert_eq!(
            outcome_of(200, r#"{"messages":[{"id":"wamid.1"}]}"#, None),
            accepted("wamid.1", None)
        );
        let held = r#"{"messages":[{"id":"wamid.1","message_status":"held_for_quality_assessment"}]}"#;
        assert_eq!(outcome_of(200, held, None), accepted("wamid.1", None));
        let paused = r#"{"messages":[{"id":"wamid.1","message_status":"paused"}]}"#;
        assert!(matches!(
            outcome_of(200, paused, None),
            SendOutcome::RunBlocked {
                code: TEMPLATE_PAUSED,
                ..
            }
        ));
    }

    #[test]
    fn only_unsent_request_is_throttled() {
        let token = SecretString::from("token");
        let not_sent = outcome(Err(CallError::NotSent("refused".into())), &token);
        let expected = SendOutcome::Throttled {
            code: None,
            scope: None,
            message: "refused".into(),
            retry_after: None,
        };
        assert_eq!(not_sent, expected);
        assert!(matches!(
            outcome(Err(CallError::MaybeSent("reset".into())), &token),
            SendOutcome::Unknown { .. }
        ));
    }
}
