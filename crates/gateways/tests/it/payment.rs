//! Tests of the payment gateway, against its simulator with injected faults.

use std::time::Duration;

use recado_domain::billing::{
    BillingType, Cents, Cycle, GatewayCustomerInput, GatewaySubscriptionInput, PaymentGateway, PaymentGatewayError,
    PaymentStatus, TaxNumber,
};
use recado_domain::shared::{AccountId, SubscriptionId};
use recado_gateways::http::Http;
use recado_gateways::payment::PaymentApi;
use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment::{PaymentOptions, PaymentSimulator};
use secrecy::SecretString;
use serde_json::{Value, json};
use time::macros::date;
use uuid::Uuid;

fn api(gateway: &PaymentSimulator, key: &str) -> PaymentApi {
    let key = SecretString::from(key);
    PaymentApi::new(Http::new().unwrap(), Some(&gateway.base_url()), Some(&key)).unwrap()
}

fn start() -> (PaymentSimulator, PaymentApi) {
    let gateway = PaymentSimulator::start(PaymentOptions::default()).unwrap();
    let api = api(&gateway, "gateway-key");
    (gateway, api)
}

fn customer(tax_number: &str) -> GatewayCustomerInput {
    GatewayCustomerInput {
        account_id: AccountId(Uuid::from_u128(7)),
        name: "Loja".into(),
        email: Some("ana@example.com".into()),
        tax_number: TaxNumber::parse(tax_number).unwrap(),
    }
}

async fn subscription_input(api: &PaymentApi, billing_type: BillingType) -> GatewaySubscriptionInput {
    GatewaySubscriptionInput {
        reference: SubscriptionId(Uuid::from_u128(9)),
        customer: api.customer(&customer("529.982.247-25")).await.unwrap(),
        billing_type,
        value: Cents(9_790),
        cycle: Cycle::Monthly,
        first_due: date!(2099 - 12 - 01),
        description: "Recado Starter".into(),
        card: None,
    }
}

fn posted(gateway: &PaymentSimulator, path: &str) -> Vec<Value> {
    let entries = gateway.ledger().into_iter();
    let posts = entries.filter(|entry| entry.method == "POST" && entry.path.ends_with(path));
    posts.map(|entry| entry.body).collect()
}

#[tokio::test]
async fn customer_is_created_once_and_its_tax_number_updated() {
    let (gateway, api) = start();
    let first = api.customer(&customer("529.982.247-25")).await.unwrap();
    assert_eq!(api.customer(&customer("52998224725")).await.unwrap(), first);
    assert_eq!(api.customer(&customer("12.abc.345/01de-35")).await.unwrap(), first);
    assert_eq!(posted(&gateway, "/customers").len(), 1);
    let put: Vec<_> = gateway
        .ledger()
        .into_iter()
        .filter(|entry| entry.method == "PUT")
        .collect();
    assert_eq!((put.len(), &put[0].body["cpfCnpj"]), (1, &json!("12ABC34501DE35")));
    // A lost response creates no second customer.
    let (gateway, api) = start();
    gateway.script(vec![Fault::new(FaultKind::AcceptThenReset).on("POST", "/customers")]);
    api.customer(&customer("52998224725")).await.unwrap();
    assert_eq!(posted(&gateway, "/customers").len(), 1);
}

