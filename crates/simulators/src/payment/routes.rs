//! The gateway's routes: each one reads the request, changes the store, enqueues webhook events and responds.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::store::{Collection, is, refuse, text, today};
use super::{Action, Core, errors, not_found};
use crate::call::{Call, Response};
use crate::{locked, now_ms, set};

/// A PNG of one pixel in the place of the QR code.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

impl Core {
    pub(super) fn route(&self, call: &Call, route: &[&str]) -> Response {
        match (call.method.as_str(), route) {
            ("POST", ["customers"]) => match locked(&self.store).create_customer(&call.json()) {
                Ok(customer) => Response::ok(&customer),
                Err(refusals) => errors(400, &refusals),
            },
            ("GET", ["customers"]) => list(
                call,
                &locked(&self.store).customers,
                &["externalReference", "cpfCnpj", "email", "name"],
            ),
            ("GET", ["customers", id]) => found(locked(&self.store).customers.get(id)),
            ("PUT" | "POST", ["customers", id]) => found(change(&mut locked(&self.store).customers, id, call).as_ref()),
            ("DELETE", ["customers", id]) => deleted(&mut locked(&self.store).customers, id),
            ("POST", ["subscriptions"]) => self.subscribe(call),
            ("GET", ["subscriptions"]) => {
                let filters = ["customer", "billingType", "status", "externalReference"];
                list(call, &locked(&self.store).subscriptions, &filters)
            }
            ("GET", ["subscriptions", id]) => found(locked(&self.store).subscriptions.get(id)),
            ("PUT" | "POST", ["subscriptions", id]) => self.change_subscription(id, call),
            ("PUT", ["subscriptions", id, "creditCard"]) => match locked(&self.store).replace_card(id, &call.json()) {
                Ok(subscription) => found(subscription.as_ref()),
                Err(refusals) => errors(400, &refusals),
            },
            ("DELETE", ["subscriptions", id]) => self.cancel(id),
            ("GET", ["subscriptions", id, "payments"]) => self.payments_of(id, call),
            ("GET", ["payments"]) => {
                let filters = ["customer", "subscription", "billingType", "status", "externalReference"];
                list(call, &locked(&self.store).payments, &filters)
            }
            ("GET", ["payments", id]) => found(locked(&self.store).payments.get(id)),
            ("DELETE", ["payments", id]) => self.delete_payment(id),
            ("GET", ["payments", id, part]) => found(
                locked(&self.store)
                    .payments
                    .get(id)
                    .and_then(|p| show(p, part))
                    .as_ref(),
            ),
            ("POST", ["sandbox", "payment", id, "confirm"]) => self.apply_action(id, Action::Confirm),
            ("POST", ["sandbox", "payment", id, "overdue"]) => self.apply_action(id, Action::Overdue),
            _ => not_found(),
        }
    }

    fn subscribe(&self, call: &Call) -> Response {
        let (subscription, payment) = match locked(&self.store).create_subscription(&call.json()) {
            Ok(created) => created,
            Err(refusals) => return errors(400, &refusals),
        };
        self.enqueue_event("SUBSCRIPTION_CREATED", &subscription);
        self.enqueue_charge_events(&payment);
        Response::ok(&subscription)
    }

    fn change_subscription(&self, id: &str, call: &Call) -> Response {
        let (body, mut store) = (call.json(), locked(&self.store));
        let Some(changed) = change(&mut store.subscriptions, id, call) else {
            return not_found();
        };
        if is(&body, "updatePendingPayments", "true") {
            for payment in store
                .payments
                .matching_mut(&[("subscription", id), ("status", "PENDING")])
            {
                for field in ["value", "billingType"] {
                    if let Some(value) = body.get(field) {
                        set(payment, field, value.clone());
                    }
                }
            }
        }
        drop(store);
        let event = if is(&body, "status", "INACTIVE") {
            "SUBSCRIPTION_INACTIVATED"
        } else {
            "SUBSCRIPTION_UPDATED"
        };
        self.enqueue_event(event, &changed);
        Response::ok(&changed)
    }

    /// Deletes a subscription with its pending and overdue payments.
    fn cancel(&self, id: &str) -> Response {
        let mut store = locked(&self.store);
        let response = deleted(&mut store.subscriptions, id);
        if response.status() != Some(200) {
            return response;
        }
        let filters = [("subscription", id)];
        for payment in store.payments.matching_mut(&filters).filter(|payment| is_open(payment)) {
            set(payment, "deleted", json!(true));
            self.enqueue_event("PAYMENT_DELETED", payment);
        }
        if let Some(subscription) = store.subscriptions.get(id) {
            self.enqueue_event("SUBSCRIPTION_DELETED", subscription);
        }
        response
    }

    fn payments_of(&self, id: &str, call: &Call) -> Response {
        let hidden_ms = locked(&self.options).first_charge_after_ms;
        let store = locked(&self.store);
        let Some(subscription) = store.subscriptions.get(id) else {
            return not_found();
        };
        let created = store.created_ms.get(text(subscription, "id")).copied().unwrap_or(0);
        if now_ms() < created + hidden_ms {
            return page(call, Vec::new());
        }
        let mut filters = vec![("subscription", id), ("deleted", "false")];
        filters.extend(call.param("status").map(|status| ("status", status)));
        page(call, store.payments.matching(&filters).cloned().collect())
    }

