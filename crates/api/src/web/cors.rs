//! CORS: which other sites' pages may call with cookies.

use actix_cors::{Cors, CorsError};
use actix_web::ResponseError as _;
use actix_web::body::BoxBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::Method;
use actix_web::middleware::Condition;

use crate::error::{ApiError, RefusalReason};
use crate::origin::Origin;

/// How long a browser may cache a preflight response, in seconds.
const PREFLIGHT_SECONDS: usize = 2 * 60 * 60;

/// The response headers that a page may read.
const EXPOSED: [&str; 10] = [
    "ETag",
    "Location",
    "Allow",
    "Content-Disposition",
    "X-Request-Id",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "Retry-After",
    "Idempotent-Replayed",
];

/// Answers preflights of these origins, and lets their pages send credentials and read responses. Without origins the
/// middleware is off.
pub fn cors(origins: &[Origin]) -> Condition<Cors> {
    let allowed = origins.to_vec();
    let cors = Cors::default()
        .allowed_origin_fn(move |origin, _| {
            let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Origin>().ok());
            origin.is_some_and(|origin| allowed.contains(&origin))
        })
        .allowed_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE])
        .allow_any_header()
        .expose_headers(EXPOSED)
        .supports_credentials()
        .max_age(PREFLIGHT_SECONDS);
    Condition::new(!origins.is_empty(), cors)
}

/// Replaces the response of a refused preflight by the error envelope.
pub fn wrap_cors_error(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let refused = response
        .response()
        .error()
        .and_then(|error| error.as_error::<CorsError>());
    match refused.is_some() {
        true => response.into_response(
            ApiError::denied(
                RefusalReason::Origin,
                "Cross-origin requests from this site are not allowed",
            )
            .error_response(),
        ),
        false => response,
    }
}
