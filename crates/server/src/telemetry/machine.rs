//! Process metrics from `/proc`. Without `/proc` there are none.

use std::fs;

/// The clock ticks per second (`USER_HZ`) that Linux reports to processes, the same on every supported machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// The name and value of a metric.
pub(super) type Reading = (&'static str, f64);

/// Reads the process metrics. Values that cannot be read are left out.
pub(super) fn read() -> Vec<Reading> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
    let kilobytes = field(&status, "VmRSS:");
    let descriptors = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    // The open directory itself is one of them.
    let descriptors = descriptors.and_then(|count| u32::try_from(count.saturating_sub(1)).ok());
    [
        ("process_resident_memory_bytes", kilobytes.map(|size| size * 1024.0)),
        ("process_threads", field(&status, "Threads:")),
        ("process_open_fds", descriptors.map(f64::from)),
        ("process_max_fds", field(&limits, "Max open files")),
        ("process_cpu_seconds_total", cpu_seconds(&stat)),
        ("process_start_time_seconds", start_seconds(&stat, &machine)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

/// The first number of the line that begins with `name`.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns field `number` of `/proc/self/stat`, counted from 1. The program's name (field 2) may contain spaces and
/// parentheses, so fields are counted from the last parenthesis.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) / TICKS_PER_SECOND)
}

fn start_seconds(stat: &str, machine: &str) -> Option<f64> {
    Some(field(machine, "btime")? + stat_field(stat, 22)? / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "77 (a ) name) S 1 77 77 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 9 0 4200 1 2";

    #[test]
    fn stat_fields_are_counted_from_the_last_parenthesis() {
        assert_eq!(cpu_seconds(STAT), Some(2.0));
        assert_eq!(start_seconds(STAT, "cpu 1\nbtime 1000\n"), Some(1042.0));
        assert_eq!(cpu_seconds("77 (cut"), None);
    }

    #[test]
    fn process_metrics_of_this_process_are_read() {
        let readings = read();
        let value = |name: &str| {
            readings
                .iter()
                .find(|(reading, _)| *reading == name)
                .map(|(_, value)| *value)
        };
        assert!(value("process_resident_memory_bytes") > Some(100_000.0));
        assert!(value("process_open_fds") >= Some(3.0));
        assert!(value("process_start_time_seconds") > Some(1.0e9));
        assert_eq!(readings.len(), 6);
    }
}
