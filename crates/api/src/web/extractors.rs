//! Extractors of path parameters and of the authenticated caller, and serde helpers.

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, web};
use futures_util::future::{Ready, ready};
use recado_domain::accounts::Session;
use recado_domain::shared::{FieldErrors, Tenant};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use crate::error::ApiError;

/// Distinguishes null (`Some(None)`: clear the value) from an absent field (`None`: leave it). Needs
/// `#[serde(default)]`.
pub fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// The UUID in a path. Any other text is an error of the field `id`.
pub struct Id<T>(pub T);

impl<T: From<Uuid>> FromRequest for Id<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let id = request
            .match_info()
            .get("id")
            .and_then(|text| Uuid::parse_str(text).ok());
        ready(
            id.map(|id| Self(id.into()))
                .ok_or_else(|| FieldErrors::one("id", "must be a UUID").into()),
        )
    }
}

/// The decoded path parameter of a route with exactly one. It may contain any character, even a slash.
pub struct PathName(pub String);

impl FromRequest for PathName {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let path = web::Path::<String>::from_request(request, payload).into_inner();
        ready(match path.map(web::Path::into_inner) {
            Ok(name) if name.contains('\0') => Err(FieldErrors::one("name", "contains a NUL character").into()),
            Ok(name) => Ok(Self(name)),
            Err(_) => Err(ApiError::not_found()),
        })
    }
}

/// The session or tenant that the access check stored in the request.
pub struct Authenticated<T>(pub T);

impl<T: Clone + 'static> FromRequest for Authenticated<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let authenticated = request.extensions().get::<T>().cloned();
        ready(
            authenticated
                .map(Self)
                .ok_or_else(|| ApiError::internal("the route's access level does not provide what its handler needs")),
        )
    }
}

/// The tenant of an account route.
pub type TenantContext = Authenticated<Tenant>;

/// The session of a session route.
pub type SessionUser = Authenticated<Session>;