    fn delete_payment(&self, id: &str) -> Response {
        let mut store = locked(&self.store);
        match store.payments.get(id) {
            None => return not_found(),
            Some(payment) if !is_open(payment) => {
                return errors(400, &[refuse("invalid_action", "A cobrança não pode ser removida.")]);
            }
            Some(payment) => self.enqueue_event("PAYMENT_DELETED", payment),
        }
        deleted(&mut store.payments, id)
    }

    /// Applies an action to a payment and enqueues its events. 400 if the payment's status does not allow it.
    pub(super) fn apply_action(&self, id: &str, action: Action) -> Response {
        let mut store = locked(&self.store);
        let Some(payment) = store.payments.get_mut(id) else {
            return not_found();
        };
        let status = text(payment, "status").to_owned();
        let allowed = match action {
            Action::Confirm => is_open(payment),
            Action::Receive => status == "CONFIRMED",
            Action::Overdue => status == "PENDING" && is_open(payment),
            Action::Refund => matches!(status.as_str(), "CONFIRMED" | "RECEIVED"),
        };
        if !allowed {
            return errors(400, &[refuse("invalid_action", "A cobrança não permite esta ação.")]);
        }
        let steps: &[&str] = match (action, text(payment, "billingType")) {
            (Action::Confirm, "CREDIT_CARD") => &["CONFIRMED"],
            (Action::Confirm, "BOLETO") => &["CONFIRMED", "RECEIVED"],
            (Action::Confirm | Action::Receive, _) => &["RECEIVED"],
            (Action::Overdue, _) => &["OVERDUE"],
            (Action::Refund, _) => &["REFUNDED"],
        };
        let day = json!(today().to_string());
        for status in steps {
            set(payment, "status", json!(status));
            let dates: &[&str] = match *status {
                "CONFIRMED" => &["confirmedDate", "clientPaymentDate"],
                "RECEIVED" => &["paymentDate", "clientPaymentDate", "creditDate"],
                _ => &[],
            };
            for field in dates {
                set(payment, field, day.clone());
            }
            self.enqueue_event(&format!("PAYMENT_{status}"), payment);
        }
        Response::ok(payment)
    }
}

fn is_open(payment: &Value) -> bool {
    is(payment, "deleted", "false") && matches!(text(payment, "status"), "PENDING" | "OVERDUE")
}

/// Overwrites an object's fields with those of the body, except the read-only ones. None: the object does not exist.
fn change(collection: &mut Collection, id: &str, call: &Call) -> Option<Value> {
    let object = collection.get_mut(id)?;
    if let (Some(fields), Value::Object(mut changes)) = (object.as_object_mut(), call.json()) {
        for read_only in ["id", "object", "deleted", "dateCreated", "updatePendingPayments"] {
            changes.remove(read_only);
        }
        fields.extend(changes);
    }
    Some(object.clone())
}

fn deleted(collection: &mut Collection, id: &str) -> Response {
    match collection.get_mut(id) {
        Some(object) if !is(object, "deleted", "true") => {
            set(object, "deleted", json!(true));
            Response::ok(&json!({ "deleted": true, "id": id }))
        }
        _ => not_found(),
    }
}

fn found(object: Option<&Value>) -> Response {
    object.map_or_else(not_found, Response::ok)
}

fn list(call: &Call, collection: &Collection, filters: &[&'static str]) -> Response {
    let mut conditions: Vec<(&str, &str)> = filters
        .iter()
        .filter_map(|field| Some((*field, call.param(field)?)))
        .collect();
    if call.param("includeDeleted") != Some("true") {
        conditions.push(("deleted", "false"));
    }
    page(call, collection.matching(&conditions).cloned().collect())
}

/// One page of a list in the gateway's envelope.
fn page(call: &Call, objects: Vec<Value>) -> Response {
    let number = |name: &str| call.param(name).and_then(|value| value.parse::<usize>().ok());
    let (offset, limit) = (
        number("offset").unwrap_or(0),
        number("limit").unwrap_or(10).clamp(1, 100),
    );
    let total = objects.len();
    let data: Vec<Value> = objects.into_iter().skip(offset).take(limit).collect();
    Response::ok(&json!({
        "object": "list", "hasMore": offset + data.len() < total, "totalCount": total,
        "limit": limit, "offset": offset, "data": data,
    }))
}

/// A sub-resource of a payment. None: `part` is unknown.
fn show(payment: &Value, part: &str) -> Option<Value> {
    let id = text(payment, "id");
    let pix = || {
        let expires = OffsetDateTime::now_utc() + Duration::days(365);
        json!({
            "encodedImage": PIXEL,
            "payload": format!("00020126580014br.gov.bcb.pix0136{id}5204000053039865802BR6304ABCD"),
            "expirationDate": format!("{} 23:59:59", expires.date()),
        })
    };
    let slip = || {
        json!({
            "identificationField": "00190000090275928800021932978170187890000005000",
            "nossoNumero": "27592880",
            "barCode": "00191878900000050000000002759288002193297817",
        })
    };
    let is_kind = |kind: &str| is(payment, "billingType", kind) || is(payment, "billingType", "UNDEFINED");
    match part {
        "status" => Some(json!({ "status": payment.get("status") })),
        "pixQrCode" => Some(pix()),
        "identificationField" => Some(slip()),
        "billingInfo" => Some(json!({
            "pix": is_kind("PIX").then(pix),
            "bankSlip": is_kind("BOLETO").then(slip),
            "creditCard": payment.get("creditCard"),
        })),
        _ => None,
    }
}
