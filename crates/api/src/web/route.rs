//! A route of the table: who may call it, its handler and its documentation.

use actix_web::Route;
use actix_web::http::Method;
use recado_domain::shared::RouteScope;

use super::limit::RateRule;
use super::operation::{OpenApiTag, Operation};

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
    /// Whether an API key whose scopes trigger templates opens the route, too. The use case then checks the message.
    pub triggers: bool,
    /// The rate limit and the key that its counter uses.
    pub rate: Option<RateRule>,
    /// What its responses hold.
    pub content: Content,
    /// Whether a 200 has an entity tag, although the route is no GET of one row by id.
    pub tagged: bool,
    /// The JSON pointer of a time that every read computes anew. It is no part of the entity tag.
    pub computed_at: Option<&'static str>,
    /// The path of the row that a 201 or 202 names in `Location`.
    pub makes: Option<&'static str>,
    /// The context of the handler. With the name of the handler, it is the `operationId`.
    pub context: &'static str,
    pub(crate) tag: &'static OpenApiTag,
    pub(crate) endpoint: Endpoint,
}

/// What the responses of a route hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Rows and reports.
    Data,
    /// A secret that is shown once.
    Secret,
    /// A file, or a stream of events.
    File,
}

impl RouteSpec {
    /// Whether a 200 has an entity tag.
    pub fn has_entity_tag(&self) -> bool {
        self.method == Method::GET && (self.tagged || self.path.ends_with("/{id}"))
    }

    pub fn operation_id(&self) -> String {
        format!("{}_{}", self.context, self.endpoint.name)
    }
}

/// A handler and its documentation.
pub(crate) struct Endpoint {
    /// The name of the handler.
    pub(crate) name: &'static str,
    pub(crate) handler: fn() -> Route,
    pub(crate) operation: fn() -> Operation,
}

/// Joins a handler and its documentation.
macro_rules! endpoint {
    ($handler:ident, $operation:expr) => {
        Endpoint {
            name: stringify!($handler),
            handler: || actix_web::web::to($handler),
            operation: || $operation,
        }
    };
}
pub(crate) use endpoint;
