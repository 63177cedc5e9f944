//! Tests of sending messages and submitting templates, against the WhatsApp simulator.

use std::time::Duration;

use recado_domain::messaging::{
    Addressee, ButtonKind, ButtonValue, Category, ErrorClass, OutboundMessage, OutboundTemplate, ParameterFormat,
    ProfileKey, SendOutcome, TemplateSubmission, TextParameter, ThrottleScope, WhatsappCredentials, WhatsappGateway,
};
use recado_domain::shared::{GatewayError, MessageId, SendId};
use recado_gateways::http::Http;
use recado_gateways::whatsapp::CloudApi;
use recado_simulators::raw::{ANY_FREE_PORT, closed_address};
use recado_simulators::whatsapp::{Approval, Whatsapp, WhatsappFault, WhatsappFaultKind, WhatsappOptions};
use secrecy::SecretString;
use serde_json::json;
use uuid::Uuid;

pub(crate) fn start_simulator() -> Whatsapp {
    let options = WhatsappOptions {
        template_approval: Approval::Manual,
        ..WhatsappOptions::default()
    };
    Whatsapp::start(options).unwrap()
}

pub(crate) fn api(base: Option<&str>) -> CloudApi {
    CloudApi::new(Http::new().unwrap(), base)
        .unwrap()
        .app(Some("102938".into()))
}

pub(crate) fn credentials(token: &str) -> WhatsappCredentials {
    WhatsappCredentials {
        profile: ProfileKey {
            account_id: Uuid::from_u128(1).into(),
            profile_id: Uuid::from_u128(2).into(),
        },
        phone_number_id: "1065".into(),
        waba_id: "100000000000001".into(),
        token: SecretString::from(token),
    }
}

pub(crate) fn message() -> OutboundTemplate {
    OutboundTemplate {
        send_id: SendId(Uuid::from_u128(7)),
        to: Addressee::Phone("+5511961234567".into()),
        reply_to: None,
        template: "order_update".into(),
        language: "pt_BR".into(),
        header: vec![],
        header_file: None,
        header_location: None,
        offer_expires_at: None,
        body: vec![TextParameter::numbered("Ana"), TextParameter::numbered("R$ 10,00")],
        buttons: vec![ButtonValue {
            index: 1,
            kind: ButtonKind::Url,
            value: "860198".into(),
        }],
        cards: vec![],
    }
}

pub(crate) fn submission() -> TemplateSubmission {
    TemplateSubmission {
        name: "order_update".into(),
        language: "pt_BR".into(),
        category: Category::Utility,
        parameter_format: ParameterFormat::Positional,
        header: None,
        body: Some((
            "Oi {{2}}, total {{3}}.".into(),
            vec![TextParameter::numbered("Ana"), TextParameter::numbered("R$ 10,00")],
        )),
        footer: None,
        buttons: vec![
            json!({ "type": "QUICK_REPLY", "text": "Sair" }).into(),
            json!({ "type": "URL", "text": "Ver", "url": "https://loja.example/{{1}}", "example": ["1"] }).into(),
        ],
        cards: vec![],
        limited_time_offer: None,
        message_send_ttl_seconds: None,
    }
}

async fn send_message(simulator: &Whatsapp) -> SendOutcome {
    api(Some(&simulator.base_url()))
        .send_template(&credentials("token"), &message())
        .await
}

/// A client, with a short timeout if the fault is a hang.
fn api_for_fault(simulator: &Whatsapp, kind: &WhatsappFaultKind) -> CloudApi {
    let api = api(Some(&simulator.base_url()));
    if matches!(kind, WhatsappFaultKind::Hang { .. }) {
        api.timeout(Duration::from_secs(1))
    } else {
        api
    }
}

/// Sends a message that meets a fault, asserts that exactly one request was made, and returns the outcome.
async fn outcome_of_fault(kind: WhatsappFaultKind) -> SendOutcome {
    let simulator = start_simulator();
    let api = api_for_fault(&simulator, &kind);
    simulator.script(vec![WhatsappFault::send(kind)]);
    let outcome = api.send_template(&credentials("token"), &message()).await;
    assert_eq!(simulator.sends().len(), 1, "{outcome:?}");
    outcome
}

#[tokio::test]
async fn accepted_send_returns_message_id_and_wa_id() {
    let simulator = start_simulator();
    let SendOutcome::Accepted { message_id, wa_id } = send_message(&simulator).await else {
        panic!("not accepted")
    };
    assert!(message_id.starts_with("wamid."));
    assert!(wa_id.is_some());
    let sends = simulator.sends();
    assert_eq!(sends.len(), 1);
    assert_eq!(sends[0].request.path, "/v25.0/1065/messages");
    assert_eq!(sends[0].callback_data, Some(Uuid::from_u128(7).to_string()));
    assert_eq!(sends[0].parameters, ["Ana", "R$ 10,00", "860198"]);
}

