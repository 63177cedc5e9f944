//! The door of every route, before any of its body is read: session, account, role, then rate limit.

use std::panic::AssertUnwindSafe;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _, ResponseError as _};
use futures_util::FutureExt as _;
use recado_domain::limits::Verdict;
use recado_domain::shared::Tenant;

use crate::error::ApiError;
use crate::routes::{Access, RouteSpec};
use crate::web::limit::{RateRule, write_headers};
use crate::wiring::Services;

/// Lets a request through to its handler, with what was proved in its extensions; or answers for it.
pub async fn guard<B: MessageBody + 'static>(
    spec: &'static RouteSpec,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(services) = request.app_data::<Data<Services>>().cloned() else {
        return Ok(request.error_response(ApiError::Internal("the services are not wired".into())));
    };
    let tenant = match admit(spec, &services, &request).await {
        Ok(tenant) => tenant,
        Err(error) => return Ok(request.error_response(error)),
    };
    let verdict = match count(spec, &services, tenant.as_ref()).await {
        Ok(verdict) => verdict,
        Err((rule, verdict)) => {
            let mut refused = request.error_response(ApiError::RateLimited(verdict));
            write_headers(refused.headers_mut(), rule, verdict);
            return Ok(refused);
        }
    };
    if let Some(tenant) = tenant {
        request.extensions_mut().insert(tenant);
    }
    let mut response = call(request, next).await;
    if spec.access != Access::Read {
        services.shared.changed.notify_one();
    }
    if let Some((rule, verdict)) = verdict {
        write_headers(response.headers_mut(), rule, verdict);
    }
    Ok(response)
}

/// Calls the handler, with a net under it: a panic is one failed request, not a dead worker thread.
async fn call<B: MessageBody + 'static>(request: ServiceRequest, next: Next<B>) -> ServiceResponse<BoxBody> {
    let http = request.request().clone();
    match AssertUnwindSafe(next.call(request)).catch_unwind().await {
        Ok(Ok(response)) => response.map_into_boxed_body(),
        Ok(Err(error)) => ServiceResponse::new(http, error.error_response()),
        Err(_) => ServiceResponse::new(http, ApiError::Internal("a handler panicked".into()).error_response()),
    }
}

/// The account context, where the route has one.
async fn admit(spec: &RouteSpec, services: &Services, request: &ServiceRequest) -> Result<Option<Tenant>, ApiError> {
    let authenticator = &services.authenticator;
    match spec.access {
        Access::Public => Ok(None),
        Access::Session => {
            let session = authenticator.session(request.request()).await?;
            request.extensions_mut().insert(session);
            Ok(None)
        }
        Access::Read | Access::Write => {
            let tenant = authenticator.tenant(request.request()).await?;
            if spec.access == Access::Write && !tenant.role.writes() {
                return Err(ApiError::Auth("Your role may not change anything".to_owned()));
            }
            Ok(Some(tenant))
        }
    }
}

/// One count where the route has a limit, none elsewhere. A counter that is down lets everybody through.
async fn count(
    spec: &RouteSpec,
    services: &Services,
    tenant: Option<&Tenant>,
) -> Result<Option<(RateRule, Verdict)>, (RateRule, Verdict)> {
    let (Some(rule), Some(tenant)) = (spec.rate, tenant) else {
        return Ok(None);
    };
    let key = format!("{}:{}", rule.key, tenant.account_id);
    match services.counter.hit(&key, rule.limit).await {
        Ok(verdict) if verdict.allowed => Ok(Some((rule, verdict))),
        Ok(verdict) => Err((rule, verdict)),
        Err(down) => {
            tracing::warn!(cause = %down, "a request was not counted");
            Ok(None)
        }
    }
}
