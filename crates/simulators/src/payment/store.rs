//! The gateway's customers, subscriptions and payments as JSON objects, in the order of their creation.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use time::macros::offset;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::money::{cents, reais};
use crate::{now_ms, set};

/// The gateway's fee for every payment.
const FEE_CENTS: i64 = 199;

/// An entry of `errors[]`.
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) description: String,
}

pub(super) fn refuse(code: &str, description: &str) -> Refusal {
    Refusal {
        code: code.to_owned(),
        description: description.to_owned(),
    }
}

type Checked<T> = Result<T, Vec<Refusal>>;

/// The objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Collection(Vec<Value>);

impl Collection {
    pub(super) fn get(&self, id: &str) -> Option<&Value> {
        self.0.iter().find(|object| is(object, "id", id))
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|object| is(object, "id", id))
    }

    pub(super) fn add(&mut self, object: Value) -> Value {
        self.0.push(object.clone());
        object
    }

    pub(super) fn matching<'a>(&'a self, filters: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Value> {
        self.0
            .iter()
            .filter(|object| filters.iter().all(|(field, value)| is(object, field, value)))
    }

    pub(super) fn matching_mut<'a>(&'a mut self, filters: &'a [(&str, &str)]) -> impl Iterator<Item = &'a mut Value> {
        self.0
            .iter_mut()
            .filter(|object| filters.iter().all(|(field, value)| is(object, field, value)))
    }
}

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) customers: Collection,
    pub(super) subscriptions: Collection,
    pub(super) payments: Collection,
    /// When each subscription was created, in milliseconds since 1970.
    pub(super) created_ms: HashMap<String, u64>,
}

impl Store {
    pub(super) fn create_customer(&mut self, body: &Value) -> Checked<Value> {
        let mut refusals = Vec::new();
        if text(body, "name").trim().is_empty() {
            refusals.push(refuse("invalid_name", "O campo name deve ser informado."));
        }
        let document: String = text(body, "cpfCnpj")
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        if document.len() != 11 && document.len() != 14 {
            refusals.push(refuse("invalid_cpfCnpj", "O CPF/CNPJ informado é inválido."));
        }
        let mut customer = checked(body, refusals)?;
        let person = if document.len() == 11 { "FISICA" } else { "JURIDICA" };
        let added = [
            ("object", json!("customer")),
            ("id", json!(new_id("cus"))),
            ("dateCreated", json!(today().to_string())),
            ("cpfCnpj", json!(document)),
            ("personType", json!(person)),
            ("deleted", json!(false)),
        ];
        customer.extend(added.map(|(field, value)| (field.to_owned(), value)));
        Ok(self.customers.add(Value::Object(customer)))
    }

    /// Creates a subscription and its first payment.
    pub(super) fn create_subscription(&mut self, body: &Value) -> Checked<(Value, Value)> {
        let mut refusals = Vec::new();
        if self.customers.get(text(body, "customer")).is_none() {
            refusals.push(refuse("invalid_customer", "Customer inválido ou não informado."));
        }
        one_of(
            &mut refusals,
            body,
            "billingType",
            &["UNDEFINED", "BOLETO", "CREDIT_CARD", "PIX"],
        );
        one_of(&mut refusals, body, "cycle", &CYCLES);
        if body.get("value").and_then(cents).is_none_or(|value| value <= 0) {
            refusals.push(refuse("invalid_value", "O campo value deve ser informado."));
        }
        if !is_date(text(body, "nextDueDate")) {
            refusals.push(refuse("invalid_nextDueDate", "O campo nextDueDate deve ser informado."));
        }
        check_card(&mut refusals, body);
        let mut subscription = checked(body, refusals)?;
        hide_card(&mut subscription);
        let added = [
            ("object", json!("subscription")),
            ("id", json!(new_id("sub"))),
            ("dateCreated", json!(today().to_string())),
            ("status", json!("ACTIVE")),
            ("deleted", json!(false)),
            ("paymentLink", Value::Null),
            ("checkoutSession", Value::Null),
        ];
        subscription.extend(added.map(|(field, value)| (field.to_owned(), value)));
        let subscription = self.subscriptions.add(Value::Object(subscription));
        self.created_ms.insert(text(&subscription, "id").to_owned(), now_ms());
        let payment = self.charge(&subscription, text(&subscription, "nextDueDate"));
        Ok((subscription, payment))
    }

