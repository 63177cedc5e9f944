//! Tests of the calls that verify a number, against the WhatsApp simulator.

use std::time::Duration;

use recado_domain::whatsapp::verification::{CanSend, GraphError, VerificationGateway};
use recado_simulators::raw::{ANY_FREE_PORT, closed_address};
use recado_simulators::whatsapp::{On, WhatsappFault, WhatsappFaultKind};
use secrecy::SecretString;

use crate::whatsapp::{api, credentials, start_simulator};

fn code<T>(answer: Result<T, GraphError>) -> Option<i64> {
    match answer {
        Err(GraphError::Refused { code, .. }) => Some(code),
        Ok(_) | Err(_) => None,
    }
}

#[tokio::test]
async fn working_number_answers_every_call() {
    let whatsapp = start_simulator();
    let (api, credentials) = (api(Some(&whatsapp.base_url())), credentials("EAAG"));
    let number = api.number(&credentials).await.unwrap();
    assert_eq!((number.id.as_str(), number.facts.is_connected()), ("1065", true));
    assert_eq!(number.facts.max_messages_per_second, Some(80));
    whatsapp.set_other_numbers("100000000000001", 150);
    let first = api.business_numbers(&credentials, None).await.unwrap();
    assert_eq!(first.ids.len(), 100);
    let second = api.business_numbers(&credentials, first.next.as_deref()).await.unwrap();
    assert_eq!(
        (second.ids.last().map(String::as_str), second.next),
        (Some("1065"), None)
    );
    api.subscribe(&credentials).await.unwrap();
    assert_eq!(whatsapp.subscriptions(), ["100000000000001"]);
    let health = api.health(&credentials).await.unwrap();
    assert_eq!(
        (health.can_send, health.portfolio_id()),
        (CanSend::Available, Some("506914307656634"))
    );
}

#[tokio::test]
async fn number_without_a_field_of_a_later_version_is_read() {
    let whatsapp = start_simulator();
    whatsapp.set_number("1065", |number| number.unknown_fields = vec!["is_on_biz_app".into()]);
    let api = api(Some(&whatsapp.base_url()));
    let number = api.number(&credentials("EAAG")).await.unwrap();
    assert!(number.facts.display_phone_number.is_some() && number.facts.status.is_none());
    whatsapp.set_number("1065", |number| number.tokens = Some(vec!["other".into()]));
    assert_eq!(code(api.number(&credentials("EAAG")).await), Some(100));
    assert_eq!(code(api.number(&credentials("expired")).await), Some(190));
}

#[tokio::test]
async fn wrong_pin_is_refused_and_not_repeated_in_the_error() {
    let whatsapp = start_simulator();
    whatsapp.set_number("1065", |number| {
        (number.status, number.pin) = (Some("PENDING".into()), Some("246810".into()));
    });
    let (api, credentials) = (api(Some(&whatsapp.base_url())), credentials("EAAG"));
    let register = async |pin: &str| api.register(&credentials, &SecretString::from(pin)).await;
    assert_eq!(code(register("111111").await), Some(133_005));
    whatsapp.script(vec![WhatsappFault::of(
        On::Registration,
        WhatsappFaultKind::error(133_005, "the PIN 246810 is wrong"),
    )]);
    let refused = register("246810").await.unwrap_err().to_string();
    assert!(refused.contains("[PIN]") && !refused.contains("246810"), "{refused}");
    register("246810").await.unwrap();
    assert!(api.number(&credentials).await.unwrap().facts.is_connected());
}

#[tokio::test]
async fn outage_is_no_refusal() {
    let whatsapp = start_simulator();
    let api_of = |base: Option<&str>| api(base).timeout(Duration::from_millis(300));
    let (api, credentials) = (api_of(Some(&whatsapp.base_url())), credentials("EAAG"));
    for kind in [
        WhatsappFaultKind::Hang { ms: 2000 },
        WhatsappFaultKind::AcceptThenStatus500,
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::EmptyStatus { http_status: 404 },
        WhatsappFaultKind::RateLimited { retry_after_s: 1 },
    ] {
        whatsapp.script(vec![WhatsappFault::of(On::Account, kind.clone())]);
        let answer = api.number(&credentials).await;
        assert!(
            matches!(answer, Err(GraphError::Unavailable(_))),
            "{kind:?}: {answer:?}"
        );
    }
    let closed = api_of(Some(&format!("http://{}", closed_address(ANY_FREE_PORT).unwrap())));
    assert!(matches!(
        closed.subscribe(&credentials).await,
        Err(GraphError::Unavailable(_))
    ));
    let unset = api_of(None).number(&credentials).await;
    assert_eq!(unset, Err(GraphError::NotConfigured));
}