fn text_message(to: Addressee) -> OutboundMessage {
    OutboundMessage::text(MessageId(Uuid::from_u128(8)), to, "Oi!")
}

type OutcomeCheck = fn(&SendOutcome) -> bool;

#[tokio::test]
async fn text_send_is_sent_once_and_maps_every_outcome() {
    let simulator = start_simulator();
    let gateway = api(Some(&simulator.base_url())).timeout(Duration::from_secs(1));
    let credentials = credentials("token");
    let to_phone = text_message(Addressee::Phone("+5531988887777".into()));
    let outcome = gateway.send_message(&credentials, &to_phone).await;
    assert!(
        matches!(&outcome, SendOutcome::Accepted { wa_id: Some(id), .. } if id == "553188887777"),
        "{outcome:?}"
    );
    let outcome = gateway
        .send_message(&credentials, &text_message(Addressee::User("BR.1".into())))
        .await;
    assert!(
        matches!(outcome, SendOutcome::Accepted { wa_id: None, .. }),
        "{outcome:?}"
    );
    let sends = simulator.sends();
    assert_eq!(sends[0].request.body["text"]["body"], "Oi!");
    assert_eq!(sends[0].callback_data, Some(Uuid::from_u128(8).to_string()));
    assert_eq!(sends[1].request.body["recipient"], "BR.1");
    let error = |code| WhatsappFaultKind::error(code, "");
    let cases: [(WhatsappFaultKind, OutcomeCheck); 5] = [
        (error(131_047), |outcome| {
            matches!(outcome, SendOutcome::Failed { code: 131_047, .. })
        }),
        (error(190), |outcome| {
            matches!(outcome, SendOutcome::RunBlocked { code: 190, .. })
        }),
        (WhatsappFaultKind::Throttle, |outcome| {
            matches!(outcome, SendOutcome::Throttled { .. })
        }),
        (WhatsappFaultKind::Hang { ms: 60_000 }, |outcome| {
            matches!(outcome, SendOutcome::Unknown { .. })
        }),
        (WhatsappFaultKind::GarbageJson, |outcome| {
            matches!(outcome, SendOutcome::Unknown { .. })
        }),
    ];
    for (position, (kind, is_expected)) in cases.into_iter().enumerate() {
        simulator.script(vec![WhatsappFault::send(kind.clone())]);
        let outcome = gateway.send_message(&credentials, &to_phone).await;
        assert!(is_expected(&outcome), "{kind:?}: {outcome:?}");
        assert_eq!(simulator.sends().len(), position + 3);
    }
    let unset = api(None).send_message(&credentials, &to_phone).await;
    assert!(matches!(unset, SendOutcome::RunBlocked { code: 0, .. }), "{unset:?}");
}

