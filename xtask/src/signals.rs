//! Ctrl-C and SIGTERM, as a flag that every wait of this tool looks at.
//!
//! Nothing is torn down inside the handler: whoever waits sees the flag, returns, and what it started is stopped by
//! its owner's `Drop`. That way a stop in the middle of any step cleans up exactly like the end of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::error::{Context, Result, fail};

static RECEIVED: AtomicUsize = AtomicUsize::new(0);
const SLICE: Duration = Duration::from_millis(50);

/// From now on a signal sets the flag instead of ending the process.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        RECEIVED.fetch_add(1, Ordering::SeqCst);
    })
    .context(|| "cannot catch Ctrl-C".to_owned())
}

pub(crate) fn received() -> bool {
    RECEIVED.load(Ordering::SeqCst) > 0
}

/// Ctrl-C twice: do not wait for anything polite any more.
pub(crate) fn impatient() -> bool {
    RECEIVED.load(Ordering::SeqCst) > 1
}

/// A short pause inside a waiting loop; a failure once a signal came.
pub(crate) fn pause() -> Result<()> {
    sleep(SLICE);
    if received() { fail("interrupted") } else { Ok(()) }
}
