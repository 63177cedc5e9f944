//! Ctrl-C and SIGTERM set a flag that every wait of this tool checks.
//!
//! The handler stops nothing itself. A waiting function sees the flag and returns, and `Drop` stops what it started. So
//! an interrupted step cleans up exactly like a completed one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

static RECEIVED: AtomicUsize = AtomicUsize::new(0);
const SLICE: Duration = Duration::from_millis(50);

/// Installs the handler: a signal then sets the flag instead of ending the process.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        RECEIVED.fetch_add(1, Ordering::SeqCst);
    })
    .context("cannot catch Ctrl-C")
}

pub fn received() -> bool {
    RECEIVED.load(Ordering::SeqCst) > 0
}

/// Whether Ctrl-C was pressed twice: kill children without waiting for a clean end.
pub fn received_twice() -> bool {
    RECEIVED.load(Ordering::SeqCst) > 1
}

/// A short pause in a waiting loop. Fails after a signal.
pub fn pause() -> Result<()> {
    sleep(SLICE);
    if received() { bail!("interrupted") } else { Ok(()) }
}
