//! Sending and submitting, against the simulator of the platform.

use std::time::Duration;

use recado_domain::campaigns::SendOutcome;
use recado_domain::shared::{GatewayError, MessageId, SendId};
use recado_domain::templates::{ButtonKind, ButtonValue, Category, ParameterFormat, TemplateSubmission, TextParameter};
use recado_domain::whatsapp::{Addressee, OutboundTemplate, OutboundText, WhatsappCredentials, WhatsappGateway};
use recado_gateways::http::Http;
use recado_gateways::whatsapp::CloudApi;
use recado_simulators::raw::{ANYWHERE, closed_address};
use recado_simulators::whatsapp::{Approval, Whatsapp, WhatsappFault, WhatsappFaultKind, WhatsappOptions};
use secrecy::SecretString;
use serde_json::json;
use uuid::Uuid;

pub(crate) fn platform() -> Whatsapp {
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
        phone_number_id: "1065".into(),
        waba_id: "100000000000001".into(),
        token: SecretString::from(token),
    }
}

pub(crate) fn message() -> OutboundTemplate {
    OutboundTemplate {
        send_id: SendId(Uuid::from_u128(7)),
        to: "+5511961234567".into(),
        template: "order_update".into(),
        language: "pt_BR".into(),
        header: vec![],
        header_file: None,
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
            json!({ "type": "QUICK_REPLY", "text": "Sair" }),
            json!({ "type": "URL", "text": "Ver", "url": "https://loja.example/{{1}}", "example": ["1"] }),
        ],
        cards: vec![],
    }
}

async fn sent(platform: &Whatsapp) -> SendOutcome {
    api(Some(&platform.base_url()))
        .send_template(&credentials("token"), &message())
        .await
}

/// With a short time limit where it is meant to run out.
fn patient(platform: &Whatsapp, kind: &WhatsappFaultKind) -> CloudApi {
    let api = api(Some(&platform.base_url()));
    if matches!(kind, WhatsappFaultKind::Hang { .. }) {
        api.timeout(Duration::from_secs(1))
    } else {
        api
    }
}

/// The outcome of a send that meets a fault; whatever it is, exactly one request came.
async fn faulted(kind: WhatsappFaultKind) -> SendOutcome {
    let platform = platform();
    let api = patient(&platform, &kind);
    platform.script(vec![WhatsappFault::send(kind)]);
    let outcome = api.send_template(&credentials("token"), &message()).await;
    assert_eq!(platform.sends().len(), 1, "{outcome:?}");
    outcome
}

#[tokio::test]
async fn a_message_is_accepted_with_its_ids() {
    let platform = platform();
    let SendOutcome::Accepted { message_id, wa_id } = sent(&platform).await else {
        panic!("not accepted")
    };
    assert!(message_id.starts_with("wamid."));
    assert!(wa_id.is_some());
    let sends = platform.sends();
    assert_eq!(sends.len(), 1);
    assert_eq!(sends[0].request.path, "/v25.0/1065/messages");
    assert_eq!(sends[0].callback_data, Some(Uuid::from_u128(7).to_string()));
    assert_eq!(sends[0].parameters, ["Ana", "R$ 10,00", "860198"]);
}

fn words(to: Addressee) -> OutboundText {
    OutboundText {
        message_id: MessageId(Uuid::from_u128(8)),
        to,
        text: "Oi!".into(),
    }
}

type Fits = fn(&SendOutcome) -> bool;

#[tokio::test]
async fn a_text_goes_out_once_and_ends_as_a_template_does() {
    let platform = platform();
    let gateway = api(Some(&platform.base_url())).timeout(Duration::from_secs(1));
    let credentials = credentials("token");
    let to_phone = words(Addressee::Phone("+5531988887777".into()));
    let outcome = gateway.send_text(&credentials, &to_phone).await;
    assert!(
        matches!(&outcome, SendOutcome::Accepted { wa_id: Some(id), .. } if id == "553188887777"),
        "{outcome:?}"
    );
    let outcome = gateway
        .send_text(&credentials, &words(Addressee::User("BR.1".into())))
        .await;
    assert!(
        matches!(outcome, SendOutcome::Accepted { wa_id: None, .. }),
        "{outcome:?}"
    );
    let sends = platform.sends();
    assert_eq!(sends[0].request.body["text"]["body"], "Oi!");
    assert_eq!(sends[0].callback_data, Some(Uuid::from_u128(8).to_string()));
    assert_eq!(sends[1].request.body["recipient"], "BR.1");
    let error = |code| WhatsappFaultKind::error(code, "");
    let ends: [(WhatsappFaultKind, Fits); 5] = [
        (error(131_047), |end| {
            matches!(end, SendOutcome::Failed { code: 131_047, .. })
        }),
        (error(190), |end| {
            matches!(end, SendOutcome::RunBlocked { code: 190, .. })
        }),
        (WhatsappFaultKind::Throttle, |end| {
            matches!(end, SendOutcome::Throttled { .. })
        }),
        (WhatsappFaultKind::Hang { ms: 60_000 }, |end| {
            matches!(end, SendOutcome::Unknown { .. })
        }),
        (WhatsappFaultKind::GarbageJson, |end| {
            matches!(end, SendOutcome::Unknown { .. })
        }),
    ];
    for (position, (kind, fits)) in ends.into_iter().enumerate() {
        platform.script(vec![WhatsappFault::send(kind.clone())]);
        let outcome = gateway.send_text(&credentials, &to_phone).await;
        assert!(fits(&outcome), "{kind:?}: {outcome:?}");
        assert_eq!(platform.sends().len(), position + 3);
    }
    let unset = api(None).send_text(&credentials, &to_phone).await;
    assert!(matches!(unset, SendOutcome::RunBlocked { code: 0, .. }), "{unset:?}");
}

