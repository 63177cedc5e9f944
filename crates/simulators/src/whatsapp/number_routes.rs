//! The routes of business accounts and their phone numbers.

use serde_json::{Value, json};

use super::core::Core;
use super::graph::GraphError;
use super::numbers::{APP_ID, names_field, select};
use crate::call::{Call, Response};
use crate::{locked, set};

impl Core {
    /// `GET /{phone_number_id}`, or `GET /{waba_id}` if the fields are those of a business account.
    pub(super) fn show_number(&self, id: &str, call: &Call) -> Result<Response, GraphError> {
        let options = self.options();
        let fields = call.param("fields");
        if ["name", "currency", "timezone_id"]
            .iter()
            .any(|field| names_field(fields, field))
        {
            return Ok(Response::ok(&account_json(id, fields)));
        }
        let numbers = &mut locked(&self.state).accounts;
        let shown = numbers.show(id, call, &options.messaging_limit, &options.waba_id)?;
        Ok(Response::ok(&shown))
    }

    pub(super) fn list_numbers(&self, waba: &str, call: &Call) -> Response {
        let limit = self.options().messaging_limit;
        Response::ok(&locked(&self.state).accounts.page(waba, call, &limit))
    }

    pub(super) fn register_number(&self, id: &str, call: &Call) -> Result<Response, GraphError> {
        locked(&self.state).accounts.register(id, call)?;
        Ok(Response::ok(&json!({ "success": true })))
    }

    /// `POST` or `DELETE /{waba_id}/subscribed_apps`. Repeating it changes nothing.
    pub(super) fn set_subscription(&self, waba: &str, subscribed: bool) -> Response {
        locked(&self.state).accounts.set_subscribed(waba, subscribed);
        Response::ok(&json!({ "success": true }))
    }

    pub(super) fn list_subscriptions(&self, waba: &str) -> Response {
        let is_subscribed = locked(&self.state).accounts.is_subscribed(waba);
        let link = format!("https://www.facebook.com/games/?app_id={APP_ID}");
        let app = json!({ "whatsapp_business_api_data": { "id": APP_ID, "link": link, "name": "Recado" } });
        let apps = if is_subscribed { vec![app] } else { Vec::new() };
        Response::ok(&json!({ "data": apps }))
    }

    /// `GET /debug_token?input_token=`
    pub(super) fn debug_token(&self, call: &Call) -> Result<Response, GraphError> {
        let Some(token) = call.param("input_token") else {
            return Err(GraphError::new(100, "input_token is required"));
        };
        let scopes = ["whatsapp_business_management", "whatsapp_business_messaging"];
        let targets = [self.options().waba_id];
        let granular = scopes.map(|scope| json!({ "scope": scope, "target_ids": targets }));
        Ok(Response::ok(&json!({ "data": {
            "app_id": APP_ID,
            "type": "SYSTEM_USER",
            "is_valid": !token.starts_with("expired"),
            "expires_at": 0,
            "scopes": scopes,
            "granular_scopes": granular,
        } })))
    }
}

fn account_json(waba: &str, fields: Option<&str>) -> Value {
    let mut shown = json!({ "id": waba, "name": "Empresa de Teste", "currency": "BRL", "timezone_id": "1" });
    if names_field(fields, "health_status") {
        let entity = json!({ "entity_type": "WABA", "id": waba, "can_send_message": "AVAILABLE" });
        let health = json!({ "can_send_message": "AVAILABLE", "entities": [entity] });
        set(&mut shown, "health_status", health);
    }
    select(&mut shown, fields);
    shown
}
