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

/// The shortest of several times. A busy machine makes some of them longer; a wait that is always there makes all of them
/// longer.
pub fn shortest(times: impl IntoIterator<Item = Duration>) -> Duration {
    times.into_iter().min().unwrap()
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
