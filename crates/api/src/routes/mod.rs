//! The route table: every route with its access level, API key scope and rate limit. The access check, the 405 responses and the
//! authorization matrix of the tests are derived from it.

use actix_web::http::Method;
use recado_domain::limits::Limit;
use recado_domain::shared::RouteScope;

use self::analytics::{costs, exports, insights};
use crate::web::limit::{RateKey, RateRule};
pub use crate::web::route::{Access, Content, RouteSpec};
pub use service::OpenApiDocument;
pub(crate) use webhooks::event_types;

mod accounts;
mod administration;
mod analytics;
mod api_keys;
mod audit;
mod automations;
mod billing;
mod brand;
mod campaigns;
mod contact_exports;
mod contacts;
mod conversations;
mod direct_messages;
mod docs;
mod erasures;
mod folders;
mod ingestion;
mod links;
mod media;
mod notifications;
mod rate_cards;
mod retention;
mod scope;
mod segments;
mod service;
mod settings;
mod tags;
mod team;
mod templates;
mod webhooks;
mod whatsapp;

/// Builds a route from an endpoint of a context.
macro_rules! route {
    ($method:ident, $path:literal, $access:ident, $context:ident::$endpoint:ident) => {
        RouteSpec {
            method: Method::$method,
            path: $path,
            access: Access::$access,
            scope: scope::of($path, Access::$access),
            triggers: false,
            rate: None,
            content: Content::Data,
            tagged: false,
            computed_at: None,
            makes: None,
            context: stringify!($context),
            tag: &$context::TAG,
            endpoint: $context::$endpoint,
        }
    };
}

impl RouteSpec {
    /// For a route that sends a campaign's messages, which no other scope of campaigns opens.
    const fn sends(mut self) -> Self {
        self.scope = Some(RouteScope::CAMPAIGNS_SEND);
        self
    }

    /// For a route of messages that keys with the scope `trigger:` open, too.
    const fn triggers(mut self) -> Self {
        self.triggers = true;
        self
    }

    /// For a route whose responses show a secret once.
    const fn shows_secret(mut self) -> Self {
        self.content = Content::Secret;
        self
    }

    /// For a route that returns a file or a stream.
    const fn returns_file(mut self) -> Self {
        self.content = Content::File;
        self
    }

    /// For a POST that creates a row with a GET by id.
    const fn makes(mut self, path: &'static str) -> Self {
        self.makes = Some(path);
        self
    }

    /// For a GET that is not of one row by id, and whose 200 has an entity tag.
    const fn tagged(mut self) -> Self {
        self.tagged = true;
        self
    }

