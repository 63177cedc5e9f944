//! Waiting for what happens in its own time, with a deadline instead of a sleep.

use std::time::{Duration, Instant};

/// How long anything may take.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until there is something.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
