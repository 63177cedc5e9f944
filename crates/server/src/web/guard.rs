//! The door of every route, before any of its body is read: session, account, role, foreign page, rate limit,
//! idempotency key.

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
use recado_domain::limits::Verdict;
use recado_domain::shared::Tenant;

use crate::error::ApiError;
use crate::routes::{Access, RouteSpec};
use crate::telemetry::{Counted, limited};
use crate::web::idempotency::{self, once};
use crate::web::limit::{RateKey, RateRule, write_headers};
use crate::wiring::Services;

/// Whom a route let in.
enum Admitted {
    Anybody,
    Person(Session),
    Member(Tenant),
}

/// Lets a request through to its handler, with what was proved in its extensions; or answers for it.
pub async fn guard<B: MessageBody + 'static>(
    spec: &'static RouteSpec,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(services) = request.app_data::<Data<Services>>().cloned() else {
        return Ok(request.error_response(ApiError::Internal("the services are not wired".into())));
    };
    let admitted = match admit(spec, &services, &request).await {
        Ok(admitted) => admitted,
        Err(error) => return Ok(request.error_response(error)),
    };
    let verdict = match count(spec, &services, &request, &admitted).await {
        Ok(verdict) => verdict,
        Err((rule, verdict)) => {
            let mut refused = request.error_response(ApiError::RateLimited(verdict));
            write_headers(refused.headers_mut(), rule, verdict);
            return Ok(refused);
        }
    };
    let mut response = match scoped_key(&request, admitted) {
        Ok(None) => call(request, next).await,
        Ok(Some(scoped)) => once(services.clone(), scoped, request, next, call).await,
        Err(error) => request.error_response(error),
    };
    if spec.access != Access::Read && spec.method != Method::GET {
        services.shared.relays.wake();
    }
    if let Some((rule, verdict)) = verdict {
        write_headers(response.headers_mut(), rule, verdict);
    }
    Ok(response)
}

/// Leaves in the request what was proved, and tells its idempotency key with whom it means one request.
fn scoped_key(request: &ServiceRequest, admitted: Admitted) -> Result<Option<(Scope, IdempotencyKey)>, ApiError> {
    let scope: Scope = match admitted {
        Admitted::Anybody => return Ok(None),
        Admitted::Person(session) => {
            let scope = session.user_id.into();
            request.extensions_mut().insert(session);
            scope
        }
        Admitted::Member(tenant) => {
            let scope = tenant.account_id.into();
            request.extensions_mut().insert(tenant);
            scope
        }
    };
    Ok(idempotency::presented(request)?.map(|key| (scope, key)))
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

/// Who asks, and whether the route is open to them.
async fn admit(spec: &RouteSpec, services: &Services, request: &ServiceRequest) -> Result<Admitted, ApiError> {
    let authenticator = &services.authenticator;
    let (admitted, by_cookie) = match spec.access {
        Access::Public => (Admitted::Anybody, false),
        Access::Session => {
            let proof = authenticator.session(request.request()).await?;
            (Admitted::Person(proof.who), proof.by_cookie)
        }
        Access::Administrator => {
            let proof = authenticator.admin(request.request()).await?;
            (Admitted::Person(proof.who), proof.by_cookie)
        }
        Access::Read | Access::Write | Access::Manage => {
            let proof = authenticator.tenant(request.request()).await?;
            permit(spec.access, &proof.who)?;
            (Admitted::Member(proof.who), proof.by_cookie)
        }
    };
    if by_cookie && services.origins.is_foreign_change(request.method(), request.headers()) {
        return Err(ApiError::Forbidden("This request comes from a foreign site"));
    }
    Ok(admitted)
}

/// Whether the caller's role suffices.
fn permit(access: Access, tenant: &Tenant) -> Result<(), ApiError> {
    let refusal = match access {
        Access::Write if !tenant.role.writes() => "Your role may not change anything",
        Access::Manage if !tenant.role.manages() => "This takes the role owner or admin",
        Access::Public | Access::Session | Access::Administrator | Access::Read | Access::Write | Access::Manage => {
            return Ok(());
        }
    };
    Err(ApiError::Auth(refusal.to_owned()))
}

/// One count where the route has a limit, none elsewhere. A counter that is down lets everybody through.
async fn count(
    spec: &RouteSpec,
    services: &Services,
    request: &ServiceRequest,
    admitted: &Admitted,
) -> Result<Option<(RateRule, Verdict)>, (RateRule, Verdict)> {
    let Some(rule) = spec.rate else {
        return Ok(None);
    };
    let key = match (rule.key, admitted) {
        (RateKey::Account(name), Admitted::Member(tenant)) => format!("{name}:{}", tenant.account_id),
        (RateKey::Person(name), Admitted::Person(session)) => format!("{name}:{}", session.user_id),
        (RateKey::Person(name), Admitted::Member(tenant)) => format!("{name}:{}", tenant.actor.user_id),
        // A rule that cannot tell whom it counts counts the address.
        (RateKey::Account(name) | RateKey::Person(name) | RateKey::Address(name), _) => {
            let address = services.authenticator.address(request.request());
            format!("{name}:{}", address.unwrap_or_default())
        }
    };
    match services.counter.hit(&key, rule.limit).await {
        Ok(verdict) if verdict.allowed => {
            limited(Counted::Allowed);
            Ok(Some((rule, verdict)))
        }
        Ok(verdict) => {
            limited(Counted::Refused);
            Err((rule, verdict))
        }
        Err(down) => {
            limited(Counted::Uncounted);
            // The counter itself warns, once an interval: this would be a line a request.
            tracing::debug!(cause = %down, "a request was not counted");
            Ok(None)
        }
    }
}
