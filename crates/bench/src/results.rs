//! Results of the benchmarks, and whether they meet their targets.

use std::fmt::Write as _;

/// Maximum interquartile range as a share of the median. A larger one allows no verdict.
const MAX_SPREAD: f64 = 0.15;

/// The direction in which a result improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

/// Whether a result meets its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetResult {
    Met,
    /// The run fails.
    Missed,
    /// The measurement allows no verdict, for this reason. The run does not fail.
    None(String),
    /// The result has no target.
    Unrated,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct BenchResult {
    /// `<bench>: <metric> at <load>`, with the unit in parentheses.
    pub(super) name: String,
    value: f64,
    decimals: usize,
    spread: Option<f64>,
    better: Better,
    target: Option<f64>,
    /// Other work on the machine does not change it: a number of statements, of instructions, of bytes.
    is_count: bool,
    inconclusive: Option<String>,
}

impl BenchResult {
    /// A result that is better if it is higher.
    pub(super) fn more(name: impl Into<String>, value: f64, unit: &str, decimals: usize) -> Self {
        let name = name.into();
        Self {
            name: match unit {
                "" => name,
                _ => format!("{name} ({})", unit.trim()),
            },
            value,
            decimals,
            spread: None,
            better: Better::More,
            target: None,
            is_count: false,
            inconclusive: None,
        }
    }

    /// A result that is better if it is lower.
    pub(super) fn less(name: impl Into<String>, value: f64, unit: &str, decimals: usize) -> Self {
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

    /// Sets the value beyond which the run fails.
    pub(super) fn target(self, target: f64) -> Self {
        Self {
            target: Some(target),
            ..self
        }
    }

    /// A noisy machine still allows a verdict.
    pub(super) fn count(self) -> Self {
        Self { is_count: true, ..self }
    }

    pub(super) fn inconclusive(self, reason: impl Into<String>) -> Self {
        Self {
            inconclusive: Some(reason.into()),
            ..self
        }
    }

    /// Takes the verdict away if the machine was noisy and that can change the result.
    pub(super) fn with_noise(self, reason: Option<&str>) -> Self {
        match reason {
            Some(reason) if !self.is_count && self.inconclusive.is_none() => self.inconclusive(reason),
            _ => self,
        }
    }

    pub(super) fn target_result(&self) -> TargetResult {
        let Some(target) = self.target else {
            return TargetResult::Unrated;
        };
        let spread = self.spread.unwrap_or_default() / self.value;
        if let Some(reason) = &self.inconclusive {
            TargetResult::None(reason.clone())
        } else if !self.value.is_finite() {
            TargetResult::None("not measured".to_owned())
        } else if spread > MAX_SPREAD {
            TargetResult::None(format!("the rounds differ by {:.0} %", spread * 100.0))
        } else if match self.better {
            Better::More => self.value >= target,
            Better::Less => self.value <= target,
        } {
            TargetResult::Met
        } else {
            TargetResult::Missed
        }
    }

    pub(super) fn cells(&self) -> [String; 4] {
        let amount = |value: f64| match value.is_nan() {
            true => String::new(),
            false => format!("{value:.*}", self.decimals),
        };
        let sign = match self.better {
            Better::More => "≥",
            Better::Less => "≤",
        };
        let mut value = amount(self.value);
        if let Some(spread) = self.spread {
            let _ = write!(value, " (IQR {spread:.*})", self.decimals);
        }
        [
            self.name.clone(),
            value,
            self.target
                .map_or_else(String::new, |target| format!("{sign} {}", amount(target))),
            match self.target_result() {
                TargetResult::Met => "yes".to_owned(),
                TargetResult::Missed => "no".to_owned(),
                TargetResult::None(reason) => format!("no verdict: {reason}"),
                TargetResult::Unrated => String::new(),
            },
        ]
    }
}

/// Formats a Markdown table.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let lines = [vec!["---".to_owned(); head.len()], head];
    let lines = lines.iter().rev().chain(rows);
    lines.map(|row| format!("| {} |\n", row.join(" | "))).collect()
}

/// Formats the results as a Markdown table.
pub(super) fn results_table(results: &[BenchResult]) -> String {
    let rows: Vec<_> = results.iter().map(|result| result.cells().to_vec()).collect();
    table(&["metric", "value", "target", "target met"], &rows)
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
        let speed = |value| BenchResult::more("x", value, "", 2).target(0.75).target_result();
        assert_eq!([0.74, 0.75].map(speed), [TargetResult::Missed, TargetResult::Met]);
        let memory = |value| BenchResult::less("x", value, " MiB", 0).target(24.0).target_result();
        assert_eq!([24.5, 24.0].map(memory), [TargetResult::Missed, TargetResult::Met]);
        assert_eq!(
            BenchResult::more("x", 1.0, "", 0).target_result(),
            TargetResult::Unrated
        );
    }

    #[test]
    fn target_result_needs_a_sound_measurement() {
        let none = |reason: &str| TargetResult::None(reason.to_owned());
        let result = |value| BenchResult::more("x", value, "", 2).target(1.0);
        // Both far from the target, in either direction.
        for value in [0.1, 10.0] {
            let target_result = result(value).spread(value * 0.16).target_result();
            assert_eq!(target_result, none("the rounds differ by 16 %"));
            assert_eq!(result(value).with_noise(Some("noise")).target_result(), none("noise"));
            assert_eq!(
                result(value)
                    .inconclusive("first")
                    .with_noise(Some("noise"))
                    .target_result(),
                none("first")
            );
        }
        assert_eq!(result(f64::NAN).target_result(), none("not measured"));
        assert_eq!(
            result(0.1).spread(0.015).with_noise(None).target_result(),
            TargetResult::Missed
        );
        assert_eq!(
            result(0.1).count().with_noise(Some("noise")).target_result(),
            TargetResult::Missed
        );
        assert_eq!(
            BenchResult::more("x", 1.0, "", 2)
                .with_noise(Some("noise"))
                .target_result(),
            TargetResult::Unrated
        );
    }

    #[test]
    fn results_table_has_one_column_for_the_target() {
        let results = [
            BenchResult::more("read: speed", 0.6, "", 2).spread(0.01).target(0.5),
            BenchResult::less("idle: memory", 40.46, " MiB", 1).target(24.0),
            BenchResult::less("audit: p50", 1.5, " ms", 1)
                .target(1.0)
                .inconclusive("noisy machine"),
            BenchResult::more("read: throughput", 21_703.4, "/s", 0),
        ];
        assert_eq!(
            results_table(&results),
            "\
| metric | value | target | target met |
| --- | --- | --- | --- |
| read: speed | 0.60 (IQR 0.01) | ≥ 0.50 | yes |
| idle: memory (MiB) | 40.5 | ≤ 24.0 | no |
| audit: p50 (ms) | 1.5 | ≤ 1.0 | no verdict: noisy machine |
| read: throughput (/s) | 21703 |  |  |
"
        );
    }
}
