//! The route table: every route with its access level, API key scope and rate limit. The access check, the 405 responses and the
//! authorization matrix of the tests are derived from it.

use actix_web::http::Method;
use actix_web::{Route, web};
use recado_domain::limits::Limit;
use recado_domain::shared::RouteScope;

use self::analytics::{exports, insights};
use crate::reference::{self, OperationDoc};
use crate::web::limit::{RateKey, RateRule};

pub(crate) mod accounts;
pub(crate) mod administration;
pub(crate) mod analytics;
pub(crate) mod api_keys;
pub(crate) mod audit;
pub(crate) mod automations;
pub(crate) mod billing;
pub(crate) mod brand;
pub(crate) mod campaigns;
pub(crate) mod contacts;
pub(crate) mod conversations;
mod docs;
pub(crate) mod folders;
pub(crate) mod ingestion;
pub(crate) mod links;
mod media;
pub(crate) mod notifications;
mod scope;
pub(crate) mod segments;
pub(crate) mod service;
pub(crate) mod tags;
pub(crate) mod team;
pub(crate) mod templates;
pub(crate) mod webhooks;
pub(crate) mod whatsapp;

/// The callers that a route accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No authentication. Callbacks verify a signature or token in their handler.
    Public,
    /// Every user with a session.
    Session,
    /// Every role of an account.
    Read,
    /// Every role of an account except viewer.
    Write,
    /// Owners and admins.
    Manage,
    /// Platform administrators.
    Administrator,
}

pub struct RouteSpec {
    pub method: Method,
    /// The path template; `{id}` is a UUID.
    pub path: &'static str,
    pub access: Access,
    /// The scope that an API key needs. `None`: no API key opens the route, or the route is public.
    pub scope: Option<RouteScope>,
    /// The rate limit and the key that its counter uses.
    pub rate: Option<RateRule>,
    pub handler: fn() -> Route,
    pub described: OperationDoc,
}

/// Builds a route. Its handler and its documentation have the same name in `routes` and `reference`.
macro_rules! route {
    ($method:ident, $path:literal, $access:ident, $context:ident::$handler:ident) => {
        RouteSpec {
            method: Method::$method,
            path: $path,
            access: Access::$access,
            scope: scope::of($path, Access::$access),
            rate: None,
            handler: || web::to($context::$handler),
            described: OperationDoc {
                name: concat!(stringify!($context), "_", stringify!($handler)),
                tag: &reference::$context::TAG,
                operation: reference::$context::$handler,
            },
        }
    };
}

