//! The control routes under `/_sim/`: handles those that all simulators have and passes the others to the simulator.

use serde_json::{Value, json};

use crate::call::{Call, Response};
use crate::fault::Faults;
use crate::ledger::Ledger;

/// A simulator: responds to requests and gives the host and the control routes access to its state.
pub(crate) trait Service: Send + Sync + 'static {
    /// Responds to a request of the product.
    fn respond(&self, call: &Call) -> Response;
    fn ledger(&self) -> &Ledger;
    fn faults(&self) -> &dyn Faults;
    /// The ledger as the control route returns it.
    fn ledger_json(&self) -> Value {
        json!(self.ledger().entries())
    }
    /// Handles a control route that only this simulator has.
    fn control(&self, _: &Call, _: &[&str]) -> Result<Response, Response> {
        Err(no_route())
    }
    /// Clears the state except ledger and faults.
    fn clear_state(&self) {}
    /// Stops the background work. The host calls it once, when it is dropped.
    fn stop(&self) {}
}

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
