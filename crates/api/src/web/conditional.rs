//! Conditional writes: a PUT or DELETE with `If-Match` changes the row only if the client knows its present state (RFC
//! 9110, section 13.1.1).
//!
//! The tag of the row is that of its GET. The comparison and the write run under a lock of the row, across servers. So
//! of several requests with one tag, one is applied.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, Service as _, ServiceFactory as _, ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{ETAG, IF_MATCH};
use actix_web::middleware::Next;
use actix_web::{HttpMessage as _, HttpResponse, ResponseError as _};
use recado_domain::shared::{RowLocks, Tenant};
use uuid::Uuid;

use crate::error::ApiError;
use crate::web::body::{JSON_BYTES, read};
use crate::web::handler::{call, catch_panic};
use crate::web::ranges::{matches_strongly, tag_list};
use crate::web::representation::tagged;
use crate::web::route::RouteSpec;

/// Calls the handler, unless the request has an `If-Match` that does not fit the row that `read` returns.
pub async fn call_if_match<B: MessageBody + 'static>(
    locks: &dyn RowLocks,
    read: &'static RouteSpec,
    mut request: ServiceRequest,
    next: Next<B>,
) -> ServiceResponse<BoxBody> {
    let Some(expected) = tag_list(request.headers(), &IF_MATCH) else {
        return call(request, next).await;
    };
    // A slow client does not hold the lock.
    if let Err(error) = read_body(&mut request).await {
        return request.error_response(error);
    }
    let lock = match locks.lock(&row_name(read, &request)).await {
        Ok(lock) => lock,
        Err(error) => return request.error_response(ApiError::from(error)),
    };
    let response = match refusal(read, &request, &expected).await {
        Some(refused) => request.into_response(refused),
        None => call(request, next).await,
    };
    lock.release().await;
    response
}

/// Reads the whole body, so that the handler finds it in memory.
async fn read_body(request: &mut ServiceRequest) -> Result<(), ApiError> {
    let payload = request.take_payload();
    let body = read(request.request(), payload, JSON_BYTES).await?;
    request.set_payload(Payload::from(body));
    Ok(())
}

/// The account, the path template and the id. Other spellings of a path name the same row.
fn row_name(read: &RouteSpec, request: &ServiceRequest) -> String {
    let extensions = request.extensions();
    let account = extensions.get::<Tenant>().map(|tenant| tenant.account_id.to_string());
    let id = request.match_info().get("id").and_then(|id| Uuid::parse_str(id).ok());
    let parts = [account, Some(read.path.to_owned()), id.map(|id| id.to_string())];
    parts.map(Option::unwrap_or_default).join(" ")
}

/// The response to a request whose tags do not fit the row. A row that does not exist is left to the handler.
async fn refusal(read: &RouteSpec, request: &ServiceRequest, expected: &str) -> Option<HttpResponse> {
    let response = tagged(read, read_row(read, request).await);
    match response.status() {
        StatusCode::NOT_FOUND => None,
        StatusCode::OK => {
            let tag = response.headers().get(ETAG)?.to_str().ok()?;
            (!matches_strongly(expected, tag)).then(|| ApiError::changed(tag).error_response())
        }
        _ => Some(response),
    }
}

/// Calls the handler of the row's GET.
async fn read_row(read: &RouteSpec, request: &ServiceRequest) -> HttpResponse {
    let request = ServiceRequest::from_parts(request.request().clone(), Payload::None);
    let Ok(handler) = (read.endpoint.handler)().new_service(()).await else {
        return ApiError::internal("a handler cannot be built").error_response();
    };
    let http = request.request().clone();
    catch_panic(http, handler.call(request)).await.into_parts().1
}
