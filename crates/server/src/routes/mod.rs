//! The route table: every route of the interface, who may use it, and how often. Everything that has to hold for all
//! routes (the door, 405, the hostile matrix of the tests) is derived from it.

use actix_web::http::Method;
use actix_web::{Route, web};
use recado_domain::limits::Limit;

use crate::reference::{self, Described};
use crate::web::limit::{RateKey, RateRule};

mod accounts;
mod analytics;
mod api_keys;
mod audit;
mod automations;
mod billing;
mod brand;
pub(crate) mod campaigns;
pub(crate) mod contacts;
mod conversations;
mod exports;
mod folders;
mod ingestion;
mod insights;
mod links;
mod media;
mod notifications;
mod platform;
mod segments;
mod service;
mod tags;
mod team;
mod templates;
mod webhooks;
mod whatsapp;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody; a callback proves itself by other means.
    Public,
    /// Whoever has a session.
    Session,
    /// Every role of an account.
    Read,
    /// Every role of an account but viewer.
    Write,
    /// Owners and admins.
    Manage,
    /// Platform administrators.
    Platform,
}

/// One route.
pub struct RouteSpec {
    /// Its method.
    pub method: Method,
    /// Its path; `{id}` stands for a uuid.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// How often, and by whom together.
    pub rate: Option<RateRule>,
    /// What answers.
    pub handler: fn() -> Route,
    /// What the reference says of it.
    pub described: Option<Described>,
}

/// A route; its handler and what the reference says of it bear the same name.
macro_rules! route {
    ($method:ident, $path:literal, $access:ident, $context:ident::$handler:ident) => {
        RouteSpec {
            described: Some(Described {
                name: concat!(stringify!($context), "_", stringify!($handler)),
                tag: &reference::$context::TAG,
                operation: reference::$context::$handler,
            }),
            ..undescribed!($method, $path, $access, $context::$handler)
        }
    };
}

/// A route that the reference does not tell of yet.
macro_rules! undescribed {
    ($method:ident, $path:literal, $access:ident, $context:ident::$handler:ident) => {
        RouteSpec {
            method: Method::$method,
            path: $path,
            access: Access::$access,
            rate: None,
            handler: || web::to($context::$handler),
            described: None,
        }
    };
}

impl RouteSpec {
    const fn at_most(mut self, limit: Limit, key: &'static str) -> Self {
        self.rate = Some(RateRule {
            limit,
            key: RateKey::Account(key),
        });
        self
    }

    const fn at_most_by_person(mut self, limit: Limit, key: &'static str) -> Self {
        self.rate = Some(RateRule {
            limit,
            key: RateKey::Person(key),
        });
        self
    }

    const fn at_most_by_address(mut self, limit: Limit, key: &'static str) -> Self {
        self.rate = Some(RateRule {
            limit,
            key: RateKey::Address(key),
        });
        self
    }
}

