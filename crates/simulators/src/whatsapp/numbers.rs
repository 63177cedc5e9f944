//! Business accounts and their phone numbers: the fields of a number, the numbers of an account, the subscription of
//! the app, and registration.
//!
//! Every token may read every number, and every account lists the numbers that the token asked for. [`NumberSettings`]
//! changes that for one number.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::bounded::BoundedMap;
use super::definition::text;
use super::graph::{GraphError, bearer};
use crate::call::Call;
use crate::set;

/// Numbers with settings, business accounts with settings or a subscription, and tokens.
const MAX_NUMBERS: usize = 10_000;
const MAX_ACCOUNTS: usize = 10_000;
const MAX_TOKENS: usize = 1_000;

/// Numbers that an account lists to one token: more than the product reads.
const MAX_NUMBERS_OF_TOKEN: usize = 2_500;

/// Failed registrations of a number before the platform refuses more with 133016. It drops them after 72 hours; the
/// simulator drops them when it is reset.
const MAX_FAILED_REGISTRATIONS: u32 = 10;

/// Page sizes of the list of numbers.
const DEFAULT_PAGE: usize = 25;
const MAX_PAGE: usize = 100;

/// Id of the subscribed app, and of the app in the health of a number.
pub(super) const APP_ID: &str = "670843887433847";

/// `display_phone_number` of the business in callbacks.
pub(super) const DISPLAY_NUMBER: &str = "551130000000";

/// A phone number as the platform knows it. The defaults describe a number that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NumberSettings {
    /// The only business account that lists the number. None: every account, to the tokens that asked for the number.
    pub waba_id: Option<String>,
    /// Whether no business account lists the number.
    pub unlisted: bool,
    /// The tokens that may use the number. For others it does not exist (error 100). None: every token.
    pub tokens: Option<Vec<String>>,
    pub display_phone_number: String,
    pub verified_name: String,
    pub name_status: String,
    /// None: the answer has no such field.
    pub status: Option<String>,
    pub quality_rating: String,
    pub throughput: String,
    /// None: the limit of the options.
    pub messaging_limit: Option<String>,
    /// None: the answer has no such field.
    pub on_business_app: Option<bool>,
    /// Id of the business in the health of the number.
    pub portfolio_id: String,
    /// The PIN that registers the number. None: any six digits.
    pub pin: Option<String>,
    /// Fields that do not exist in this version: a call that names one fails with error 100.
    pub unknown_fields: Vec<String>,
    /// The entities of the health of the number. Empty: number, account, business and app can send.
    pub health: Vec<Value>,
}

impl Default for NumberSettings {
    fn default() -> Self {
        Self {
            waba_id: None,
            unlisted: false,
            tokens: None,
            display_phone_number: DISPLAY_NUMBER.into(),
            verified_name: "Empresa de Teste".into(),
            name_status: "APPROVED".into(),
            status: Some("CONNECTED".into()),
            quality_rating: "GREEN".into(),
            throughput: "STANDARD".into(),
            messaging_limit: None,
            on_business_app: None,
            portfolio_id: "506914307656634".into(),
            pin: None,
            unknown_fields: Vec::new(),
            health: Vec::new(),
        }
    }
}

impl NumberSettings {
    fn is_for(&self, token: &str) -> bool {
        self.tokens
            .as_ref()
            .is_none_or(|tokens| tokens.iter().any(|allowed| allowed == token))
    }

    /// The number as the API returns it, restricted to `fields` (a comma-separated list) if given.
    fn to_json(&self, id: &str, waba: &str, default_limit: &str, fields: Option<&str>) -> Value {
        let mut shown = json!({
            "id": id,
            "display_phone_number": self.display_phone_number,
            "verified_name": self.verified_name,
            "name_status": self.name_status,
            "quality_rating": self.quality_rating,
            "code_verification_status": "VERIFIED",
            "platform_type": "CLOUD_API",
            "throughput": { "level": self.throughput },
            "account_mode": "LIVE",
            "whatsapp_business_manager_messaging_limit": self.messaging_limit.as_deref().unwrap_or(default_limit),
        });
        if let Some(status) = &self.status {
            set(&mut shown, "status", json!(status));
        }
        if let Some(on_business_app) = self.on_business_app {
            set(&mut shown, "is_on_biz_app", json!(on_business_app));
        }
        if names_field(fields, "health_status") {
            set(&mut shown, "health_status", self.health_json(id, waba));
        }
        select(&mut shown, fields);
        shown
    }