impl RouteSpec {
    /// For a route that sends a campaign's messages, which no other scope of campaigns opens.
    const fn sends(mut self) -> Self {
        self.scope = Some(RouteScope::CAMPAIGNS_SEND);
        self
    }

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

pub static TABLE: &[RouteSpec] = &[
    route!(GET, "/healthz", Public, service::health),
    route!(GET, "/readyz", Public, service::ready),
    route!(GET, "/docs", Public, docs::page),
    route!(GET, "/docs/{file}", Public, docs::asset),
    route!(GET, "/api/openapi.json", Public, service::openapi),
    route!(GET, "/media/{account}/{file}", Public, media::fetch),
    route!(GET, "/api/accounts", Session, accounts::list),
    route!(POST, "/api/accounts", Session, accounts::create),
    route!(POST, "/api/accounts/switch", Session, accounts::switch),
    route!(POST, "/api/auth/accept-invite", Session, team::accept).at_most_by_address(Limit::AUTH, "accept-invite"),
    route!(
        POST,
        "/api/auth/sign-out-everywhere",
        Session,
        accounts::sign_out_everywhere
    )
    .at_most_by_person(Limit::AUTH, "sign-out"),
    route!(GET, "/api/team/members", Read, team::members),
    route!(PUT, "/api/team/members/{id}", Manage, team::change_role),
    route!(DELETE, "/api/team/members/{id}", Manage, team::remove),
    route!(GET, "/api/team/invites", Manage, team::invites),
    route!(POST, "/api/team/invites", Manage, team::invite).at_most(Limit::SEND, "team-invite"),
    route!(DELETE, "/api/team/invites/{id}", Manage, team::revoke),
    route!(GET, "/api/api-keys", Read, api_keys::list),
    route!(POST, "/api/api-keys", Manage, api_keys::create).at_most(Limit::API, "api-keys"),
    route!(PUT, "/api/api-keys/{id}", Manage, api_keys::update).at_most(Limit::API, "api-keys"),
    route!(DELETE, "/api/api-keys/{id}", Manage, api_keys::delete),
    route!(POST, "/api/api-keys/{id}/rotate", Manage, api_keys::rotate).at_most(Limit::API, "api-keys"),
    route!(GET, "/api/audit-logs", Read, audit::list).at_most(Limit::API, "audit-logs"),
    route!(GET, "/api/billing/plans", Public, billing::plans),
    route!(POST, "/api/billing/subscribe", Manage, billing::subscribe).at_most(Limit::API, "billing-subscribe"),
    route!(GET, "/api/billing/subscription", Read, billing::subscription),
    route!(PUT, "/api/billing/subscription", Manage, billing::change),
    route!(POST, "/api/billing/cancel", Manage, billing::cancel).at_most(Limit::API, "billing-cancel"),
    route!(GET, "/api/billing/history", Read, billing::history),
    route!(GET, "/api/billing/payment-status", Read, billing::payment_status),
    route!(POST, "/api/billing/webhook", Public, billing::callback)
        .at_most_by_address(Limit::WEBHOOK, "billing-webhook"),
    route!(GET, "/api/brand-context", Read, brand::get),
    route!(PUT, "/api/brand-context", Write, brand::update),
    route!(POST, "/api/brand-context/scrape", Write, brand::scrape).at_most(Limit::API, "brand-scrape"),
    route!(GET, "/api/contacts", Read, contacts::list),
    route!(POST, "/api/contacts", Write, contacts::create),
    route!(POST, "/api/contacts/import", Write, contacts::import),
    route!(GET, "/api/contacts/{id}", Read, contacts::get),
    route!(PUT, "/api/contacts/{id}", Write, contacts::update),
    route!(DELETE, "/api/contacts/{id}", Write, contacts::delete),
    route!(PUT, "/api/contacts/{id}/tags", Write, contacts::set_tags),
    route!(GET, "/api/conversations", Read, conversations::list),
    route!(PUT, "/api/conversations/{id}", Write, conversations::update),
    route!(GET, "/api/conversations/{id}/messages", Read, conversations::messages),
    route!(POST, "/api/conversations/{id}/messages", Write, conversations::reply),
    route!(GET, "/api/notifications", Read, notifications::list),
    route!(GET, "/api/notifications/stream", Read, notifications::stream),
    route!(POST, "/api/notifications/read-all", Read, notifications::read_all),
    route!(POST, "/api/notifications/{id}/read", Read, notifications::read),
    route!(GET, "/api/tags", Read, tags::list),
    route!(POST, "/api/tags", Write, tags::create),
    route!(DELETE, "/api/tags/{id}", Write, tags::delete),
    route!(GET, "/api/segments", Read, segments::list),
    route!(POST, "/api/segments", Write, segments::create),
    route!(GET, "/api/segments/{id}", Read, segments::get),
    route!(PUT, "/api/segments/{id}", Write, segments::update),
    route!(DELETE, "/api/segments/{id}", Write, segments::delete),
    route!(POST, "/api/segments/{id}/members", Write, segments::add_members),
    route!(DELETE, "/api/segments/{id}/members", Write, segments::remove_members),
    route!(GET, "/api/folders", Read, folders::list),
    route!(POST, "/api/folders", Write, folders::create),
    route!(DELETE, "/api/folders/{id}", Write, folders::delete),
    route!(GET, "/api/templates", Read, templates::list),
    route!(POST, "/api/templates", Write, templates::create),
    route!(POST, "/api/templates/media/upload", Write, media::upload).at_most(Limit::TEMPLATE_MEDIA, "template-media"),
    route!(POST, "/api/templates/sync", Write, templates::sync),
    route!(GET, "/api/templates/{id}", Read, templates::get),
    route!(PUT, "/api/templates/{id}", Write, templates::update),
    route!(DELETE, "/api/templates/{id}", Write, templates::delete),
    route!(POST, "/api/templates/{id}/submit", Write, templates::submit),
    route!(GET, "/api/whatsapp/profiles", Read, whatsapp::list),
    route!(POST, "/api/whatsapp/profiles", Write, whatsapp::create),
    route!(GET, "/api/whatsapp/profiles/{id}", Read, whatsapp::get),
    route!(PUT, "/api/whatsapp/profiles/{id}", Write, whatsapp::update),
    route!(DELETE, "/api/whatsapp/profiles/{id}", Write, whatsapp::delete),
    route!(POST, "/api/whatsapp/profiles/{id}/verify", Write, whatsapp::verify)
        .at_most(Limit::PROFILE_VERIFY, "profile-verify"),
    route!(GET, "/api/whatsapp/profiles/{id}/health", Read, whatsapp::health).at_most(Limit::API, "profile-health"),
    route!(GET, "/api/whatsapp/webhook", Public, whatsapp::handshake),
    route!(POST, "/api/whatsapp/webhook", Public, whatsapp::callback),
    route!(POST, "/api/hooks/{id}", Public, webhooks::receive),
    route!(GET, "/api/webhooks", Read, webhooks::list),
    route!(POST, "/api/webhooks", Write, webhooks::create),
    route!(GET, "/api/webhooks/logs", Read, webhooks::logs),
    route!(POST, "/api/webhooks/logs/{id}/redeliver", Write, webhooks::redeliver),
    route!(GET, "/api/webhooks/events", Read, webhooks::events),
    route!(GET, "/api/webhooks/{id}", Read, webhooks::get),
    route!(PUT, "/api/webhooks/{id}", Write, webhooks::update),
    route!(DELETE, "/api/webhooks/{id}", Write, webhooks::delete),
    route!(POST, "/api/webhooks/{id}/rotate-secret", Write, webhooks::rotate_secret),
    route!(POST, "/api/webhooks/{id}/test", Write, webhooks::test),
    route!(POST, "/api/webhooks/{id}/recover", Write, webhooks::recover),
    route!(GET, "/api/campaigns", Read, campaigns::list),
    route!(POST, "/api/campaigns", Write, campaigns::create).at_most(Limit::API, "camp-create"),
    route!(GET, "/api/campaigns/{id}", Read, campaigns::get),
    route!(PUT, "/api/campaigns/{id}", Write, campaigns::update).at_most(Limit::API, "camp-mut"),
    route!(DELETE, "/api/campaigns/{id}", Write, campaigns::delete).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/execute", Write, campaigns::execute)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route!(POST, "/api/campaigns/{id}/send", Write, campaigns::send)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route!(POST, "/api/campaigns/{id}/schedule", Write, campaigns::schedule)
        .sends()
        .at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/unschedule", Write, campaigns::unschedule).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/pause", Write, campaigns::pause).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/resume", Write, campaigns::resume)
        .sends()
        .at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/retry-failed", Write, campaigns::retry_failed)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-retry"),
    route!(POST, "/api/campaigns/{id}/cancel", Write, campaigns::cancel).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/preview", Read, campaigns::preview),
    route!(POST, "/api/campaigns/{id}/test", Write, campaigns::test)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-test"),
    route!(GET, "/api/campaigns/{id}/stats", Read, campaigns::stats),
    route!(GET, "/api/campaigns/{id}/sends", Read, campaigns::sends),
    route!(POST, "/api/events", Write, ingestion::events),
    route!(POST, "/api/orders", Write, ingestion::orders),
    route!(POST, "/api/carts", Write, ingestion::carts),
    route!(POST, "/api/ad-spend", Write, ingestion::ad_spend),
    route!(GET, "/api/links", Read, links::list),
    route!(POST, "/api/links", Write, links::create),
    route!(GET, "/r/{code}", Public, links::follow),
    route!(GET, "/api/automations", Read, automations::list),
    route!(POST, "/api/automations", Write, automations::create),
    route!(PUT, "/api/automations/{id}", Write, automations::update),
    route!(POST, "/api/automations/{id}/executions", Write, automations::record),
    route!(GET, "/api/analytics", Read, insights::dashboard),
    route!(GET, "/api/analytics/messages", Read, insights::messages),
    route!(GET, "/api/analytics/campaigns", Read, insights::campaigns),
    route!(GET, "/api/analytics/heatmap", Read, insights::heat_map),
    route!(GET, "/api/analytics/export", Read, exports::export),
    route!(GET, "/api/analytics/rfm", Read, insights::rfm),
    // The use case checks the role: any other role gets 200 with `error`, as published.
    route!(POST, "/api/analytics/rfm/recalculate", Read, insights::recalculate),
    route!(GET, "/api/analytics/revenue", Read, analytics::revenue),
    route!(GET, "/api/analytics/ecommerce", Read, analytics::ecommerce),
    route!(GET, "/api/analytics/automations", Read, analytics::automations),
    route!(GET, "/api/analytics/metrics", Read, analytics::metrics),
    route!(GET, "/api/analytics/metrics/{name}", Read, analytics::metric),
    route!(
        GET,
        "/api/analytics/metrics/{name}/top-contacts",
        Read,
        analytics::top_contacts
    ),
    route!(GET, "/api/analytics/metrics/{name}/activity", Read, analytics::activity),
    route!(GET, "/api/admin/accounts", Administrator, administration::list),
    route!(POST, "/api/admin/accounts", Administrator, administration::create),
    route!(GET, "/api/admin/accounts/{id}", Administrator, administration::get),
    route!(PUT, "/api/admin/accounts/{id}", Administrator, administration::update),
    route!(
        DELETE,
        "/api/admin/accounts/{id}",
        Administrator,
        administration::delete
    ),
    route!(
        POST,
        "/api/admin/accounts/{id}/action",
        Administrator,
        administration::act
    )
    .at_most_by_person(Limit::API, "admin-action"),
    route!(
        POST,
        "/api/admin/accounts/{id}/support",
        Administrator,
        administration::start_support
    )
    .at_most_by_person(Limit::API, "admin-support"),
    route!(
        POST,
        "/api/admin/stop-support",
        Administrator,
        administration::stop_support
    ),
    route!(GET, "/api/admin/stats", Administrator, administration::stats),
    route!(GET, "/api/admin/revenue", Administrator, administration::revenue),
    route!(
        GET,
        "/api/admin/revenue/daily",
        Administrator,
        administration::daily_revenue
    ),
    route!(GET, "/api/admin/churn", Administrator, administration::churn),
    route!(
        POST,
        "/api/admin/users/{id}/sign-out",
        Administrator,
        administration::sign_out
    )
    .at_most_by_person(Limit::API, "admin-sign-out"),
    route!(GET, "/api/admin/audit-logs", Administrator, administration::audit_logs)
        .at_most_by_person(Limit::API, "admin-audit-logs"),
];
