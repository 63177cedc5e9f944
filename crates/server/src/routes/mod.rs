//! The route table: every route of the interface, who may use it, and how often. Everything that has to hold for all
//! routes (the door, 405, the hostile matrix of the tests) is derived from it.

use actix_web::http::Method;
use actix_web::{Route, web};
use recado_domain::limits::Limit;

use crate::web::limit::{RateKey, RateRule};

mod accounts;
mod campaigns;
mod contacts;
mod media;
mod service;
mod tags;
mod templates;
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

    const fn at_most_by_address(mut self, limit: Limit, key: &'static str) -> Self {
        self.rate = Some(RateRule {
            limit,
            key: RateKey::Address(key),
        });
        self
    }
}

use Access::{Public, Read, Session, Write};

/// Every route.
pub static TABLE: &[RouteSpec] = &[
    route(Method::GET, "/healthz", Public, || web::to(service::health)),
    route(Method::GET, "/readyz", Public, || web::to(service::ready)),
    route(Method::GET, "/media/{account}/{file}", Public, || web::to(media::fetch)),
    route(Method::GET, "/api/accounts", Session, || web::to(accounts::list)),
    route(Method::POST, "/api/accounts", Session, || web::to(accounts::create)),
    route(Method::POST, "/api/accounts/switch", Session, || {
        web::to(accounts::switch)
    }),
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
    route(Method::GET, "/api/tags", Read, || web::to(tags::list)),
    route(Method::POST, "/api/tags", Write, || web::to(tags::create)),
    route(Method::DELETE, "/api/tags/{id}", Write, || web::to(tags::delete)),
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
    route(Method::POST, "/api/campaigns/{id}/cancel", Write, || {
        web::to(campaigns::cancel)
    })
    .at_most(Limit::API, "camp-mut"),
    route(Method::GET, "/api/campaigns/{id}/stats", Read, || {
        web::to(campaigns::stats)
    }),
    route(Method::GET, "/api/campaigns/{id}/sends", Read, || {
        web::to(campaigns::sends)
    }),
];
