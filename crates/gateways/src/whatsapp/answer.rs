//! What an answer to a send means: which of the platform's codes may be tried again, which fail the one message, which
//! stop the run, and which leave open whether the message went out.

use recado_domain::campaigns::SendOutcome;
use secrecy::SecretString;
use serde_json::Value;
use time::Duration;

use super::graph::{self, GraphError};
use crate::http::{CallError, GatewayResponse, retry_after};

/// The platform's code of a paused template.
const TEMPLATE_PAUSED: i64 = 132_015;

/// What follows from a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Rejected before processing: safe to try again.
    Retry,
    /// This message fails.
    Fail,
    /// Every message of the run would fail.
    RunBlock,
    /// A fault of the platform: the message may have gone out.
    Ambiguous,
}

/// The class of a code (Meta, "Cloud API error codes"); none for one that is not known.
fn classify(code: i64) -> Option<Class> {
    Some(match code {
        4 | 80_007 | 130_429 | 131_056 => Class::Retry,
        // Token and permissions.
        0 | 3 | 10 | 190 | 200..=299 | 131_005 => Class::RunBlock,
        // The account: locked, restricted, misclassifying, not paying, its number not registered.
        368 | 130_497 | 131_031 | 131_042 | 131_064 | 133_010 | 133_016 => Class::RunBlock,
        // The template: how many parameters it has, its absence, its state.
        132_000 | 132_001 | 132_015 | 132_016 => Class::RunBlock,
        // The message or its parameters, which hold what is known of one contact.
        33 | 100 | 131_008 | 131_009 | 131_021 | 131_051 | 131_052 | 131_053 => Class::Fail,
        132_005 | 132_007 | 132_012 | 132_018 | 135_000 => Class::Fail,
        // The recipient.
        130_472 | 131_026 | 131_047 | 131_048 | 131_049 | 131_050 | 131_062 => Class::Fail,
        1 | 2 | 131_000 | 131_016 | 131_057 | 133_004 => Class::Ambiguous,
        _ => return None,
    })
}

/// Whether the same request may be answered otherwise a little later.
pub(super) fn is_passing(code: i64) -> bool {
    matches!(classify(code), Some(Class::Retry | Class::Ambiguous))
}

