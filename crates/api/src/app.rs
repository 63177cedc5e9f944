//! Builds the actix application from the route table. Every route runs its access check first. HEAD is accepted wherever
//! GET is. A known path with a wrong method gets 405, an unknown path 404.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use actix_web::dev::ServiceRequest;
use actix_web::http::Method;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpMessage as _, HttpResponse, Resource, ResponseError as _, Scope};

use crate::error::ApiError;
use crate::routes::{RouteSpec, TABLE, row_read};
use crate::telemetry::Route;
use crate::web::access::check_access;

/// The metrics of every route of the table, in its order.
static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    TABLE
        .iter()
        .map(|spec| Route::new(spec.path, spec.method.as_str()))
        .collect()
});

/// Registers every route of the table and the default responses (404, 405).
pub fn configure(config: &mut ServiceConfig) {
    let mut paths: BTreeMap<&str, Vec<(&'static RouteSpec, &'static Route)>> = BTreeMap::new();
    for (spec, route) in TABLE.iter().zip(ROUTES.iter()) {
        paths.entry(spec.path).or_default().push((spec, route));
    }
    // actix matches in the order of registration. In sorted order a literal segment precedes a parameter, because `{`
    // sorts after letters and digits. Scopes by context keep a request from being compared with every path.
    let mut contexts: BTreeMap<&str, Vec<Resource>> = BTreeMap::new();
    for (path, specs) in paths {
        let (context, rest) = split_context(path);
        let accepted: Vec<Method> = specs.iter().flat_map(|(spec, _)| methods(spec)).collect();
        let allowed = accepted.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let mut resource = web::resource(rest);
        for &(spec, route) in &specs {
            for method in methods(spec) {
                let read = row_read(spec);
                let access_check = from_fn(move |request: ServiceRequest, next: Next<_>| {
                    request.extensions_mut().insert(route);
                    check_access(spec, read, request, next)
                });
                resource = resource.route((spec.endpoint.handler)().method(method).wrap(access_check));
            }
        }
        let wrong_method = move || std::future::ready(method_not_allowed(allowed.clone()));
        let resource = resource.default_service(web::to(wrong_method));
        contexts.entry(context).or_default().push(resource);
    }
    for (context, resources) in contexts {
        config.service(resources.into_iter().fold(web::scope(context), Scope::service));
    }
    config.default_service(web::to(|| std::future::ready(ApiError::not_found().error_response())));
}

/// The methods of a route. The outermost middleware drops the body of a response to HEAD.
fn methods(spec: &RouteSpec) -> Vec<Method> {
    match spec.method == Method::GET {
        true => vec![Method::GET, Method::HEAD],
        false => vec![spec.method.clone()],
    }
}

/// Splits off the context: `/api/campaigns` and `/{id}`, `/docs` and `/{file}`, `/healthz` and an empty rest.
fn split_context(path: &str) -> (&str, &str) {
    let segments = if path.starts_with("/api/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(segments).map(|(at, _)| at);
    path.split_at(end.unwrap_or(path.len()))
}

fn method_not_allowed(allowed: String) -> HttpResponse {
    ApiError::method_not_allowed(&allowed).error_response()
}
