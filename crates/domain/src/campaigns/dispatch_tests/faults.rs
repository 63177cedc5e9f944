//! What goes wrong, and when: one fault at one step of a run, counted over the store and the platform.

use std::future::pending;
use std::sync::Mutex;

use crate::shared::StoreError;

/// How a step goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The store refuses; nothing was written.
    ErrorBefore,
    /// The store wrote, and its answer was lost.
    ErrorAfter,
    /// The process dies before the step.
    KillBefore,
    /// The process dies after the step, before it learns what came of it.
    KillAfter,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::ErrorBefore, Self::ErrorAfter, Self::KillBefore, Self::KillAfter];
}

/// Burns once, at the step it was set to. After a death every step hangs until the fuse is taken out.
#[derive(Default)]
pub(super) struct Fuse(Mutex<State>);

#[derive(Default)]
struct State {
    set: Option<(usize, Fault)>,
    dead: bool,
}

impl Fuse {
    /// Lets `steps` steps pass, and the next one go wrong.
    pub(super) fn set(&self, steps: usize, fault: Fault) {
        self.0.lock().unwrap().set = Some((steps, fault));
    }

    /// Whether it has not burnt; it is taken out either way.
    pub(super) fn take_out(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap()).set.is_some()
    }

    fn burn(&self) -> Option<Fault> {
        let mut state = self.0.lock().unwrap();
        if state.dead {
            return Some(Fault::KillBefore);
        }
        match &mut state.set {
            Some((0, fault)) => {
                let fault = *fault;
                state.set = None;
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

    /// A step of the store.
    pub(super) async fn stored<T: Send>(&self, step: impl FnOnce() -> T + Send) -> Result<T, StoreError> {
        let down = || Err(StoreError::Unavailable("injected".into()));
        match self.burn() {
            None => Ok(step()),
            Some(Fault::ErrorBefore) => down(),
            Some(Fault::ErrorAfter) => {
                step();
                down()
            }
            Some(Fault::KillBefore) => pending().await,
            Some(Fault::KillAfter) => {
                step();
                pending().await
            }
        }
    }

    /// A step of the platform, which answers whatever becomes of it.
    pub(super) async fn called<T: Send>(&self, step: impl FnOnce() -> T + Send) -> T {
        match self.burn() {
            None | Some(Fault::ErrorBefore | Fault::ErrorAfter) => step(),
            Some(Fault::KillBefore) => pending().await,
            Some(Fault::KillAfter) => {
                step();
                pending().await
            }
        }
    }
}
