//! The access check of every route: session, account, role, scope, request origin, rate limit and idempotency key, before the
//! body is read.

use std::panic::AssertUnwindSafe;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _, ResponseError as _};
use futures_util::FutureExt as _;
use recado_domain::accounts::Session;
use recado_domain::idempotency::{IdempotencyKey, Scope};
use recado_domain::limits::RateLimitDecision;
use recado_domain::shared::Tenant;

use crate::error::ApiError;
use crate::routes::{Access, RouteSpec};
use crate::telemetry::{RateLimitOutcome, count_rate_limit};
use crate::web::idempotency::{self, run_once};
use crate::web::limit::{RateKey, RateRule, write_headers};
use crate::wiring::Services;

/// The caller of a request.
enum Principal {
    Anonymous,
    User(Session),
    Member(Tenant),
}

/// Passes an admitted request to its handler, with its session or tenant in its extensions. Otherwise responds with the
/// error.
pub async fn check_access<B: MessageBody + 'static>(
    spec: &'static RouteSpec,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(services) = request.app_data::<Data<Services>>().cloned() else {
        return Ok(request.error_response(ApiError::Internal("the app data has no services".into())));
    };
    let principal = match authorize(spec, &services, &request).await {
        Ok(principal) => principal,
        Err(error) => return Ok(request.error_response(error)),
    };
    let decision = match check_rate_limit(spec, &services, &request, &principal).await {
        Ok(decision) => decision,
        Err((rule, decision)) => {
            let mut refused = request.error_response(ApiError::RateLimited(decision));
            write_headers(refused.headers_mut(), rule, decision);
            return Ok(refused);
        }
    };
    let mut response = match scoped_key(&request, principal) {
        Ok(None) => call(request, next).await,
        Ok(Some(scoped)) => run_once(services.clone(), scoped, request, next, call).await,
        Err(error) => request.error_response(error),
    };
    if spec.access != Access::Read && spec.method != Method::GET {
        services.shared.relays.wake();
    }
    if let Some((rule, decision)) = decision {
        write_headers(response.headers_mut(), rule, decision);
    }
    Ok(response)
}

/// Stores the session or tenant in the request's extensions. Returns its idempotency key with the scope in which the
/// key is unique: the user or the account.
fn scoped_key(request: &ServiceRequest, principal: Principal) -> Result<Option<(Scope, IdempotencyKey)>, ApiError> {
    let scope: Scope = match principal {
        Principal::Anonymous => return Ok(None),
        Principal::User(session) => {
            let scope = session.user_id.into();
            request.extensions_mut().insert(session);
            scope
        }
        Principal::Member(tenant) => {
            let scope = tenant.account_id.into();
            request.extensions_mut().insert(tenant);
            scope
        }
    };
    Ok(idempotency::key_of(request)?.map(|key| (scope, key)))
}

/// Calls the handler and catches a panic, so that it fails one request instead of a worker thread.
async fn call<B: MessageBody + 'static>(request: ServiceRequest, next: Next<B>) -> ServiceResponse<BoxBody> {
    let http = request.request().clone();
    match AssertUnwindSafe(next.call(request)).catch_unwind().await {
        Ok(Ok(response)) => response.map_into_boxed_body(),
        Ok(Err(error)) => ServiceResponse::new(http, error.error_response()),
        Err(_) => ServiceResponse::new(http, ApiError::Internal("a handler panicked".into()).error_response()),
    }
}

/// Authenticates the caller and checks the role, the scope and the request origin.
async fn authorize(spec: &RouteSpec, services: &Services, request: &ServiceRequest) -> Result<Principal, ApiError> {
    let authenticator = &services.authenticator;
    let (principal, by_cookie) = match spec.access {
        Access::Public => (Principal::Anonymous, false),
        Access::Session => {
            let caller = authenticator.session(request.request()).await?;
            (Principal::User(caller.identity), caller.by_cookie)
        }
        Access::Administrator => {
            let caller = authenticator.admin(request.request()).await?;
            (Principal::User(caller.identity), caller.by_cookie)
        }
        Access::Read | Access::Write | Access::Manage => {
            let caller = authenticator.tenant(request.request()).await?;
            check_role(spec.access, &caller.identity)?;
            check_scope(spec, &caller.identity)?;
            (Principal::Member(caller.identity), caller.by_cookie)
        }
    };
    if by_cookie
        && services
            .origins
            .is_cross_site_write(request.method(), request.headers())
    {
        return Err(ApiError::Forbidden(
            "Cross-site requests with a session cookie are not allowed",
        ));
    }
    Ok(principal)
}

fn check_role(access: Access, tenant: &Tenant) -> Result<(), ApiError> {
    let refusal = match access {
        Access::Write if !tenant.role.writes() => "Requires the role owner, admin or member",
        Access::Manage if !tenant.role.manages() => "Requires the role owner or admin",
        Access::Public | Access::Session | Access::Administrator | Access::Read | Access::Write | Access::Manage => {
            return Ok(());
        }
    };
    Err(ApiError::Auth(refusal.to_owned()))
}

/// Requires the route's scope of an API key. Runs before the rate limit is counted, so that a key without the scope
/// cannot use up the account's limit.
fn check_scope(spec: &RouteSpec, tenant: &Tenant) -> Result<(), ApiError> {
    match spec.scope {
        Some(scope) if !tenant.has_scope(scope) => Err(ApiError::MissingScope(scope)),
        Some(_) => Ok(()),
        None if tenant.api_key.is_none() => Ok(()),
        None => Err(ApiError::Auth("API keys are not accepted here".to_owned())),
    }
}

/// Counts the request if its route has a rate limit. Fails open: if the rate limiter is unavailable, the request
/// passes.
async fn check_rate_limit(
    spec: &RouteSpec,
    services: &Services,
    request: &ServiceRequest,
    principal: &Principal,
) -> Result<Option<(RateRule, RateLimitDecision)>, (RateRule, RateLimitDecision)> {
    let Some(rule) = spec.rate else {
        return Ok(None);
    };
    let key = match (rule.key, principal) {
        (RateKey::Account(name), Principal::Member(tenant)) => format!("{name}:{}", tenant.account_id),
        (RateKey::Person(name), Principal::User(session)) => format!("{name}:{}", session.user_id),
        (RateKey::Person(name), Principal::Member(tenant)) => format!("{name}:{}", tenant.actor.user_id),
        // A rule whose account or user is not known counts by address.
        (RateKey::Account(name) | RateKey::Person(name) | RateKey::Address(name), _) => {
            let address = services.authenticator.address(request.request());
            format!("{name}:{}", address.unwrap_or_default())
        }
    };
    match services.rate_limiter.hit(&key, rule.limit).await {
        Ok(decision) if decision.allowed => {
            count_rate_limit(RateLimitOutcome::Allowed);
            Ok(Some((rule, decision)))
        }
        Ok(decision) => {
            count_rate_limit(RateLimitOutcome::Refused);
            Err((rule, decision))
        }
        Err(error) => {
            count_rate_limit(RateLimitOutcome::FailedOpen);
            // The rate limiter logs a throttled warning itself. A warning here would be one per request.
            tracing::debug!(cause = %error, "the rate limiter is unavailable, a request was let through");
            Ok(None)
        }
    }
}