#[tokio::test]
async fn what_may_have_gone_out_is_unknown_and_sent_once() {
    for kind in [
        WhatsappFaultKind::Hang { ms: 60_000 },
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::AcceptThenStatus500,
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AnswerWithoutId,
        WhatsappFaultKind::error(131_000, ""),
    ] {
        let outcome = faulted(kind.clone()).await;
        assert!(matches!(outcome, SendOutcome::Unknown { .. }), "{kind:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn throttling_keeps_its_code_and_wait() {
    let outcome = faulted(WhatsappFaultKind::Throttle).await;
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
    let outcome = faulted(WhatsappFaultKind::RateLimited { retry_after_s: 7 }).await;
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
    let outcome = faulted(pair).await;
    let expected = SendOutcome::Throttled {
        code: Some(131_056),
        message: "too many".into(),
        retry_after: None,
    };
    assert_eq!(outcome, expected);
}

#[tokio::test]
async fn one_recipients_refusal_fails_that_one() {
    let kind = WhatsappFaultKind::error(131_026, "Message undeliverable");
    let expected = SendOutcome::Failed {
        code: 131_026,
        message: "Message undeliverable".into(),
    };
    assert_eq!(faulted(kind).await, expected);
}

#[tokio::test]
async fn what_concerns_every_message_blocks_the_run() {
    let platform = platform();
    let gateway = api(Some(&platform.base_url()));
    let outcome = gateway.send_template(&credentials("expired"), &message()).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 190, .. }),
        "{outcome:?}"
    );
    platform.add_template(&json!({ "name": "other", "language": "pt_BR", "category": "UTILITY", "components": [] }));
    let outcome = sent(&platform).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 132_001, .. }),
        "{outcome:?}"
    );
    let outcome = gateway.send_template(&credentials("a\nb"), &message()).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 190, .. }),
        "no header can hold it: {outcome:?}"
    );
    let outcome = api(None).send_template(&credentials("token"), &message()).await;
    assert!(
        matches!(outcome, SendOutcome::RunBlocked { code: 0, .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_platform_that_is_not_there_is_tried_later() {
    let refusing = closed_address(ANYWHERE).unwrap();
    let outcome = api(Some(&format!("http://{refusing}/v25.0")))
        .send_template(&credentials("token"), &message())
        .await;
    assert!(
        matches!(outcome, SendOutcome::Throttled { code: None, .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_submitted_template_can_be_sent_once_approved() {
    let platform = platform();
    let gateway = api(Some(&platform.base_url()));
    let created = gateway
        .submit_template(&credentials("token"), &submission(), None)
        .await
        .unwrap();
    assert_eq!(
        (created.status.as_str(), created.category.as_str()),
        ("PENDING", "UTILITY")
    );
    let request = platform.ledger().remove(0).request;
    assert_eq!(request.path, "/v25.0/100000000000001/message_templates");
    assert_eq!(request.body["components"][0]["text"], "Oi {{1}}, total {{2}}.");
    assert!(platform.set_template_status(&created.meta_template_id, "APPROVED", None));
    let outcome = sent(&platform).await;
    assert!(matches!(outcome, SendOutcome::Accepted { .. }), "{outcome:?}");
}

#[tokio::test]
async fn an_edit_goes_to_the_template_itself() {
    let platform = platform();
    let gateway = api(Some(&platform.base_url()));
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
        "a pending one: {refused:?}"
    );
    assert!(platform.set_template_status(id, "REJECTED", Some("INVALID_FORMAT")));
    let edited = gateway
        .submit_template(&credentials("token"), &submission(), Some(id))
        .await
        .unwrap();
    assert_eq!(
        (edited.meta_template_id.as_str(), edited.status.as_str()),
        (id, "PENDING")
    );
    assert_eq!(platform.ledger().last().unwrap().request.path, format!("/v25.0/{id}"));
}

#[tokio::test]
async fn a_submission_that_goes_wrong_says_how() {
    let platform = platform();
    let gateway = api(Some(&platform.base_url()));
    let details = "Message body format is incorrect";
    let refusal = WhatsappFaultKind::error(2_388_072, details);
    platform.script(vec![WhatsappFault::template(refusal)]);
    let refused = gateway
        .submit_template(&credentials("token"), &submission(), None)
        .await;
    assert!(matches!(refused, Err(GatewayError::Refused { code: 2_388_072, message }) if message == details));
    let silent = [
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::AnswerWithoutId,
    ];
    for kind in silent.into_iter().chain([WhatsappFaultKind::Hang { ms: 60_000 }]) {
        platform.reset();
        platform.script(vec![WhatsappFault::template(kind.clone())]);
        let gateway = patient(&platform, &kind);
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
        matches!(unset, Err(GatewayError::NotConfigured("the messaging platform"))),
        "{unset:?}"
    );
}