    /// For a GET whose response has the time of its computation, at this JSON pointer.
    const fn computed_at(mut self, pointer: &'static str) -> Self {
        self.computed_at = Some(pointer);
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

/// For a PUT or DELETE: the GET of the same row, if its responses have entity tags. Then `If-Match` is honoured.
pub fn row_read(spec: &RouteSpec) -> Option<&'static RouteSpec> {
    let is_write = spec.method == Method::PUT || spec.method == Method::DELETE;
    let mut reads = TABLE.iter().filter(|read| is_write && read.path == spec.path);
    reads.find(|read| read.has_entity_tag())
}

pub static TABLE: &[RouteSpec] = &[
    route!(GET, "/healthz", Public, service::HEALTH),
    route!(GET, "/readyz", Public, service::READY),
    route!(GET, "/docs", Public, docs::PAGE).tagged(),
    route!(GET, "/docs/{file}", Public, docs::ASSET).tagged(),
    route!(GET, "/api/openapi.json", Public, service::OPENAPI).tagged(),
    route!(GET, "/media/{account}/{file}", Public, media::FETCH).returns_file(),
    route!(GET, "/api/accounts", Session, accounts::LIST),
    route!(POST, "/api/accounts", Session, accounts::CREATE),
    route!(POST, "/api/accounts/switch", Session, accounts::SWITCH),
    route!(POST, "/api/auth/accept-invite", Session, team::ACCEPT).at_most_by_address(Limit::AUTH, "accept-invite"),
    route!(
        POST,
        "/api/auth/sign-out-everywhere",
        Session,
        accounts::SIGN_OUT_EVERYWHERE
    )
    .at_most_by_person(Limit::AUTH, "sign-out"),
    route!(GET, "/api/team/members", Read, team::MEMBERS),
    route!(PUT, "/api/team/members/{id}", Manage, team::CHANGE_ROLE),
    route!(DELETE, "/api/team/members/{id}", Manage, team::REMOVE),
    route!(GET, "/api/team/invites", Manage, team::INVITES),
    route!(POST, "/api/team/invites", Manage, team::INVITE)
        .shows_secret()
        .at_most(Limit::SEND, "team-invite"),
    route!(DELETE, "/api/team/invites/{id}", Manage, team::REVOKE),
    route!(GET, "/api/api-keys", Read, api_keys::LIST),
    route!(POST, "/api/api-keys", Manage, api_keys::CREATE)
        .shows_secret()
        .at_most(Limit::API, "api-keys"),
    route!(PUT, "/api/api-keys/{id}", Manage, api_keys::UPDATE).at_most(Limit::API, "api-keys"),
    route!(DELETE, "/api/api-keys/{id}", Manage, api_keys::DELETE),
    route!(POST, "/api/api-keys/{id}/rotate", Manage, api_keys::ROTATE)
        .shows_secret()
        .at_most(Limit::API, "api-keys"),
    route!(GET, "/api/audit-logs", Read, audit::LIST).at_most(Limit::API, "audit-logs"),
    route!(GET, "/api/billing/plans", Public, billing::PLANS).tagged(),
    route!(POST, "/api/billing/subscribe", Manage, billing::SUBSCRIBE).at_most(Limit::API, "billing-subscribe"),
    route!(GET, "/api/billing/subscription", Read, billing::SUBSCRIPTION).tagged(),
    route!(PUT, "/api/billing/subscription", Manage, billing::CHANGE),
    route!(POST, "/api/billing/cancel", Manage, billing::CANCEL).at_most(Limit::API, "billing-cancel"),
    route!(GET, "/api/billing/history", Read, billing::HISTORY),
    route!(GET, "/api/billing/payment-status", Read, billing::PAYMENT_STATUS),
    route!(POST, "/api/billing/webhook", Public, billing::CALLBACK)
        .at_most_by_address(Limit::WEBHOOK, "billing-webhook"),
    route!(GET, "/api/brand-context", Read, brand::GET).tagged(),
    route!(PUT, "/api/brand-context", Write, brand::UPDATE),
    route!(POST, "/api/brand-context/scrape", Write, brand::SCRAPE).at_most(Limit::API, "brand-scrape"),
    route!(GET, "/api/settings", Read, settings::GET).tagged(),
    route!(PUT, "/api/settings", Manage, settings::UPDATE).at_most(Limit::API, "settings"),
    route!(GET, "/api/retention", Read, retention::GET).tagged(),
    route!(PUT, "/api/retention", Manage, retention::UPDATE).at_most(Limit::API, "retention"),
    route!(GET, "/api/contacts", Read, contacts::LIST),
    route!(POST, "/api/contacts", Write, contacts::CREATE).makes("/api/contacts/{id}"),
    route!(POST, "/api/contacts/import", Write, contacts::IMPORT),
    route!(GET, "/api/contacts/{id}", Read, contacts::GET),
    route!(PUT, "/api/contacts/{id}", Write, contacts::UPDATE),
    route!(DELETE, "/api/contacts/{id}", Write, contacts::DELETE),
    route!(PUT, "/api/contacts/{id}/tags", Write, contacts::SET_TAGS),
    route!(POST, "/api/contacts/{id}/export", Manage, contact_exports::CREATE)
        .makes("/api/exports/{id}")
        .at_most(Limit::API, "erase"),
    route!(GET, "/api/exports/{id}", Manage, contact_exports::GET),
    route!(GET, "/api/exports/{id}/file", Manage, contact_exports::FILE).returns_file(),
    route!(POST, "/api/contacts/{id}/erase", Manage, erasures::CREATE)
        .makes("/api/erasures/{id}")
        .at_most(Limit::API, "erase"),
    route!(GET, "/api/erasures", Manage, erasures::LIST),
    route!(GET, "/api/erasures/{id}", Manage, erasures::GET),
    route!(GET, "/api/conversations", Read, conversations::LIST),
    route!(PUT, "/api/conversations/{id}", Write, conversations::UPDATE),
    route!(GET, "/api/conversations/{id}/messages", Read, conversations::MESSAGES),
    route!(POST, "/api/conversations/{id}/messages", Write, conversations::REPLY),
    route!(
        POST,
        "/api/conversations/{id}/request-phone",
        Write,
        conversations::REQUEST_PHONE
    )
    .at_most(Limit::SEND, "request-phone"),
    route!(GET, "/api/messages", Read, direct_messages::LIST),
    route!(POST, "/api/messages", Write, direct_messages::CREATE)
        .makes("/api/messages/{id}")
        .triggers()
        .at_most(Limit::MESSAGES, "messages"),
    route!(POST, "/api/messages/batch", Write, direct_messages::CREATE_BATCH).at_most(Limit::SEND, "messages-batch"),
    route!(GET, "/api/messages/{id}", Read, direct_messages::GET).triggers(),
    route!(POST, "/api/messages/{id}/cancel", Write, direct_messages::CANCEL),
    route!(POST, "/api/media", Write, media::UPLOAD_FILE).at_most(Limit::MEDIA_UPLOAD, "media-upload"),
    route!(GET, "/api/media/{id}", Read, media::GET)
        .returns_file()
        .at_most(Limit::MEDIA, "media"),
    route!(GET, "/api/notifications", Read, notifications::LIST),
    route!(GET, "/api/notifications/stream", Read, notifications::STREAM).returns_file(),
    route!(POST, "/api/notifications/read-all", Read, notifications::READ_ALL),
    route!(POST, "/api/notifications/{id}/read", Read, notifications::READ),
    route!(GET, "/api/tags", Read, tags::LIST),
    route!(POST, "/api/tags", Write, tags::CREATE),
    route!(DELETE, "/api/tags/{id}", Write, tags::DELETE),
    route!(GET, "/api/segments", Read, segments::LIST),
    route!(POST, "/api/segments", Write, segments::CREATE).makes("/api/segments/{id}"),
    route!(POST, "/api/segments/preview", Read, segments::PREVIEW).at_most(Limit::API, "segment-preview"),
    route!(GET, "/api/segments/{id}", Read, segments::GET).computed_at("/data/members_as_of"),
    route!(PUT, "/api/segments/{id}", Write, segments::UPDATE),
    route!(DELETE, "/api/segments/{id}", Write, segments::DELETE),
    route!(POST, "/api/segments/{id}/members", Write, segments::ADD_MEMBERS),
    route!(DELETE, "/api/segments/{id}/members", Write, segments::REMOVE_MEMBERS),
    route!(GET, "/api/folders", Read, folders::LIST),
    route!(POST, "/api/folders", Write, folders::CREATE),
    route!(DELETE, "/api/folders/{id}", Write, folders::DELETE),
    route!(GET, "/api/templates", Read, templates::LIST),
    route!(POST, "/api/templates", Write, templates::CREATE).makes("/api/templates/{id}"),
    route!(POST, "/api/templates/media/upload", Write, media::UPLOAD).at_most(Limit::TEMPLATE_MEDIA, "template-media"),
    route!(POST, "/api/templates/sync", Write, templates::SYNC),
    route!(GET, "/api/templates/{id}", Read, templates::GET),
    route!(PUT, "/api/templates/{id}", Write, templates::UPDATE),
    route!(DELETE, "/api/templates/{id}", Write, templates::DELETE),
    route!(POST, "/api/templates/{id}/submit", Write, templates::SUBMIT),
    route!(POST, "/api/templates/{id}/check", Read, templates::CHECK),
    route!(GET, "/api/whatsapp/profiles", Read, whatsapp::LIST),
    route!(POST, "/api/whatsapp/profiles", Write, whatsapp::CREATE).makes("/api/whatsapp/profiles/{id}"),
    route!(GET, "/api/whatsapp/profiles/{id}", Read, whatsapp::GET),
    route!(PUT, "/api/whatsapp/profiles/{id}", Write, whatsapp::UPDATE),
    route!(DELETE, "/api/whatsapp/profiles/{id}", Write, whatsapp::DELETE),
    route!(POST, "/api/whatsapp/profiles/{id}/verify", Write, whatsapp::VERIFY)
        .at_most(Limit::PROFILE_VERIFY, "profile-verify"),
    route!(GET, "/api/whatsapp/profiles/{id}/health", Read, whatsapp::HEALTH).at_most(Limit::API, "profile-health"),
    route!(GET, "/api/whatsapp/webhook", Public, whatsapp::HANDSHAKE),
    route!(POST, "/api/whatsapp/webhook", Public, whatsapp::CALLBACK),
    route!(POST, "/api/hooks/{id}", Public, webhooks::RECEIVE),
    route!(GET, "/api/webhooks", Read, webhooks::LIST),
    route!(POST, "/api/webhooks", Write, webhooks::CREATE)
        .makes("/api/webhooks/{id}")
        .shows_secret(),
    route!(GET, "/api/webhooks/logs", Read, webhooks::LOGS),
    route!(POST, "/api/webhooks/logs/{id}/redeliver", Write, webhooks::REDELIVER),
    route!(GET, "/api/webhooks/events", Read, webhooks::EVENTS),
    route!(GET, "/api/webhooks/event-types", Public, webhooks::EVENT_TYPES),
    route!(GET, "/api/webhooks/{id}", Read, webhooks::GET),
    route!(PUT, "/api/webhooks/{id}", Write, webhooks::UPDATE),
    route!(DELETE, "/api/webhooks/{id}", Write, webhooks::DELETE),
    route!(POST, "/api/webhooks/{id}/rotate-secret", Write, webhooks::ROTATE_SECRET).shows_secret(),
    route!(POST, "/api/webhooks/{id}/test", Write, webhooks::TEST),
    route!(POST, "/api/webhooks/{id}/recover", Write, webhooks::RECOVER),
    route!(GET, "/api/campaigns", Read, campaigns::LIST),
    route!(POST, "/api/campaigns", Write, campaigns::CREATE)
        .makes("/api/campaigns/{id}")
        .at_most(Limit::API, "camp-create"),
    route!(GET, "/api/campaigns/{id}", Read, campaigns::GET),
    route!(PUT, "/api/campaigns/{id}", Write, campaigns::UPDATE).at_most(Limit::API, "camp-mut"),
    route!(DELETE, "/api/campaigns/{id}", Write, campaigns::DELETE).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/execute", Write, campaigns::EXECUTE)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route!(POST, "/api/campaigns/{id}/send", Write, campaigns::SEND)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-send"),
    route!(POST, "/api/campaigns/{id}/schedule", Write, campaigns::SCHEDULE)
        .sends()
        .at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/unschedule", Write, campaigns::UNSCHEDULE).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/pause", Write, campaigns::PAUSE).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/resume", Write, campaigns::RESUME)
        .sends()
        .at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/retry-failed", Write, campaigns::RETRY_FAILED)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-retry"),
    route!(POST, "/api/campaigns/{id}/cancel", Write, campaigns::CANCEL).at_most(Limit::API, "camp-mut"),
    route!(POST, "/api/campaigns/{id}/preview", Read, campaigns::PREVIEW),
    route!(POST, "/api/campaigns/{id}/test", Write, campaigns::TEST)
        .sends()
        .at_most(Limit::CAMPAIGN_SEND, "campaign-test"),
    route!(GET, "/api/campaigns/{id}/stats", Read, campaigns::STATS),
    route!(GET, "/api/campaigns/{id}/sends", Read, campaigns::SENDS),
    route!(GET, "/api/campaigns/{id}/archive", Read, campaigns::ARCHIVE)
        .returns_file()
        .at_most(Limit::API, "archive"),
    route!(POST, "/api/events", Write, ingestion::EVENTS),
    route!(POST, "/api/orders", Write, ingestion::ORDERS),
    route!(POST, "/api/carts", Write, ingestion::CARTS),
    route!(POST, "/api/ad-spend", Write, ingestion::AD_SPEND),
    route!(GET, "/api/links", Read, links::LIST),
    route!(POST, "/api/links", Write, links::CREATE),
    route!(GET, "/r/{code}", Public, links::FOLLOW),
    route!(GET, "/api/automations", Read, automations::LIST),
    route!(POST, "/api/automations", Write, automations::CREATE),
    route!(PUT, "/api/automations/{id}", Write, automations::UPDATE),
    route!(POST, "/api/automations/{id}/executions", Write, automations::RECORD),
    route!(GET, "/api/analytics", Read, insights::DASHBOARD),
    route!(GET, "/api/analytics/messages", Read, insights::MESSAGES),
    route!(GET, "/api/analytics/campaigns", Read, insights::CAMPAIGNS),
    route!(GET, "/api/analytics/heatmap", Read, insights::HEAT_MAP),
    route!(GET, "/api/analytics/export", Read, exports::EXPORT),
    route!(GET, "/api/analytics/costs", Read, costs::REPORT),
    route!(GET, "/api/analytics/rfm", Read, insights::RFM),
    // The use case checks the role: any other role gets 200 with `error`, as published.
    route!(POST, "/api/analytics/rfm/recalculate", Read, insights::RECALCULATE),
    route!(GET, "/api/analytics/revenue", Read, analytics::REVENUE),
    route!(GET, "/api/analytics/ecommerce", Read, analytics::ECOMMERCE),
    route!(GET, "/api/analytics/automations", Read, analytics::AUTOMATIONS),
    route!(GET, "/api/analytics/metrics", Read, analytics::METRICS),
    route!(GET, "/api/analytics/metrics/{name}", Read, analytics::METRIC),
    route!(
        GET,
        "/api/analytics/metrics/{name}/top-contacts",
        Read,
        analytics::TOP_CONTACTS
    ),
    route!(GET, "/api/analytics/metrics/{name}/activity", Read, analytics::ACTIVITY),
    route!(GET, "/api/admin/accounts", Administrator, administration::LIST),
    route!(POST, "/api/admin/accounts", Administrator, administration::CREATE).makes("/api/admin/accounts/{id}"),
    route!(GET, "/api/admin/accounts/{id}", Administrator, administration::GET),
    route!(PUT, "/api/admin/accounts/{id}", Administrator, administration::UPDATE),
    route!(
        DELETE,
        "/api/admin/accounts/{id}",
        Administrator,
        administration::DELETE
    ),
    route!(
        POST,
        "/api/admin/accounts/{id}/action",
        Administrator,
        administration::ACT
    )
    .at_most_by_person(Limit::API, "admin-action"),
    route!(
        POST,
        "/api/admin/accounts/{id}/support",
        Administrator,
        administration::START_SUPPORT
    )
    .at_most_by_person(Limit::API, "admin-support"),
    route!(
        POST,
        "/api/admin/stop-support",
        Administrator,
        administration::STOP_SUPPORT
    ),
    route!(GET, "/api/admin/rate-cards", Administrator, rate_cards::LIST),
    route!(POST, "/api/admin/rate-cards", Administrator, rate_cards::CREATE)
        .makes("/api/admin/rate-cards/{id}")
        .at_most_by_person(Limit::API, "admin-rate-cards"),
    route!(GET, "/api/admin/rate-cards/{id}", Administrator, rate_cards::GET),
    route!(DELETE, "/api/admin/rate-cards/{id}", Administrator, rate_cards::DELETE),
    route!(GET, "/api/admin/stats", Administrator, administration::STATS),
    route!(GET, "/api/admin/revenue", Administrator, administration::REVENUE),
    route!(
        GET,
        "/api/admin/revenue/daily",
        Administrator,
        administration::DAILY_REVENUE
    ),
    route!(GET, "/api/admin/churn", Administrator, administration::CHURN),
    route!(
        POST,
        "/api/admin/users/{id}/sign-out",
        Administrator,
        administration::SIGN_OUT
    )
    .at_most_by_person(Limit::API, "admin-sign-out"),
    route!(GET, "/api/admin/audit-logs", Administrator, administration::AUDIT_LOGS)
        .at_most_by_person(Limit::API, "admin-audit-logs"),
];
