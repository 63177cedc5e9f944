//! Results of the benchmarks, compared with a floor and a target.

use std::fmt::Write as _;
use std::fs;

/// Maximum interquartile range as a share of the median. A result with a larger one is inconclusive.
const MAX_SPREAD: f64 = 0.15;

/// The direction in which a result improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetResult {
    /// The target is reached.
    AtTarget,
    /// The floor is reached, the target is not.
    Enough,
    /// The floor is not reached: the run fails.
    Below,
    /// The measurements differ too much.
    Inconclusive,
    /// The result has neither floor nor target.
    Unrated,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct BenchResult {
    pub(super) name: String,
    value: f64,
    unit: &'static str,
    decimals: usize,
    spread: Option<f64>,
    better: Better,
    floor: Option<f64>,
    target: Option<f64>,
}

impl BenchResult {
    /// A result that is better if it is higher.
    pub(super) fn more(name: impl Into<String>, value: f64, unit: &'static str, decimals: usize) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            decimals,
            spread: None,
            better: Better::More,
            floor: None,
            target: None,
        }
    }

    /// A result that is better if it is lower.
    pub(super) fn less(name: impl Into<String>, value: f64, unit: &'static str, decimals: usize) -> Self {
        Self {
            better: Better::Less,
            ..Self::more(name, value, unit, decimals)
        }
    }

    pub(super) fn spread(self, spread: f64) -> Self {
        Self {
            spread: Some(spread),
            ..self
        }
    }

    /// Sets the bound beyond which the run fails.
    pub(super) fn floor(self, floor: f64) -> Self {
        Self {
            floor: Some(floor),
            ..self
        }
    }

    /// Sets the value to aim for.
    pub(super) fn target(self, target: f64) -> Self {
        Self {
            target: Some(target),
            ..self
        }
    }

    pub(super) fn target_result(&self) -> TargetResult {
        let within = |bound: f64, spread: f64| match self.better {
            Better::More => self.value + spread >= bound,
            Better::Less => self.value - spread <= bound,
        };
        let reaches = |bound| within(bound, 0.0);
        if let Some(spread) = self.spread.filter(|spread| *spread > MAX_SPREAD * self.value) {
            // A result that misses its floor by more than the spread is below it in any case.
            let may_reach = self.floor.is_none_or(|floor| within(floor, spread));
            return if may_reach {
                TargetResult::Inconclusive
            } else {
                TargetResult::Below
            };
        }
        match (self.floor.map(reaches), self.target.map(reaches)) {
            (Some(false), _) => TargetResult::Below,
            (_, Some(true)) => TargetResult::AtTarget,
            (None, None) => TargetResult::Unrated,
            _ => TargetResult::Enough,
        }
    }

    pub(super) fn cells(&self) -> [String; 5] {
        let amount = |value: f64| format!("{value:.*}{}", self.decimals, self.unit);
        let sign = match self.better {
            Better::More => "≥",
            Better::Less => "≤",
        };
        let bound = |bound: Option<f64>| bound.map_or_else(String::new, |bound| format!("{sign} {}", amount(bound)));
        let mut result = amount(self.value);
        if let Some(spread) = self.spread {
            let _ = write!(result, " (IQR {spread:.*})", self.decimals);
        }
        let target_result = match self.target_result() {
            TargetResult::AtTarget | TargetResult::Enough => "ok",
            TargetResult::Below => "below",
            TargetResult::Inconclusive => "inconclusive",
            TargetResult::Unrated => "",
        };
        [
            self.name.clone(),
            result,
            bound(self.floor),
            bound(self.target),
            target_result.to_owned(),
        ]
    }
}

/// Formats the results as a Markdown table.
pub(super) fn table(results: &[BenchResult]) -> String {
    let head = ["metric", "result", "floor", "target", "status"].map(str::to_owned);
    let mut rows = vec![head, ["---", "---", "---", "---", "---"].map(str::to_owned)];
    rows.extend(results.iter().map(BenchResult::cells));
    rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect()
}

/// Median and interquartile range.
pub(super) fn median_and_spread(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |position: usize| sorted.get(position).or(sorted.last()).copied().unwrap_or(f64::NAN);
    // Interpolate: a quartile may lie between two values.
    let quartile = |quarters: usize| {
        let steps = sorted.len().saturating_sub(1) * quarters;
        let rest = u8::try_from(steps % 4).unwrap_or_default();
        let (low, high) = (at(steps / 4), at(steps / 4 + 1));
        low + (high - low) * f64::from(rest) / 4.0
    };
    (quartile(2), quartile(3) - quartile(1))
}

/// Processor time of the machine in ticks since its start.
pub(super) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    pub(super) fn now() -> Self {
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

    /// Percentage of the time that other virtual machines on the same hardware took (steal time).
    pub(super) fn stolen_since(&self, before: &Self) -> u64 {
        let stolen = self.stolen.saturating_sub(before.stolen);
        (100 * stolen)
            .checked_div(self.all.saturating_sub(before.all))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        assert_eq!(median_and_spread(&[5.0, 1.0, 3.0, 2.0, 4.0]), (3.0, 2.0));
        assert_eq!(median_and_spread(&[1.0, 2.0]), (1.5, 0.5));
        assert_eq!(median_and_spread(&[7.0]), (7.0, 0.0));
        assert!(median_and_spread(&[]).0.is_nan());
    }

    #[test]
    fn target_result_follows_the_direction() {
        let speed = |value| {
            BenchResult::more("x", value, "", 2)
                .floor(0.5)
                .target(0.75)
                .target_result()
        };
        assert_eq!(
            [0.4, 0.5, 0.8].map(speed),
            [TargetResult::Below, TargetResult::Enough, TargetResult::AtTarget]
        );
        let memory = |value| {
            BenchResult::less("x", value, " MiB", 0)
                .floor(50.0)
                .target(24.0)
                .target_result()
        };
        assert_eq!(
            [51.0, 50.0, 24.0].map(memory),
            [TargetResult::Below, TargetResult::Enough, TargetResult::AtTarget]
        );
        assert_eq!(
            BenchResult::more("x", 1.0, "", 0).target_result(),
            TargetResult::Unrated
        );
        assert_eq!(
            BenchResult::more("x", 1.0, "", 0).target(2.0).target_result(),
            TargetResult::Enough
        );
        let wide = |value| {
            BenchResult::more("x", value, "", 2)
                .spread(0.1)
                .floor(0.5)
                .target_result()
        };
        assert_eq!(
            [0.39, 0.45, 0.55].map(wide),
            [
                TargetResult::Below,
                TargetResult::Inconclusive,
                TargetResult::Inconclusive
            ]
        );
    }

    #[test]
    fn results_table_is_markdown() {
        let result = BenchResult::more("speed", 0.6, "", 2).spread(0.01).floor(0.5);
        assert_eq!(
            table(&[result]),
            "| metric | result | floor | target | status |\n| --- | --- | --- | --- | --- |\n\
             | speed | 0.60 (IQR 0.01) | ≥ 0.50 |  | ok |\n"
        );
    }

    #[test]
    fn ticks_read_the_steal_column() {
        let before = Ticks::read("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1 2 3\n");
        let after = Ticks::read("cpu  60 0 20 100 0 0 0 20 5 0\n");
        assert_eq!(after.stolen_since(&before), 20);
        assert_eq!(Ticks::read("").stolen_since(&before), 0);
    }
}