#[tokio::test]
async fn subscription_by_pix_and_boleto_succeeds() {
    let (gateway, api) = start();
    let pix = subscription_input(&api, BillingType::Pix).await;
    let created = api.subscribe(&pix).await.unwrap();
    assert_eq!(
        (created.value, created.cycle, created.deleted),
        (Some(Cents(9_790)), Some(Cycle::Monthly), false)
    );
    let sent = &posted(&gateway, "/subscriptions")[0];
    assert_eq!(
        (sent["value"].to_string(), &sent["nextDueDate"]),
        ("97.9".into(), &json!("2099-12-01"))
    );
    assert_eq!(sent["externalReference"], json!(pix.reference));
    assert!(sent.get("creditCard").is_none() && sent.get("remoteIp").is_none());
    assert_eq!(api.find(pix.reference).await.unwrap(), Some(created.clone()));
    assert_eq!(api.find(SubscriptionId(Uuid::from_u128(1))).await.unwrap(), None);
    let data = api.first_payment(&created.id, BillingType::Pix).await;
    let payment = data.payment.unwrap();
    assert!(data.pix_qr_code.is_some() && data.pix_payload.is_some() && data.pix_expires_at.is_some());
    assert_eq!(
        (&payment.status, payment.due_date),
        (&PaymentStatus::Pending, Some(date!(2099 - 12 - 01)))
    );
    assert_eq!(api.payment(&payment.id).await.unwrap(), Some(payment.clone()));
    assert_eq!(api.payment("pay_none").await.unwrap(), None);
    assert_eq!(api.payments(&created.id).await.unwrap(), [payment]);

    api.change(&created.id, Cents(297_000), Cycle::Yearly).await.unwrap();
    let changed = api.subscription(&created.id).await.unwrap().unwrap();
    assert_eq!(
        (changed.value, changed.cycle),
        (Some(Cents(297_000)), Some(Cycle::Yearly))
    );
    assert_eq!(api.payments(&created.id).await.unwrap()[0].value, Some(Cents(297_000)));
    for _ in 0..2 {
        api.cancel(&created.id).await.unwrap();
    }
    assert!(
        api.subscription(&created.id)
            .await
            .unwrap()
            .is_none_or(|subscription| subscription.deleted)
    );
    assert_eq!(api.find(pix.reference).await.unwrap(), None);

    let mut boleto = subscription_input(&api, BillingType::Boleto).await;
    boleto.reference = SubscriptionId(Uuid::from_u128(10));
    let created = api.subscribe(&boleto).await.unwrap();
    let data = api.first_payment(&created.id, BillingType::Boleto).await;
    assert!(data.boleto_line.is_some() && data.payment.unwrap().bank_slip_url.is_some());
}

#[tokio::test]
async fn first_payment_is_polled_until_it_exists() {
    let (gateway, api) = start();
    gateway.set_options(|options| options.first_charge_after_ms = 600);
    let created = api
        .subscribe(&subscription_input(&api, BillingType::Pix).await)
        .await
        .unwrap();
    assert!(api.first_payment(&created.id, BillingType::Pix).await.payment.is_some());
    gateway.set_options(|options| options.first_charge_after_ms = 3_600_000);
    assert!(api.first_payment(&created.id, BillingType::Pix).await.payment.is_none());
}

#[tokio::test]
async fn subscribe_error_says_whether_it_may_have_happened() {
    let (gateway, api) = start();
    let pix = subscription_input(&api, BillingType::Pix).await;
    let status = |http_status: u16| {
        FaultKind::status(
            http_status,
            json!({ "errors": [{ "code": "invalid_x", "description": "4111111111111111 não." }] }),
        )
    };
    let short_timeouts = api
        .clone()
        .timeouts(Duration::from_millis(300), Duration::from_millis(300));
    for (kind, expected) in [
        (status(400), "Refused"),
        (status(401), "NotDone"),
        (status(429), "NotDone"),
        (status(500), "Failed"),
        (status(504), "Unanswered"),
        (FaultKind::AcceptThenReset, "Unanswered"),
        (FaultKind::AcceptThenStatus500, "Failed"),
        (FaultKind::GarbageJson, "Failed"),
        (FaultKind::Hang { ms: 1_500 }, "Unanswered"),
    ] {
        gateway.script(vec![Fault::new(kind.clone()).on("POST", "/subscriptions")]);
        let error = short_timeouts.subscribe(&pix).await.unwrap_err();
        let shown = format!("{error:?}");
        assert!(
            shown.starts_with(expected) && !shown.contains("4111"),
            "{kind:?}: {shown}"
        );
    }
    let wrong_key = self::api(&gateway, "wrong").subscribe(&pix).await.unwrap_err();
    assert!(matches!(wrong_key, PaymentGatewayError::NotDone(_)), "{wrong_key:?}");
    let unconfigured = PaymentApi::new(Http::new().unwrap(), None, None).unwrap();
    assert_eq!(
        unconfigured.subscribe(&pix).await,
        Err(PaymentGatewayError::NotConfigured)
    );
    drop(gateway);
    let unreachable = api.subscribe(&pix).await.unwrap_err();
    assert!(
        matches!(
            unreachable,
            PaymentGatewayError::NotDone(_) | PaymentGatewayError::Unanswered(_)
        ),
        "{unreachable:?}"
    );
}