/// Every route.
pub static TABLE: &[RouteSpec] = &[
    undescribed!(GET, "/healthz", Public, service::health),
    undescribed!(GET, "/readyz", Public, service::ready),
    undescribed!(GET, "/api/openapi.json", Public, service::openapi),
    undescribed!(GET, "/media/{account}/{file}", Public, media::fetch),
    undescribed!(GET, "/api/accounts", Session, accounts::list),
    undescribed!(POST, "/api/accounts", Session, accounts::create),
    undescribed!(POST, "/api/accounts/switch", Session, accounts::switch),
    undescribed!(POST, "/api/auth/accept-invite", Session, team::accept)
        .at_most_by_address(Limit::AUTH, "accept-invite"),
    undescribed!(GET, "/api/team/members", Read, team::members),
    undescribed!(PUT, "/api/team/members/{id}", Manage, team::change_role),
    undescribed!(DELETE, "/api/team/members/{id}", Manage, team::remove),
    undescribed!(GET, "/api/team/invites", Manage, team::invites),
    undescribed!(POST, "/api/team/invites", Manage, team::invite),
    undescribed!(DELETE, "/api/team/invites/{id}", Manage, team::revoke),
    undescribed!(GET, "/api/api-keys", Read, api_keys::list),
    undescribed!(POST, "/api/api-keys", Manage, api_keys::create).at_most(Limit::API, "api-keys"),
    undescribed!(DELETE, "/api/api-keys/{id}", Manage, api_keys::delete),
    undescribed!(GET, "/api/audit-logs", Read, audit::list).at_most(Limit::API, "audit-logs"),
    undescribed!(GET, "/api/billing/plans", Public, billing::plans),
    undescribed!(POST, "/api/billing/subscribe", Manage, billing::subscribe).at_most(Limit::API, "billing-subscribe"),
    undescribed!(GET, "/api/billing/subscription", Read, billing::subscription),
    undescribed!(PUT, "/api/billing/subscription", Manage, billing::change),
    undescribed!(POST, "/api/billing/cancel", Manage, billing::cancel).at_most(Limit::API, "billing-cancel"),
    undescribed!(GET, "/api/billing/history", Read, billing::history),
    undescribed!(GET, "/api/billing/payment-status", Read, billing::payment_status),
    undescribed!(POST, "/api/billing/webhook", Public, billing::callback)
        .at_most_by_address(Limit::WEBHOOK, "billing-webhook"),
    undescribed!(GET, "/api/brand-context", Read, brand::get),
    undescribed!(PUT, "/api/brand-context", Write, brand::update),
    undescribed!(POST, "/api/brand-context/scrape", Write, brand::scrape).at_most(Limit::API, "brand-scrape"),
    route!(GET, "/api/contacts", Read, contacts::list),
    route!(POST, "/api/contacts", Write, contacts::create),
    route!(POST, "/api/contacts/import", Write, contacts::import),
    route!(GET, "/api/contacts/{id}", Read, contacts::get),
    route!(PUT, "/api/contacts/{id}", Write, contacts::update),
    route!(DELETE, "/api/contacts/{id}", Write, contacts::delete),
    route!(PUT, "/api/contacts/{id}/tags", Write, contacts::set_tags),
    undescribed!(GET, "/api/conversations", Read, conversations::list),
    undescribed!(PUT, "/api/conversations/{id}", Write, conversations::update),
    undescribed!(GET, "/api/conversations/{id}/messages", Read, conversations::messages),
    undescribed!(POST, "/api/conversations/{id}/messages", Write, conversations::reply),
    undescribed!(GET, "/api/notifications", Read, notifications::list),
    undescribed!(GET, "/api/notifications/stream", Read, notifications::stream),
    undescribed!(POST, "/api/notifications/read-all", Read, notifications::read_all),
    undescribed!(POST, "/api/notifications/{id}/read", Read, notifications::read),
    undescribed!(GET, "/api/tags", Read, tags::list),
    undescribed!(POST, "/api/tags", Write, tags::create),
    undescribed!(DELETE, "/api/tags/{id}", Write, tags::delete),
    undescribed!(GET, "/api/segments", Read, segments::list),
    undescribed!(POST, "/api/segments", Write, segments::create),
    undescribed!(GET, "/api/segments/{id}", Read, segments::get),
    undescribed!(PUT, "/api/segments/{id}", Write, segments::update),
    undescribed!(DELETE, "/api/segments/{id}", Write, segments::delete),
    undescribed!(POST, "/api/segments/{id}/members", Write, segments::add_members),
    undescribed!(DELETE, "/api/segments/{id}/members", Write, segments::remove_members),
    undescribed!(GET, "/api/folders", Read, folders::list),
    undescribed!(POST, "/api/folders", Write, folders::create),
    undescribed!(DELETE, "/api/folders/{id}", Write, folders::delete),
    undescribed!(GET, "/api/templates", Read, templates::list),
    undescribed!(POST, "/api/templates", Write, templates::create),
    undescribed!(POST, "/api/templates/media/upload", Write, media::upload)
        .at_most(Limit::TEMPLATE_MEDIA, "template-media"),
    undescribed!(POST, "/api/templates/sync", Write, templates::sync),
    undescribed!(GET, "/api/templates/{id}", Read, templates::get),
    undescribed!(PUT, "/api/templates/{id}", Write, templates::update),
    undescribed!(DELETE, "/api/templates/{id}", Write, templates::delete),
    undescribed!(POST, "/api/templates/{id}/submit", Write, templates::submit),
    undescribed!(GET, "/api/whatsapp/profiles", Read, whatsapp::list),
    undescribed!(POST, "/api/whatsapp/profiles", Write, whatsapp::create),
    undescribed!(PUT, "/api/whatsapp/profiles/{id}", Write, whatsapp::update),
    undescribed!(DELETE, "/api/whatsapp/profiles/{id}", Write, whatsapp::delete),
    undescribed!(GET, "/api/whatsapp/webhook", Public, whatsapp::handshake),
    undescribed!(POST, "/api/whatsapp/webhook", Public, whatsapp::callback),
    undescribed!(POST, "/api/hooks/{id}", Public, webhooks::receive),
    undescribed!(GET, "/api/webhooks", Read, webhooks::list),
    undescribed!(POST, "/api/webhooks", Write, webhooks::create),
    undescribed!(GET, "/api/webhooks/logs", Read, webhooks::logs),
    undescribed!(POST, "/api/webhooks/logs/{id}/redeliver", Write, webhooks::redeliver),
    undescribed!(GET, "/api/webhooks/events", Read, webhooks::events),
    undescribed!(GET, "/api/webhooks/{id}", Read, webhooks::get),
    undescribed!(PUT, "/api/webhooks/{id}", Write, webhooks::update),
    undescribed!(DELETE, "/api/webhooks/{id}", Write, webhooks::delete),
    undescribed!(POST, "/api/webhooks/{id}/rotate-secret", Write, webhooks::rotate_secret),
    undescribed!(POST, "/api/webhooks/{id}/test", Write, webhooks::test),
    undescribed!(POST, "/api/webhooks/{id}/recover", Write, webhooks::recover),
    route!(GET, "/api/campaigns", Read, campaigns::list),
    route!(POST, "/api/campaigns", Write, campaigns::create).at_most(Limit::API, "camp-create"),
    route!(GET, "/api/campaigns/{id}", Read, campaigns::get),
    route!(PUT, "/api/campaigns/{id}", Write, campaigns::update).at_most(Limit::API, "camp-mut"),
    route!(DELETE, "/api/campaigns/{id}", Write, campaigns::delete).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/execute", Write, campaigns::execute)
        .at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route!(POST, "/api/campaigns/{id}/send", Write, campaigns::send).at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route!(POST, "/api/campaigns/{id}/schedule", Write, campaigns::schedule).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/unschedule", Write, campaigns::unschedule).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/pause", Write, campaigns::pause).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/resume", Write, campaigns::resume).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/retry-failed", Write, campaigns::retry_failed)
        .at_most(Limit::CAMPAIGN_SEND, "campaign-retry"),
    route!(POST, "/api/campaigns/{id}/cancel", Write, campaigns::cancel).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/preview", Read, campaigns::preview),
    route!(POST, "/api/campaigns/{id}/test", Write, campaigns::test).at_most(Limit::CAMPAIGN_SEND, "campaign-test"),
    route!(GET, "/api/campaigns/{id}/stats", Read, campaigns::stats),
    route!(GET, "/api/campaigns/{id}/sends", Read, campaigns::sends),
    undescribed!(POST, "/api/events", Write, ingestion::events),
    undescribed!(POST, "/api/orders", Write, ingestion::orders),
    undescribed!(POST, "/api/carts", Write, ingestion::carts),
    undescribed!(POST, "/api/ad-spend", Write, ingestion::ad_spend),
    undescribed!(GET, "/api/links", Read, links::list),
    undescribed!(POST, "/api/links", Write, links::create),
    undescribed!(GET, "/r/{code}", Public, links::follow),
    undescribed!(GET, "/api/automations", Read, automations::list),
    undescribed!(POST, "/api/automations", Write, automations::create),
    undescribed!(PUT, "/api/automations/{id}", Write, automations::update),
    undescribed!(POST, "/api/automations/{id}/executions", Write, automations::record),
    undescribed!(GET, "/api/analytics", Read, insights::dashboard),
    undescribed!(GET, "/api/analytics/messages", Read, insights::messages),
    undescribed!(GET, "/api/analytics/campaigns", Read, insights::campaigns),
    undescribed!(GET, "/api/analytics/heatmap", Read, insights::heat_map),
    undescribed!(GET, "/api/analytics/export", Read, exports::export),
    undescribed!(GET, "/api/analytics/rfm", Read, insights::rfm),
    // The role is looked at by the use case: a wrong one is answered with 200.
    undescribed!(POST, "/api/analytics/rfm/recalculate", Read, insights::recalculate),
    undescribed!(GET, "/api/analytics/revenue", Read, analytics::revenue),
    undescribed!(GET, "/api/analytics/ecommerce", Read, analytics::ecommerce),
    undescribed!(GET, "/api/analytics/automations", Read, analytics::automations),
    undescribed!(GET, "/api/analytics/metrics", Read, analytics::metrics),
    undescribed!(GET, "/api/analytics/metrics/{name}", Read, analytics::metric),
    undescribed!(
        GET,
        "/api/analytics/metrics/{name}/top-contacts",
        Read,
        analytics::top_contacts
    ),
    undescribed!(GET, "/api/analytics/metrics/{name}/activity", Read, analytics::activity),
    undescribed!(GET, "/api/admin/accounts", Platform, platform::list),
    undescribed!(POST, "/api/admin/accounts", Platform, platform::create),
    undescribed!(GET, "/api/admin/accounts/{id}", Platform, platform::get),
    undescribed!(PUT, "/api/admin/accounts/{id}", Platform, platform::update),
    undescribed!(DELETE, "/api/admin/accounts/{id}", Platform, platform::delete),
    undescribed!(POST, "/api/admin/accounts/{id}/action", Platform, platform::act)
        .at_most_by_person(Limit::API, "admin-action"),
    undescribed!(
        POST,
        "/api/admin/accounts/{id}/support",
        Platform,
        platform::start_support
    )
    .at_most_by_person(Limit::API, "admin-support"),
    undescribed!(POST, "/api/admin/stop-support", Platform, platform::stop_support),
    undescribed!(GET, "/api/admin/stats", Platform, platform::stats),
    undescribed!(GET, "/api/admin/revenue", Platform, platform::revenue),
    undescribed!(GET, "/api/admin/revenue/daily", Platform, platform::daily_revenue),
    undescribed!(GET, "/api/admin/churn", Platform, platform::churn),
];
