//! The call of a handler.

use std::panic::AssertUnwindSafe;

use actix_web::ResponseError as _;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use futures_util::FutureExt as _;

use crate::error::ApiError;

/// Calls the handler and catches a panic, so that it fails one request instead of a worker thread.
pub(super) async fn call<B: MessageBody + 'static>(request: ServiceRequest, next: Next<B>) -> ServiceResponse<BoxBody> {
    let http = request.request().clone();
    match AssertUnwindSafe(next.call(request)).catch_unwind().await {
        Ok(Ok(response)) => response.map_into_boxed_body(),
        Ok(Err(error)) => ServiceResponse::new(http, error.error_response()),
        Err(_) => ServiceResponse::new(http, ApiError::internal("a handler panicked").error_response()),
    }
}
