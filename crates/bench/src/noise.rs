//! How much processor time other work on the machine takes: too much of it allows no verdict about a speed.

use std::fs;
use std::hint::black_box;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

/// The largest share of lost processor time that allows a verdict.
const MAX_LOST: f64 = 0.10;

/// A calibration repeats a short fixed task on every processor.
const REPETITIONS: u32 = 1000;
const STEPS: u64 = 100_000;

/// Work of an earlier bench may still end, such as an autovacuum: calibrate again after a pause.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(3);

/// Share of the processors' time that other work takes now. The shortest repetition ran undisturbed, so the mean in
/// excess of it is lost time.
fn lost_now() -> f64 {
    let processors = available_parallelism().map_or(2, std::num::NonZero::get);
    let shares = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(repeat_work)).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect::<Vec<_>>()
    });
    shares.into_iter().map(|times| lost(&times)).fold(0.0, f64::max)
}

fn repeat_work() -> Vec<Duration> {
    let repetition = |_| {
        let began = Instant::now();
        black_box((0..STEPS).fold(0_u64, |sum, step| black_box(sum ^ step).wrapping_mul(0x9E37_79B9)));
        began.elapsed()
    };
    (0..REPETITIONS).map(repetition).collect()
}

fn lost(times: &[Duration]) -> f64 {
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX);
    let shortest = times.iter().min().copied().unwrap_or_default() * count;
    1.0 - shortest.as_secs_f64() / times.iter().sum::<Duration>().as_secs_f64()
}

/// The state of the machine before and after a bench.
pub(super) struct Noise {
    lost: f64,
    ticks: Ticks,
}

impl Noise {
    /// Calibrates, and again while other work takes too much.
    pub(super) fn now() -> Self {
        let mut lost = lost_now();
        for _ in 1..TRIES {
            if lost > MAX_LOST {
                sleep(PAUSE);
                lost = lost_now();
            }
        }
        Self {
            lost,
            ticks: Ticks::now(),
        }
    }

    /// Why the time between two states allows no verdict about a speed. None: the machine was quiet.
    pub(super) fn reason(before: &Self, after: &Self) -> Option<String> {
        let lost = before.lost.max(after.lost);
        let stolen = after.ticks.stolen_since(&before.ticks);
        if lost > MAX_LOST {
            Some(format!(
                "noisy machine: other work takes {:.0} % of a processor",
                lost * 100.0
            ))
        } else if stolen > MAX_LOST {
            Some(format!("noisy machine: {:.0} % of the time was stolen", stolen * 100.0))
        } else {
            None
        }
    }

    /// Percentage of the time that other virtual machines on the same hardware took (steal time).
    pub(super) fn stolen_percent(before: &Self, after: &Self) -> f64 {
        after.ticks.stolen_since(&before.ticks) * 100.0
    }
}

/// Processor time of the machine in ticks since its start.
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn read(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; the later columns are included in these.
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .take(8)
            .map(|word| word.parse().unwrap_or_default())
            .collect();
        Self {
            all: ticks.iter().sum(),
            stolen: ticks.get(7).copied().unwrap_or_default(),
        }
    }

    fn stolen_since(&self, before: &Self) -> f64 {
        let share = |part: u64| u32::try_from(part).map_or(0.0, f64::from);
        share(self.stolen.saturating_sub(before.stolen)) / share(self.all.saturating_sub(before.all)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(lost: f64, text: &str) -> Noise {
        Noise {
            lost,
            ticks: Ticks::read(text),
        }
    }

    #[test]
    fn noise_is_lost_or_stolen_time() {
        let before = noise(0.02, "cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1 2 3\n");
        let after = noise(0.10, "cpu  60 0 20 100 0 0 0 20 5 0\n");
        assert_eq!(Noise::stolen_percent(&before, &after), 20.0);
        let stolen = Noise::reason(&before, &after);
        assert_eq!(stolen.as_deref(), Some("noisy machine: 20 % of the time was stolen"));
        let same = |lost| noise(lost, "cpu  10 0 10 80 0 0 0 0 0 0\n");
        assert_eq!(Noise::reason(&same(0.02), &same(0.10)), None);
        for (first, second) in [(0.3, 0.0), (0.0, 0.3)] {
            let busy = Noise::reason(&same(first), &same(second));
            assert_eq!(
                busy.as_deref(),
                Some("noisy machine: other work takes 30 % of a processor")
            );
        }
        assert_eq!(Ticks::read("").stolen_since(&before.ticks), 0.0);
    }

    #[test]
    fn lost_time_is_the_mean_above_the_shortest() {
        let times = [1, 1, 1, 5].map(Duration::from_millis);
        assert!((lost(&times) - 0.5).abs() < 1e-9);
        assert_eq!(repeat_work().len(), 1000);
    }
}
