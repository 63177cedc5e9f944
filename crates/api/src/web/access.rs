//! The access check of every route: session, account, role, scope, request origin, rate limit and idempotency key, before the
//! body is read.

use std::sync::Arc;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _, HttpResponse, ResponseError as _};
use recado_domain::idempotency::{IdempotencyKey, Scope};
use recado_domain::limits::{Limit, RateLimitDecision, RateLimiter};
use recado_domain::shared::{RowLocks, Tenant};

use crate::error::{ApiError, RefusalReason};
use crate::origin::OwnOrigins;
use crate::telemetry::{RateLimitOutcome, count_rate_limit};
use crate::web::auth::Authenticator;
use crate::web::ceiling::ceiling;
use crate::web::conditional::call_if_match;
use crate::web::handler::call;
use crate::web::idempotency::{self, StoredResponses, run_once};
use crate::web::limit::{RateKey, write_headers};
use crate::web::principal::Principal;
use crate::web::representation;
use crate::web::route::{Access, RouteSpec};
use crate::worker_handles::WorkerSignals;

/// The prefix of the key under which requests with unknown API keys count.
const UNKNOWN_KEYS: &str = "unknown-key";

/// A limit and its decision about a request.
type Decided = (Limit, RateLimitDecision);

/// What the access check of every route uses.
pub struct AccessChecks {
    pub authenticator: Arc<Authenticator>,
    /// The sites whose pages may write with a session cookie.
    pub origins: OwnOrigins,
    pub rate_limiter: Arc<dyn RateLimiter>,
    /// The operator's ceiling (`REQUESTS_PER_MINUTE`).
    pub requests_per_minute: Option<u32>,
    pub responses: Arc<StoredResponses>,
    pub row_locks: Arc<dyn RowLocks>,
    pub signals: WorkerSignals,
}

/// Passes an admitted request to its handler, with its session or tenant in its extensions. Otherwise responds with the
/// error. `read`: for a PUT or DELETE, the GET of its row, if that has an entity tag.
pub async fn check_access<B: MessageBody + 'static>(
    spec: &'static RouteSpec,
    read: Option<&'static RouteSpec>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(checks) = request.app_data::<Data<AccessChecks>>().cloned() else {
        return Ok(request.error_response(ApiError::internal("the app data has no access checks")));
    };
    let principal = match authorize(spec, &checks, &request).await {
        Ok(principal) => principal,
        Err(error) => {
            let refused = refuse(&checks, &request, error).await;
            return Ok(request.into_response(refused));
        }
    };
    let decided = match check_limits(spec, &checks, &request, &principal).await {
        Ok(decided) => decided,
        Err(refused) => return Ok(request.into_response(too_many(refused))),
    };
    let mut response = match scoped_key(&request, principal) {
        Ok(None) => match read {
            None => call(request, next).await,
            Some(read) => call_if_match(checks.row_locks.as_ref(), read, request, next).await,
        },
        Ok(Some(scoped)) => run_once(checks.responses.clone(), scoped, request, next, call).await,
        Err(error) => request.error_response(error),
    };
    if spec.access != Access::Read && spec.method != Method::GET {
        checks.signals.wake_relays();
    }
    if let Some((limit, decision)) = decided {
        write_headers(response.headers_mut(), limit, decision);
    }
    Ok(representation::complete(spec, read, response))
}

/// The response to a caller who is not admitted. Unknown API keys count against their address.
async fn refuse(checks: &AccessChecks, request: &ServiceRequest, error: ApiError) -> HttpResponse {
    if error.refusal() == Some(RefusalReason::UnknownKey) {
        let address = checks.authenticator.limit_address(request.request());
        let key = format!("{UNKNOWN_KEYS}:{address}");
        if let Err(refused) = hit(checks, &key, Limit::UNKNOWN_KEYS).await {
            let mut response = too_many(refused);
            response.extensions_mut().insert(RefusalReason::UnknownKey);
            return response;
        }
    }
    error.error_response()
}

fn too_many((limit, decision): Decided) -> HttpResponse {
    let mut response = ApiError::rate_limited(decision).error_response();
    write_headers(response.headers_mut(), limit, decision);
    response
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

/// Authenticates the caller and checks the role, the scope and the request origin.
async fn authorize(spec: &RouteSpec, checks: &AccessChecks, request: &ServiceRequest) -> Result<Principal, ApiError> {
    let authenticator = &checks.authenticator;
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
    if by_cookie && checks.origins.is_cross_site_write(request.method(), request.headers()) {
        return Err(ApiError::denied(
            RefusalReason::Origin,
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
    Err(ApiError::auth(RefusalReason::Role, refusal))
}

/// Requires the route's scope of an API key. Runs before the rate limit is counted, so that a key without the scope
/// cannot use up the account's limit.
fn check_scope(spec: &RouteSpec, tenant: &Tenant) -> Result<(), ApiError> {
    let triggers = |tenant: &Tenant| tenant.api_key.as_ref().is_some_and(|key| key.scopes.triggers());
    match spec.scope {
        Some(_) if spec.triggers && triggers(tenant) => Ok(()),
        Some(scope) if !tenant.has_scope(scope) => Err(ApiError::missing_scope(scope)),
        Some(_) => Ok(()),
        None if tenant.api_key.is_none() => Ok(()),
        None => Err(ApiError::auth(
            RefusalReason::SessionRequired,
            "API keys are not accepted here",
        )),
    }
}

/// Counts the request under the operator's ceiling and the limit of its route. Returns the decision that the response
/// shows: the one of the route, if it has a limit.
async fn check_limits(
    spec: &RouteSpec,
    checks: &AccessChecks,
    request: &ServiceRequest,
    principal: &Principal,
) -> Result<Option<Decided>, Decided> {
    let address = || checks.authenticator.limit_address(request.request());
    let mut decided = None;
    let requests_per_minute = checks.requests_per_minute;
    if let Some((key, limit)) = ceiling(spec, requests_per_minute, principal, address) {
        decided = hit(checks, &key, limit).await?;
    }
    let Some(rule) = spec.rate else {
        return Ok(decided);
    };
    let key = match (rule.key, principal) {
        (RateKey::Account(name), Principal::Member(tenant)) => format!("{name}:{}", tenant.account_id),
        (RateKey::Person(name), Principal::User(session)) => format!("{name}:{}", session.user_id),
        (RateKey::Person(name), Principal::Member(tenant)) => format!("{name}:{}", tenant.actor.user_id),
        // A rule whose account or user is not known counts by address.
        (RateKey::Account(name) | RateKey::Person(name) | RateKey::Address(name), _) => {
            format!("{name}:{}", address())
        }
    };
    hit(checks, &key, rule.limit).await
}

/// Counts a request under a key. Fails open: if the rate limiter is unavailable, the request passes.
async fn hit(checks: &AccessChecks, key: &str, limit: Limit) -> Result<Option<Decided>, Decided> {
    match checks.rate_limiter.hit(key, limit).await {
        Ok(decision) if decision.allowed => {
            count_rate_limit(RateLimitOutcome::Allowed);
            Ok(Some((limit, decision)))
        }
        Ok(decision) => {
            count_rate_limit(RateLimitOutcome::Refused);
            Err((limit, decision))
        }
        Err(error) => {
            count_rate_limit(RateLimitOutcome::FailedOpen);
            // The rate limiter logs a throttled warning itself. A warning here would be one per request.
            tracing::debug!(cause = %error, "the rate limiter is unavailable, a request was let through");
            Ok(None)
        }
    }
}