    fn health_json(&self, id: &str, waba: &str) -> Value {
        let available =
            |kind: &str, id: &str| json!({ "entity_type": kind, "id": id, "can_send_message": "AVAILABLE" });
        let entities = if self.health.is_empty() {
            vec![
                available("PHONE_NUMBER", id),
                available("WABA", waba),
                available("BUSINESS", &self.portfolio_id),
                available("APP", APP_ID),
            ]
        } else {
            self.health.clone()
        };
        let is_any = |word: &str| entities.iter().any(|entity| text(entity, "can_send_message") == word);
        let worst = ["BLOCKED", "LIMITED"].into_iter().find(|word| is_any(word));
        json!({ "can_send_message": worst.unwrap_or("AVAILABLE"), "entities": entities })
    }
}

/// What is set or was done for a business account.
#[derive(Debug, Default)]
struct AccountState {
    subscribed: bool,
    /// Numbers that the account lists before all others.
    other_numbers: u32,
}

/// The numbers and business accounts that were set or asked for.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    settings: BoundedMap<NumberSettings, MAX_NUMBERS>,
    /// The numbers that each token asked for.
    asked: BoundedMap<BoundedMap<(), MAX_NUMBERS_OF_TOKEN>, MAX_TOKENS>,
    accounts: BoundedMap<AccountState, MAX_ACCOUNTS>,
    failed_registrations: BoundedMap<u32, MAX_NUMBERS>,
}

impl Numbers {
    pub(super) fn settings(&self, id: &str) -> NumberSettings {
        self.settings.get(id).cloned().unwrap_or_default()
    }

    pub(super) fn set_settings(&mut self, id: &str, settings: NumberSettings) {
        *self.settings.entry(id) = settings;
    }

    pub(super) fn remove_settings(&mut self, id: &str) -> bool {
        self.settings.remove(id).is_some()
    }

    pub(super) fn set_other_numbers(&mut self, waba: &str, count: u32) {
        self.accounts.entry(waba).other_numbers = count;
    }

    pub(super) fn set_subscribed(&mut self, waba: &str, subscribed: bool) {
        self.accounts.entry(waba).subscribed = subscribed;
    }

    pub(super) fn is_subscribed(&self, waba: &str) -> bool {
        self.accounts.get(waba).is_some_and(|account| account.subscribed)
    }

    /// The business accounts to which the app is subscribed.
    pub(super) fn subscribed(&self) -> Vec<String> {
        let accounts = self.accounts.keys().filter(|waba| self.is_subscribed(waba));
        accounts.map(str::to_owned).collect()
    }

    /// The settings of a number that the token may use.
    fn usable(&self, id: &str, token: &str) -> Result<NumberSettings, GraphError> {
        let settings = self.settings(id);
        match settings.is_for(token) {
            true => Ok(settings),
            false => Err(GraphError::new(
                100,
                format!("Object with ID '{id}' does not exist, or cannot be loaded due to missing permissions."),
            )),
        }
    }

    /// `GET /{phone_number_id}`. Remembers that the token asked for the number.
    pub(super) fn show(
        &mut self,
        id: &str,
        call: &Call,
        default_limit: &str,
        default_waba: &str,
    ) -> Result<Value, GraphError> {
        let fields = call.param("fields");
        let settings = self.usable(id, bearer(call))?;
        let unknown = settings.unknown_fields.iter().find(|field| names_field(fields, field));
        if let Some(field) = unknown {
            return Err(GraphError::new(
                100,
                format!("Tried accessing nonexisting field ({field}) on node type (WhatsAppBusinessPhoneNumber)"),
            ));
        }
        self.asked.entry(bearer(call)).entry(id);
        let waba = settings.waba_id.as_deref().unwrap_or(default_waba);
        Ok(settings.to_json(id, waba, default_limit, fields))
    }

