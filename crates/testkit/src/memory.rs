//! Resident memory of a process, as Linux counts it.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

const SAMPLES_EVERY: Duration = Duration::from_millis(50);

/// Resident memory in MiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    pub now: f64,
    pub peak: f64,
}

/// Reads the resident memory and its peak since the start of the process.
pub fn of(process: u32) -> Result<Memory> {
    let path = format!("/proc/{process}/status");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {path} (memory is measured on Linux)"))?;
    match (field(&text, "VmRSS:"), field(&text, "VmHWM:")) {
        (Some(now), Some(peak)) => Ok(Memory { now, peak }),
        _ => bail!("{path} has no VmRSS or VmHWM"),
    }
}

/// Runs `work` and returns its result and the peak memory of the process.
pub fn peak_during<T>(process: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0.0_f64;
            while !done.load(Ordering::Relaxed) {
                peak = of(process).map_or(peak, |memory| peak.max(memory.now));
                thread::sleep(SAMPLES_EVERY);
            }
            peak
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let sampled = sampler.join().map_err(|_| anyhow!("the sampler panicked"))?;
        // The kernel's high-water mark includes peaks between two samples.
        Ok((result?, of(process)?.peak.max(sampled)))
    })
}

/// Parses a line such as `VmRSS:     18344 kB` and converts it to MiB.
fn field(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u32 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(f64::from(kib) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fields_are_parsed_in_mib() {
        let text = "Name:\trecado\nVmHWM:\t   20480 kB\nVmRSS:\t   18432 kB\n";
        assert_eq!((field(text, "VmRSS:"), field(text, "VmHWM:")), (Some(18.0), Some(20.0)));
        assert_eq!(field(text, "VmSwap:"), None);
    }
}
