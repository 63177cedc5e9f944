//! Polls for asynchronous results with a deadline.

use std::time::{Duration, Instant};

pub use recado_testkit::DEADLINE;

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

/// Asserts that the shortest of these times is below a second: the documents promise it for API keys and roles, and mails
/// and streams are woken and do not wait for the next poll. On a busy machine the others may take longer.
#[track_caller]
pub fn assert_within_a_second(times: &[Duration]) {
    assert!(shortest(times.iter().copied()) < Duration::from_secs(1), "{times:?}");
}

/// The shortest of several measured times. A busy machine lengthens some of them; a wait in the server lengthens all.
pub fn shortest(times: impl IntoIterator<Item = Duration>) -> Duration {
    times.into_iter().min().unwrap()
}

/// Polls until the condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}