#[tokio::test]
async fn send_without_usable_response_is_unknown_and_sent_once() {
    for kind in [
        WhatsappFaultKind::Hang { ms: 60_000 },
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::AcceptThenStatus500,
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AnswerWithoutId,
        WhatsappFaultKind::error(131_000, ""),
    ] {
        let outcome = outcome_of_fault(kind.clone()).await;
        assert!(matches!(outcome, SendOutcome::Unknown { .. }), "{kind:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn throttled_send_reports_code_and_delay() {
    let outcome = outcome_of_fault(WhatsappFaultKind::Throttle).await;
    assert!(
        matches!(
            outcome,
            SendOutcome::Throttled {
                code: Some(130_429),
                retry_after: None,
                ..
            }
        ),
        "{outcome:?}"
    );
    let outcome = outcome_of_fault(WhatsappFaultKind::RateLimited { retry_after_s: 7 }).await;
    let SendOutcome::Throttled {
        code: Some(80_007),
        retry_after: Some(wait),
        ..
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!(wait.whole_seconds(), 7);
    let pair = WhatsappFaultKind::error(131_056, "too many");
    let outcome = outcome_of_fault(pair).await;
    let expected = SendOutcome::Throttled {
        code: Some(131_056),
        scope: Some(ThrottleScope::Recipient),
        message: "too many".into(),
        retry_after: None,
    };
    assert_eq!(outcome, expected);
}

#[tokio::test]
async fn rejection_of_one_recipient_fails_only_that_send() {
    let kind = WhatsappFaultKind::error(131_026, "Message undeliverable");
    let expected = SendOutcome::Failed {
        code: 131_026,
        class: ErrorClass::RecipientUnreachable,
        message: "Message undeliverable".into(),
    };
    assert_eq!(outcome_of_fault(kind).await, expected);
}

#[tokio::test]
async fn rejection_of_every_send_blocks_the_run() {
    let simulator = start_simulator();
    let gateway = api(Some(&simulator.base_url()));
    let outcome = gateway.send_template(&credentials("expired"), &message()).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 190, .. }),
        "{outcome:?}"
    );
    simulator.add_template(&json!({ "name": "other", "language": "pt_BR", "category": "UTILITY", "components": [] }));
    let outcome = send_message(&simulator).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 132_001, .. }),
        "{outcome:?}"
    );
    let outcome = gateway.send_template(&credentials("a\nb"), &message()).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 190, .. }),
        "the token is not a valid header value: {outcome:?}"
    );
    let outcome = api(None).send_template(&credentials("token"), &message()).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 0, .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn send_to_unreachable_whatsapp_is_throttled() {
    let refusing = closed_address(ANY_FREE_PORT).unwrap();
    let outcome = api(Some(&format!("http://{refusing}/v25.0")))
        .send_template(&credentials("token"), &message())
        .await;
    assert!(
        matches!(outcome, SendOutcome::Throttled { code: None, .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn submitted_template_can_be_sent_after_approval() {
    let simulator = start_simulator();
    let gateway = api(Some(&simulator.base_url()));
    let created = gateway
        .submit_template(&credentials("token"), &submission(), None)
        .await
        .unwrap();
    assert_eq!(
        (created.status.as_str(), created.category.as_str()),
        ("PENDING", "UTILITY")
    );
    let request = simulator.ledger().remove(0).request;
    assert_eq!(request.path, "/v25.0/100000000000001/message_templates");
    assert_eq!(request.body["components"][0]["text"], "Oi {{1}}, total {{2}}.");
    assert!(simulator.set_template_status(&created.meta_template_id, "APPROVED", None));
    let outcome = send_message(&simulator).await;
    assert!(matches!(outcome, SendOutcome::Accepted { .. }), "{outcome:?}");
}

#[tokio::test]
async fn template_edit_is_posted_to_its_id() {
    let simulator = start_simulator();
    let gateway = api(Some(&simulator.base_url()));
    let created = gateway
        .submit_template(&credentials("token"), &submission(), None)
        .await
        .unwrap();
    let id = created.meta_template_id.as_str();
    let refused = gateway
        .submit_template(&credentials("token"), &submission(), Some(id))
        .await;
    assert!(
        matches!(refused, Err(GatewayError::Refused { code: 100, .. })),
        "a pending template cannot be edited: {refused:?}"
    );
    assert!(simulator.set_template_status(id, "REJECTED", Some("INVALID_FORMAT")));
    let edited = gateway
        .submit_template(&credentials("token"), &submission(), Some(id))
        .await
        .unwrap();
    assert_eq!(
        (edited.meta_template_id.as_str(), edited.status.as_str()),
        (id, "PENDING")
    );
    assert_eq!(simulator.ledger().last().unwrap().request.path, format!("/v25.0/{id}"));
}

#[tokio::test]
async fn failed_submission_reports_its_cause() {
    let simulator = start_simulator();
    let gateway = api(Some(&simulator.base_url()));
    let details = "Message body format is incorrect";
    let refusal = WhatsappFaultKind::error(2_388_072, details);
    simulator.script(vec![WhatsappFault::template(refusal)]);
    let refused = gateway
        .submit_template(&credentials("token"), &submission(), None)
        .await;
    assert!(matches!(refused, Err(GatewayError::Refused { code: 2_388_072, message }) if message == details));
    let unusable_responses = [
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::AnswerWithoutId,
    ];
    for kind in unusable_responses
        .into_iter()
        .chain([WhatsappFaultKind::Hang { ms: 60_000 }])
    {
        simulator.reset();
        simulator.script(vec![WhatsappFault::template(kind.clone())]);
        let gateway = api_for_fault(&simulator, &kind);
        let result = gateway
            .submit_template(&credentials("token"), &submission(), None)
            .await;
        assert!(
            matches!(result, Err(GatewayError::Unavailable(_))),
            "{kind:?}: {result:?}"
        );
    }
    let expired = gateway
        .submit_template(&credentials("expired"), &submission(), None)
        .await;
    assert!(
        matches!(expired, Err(GatewayError::Refused { code: 190, .. })),
        "{expired:?}"
    );
    let unset = api(None)
        .submit_template(&credentials("token"), &submission(), None)
        .await;
    assert!(
        matches!(unset, Err(GatewayError::NotConfigured("WhatsApp"))),
        "{unset:?}"
    );
}
