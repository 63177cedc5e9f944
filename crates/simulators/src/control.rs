//! The control routes under `/_sim/`: handles those that all simulators have and passes the others to the simulator.

use crate::host::{Call, Response, Service};

/// Responds to a control route.
pub(crate) fn respond(service: &dyn Service, call: &Call, route: &[&str]) -> Response {
    let response = match (call.method.as_str(), route) {
        ("GET", ["ledger"]) => Ok(Response::ok(&service.ledger_json())),
        ("POST", ["faults"]) => service.faults().add_from(call),
        ("DELETE", ["faults"]) => {
            service.faults().clear();
            Ok(Response::done())
        }
        ("POST", ["reset"]) => {
            reset(service);
            Ok(Response::done())
        }
        _ => service.control(call, route),
    };
    response.unwrap_or_else(|refusal| refusal)
}

/// Clears the state, the ledger and the faults.
pub(crate) fn reset(service: &dyn Service) {
    service.faults().clear();
    service.ledger().clear();
    service.clear_state();
}

/// The response to an unknown control route.
pub(crate) fn no_route() -> Response {
    Response::refuse(404, "no such control route")
}

/// 200 if the target of the control route was found, else 404.
pub(crate) fn done(found: bool, missing: &str) -> Result<Response, Response> {
    if found {
        Ok(Response::done())
    } else {
        Err(Response::refuse(404, missing))
    }
}
