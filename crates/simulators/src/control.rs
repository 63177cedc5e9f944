//! The control routes under `/_sim/`: those that all simulators have, and the way to those of each.

use crate::host::{Answer, Call, Service};

/// Answers a control route.
pub(crate) fn answer(service: &dyn Service, call: &Call, route: &[&str]) -> Answer {
    let answer = match (call.method.as_str(), route) {
        ("GET", ["ledger"]) => Ok(Answer::ok(&service.shown_ledger())),
        ("POST", ["faults"]) => service.faults().scripted_by(call),
        ("DELETE", ["faults"]) => {
            service.faults().clear();
            Ok(Answer::done())
        }
        ("POST", ["reset"]) => {
            reset(service);
            Ok(Answer::done())
        }
        _ => service.control(call, route),
    };
    answer.unwrap_or_else(|refusal| refusal)
}

/// Forgets what was kept, the ledger and the faults.
pub(crate) fn reset(service: &dyn Service) {
    service.faults().clear();
    service.ledger().clear();
    service.forget();
}

/// What is answered where there is no such control route.
pub(crate) fn no_route() -> Answer {
    Answer::refuse(404, "no such control route")
}

/// Done, where there was something to do it to.
pub(crate) fn done(found: bool, missing: &str) -> Result<Answer, Answer> {
    if found {
        Ok(Answer::done())
    } else {
        Err(Answer::refuse(404, missing))
    }
}
