//! Polls for asynchronous results with a deadline.

use std::time::{Duration, Instant};

/// Upper bound of every wait and request.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Polls until `look` returns a value. Panics with `what` after `DEADLINE`.
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

/// The shortest of several measured times. A busy machine lengthens some of them; a wait in the server lengthens all.
pub fn shortest(times: impl IntoIterator<Item = Duration>) -> Duration {
    times.into_iter().min().unwrap()
}

/// Polls until the condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