    /// Adds a payment to a subscription. A card charged today is confirmed at once.
    pub(super) fn charge(&mut self, subscription: &Value, due: &str) -> Value {
        let id = new_id("pay");
        let kind = text(subscription, "billingType");
        let value = subscription.get("value").cloned().unwrap_or(Value::Null);
        let net = cents(&value).map_or(Value::Null, |value| reais((value - FEE_CENTS).max(0)));
        let charged = kind == "CREDIT_CARD" && subscription.get("creditCard").is_some() && due <= &*today().to_string();
        let slip = (kind == "BOLETO").then(|| format!("https://gateway.example/b/pdf/{id}"));
        let mut payment = json!({
            "object": "payment", "id": id, "dateCreated": today().to_string(),
            "customer": subscription.get("customer"), "subscription": subscription.get("id"),
            "billingType": kind, "value": value, "netValue": net, "status": "PENDING",
            "dueDate": due, "originalDueDate": due, "paymentDate": null, "clientPaymentDate": null,
            "confirmedDate": null, "creditDate": null, "invoiceUrl": format!("https://gateway.example/i/{id}"),
            "invoiceNumber": id.chars().rev().take(8).collect::<String>(), "bankSlipUrl": slip,
            "nossoNumero": null, "transactionReceiptUrl": null, "description": subscription.get("description"),
            "externalReference": subscription.get("externalReference"), "deleted": false,
            "creditCard": subscription.get("creditCard"),
        });
        if charged {
            set(&mut payment, "status", json!("CONFIRMED"));
            set(&mut payment, "confirmedDate", json!(today().to_string()));
        }
        self.payments.add(payment)
    }

    /// Replaces the card of a subscription.
    pub(super) fn replace_card(&mut self, id: &str, body: &Value) -> Checked<Option<Value>> {
        let mut refusals = Vec::new();
        check_card(&mut refusals, body);
        let mut card = checked(body, refusals)?;
        hide_card(&mut card);
        let Some(subscription) = self.subscriptions.get_mut(id) else {
            return Ok(None);
        };
        set(
            subscription,
            "creditCard",
            card.remove("creditCard").unwrap_or(Value::Null),
        );
        Ok(Some(subscription.clone()))
    }
}

const CYCLES: [&str; 7] = [
    "WEEKLY",
    "BIWEEKLY",
    "MONTHLY",
    "BIMONTHLY",
    "QUARTERLY",
    "SEMIANNUALLY",
    "YEARLY",
];

/// Returns the body's fields if there are no refusals.
fn checked(body: &Value, refusals: Vec<Refusal>) -> Checked<Map<String, Value>> {
    if refusals.is_empty() {
        Ok(body.as_object().cloned().unwrap_or_default())
    } else {
        Err(refusals)
    }
}

fn one_of(refusals: &mut Vec<Refusal>, body: &Value, field: &str, allowed: &[&str]) {
    if !allowed.contains(&text(body, field)) {
        refusals.push(refuse(
            &format!("invalid_{field}"),
            &format!("O campo {field} é inválido."),
        ));
    }
}

fn check_card(refusals: &mut Vec<Refusal>, body: &Value) {
    let Some(card) = body.get("creditCard") else {
        return;
    };
    let missing = |value: &Value, field: &&&str| text(value, field).is_empty();
    let fields = ["holderName", "number", "expiryMonth", "expiryYear", "ccv"];
    if let Some(field) = fields.iter().find(|field| missing(card, field)) {
        refusals.push(refuse("invalid_creditCard", &format!("Informe {field} do cartão.")));
    }
    let holder = body.get("creditCardHolderInfo").unwrap_or(&Value::Null);
    let fields = ["name", "email", "cpfCnpj", "postalCode", "addressNumber", "phone"];
    if let Some(field) = fields.iter().find(|field| missing(holder, field)) {
        refusals.push(refuse(
            "invalid_creditCardHolderInfo",
            &format!("Informe {field} do titular."),
        ));
    }
    if text(body, "remoteIp").is_empty() {
        refusals.push(refuse("invalid_remoteIp", "O campo remoteIp deve ser informado."));
    }
    if refusals.is_empty() && text(card, "number").ends_with("0002") {
        refusals.push(refuse(
            "invalid_creditCard",
            "Transação não autorizada. Verifique os dados do cartão.",
        ));
    }
}

/// Reduces a card to the fields that the gateway returns: last digits, brand and token.
fn hide_card(body: &mut Map<String, Value>) {
    body.remove("creditCardHolderInfo");
    body.remove("remoteIp");
    let token = body.remove("creditCardToken");
    let number = body.get("creditCard").map(|card| text(card, "number").to_owned());
    if number.is_none() && token.is_none() {
        return;
    }
    let number = number.unwrap_or_default();
    let last: String = number.chars().skip(number.chars().count().saturating_sub(4)).collect();
    let token = token.unwrap_or_else(|| json!(Uuid::new_v4()));
    let shown = json!({ "creditCardNumber": last, "creditCardBrand": "VISA", "creditCardToken": token });
    body.insert("creditCard".into(), shown);
}

fn new_id(prefix: &str) -> String {
    let random = Uuid::new_v4().simple().to_string();
    format!("{prefix}_{}", random.chars().take(16).collect::<String>())
}

pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn is(object: &Value, field: &str, expected: &str) -> bool {
    match object.get(field) {
        Some(Value::String(value)) => value == expected,
        Some(Value::Bool(value)) => value.to_string() == expected,
        _ => false,
    }
}

/// The calendar day in the gateway's time zone (UTC-3).
pub(super) fn today() -> Date {
    now().date()
}

pub(super) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc().to_offset(offset!(-3))
}

/// Whether a text is a valid date `YYYY-MM-DD`.
pub(super) fn is_date(text: &str) -> bool {
    let format = time::macros::format_description!("[year]-[month]-[day]");
    Date::parse(text, format).is_ok()
}
