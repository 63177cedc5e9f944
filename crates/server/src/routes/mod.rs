//! The route table: every route of the interface, who may use it, and how often. Everything that has to hold for all
//! routes (the door, 405, the hostile matrix of the tests) is derived from it.

use actix_web::http::Method;
use actix_web::{Route, web};
use recado_domain::limits::Limit;

use crate::web::limit::{RateKey, RateRule};

mod accounts;
mod analytics;
mod api_keys;
mod audit;
mod automations;
mod billing;
mod brand;
mod campaigns;
mod contacts;
mod conversations;
mod docs;
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
}

const fn route(method: Method, path: &'static str, access: Access, handler: fn() -> Route) -> RouteSpec {
    RouteSpec {
        method,
        path,
        access,
        rate: None,
        handler,
    }
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

use Access::{Manage, Platform, Public, Read, Session, Write};

/// Every route.
pub static TABLE: &[RouteSpec] = &[
    route(Method::GET, "/healthz", Public, || web::to(service::health)),
    route(Method::GET, "/readyz", Public, || web::to(service::ready)),
    route(Method::GET, "/docs", Public, || web::to(docs::page)),
    route(Method::GET, "/docs/{file}", Public, || web::to(docs::asset)),
    route(Method::GET, "/media/{account}/{file}", Public, || web::to(media::fetch)),
    route(Method::GET, "/api/accounts", Session, || web::to(accounts::list)),
    route(Method::POST, "/api/accounts", Session, || web::to(accounts::create)),
    route(Method::POST, "/api/accounts/switch", Session, || {
        web::to(accounts::switch)
    }),
    route(Method::POST, "/api/auth/accept-invite", Session, || {
        web::to(team::accept)
    })
    .at_most_by_address(Limit::AUTH, "accept-invite"),
    route(Method::GET, "/api/team/members", Read, || web::to(team::members)),
    route(Method::PUT, "/api/team/members/{id}", Manage, || {
        web::to(team::change_role)
    }),
    route(Method::DELETE, "/api/team/members/{id}", Manage, || {
        web::to(team::remove)
    }),
    route(Method::GET, "/api/team/invites", Manage, || web::to(team::invites)),
    route(Method::POST, "/api/team/invites", Manage, || web::to(team::invite)),
    route(Method::DELETE, "/api/team/invites/{id}", Manage, || {
        web::to(team::revoke)
    }),
    route(Method::GET, "/api/api-keys", Read, || web::to(api_keys::list)),
    route(Method::POST, "/api/api-keys", Manage, || web::to(api_keys::create)).at_most(Limit::API, "api-keys"),
    route(Method::DELETE, "/api/api-keys/{id}", Manage, || {
        web::to(api_keys::delete)
    }),
    route(Method::GET, "/api/audit-logs", Read, || web::to(audit::list)).at_most(Limit::API, "audit-logs"),
    route(Method::GET, "/api/billing/plans", Public, || web::to(billing::plans)),
    route(Method::POST, "/api/billing/subscribe", Manage, || {
        web::to(billing::subscribe)
    })
    .at_most(Limit::API, "billing-subscribe"),
    route(Method::GET, "/api/billing/subscription", Read, || {
        web::to(billing::subscription)
    }),
    route(Method::PUT, "/api/billing/subscription", Manage, || {
        web::to(billing::change)
    }),
    route(Method::POST, "/api/billing/cancel", Manage, || web::to(billing::cancel))
        .at_most(Limit::API, "billing-cancel"),
    route(Method::GET, "/api/billing/history", Read, || web::to(billing::history)),
    route(Method::GET, "/api/billing/payment-status", Read, || {
        web::to(billing::payment_status)
    }),
    route(Method::POST, "/api/billing/webhook", Public, || {
        web::to(billing::callback)
    })
    .at_most_by_address(Limit::WEBHOOK, "billing-webhook"),
    route(Method::GET, "/api/brand-context", Read, || web::to(brand::get)),
    route(Method::PUT, "/api/brand-context", Write, || web::to(brand::update)),
    route(Method::POST, "/api/brand-context/scrape", Write, || {
        web::to(brand::scrape)
    })
    .at_most(Limit::API, "brand-scrape"),
    route(Method::GET, "/api/contacts", Read, || web::to(contacts::list)),
    route(Method::POST, "/api/contacts", Write, || web::to(contacts::create)),
    route(Method::POST, "/api/contacts/import", Write, || {
        web::to(contacts::import)
    }),
    route(Method::GET, "/api/contacts/{id}", Read, || web::to(contacts::get)),
    route(Method::PUT, "/api/contacts/{id}", Write, || web::to(contacts::update)),
    route(Method::DELETE, "/api/contacts/{id}", Write, || {
        web::to(contacts::delete)
    }),
    route(Method::PUT, "/api/contacts/{id}/tags", Write, || {
        web::to(contacts::set_tags)
    }),
    route(Method::GET, "/api/conversations", Read, || web::to(conversations::list)),
    route(Method::PUT, "/api/conversations/{id}", Write, || {
        web::to(conversations::update)
    }),
    route(Method::GET, "/api/conversations/{id}/messages", Read, || {
        web::to(conversations::messages)
    }),
    route(Method::POST, "/api/conversations/{id}/messages", Write, || {
        web::to(conversations::reply)
    }),
    route(Method::GET, "/api/notifications", Read, || web::to(notifications::list)),
    route(Method::GET, "/api/notifications/stream", Read, || {
        web::to(notifications::stream)
    }),
    route(Method::POST, "/api/notifications/read-all", Read, || {
        web::to(notifications::read_all)
    }),
    route(Method::POST, "/api/notifications/{id}/read", Read, || {
        web::to(notifications::read)
    }),
    route(Method::GET, "/api/tags", Read, || web::to(tags::list)),
    route(Method::POST, "/api/tags", Write, || web::to(tags::create)),
    route(Method::DELETE, "/api/tags/{id}", Write, || web::to(tags::delete)),
    route(Method::GET, "/api/segments", Read, || web::to(segments::list)),
    route(Method::POST, "/api/segments", Write, || web::to(segments::create)),
    route(Method::GET, "/api/segments/{id}", Read, || web::to(segments::get)),
    route(Method::PUT, "/api/segments/{id}", Write, || web::to(segments::update)),
    route(Method::DELETE, "/api/segments/{id}", Write, || {
        web::to(segments::delete)
    }),
    route(Method::POST, "/api/segments/{id}/members", Write, || {
        web::to(segments::add_members)
    }),
    route(Method::DELETE, "/api/segments/{id}/members", Write, || {
        web::to(segments::remove_members)
    }),
    route(Method::GET, "/api/folders", Read, || web::to(folders::list)),
    route(Method::POST, "/api/folders", Write, || web::to(folders::create)),
    route(Method::DELETE, "/api/folders/{id}", Write, || web::to(folders::delete)),
    route(Method::GET, "/api/templates", Read, || web::to(templates::list)),
    route(Method::POST, "/api/templates", Write, || web::to(templates::create)),
    route(Method::POST, "/api/templates/media/upload", Write, || {
        web::to(media::upload)
    })
    .at_most(Limit::TEMPLATE_MEDIA, "template-media"),
    route(Method::POST, "/api/templates/sync", Write, || web::to(templates::sync)),
    route(Method::GET, "/api/templates/{id}", Read, || web::to(templates::get)),
    route(Method::PUT, "/api/templates/{id}", Write, || web::to(templates::update)),
    route(Method::DELETE, "/api/templates/{id}", Write, || {
        web::to(templates::delete)
    }),
    route(Method::POST, "/api/templates/{id}/submit", Write, || {
        web::to(templates::submit)
    }),
    route(Method::GET, "/api/whatsapp/profiles", Read, || web::to(whatsapp::list)),
    route(Method::POST, "/api/whatsapp/profiles", Write, || {
        web::to(whatsapp::create)
    }),
    route(Method::PUT, "/api/whatsapp/profiles/{id}", Write, || {
        web::to(whatsapp::update)
    }),
    route(Method::DELETE, "/api/whatsapp/profiles/{id}", Write, || {
        web::to(whatsapp::delete)
    }),
    route(Method::GET, "/api/whatsapp/webhook", Public, || {
        web::to(whatsapp::handshake)
    }),
    route(Method::POST, "/api/whatsapp/webhook", Public, || {
        web::to(whatsapp::callback)
    }),
    route(Method::POST, "/api/hooks/{id}", Public, || web::to(webhooks::receive)),
    route(Method::GET, "/api/webhooks", Read, || web::to(webhooks::list)),
    route(Method::POST, "/api/webhooks", Write, || web::to(webhooks::create)),
    route(Method::GET, "/api/webhooks/logs", Read, || web::to(webhooks::logs)),
    route(Method::POST, "/api/webhooks/logs/{id}/redeliver", Write, || {
        web::to(webhooks::redeliver)
    }),
    route(Method::GET, "/api/webhooks/events", Read, || web::to(webhooks::events)),
    route(Method::GET, "/api/webhooks/{id}", Read, || web::to(webhooks::get)),
    route(Method::PUT, "/api/webhooks/{id}", Write, || web::to(webhooks::update)),
    route(Method::DELETE, "/api/webhooks/{id}", Write, || {
        web::to(webhooks::delete)
    }),
    route(Method::POST, "/api/webhooks/{id}/rotate-secret", Write, || {
        web::to(webhooks::rotate_secret)
    }),
    route(Method::POST, "/api/webhooks/{id}/test", Write, || {
        web::to(webhooks::test)
    }),
    route(Method::POST, "/api/webhooks/{id}/recover", Write, || {
        web::to(webhooks::recover)
    }),
    route(Method::GET, "/api/campaigns", Read, || web::to(campaigns::list)),
    route(Method::POST, "/api/campaigns", Write, || web::to(campaigns::create)).at_most(Limit::API, "camp-create"),
    route(Method::GET, "/api/campaigns/{id}", Read, || web::to(campaigns::get)),
    route(Method::PUT, "/api/campaigns/{id}", Write, || web::to(campaigns::update)).at_most(Limit::API, "camp-mut"),
    route(Method::DELETE, "/api/campaigns/{id}", Write, || {
        web::to(campaigns::delete)
    })
    .at_most(Limit::API, "camp-mut"),
    route(Method::POST, "/api/campaigns/{id}/execute", Write, || {
        web::to(campaigns::execute)
    })
    .at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route(Method::POST, "/api/campaigns/{id}/send", Write, || {
        web::to(campaigns::send)
    })
    .at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route(Method::POST, "/api/campaigns/{id}/schedule", Write, || {
        web::to(campaigns::schedule)
    })
    .at_most(Limit::API, "camp-mut"),
    route(Method::POST, "/api/campaigns/{id}/unschedule", Write, || {
        web::to(campaigns::unschedule)
    })
    .at_most(Limit::API, "camp-mut"),
    route(Method::POST, "/api/campaigns/{id}/pause", Write, || {
        web::to(campaigns::pause)
    })
    .at_most(Limit::API, "camp-mut"),
    route(Method::POST, "/api/campaigns/{id}/resume", Write, || {
        web::to(campaigns::resume)
    })
    .at_most(Limit::API, "camp-mut"),
    route(Method::POST, "/api/campaigns/{id}/retry-failed", Write, || {
        web::to(campaigns::retry_failed)
    })
    .at_most(Limit::CAMPAIGN_SEND, "campaign-retry"),
    route(Method::POST, "/api/campaigns/{id}/cancel", Write, || {
        web::to(campaigns::cancel)
    })
    .at_most(Limit::API, "camp-mut"),
    route(Method::POST, "/api/campaigns/{id}/preview", Read, || {
        web::to(campaigns::preview)
    }),
    route(Method::POST, "/api/campaigns/{id}/test", Write, || {
        web::to(campaigns::test)
    })
    .at_most(Limit::CAMPAIGN_SEND, "campaign-test"),
    route(Method::GET, "/api/campaigns/{id}/stats", Read, || {
        web::to(campaigns::stats)
    }),
    route(Method::GET, "/api/campaigns/{id}/sends", Read, || {
        web::to(campaigns::sends)
    }),
    route(Method::POST, "/api/events", Write, || web::to(ingestion::events)),
    route(Method::POST, "/api/orders", Write, || web::to(ingestion::orders)),
    route(Method::POST, "/api/carts", Write, || web::to(ingestion::carts)),
    route(Method::POST, "/api/ad-spend", Write, || web::to(ingestion::ad_spend)),
    route(Method::GET, "/api/links", Read, || web::to(links::list)),
    route(Method::POST, "/api/links", Write, || web::to(links::create)),
    route(Method::GET, "/r/{code}", Public, || web::to(links::follow)),
    route(Method::GET, "/api/automations", Read, || web::to(automations::list)),
    route(Method::POST, "/api/automations", Write, || web::to(automations::create)),
    route(Method::PUT, "/api/automations/{id}", Write, || {
        web::to(automations::update)
    }),
    route(Method::POST, "/api/automations/{id}/executions", Write, || {
        web::to(automations::record)
    }),
    route(Method::GET, "/api/analytics", Read, || web::to(insights::dashboard)),
    route(Method::GET, "/api/analytics/messages", Read, || {
        web::to(insights::messages)
    }),
    route(Method::GET, "/api/analytics/campaigns", Read, || {
        web::to(insights::campaigns)
    }),
    route(Method::GET, "/api/analytics/heatmap", Read, || {
        web::to(insights::heat_map)
    }),
    route(Method::GET, "/api/analytics/export", Read, || web::to(exports::export)),
    route(Method::GET, "/api/analytics/rfm", Read, || web::to(insights::rfm)),
    // The role is looked at by the use case: a wrong one is answered with 200.
    route(Method::POST, "/api/analytics/rfm/recalculate", Read, || {
        web::to(insights::recalculate)
    }),
    route(Method::GET, "/api/analytics/revenue", Read, || {
        web::to(analytics::revenue)
    }),
    route(Method::GET, "/api/analytics/ecommerce", Read, || {
        web::to(analytics::ecommerce)
    }),
    route(Method::GET, "/api/analytics/automations", Read, || {
        web::to(analytics::automations)
    }),
    route(Method::GET, "/api/analytics/metrics", Read, || {
        web::to(analytics::metrics)
    }),
    route(Method::GET, "/api/analytics/metrics/{name}", Read, || {
        web::to(analytics::metric)
    }),
    route(Method::GET, "/api/analytics/metrics/{name}/top-contacts", Read, || {
        web::to(analytics::top_contacts)
    }),
    route(Method::GET, "/api/analytics/metrics/{name}/activity", Read, || {
        web::to(analytics::activity)
    }),
    route(Method::GET, "/api/admin/accounts", Platform, || web::to(platform::list)),
    route(Method::POST, "/api/admin/accounts", Platform, || {
        web::to(platform::create)
    }),
    route(Method::GET, "/api/admin/accounts/{id}", Platform, || {
        web::to(platform::get)
    }),
    route(Method::PUT, "/api/admin/accounts/{id}", Platform, || {
        web::to(platform::update)
    }),
    route(Method::DELETE, "/api/admin/accounts/{id}", Platform, || {
        web::to(platform::delete)
    }),
    route(Method::POST, "/api/admin/accounts/{id}/action", Platform, || {
        web::to(platform::act)
    })
    .at_most_by_person(Limit::API, "admin-action"),
    route(Method::POST, "/api/admin/accounts/{id}/support", Platform, || {
        web::to(platform::start_support)
    })
    .at_most_by_person(Limit::API, "admin-support"),
    route(Method::POST, "/api/admin/stop-support", Platform, || {
        web::to(platform::stop_support)
    }),
    route(Method::GET, "/api/admin/stats", Platform, || web::to(platform::stats)),
    route(Method::GET, "/api/admin/revenue", Platform, || {
        web::to(platform::revenue)
    }),
    route(Method::GET, "/api/admin/revenue/daily", Platform, || {
        web::to(platform::daily_revenue)
    }),
    route(Method::GET, "/api/admin/churn", Platform, || web::to(platform::churn)),
];
