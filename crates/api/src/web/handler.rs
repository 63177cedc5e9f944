//! The call of a handler.

use std::panic::AssertUnwindSafe;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, ResponseError as _};
use futures_util::FutureExt as _;

use crate::error::ApiError;

/// Calls the handler of a request.
pub(super) async fn call<B: MessageBody + 'static>(request: ServiceRequest, next: Next<B>) -> ServiceResponse<BoxBody> {
    let http = request.request().clone();
    catch_panic(http, next.call(request)).await
}

/// Turns an error or a panic of a handler into a response. So a panic fails one request instead of a worker thread.
pub(super) async fn catch_panic<B: MessageBody + 'static>(
    http: HttpRequest,
    handling: impl Future<Output = Result<ServiceResponse<B>, Error>>,
) -> ServiceResponse<BoxBody> {
    match AssertUnwindSafe(handling).catch_unwind().await {
        Ok(Ok(response)) => response.map_into_boxed_body(),
        Ok(Err(error)) => ServiceResponse::new(http, error.error_response()),
        Err(_) => ServiceResponse::new(http, ApiError::internal("a handler panicked").error_response()),
    }
}