/// How a call to send one message ended.
pub(super) fn outcome(result: Result<GatewayResponse, CallError>, token: &SecretString) -> SendOutcome {
    let answer = match result {
        Ok(answer) => answer,
        Err(CallError::NotSent(message)) => {
            return SendOutcome::Throttled {
                code: None,
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
    let body = answer.json::<Value>();
    match body.as_ref().and_then(|body| graph::error(body, graph::OF_SEND, token)) {
        Some(error) => refused(&answer, error),
        None => match body {
            Some(body) if answer.is_success() => accepted(&body),
            _ => unreadable(&answer),
        },
    }
}

fn refused(answer: &GatewayResponse, GraphError { code, message }: GraphError) -> SendOutcome {
    let status = answer.status;
    if status >= 500 {
        return SendOutcome::Unknown {
            detail: format!("HTTP {status}, code {code}: {message}"),
        };
    }
    let of_status = match status {
        429 => Class::Retry,
        400..=499 => Class::Fail,
        _ => Class::Ambiguous,
    };
    match classify(code).unwrap_or(of_status) {
        Class::Retry => SendOutcome::Throttled {
            code: Some(code),
            message,
            retry_after: wanted_wait(answer),
        },
        Class::Fail => SendOutcome::Failed { code, message },
        Class::RunBlock => SendOutcome::RunBlocked { code, message },
        Class::Ambiguous => SendOutcome::Unknown {
            detail: format!("HTTP {status}, code {code}: {message}"),
        },
    }
}

/// An answer that is not in the platform's words: nobody knows whether the message went out. A 4xx is a proxy's, or of
/// whatever answers at a wrong address, and every other message would meet it too.
fn unreadable(answer: &GatewayResponse) -> SendOutcome {
    let status = answer.status;
    let message = format!("HTTP {status} without a readable body");
    match status {
        429 => SendOutcome::Throttled {
            code: None,
            message,
            retry_after: wanted_wait(answer),
        },
        408 => SendOutcome::Unknown { detail: message },
        400..=499 => SendOutcome::OpaqueRejection { detail: message },
        _ => SendOutcome::Unknown { detail: message },
    }
}

fn accepted(body: &Value) -> SendOutcome {
    let text = |path: &str| body.pointer(path).and_then(Value::as_str);
    if text("/messages/0/message_status") == Some("paused") {
        return SendOutcome::RunBlocked {
            code: TEMPLATE_PAUSED,
            message: "the platform has paused the template".into(),
        };
    }
    match graph::id(body.pointer("/messages/0/id")) {
        Some(message_id) => SendOutcome::Accepted {
            message_id,
            wa_id: graph::id(body.pointer("/contacts/0/wa_id")),
        },
        None => SendOutcome::Unknown {
            detail: "an acceptance without a message id".into(),
        },
    }
}

/// The wait asked for; none that is longer than can be said.
fn wanted_wait(answer: &GatewayResponse) -> Option<Duration> {
    retry_after(&answer.headers)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
    use serde_json::json;

    use super::*;

    fn answered(status: u16, body: &str, retry_after: Option<&'static str>) -> SendOutcome {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
        }
        let answer = GatewayResponse {
            status,
            headers,
            body: body.to_owned().into(),
        };
        outcome(Ok(answer), &SecretString::from("token"))
    }

    fn coded(status: u16, code: i64) -> SendOutcome {
        answered(
            status,
            &json!({ "error": { "code": code, "message": "m" } }).to_string(),
            None,
        )
    }

    #[test]
    fn every_code_of_the_contract_has_its_class() {
        let table: [(Class, &[i64]); 4] = [
            (Class::Retry, &[4, 80_007, 130_429, 131_056]),
            (
                Class::RunBlock,
                &[
                    0, 190, 3, 10, 200, 250, 299, 131_005, 131_064, 368, 131_031, 130_497, 131_042, 132_000, 132_001,
                    132_015, 132_016, 133_010, 133_016,
                ],
            ),
            (
                Class::Fail,
                &[
                    131_048, 100, 33, 131_008, 131_009, 131_021, 135_000, 131_026, 131_047, 131_049, 131_050, 131_062,
                    130_472, 131_051, 131_052, 131_053, 132_005, 132_007, 132_012, 132_018,
                ],
            ),
            (Class::Ambiguous, &[1, 2, 131_000, 131_016, 131_057, 133_004]),
        ];
        for (class, codes) in table {
            for code in codes {
                assert_eq!(classify(*code), Some(class), "{code}");
                let outcome = coded(400, *code);
                let fits = match (class, &outcome) {
                    (Class::Retry, SendOutcome::Throttled { code: kept, .. }) => *kept == Some(*code),
                    (Class::RunBlock, SendOutcome::RunBlocked { code: kept, .. }) => kept == code,
                    (Class::Fail, SendOutcome::Failed { code: kept, .. }) => kept == code,
                    (Class::Ambiguous, SendOutcome::Unknown { .. }) => true,
                    _ => false,
                };
                assert!(fits, "{code}: {outcome:?}");
                assert!(
                    matches!(coded(500, *code), SendOutcome::Unknown { .. }),
                    "{code} with HTTP 500"
                );
            }
        }
        for code in [-1, 5, 199, 300, 131_001, 2_388_019] {
            assert_eq!(classify(code), None, "{code}");
        }
    }

    #[test]
    fn an_unknown_code_goes_by_the_status() {
        assert_eq!(
            coded(400, 999),
            SendOutcome::Failed {
                code: 999,
                message: "m".into()
            }
        );
        assert!(matches!(
            coded(429, 999),
            SendOutcome::Throttled { code: Some(999), .. }
        ));
        assert!(matches!(coded(200, 999), SendOutcome::Unknown { .. }));
        assert!(matches!(coded(503, 999), SendOutcome::Unknown { .. }));
    }

    #[test]
    fn a_wait_that_was_asked_for_is_kept_to() {
        let wait = |body: &str, value| match answered(429, body, value) {
            SendOutcome::Throttled { code, retry_after, .. } => (code, retry_after.map(Duration::whole_seconds)),
            other => panic!("{other:?}"),
        };
        let body = r#"{"error":{"code":80007,"message":"m"}}"#;
        assert_eq!(wait(body, Some("7")), (Some(80_007), Some(7)));
        assert_eq!(wait("", Some(" 7 ")), (None, Some(7)));
        assert_eq!(wait("", Some("Wed, 21 Oct 2015 07:28:00 GMT")), (None, Some(0)));
        for none in [None, Some("-7"), Some("soon")] {
            assert_eq!(wait("<html>", none), (None, None));
        }
    }

    #[test]
    fn what_cannot_be_read_is_never_tried_again() {
        let unknown = |status, body: &str| matches!(answered(status, body, None), SendOutcome::Unknown { .. });
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
                let outcome = answered(status, body, None);
                assert!(
                    matches!(outcome, SendOutcome::OpaqueRejection { .. }),
                    "{status} {body}: {outcome:?}"
                );
            }
        }
        for body in ["<html>", "", "{}"] {
            assert!(matches!(answered(429, body, None), SendOutcome::Throttled { .. }));
        }
    }

    #[test]
    fn an_acceptance_needs_an_id_and_no_more() {
        let accepted = |id: &str, wa_id: Option<&str>| SendOutcome::Accepted {
            message_id: id.into(),
            wa_id: wa_id.map(str::to_owned),
        };
        let full =
            r#"{"contacts":[{"input":"+55","wa_id":"55"}],"messages":[{"id":"wamid.1","message_status":"accepted"}]}"#;
        assert_eq!(answered(200, full, None), accepted("wamid.1", Some("55")));
        assert_eq!(
            answered(200, r#"{"messages":[{"id":"wamid.1"}]}"#, None),
            accepted("wamid.1", None)
        );
        let held = r#"{"messages":[{"id":"wamid.1","message_status":"held_for_quality_assessment"}]}"#;
        assert_eq!(answered(200, held, None), accepted("wamid.1", None));
        let paused = r#"{"messages":[{"id":"wamid.1","message_status":"paused"}]}"#;
        assert!(matches!(
            answered(200, paused, None),
            SendOutcome::RunBlocked {
                code: TEMPLATE_PAUSED,
                ..
            }
        ));
    }

    #[test]
    fn only_what_surely_did_not_leave_is_throttled() {
        let token = SecretString::from("token");
        let not_sent = outcome(Err(CallError::NotSent("refused".into())), &token);
        let expected = SendOutcome::Throttled {
            code: None,
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
