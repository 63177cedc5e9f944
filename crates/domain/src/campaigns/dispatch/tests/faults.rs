//! Fault injection: one fault at one step of a run. Calls of the store and of WhatsApp are steps.

use std::future::pending;
use std::sync::Mutex;

use crate::shared::StoreError;

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The store fails before it writes.
    ErrorBefore,
    /// The store writes, but its response is lost.
    ErrorAfter,
    /// The process dies before the step.
    KillBefore,
    /// The process dies after the step, before it gets the response.
    KillAfter,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::ErrorBefore, Self::ErrorAfter, Self::KillBefore, Self::KillAfter];
}

/// Injects one fault. After a simulated death, every step hangs until `disarm`.
#[derive(Default)]
pub(super) struct FaultInjector(Mutex<State>);

#[derive(Default)]
struct State {
    /// The fault, and the number of steps that pass before it.
    armed: Option<(usize, Fault)>,
    dead: bool,
}

impl FaultInjector {
    /// Lets `steps` steps succeed, and injects the fault into the next one.
    pub(super) fn inject_after(&self, steps: usize, fault: Fault) {
        self.0.lock().unwrap().armed = Some((steps, fault));
    }

    /// Removes the fault. True if it was still armed, so that no step has failed.
    pub(super) fn disarm(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap()).armed.is_some()
    }

    fn next_fault(&self) -> Option<Fault> {
        let mut state = self.0.lock().unwrap();
        if state.dead {
            return Some(Fault::KillBefore);
        }
        match &mut state.armed {
            Some((0, fault)) => {
                let fault = *fault;
                state.armed = None;
                state.dead = matches!(fault, Fault::KillBefore | Fault::KillAfter);
                Some(fault)
            }
            Some((steps, _)) => {
                *steps -= 1;
                None
            }
            None => None,
        }
    }

    /// Runs a call of the store as one step.
    pub(super) async fn store_step<T: Send>(
        &self,
        step: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let unavailable = || Err(StoreError::Unavailable("injected".into()));
        match self.next_fault() {
            None => step.await,
            Some(Fault::ErrorBefore) => unavailable(),
            Some(Fault::ErrorAfter) => {
                step.await?;
                unavailable()
            }
            Some(Fault::KillBefore) => pending().await,
            Some(Fault::KillAfter) => {
                step.await?;
                pending().await
            }
        }
    }

    /// Runs a call of WhatsApp as one step. Only a death is injected, since errors are outcomes of the fake.
    pub(super) async fn gateway_call<T: Send>(&self, step: impl FnOnce() -> T + Send) -> T {
        match self.next_fault() {
            None | Some(Fault::ErrorBefore | Fault::ErrorAfter) => step(),
            Some(Fault::KillBefore) => pending().await,
            Some(Fault::KillAfter) => {
                step();
                pending().await
            }
        }
    }
}