    /// The ids that an account lists to a token, in a stable order.
    fn listed(&self, waba: &str, token: &str) -> Vec<String> {
        let others = self.accounts.get(waba).map_or(0, |account| account.other_numbers);
        let others = (0..others).map(|number| format!("9{number:014}"));
        let own = self.settings.keys().filter(|id| {
            let settings = self.settings(id);
            settings.waba_id.as_deref() == Some(waba) && !settings.unlisted && settings.is_for(token)
        });
        let asked = self
            .asked
            .get(token)
            .into_iter()
            .flat_map(BoundedMap::keys)
            .filter(|id| {
                let settings = self.settings(id);
                settings.waba_id.is_none() && !settings.unlisted && settings.is_for(token)
            });
        others
            .chain(own.map(str::to_owned))
            .chain(asked.map(str::to_owned))
            .collect()
    }

    /// `GET /{waba_id}/phone_numbers`
    pub(super) fn page(&self, waba: &str, call: &Call, default_limit: &str) -> Value {
        let number = |name: &str| call.param(name).and_then(|value| value.parse::<usize>().ok());
        let limit = number("limit").unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
        let from = call
            .param("after")
            .and_then(|cursor| usize::from_str_radix(cursor, 16).ok())
            .unwrap_or(0);
        let ids = self.listed(waba, bearer(call));
        let fields = call.param("fields");
        let shown = ids.iter().skip(from).take(limit);
        let data: Vec<Value> = shown
            .map(|id| self.settings(id).to_json(id, waba, default_limit, fields))
            .collect();
        if data.is_empty() {
            return json!({ "data": [] });
        }
        let after = format!("{:x}", from + data.len());
        let mut paging = json!({ "cursors": { "before": format!("{from:x}"), "after": after } });
        if from + data.len() < ids.len() {
            let host = call.header("host").unwrap_or_default();
            let fields = fields.map(|fields| format!("&fields={fields}")).unwrap_or_default();
            let next = format!("http://{host}{}?limit={limit}&after={after}{fields}", call.path);
            set(&mut paging, "next", json!(next));
        }
        json!({ "data": data, "paging": paging })
    }

    /// `POST /{phone_number_id}/register`
    pub(super) fn register(&mut self, id: &str, call: &Call) -> Result<(), GraphError> {
        let body = call.json();
        let settings = self.usable(id, bearer(call))?;
        if text(&body, "messaging_product") != "whatsapp" {
            return Err(GraphError::new(100, "messaging_product must be whatsapp"));
        }
        let pin = text(&body, "pin");
        if pin.len() != 6 || !pin.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(GraphError::new(131_009, "pin must have six digits"));
        }
        if settings.on_business_app == Some(true) {
            return Err(GraphError::new(
                100,
                "The number is registered by the WhatsApp Business app.",
            ));
        }
        let failed = self.failed_registrations.entry(id);
        if *failed >= MAX_FAILED_REGISTRATIONS {
            return Err(GraphError::new(133_016, "Too many attempts to register this number."));
        }
        if settings.pin.as_deref().is_some_and(|right| right != pin) {
            *failed += 1;
            return Err(GraphError::new(
                133_005,
                "The two-step verification PIN is not correct.",
            ));
        }
        *failed = 0;
        if let Some(settings) = self.settings.get_mut(id) {
            settings.status = Some("CONNECTED".into());
        }
        Ok(())
    }
}

/// Whether a comma-separated list of fields names this one.
pub(super) fn names_field(fields: Option<&str>, field: &str) -> bool {
    fields.is_some_and(|fields| fields.split(',').any(|name| name.trim() == field))
}

/// Removes the fields that were not asked for. The id is always part of an answer.
pub(super) fn select(shown: &mut Value, fields: Option<&str>) {
    if let (Some(fields), Some(object)) = (fields, shown.as_object_mut()) {
        let object: &mut Map<String, Value> = object;
        object.retain(|field, _| field == "id" || names_field(Some(fields), field));
    }
}
