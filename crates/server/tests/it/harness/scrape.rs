//! Scrapes of a process's Prometheus metrics.

use std::collections::{BTreeMap, BTreeSet};

use super::client::Request;
use super::eventually;

/// One scrape: the value of each series by its name and labels, as written.
#[derive(Debug)]
pub struct Scrape {
    values: BTreeMap<String, f64>,
    pub text: String,
}

/// Scrapes the metrics listener at this port, once it accepts connections.
pub fn scrape(port: u16) -> Scrape {
    let reply = eventually("the metrics are served", || {
        Request::new(port, "GET", "/metrics").try_send().ok()
    });
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    Scrape::read(reply.text)
}

impl Scrape {
    fn read(text: String) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let values = lines.map(|line| {
            let (series, value) = line
                .rsplit_once(' ')
                .unwrap_or_else(|| panic!("not a metric line: {line}"));
            let value = value.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
            (series.to_owned(), value)
        });
        Self {
            values: values.collect(),
            text: text.clone(),
        }
    }

    /// The sum of all series with this name and all of these labels.
    pub fn sum(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let matches = |series: &&String| {
            let (metric, rest) = series.split_once('{').unwrap_or((series, ""));
            metric == name && labels.iter().all(|label| rest.contains(label))
        };
        let found: Vec<f64> = self.values.keys().filter(matches).map(|key| self.values[key]).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    pub fn series(&self) -> BTreeSet<&str> {
        self.values.keys().map(String::as_str).collect()
    }

    /// All values of a label.
    pub fn labels(&self, label: &str) -> BTreeSet<&str> {
        let start = format!("{label}=\"");
        let value_range = |series: &'_ String| {
            let (_, rest) = series.split_once(&start)?;
            let length = rest.find('"')?;
            Some((series.len() - rest.len(), length))
        };
        let found = self.values.keys().filter_map(|series| {
            let (from, length) = value_range(series)?;
            series.get(from..from + length)
        });
        found.collect()
    }

    /// The type of each metric by name, from the `# TYPE` lines.
    pub fn names(&self) -> BTreeMap<&str, &str> {
        let types = self.text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(|line| line.split_once(' ').unwrap()).collect()
    }
}
