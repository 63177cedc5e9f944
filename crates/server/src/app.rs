//! From the route table to an actix application: every route behind its door, every path with its own 405, everything
//! else a 404, and one middleware around it all.

use std::collections::BTreeMap;

use actix_web::dev::ServiceRequest;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpMessage as _, HttpResponse, Resource, ResponseError as _, Scope};

use crate::error::ApiError;
use crate::routes::RouteSpec;
use crate::telemetry::{Route, counted_routes};
use crate::web::access::check_access;

/// Registers every route of the table, and what answers for all other requests.
pub fn configure(config: &mut ServiceConfig) {
    let mut paths: BTreeMap<&str, Vec<(&'static RouteSpec, &'static Route)>> = BTreeMap::new();
    for (spec, route) in counted_routes() {
        paths.entry(spec.path).or_default().push((spec, route));
    }
    // In their order a fixed path stands before one with an id in the same place: `{` comes after letters and digits.
    // Contexts are looked through first, and then the paths of the one, so that a request is not compared with all.
    let mut contexts: BTreeMap<&str, Vec<Resource>> = BTreeMap::new();
    for (path, specs) in paths {
        let (context, rest) = split_context(path);
        let allowed = specs
            .iter()
            .map(|(spec, _)| spec.method.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let mut resource = web::resource(rest);
        for &(spec, route) in &specs {
            let access_check = from_fn(move |request: ServiceRequest, next: Next<_>| {
                request.extensions_mut().insert(route);
                check_access(spec, request, next)
            });
            resource = resource.route((spec.handler)().method(spec.method.clone()).wrap(access_check));
        }
        let wrong_method = move || std::future::ready(method_not_allowed(allowed.clone()));
        let resource = resource.default_service(web::to(wrong_method));
        contexts.entry(context).or_default().push(resource);
    }
    for (context, resources) in contexts {
        config.service(resources.into_iter().fold(web::scope(context), Scope::service));
    }
    config.default_service(web::to(|| std::future::ready(ApiError::NotFound.error_response())));
}

/// Splits off the context: `/api/campaigns` and `/{id}`, `/docs` and `/{file}`, `/healthz` and an empty rest.
fn split_context(path: &str) -> (&str, &str) {
    let segments = if path.starts_with("/api/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(segments).map(|(at, _)| at);
    path.split_at(end.unwrap_or(path.len()))
}

fn method_not_allowed(allowed: String) -> HttpResponse {
    ApiError::MethodNotAllowed(allowed).error_response()
}
