//! What a process tells Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::client::Request;
use super::eventually;

/// One scrape: the value of each series, by its name and labels as they are written.
#[derive(Debug)]
pub struct Figures {
    values: BTreeMap<String, f64>,
    pub text: String,
    /// How long it took.
    pub took: Duration,
}

/// Asks the listener at this port, once it is there.
pub fn scrape(port: u16) -> Figures {
    let (reply, took) = eventually("the figures are served", || {
        let began = Instant::now();
        let reply = Request::new(port, "GET", "/metrics").try_send().ok()?;
        Some((reply, began.elapsed()))
    });
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    Figures::read(reply.text, took)
}

impl Figures {
    fn read(text: String, took: Duration) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let values = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no figure: {line}"));
            let value = value.parse().unwrap_or_else(|_| panic!("no value: {line}"));
            (series.to_owned(), value)
        });
        Self {
            values: values.collect(),
            text: text.clone(),
            took,
        }
    }

    /// The sum of all series of this name whose labels hold all of these.
    pub fn sum(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let wanted = |series: &&String| {
            let (of, rest) = series.split_once('{').unwrap_or((series, ""));
            of == name && labels.iter().all(|label| rest.contains(label))
        };
        let found: Vec<f64> = self.values.keys().filter(wanted).map(|key| self.values[key]).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// Every series.
    pub fn series(&self) -> BTreeSet<&str> {
        self.values.keys().map(String::as_str).collect()
    }

    /// Every value of a label.
    pub fn labels(&self, label: &str) -> BTreeSet<&str> {
        let start = format!("{label}=\"");
        let of = |series: &'_ String| {
            let (_, rest) = series.split_once(&start)?;
            let length = rest.find('"')?;
            Some((series.len() - rest.len(), length))
        };
        let found = self.values.keys().filter_map(|series| {
            let (from, length) = of(series)?;
            series.get(from..from + length)
        });
        found.collect()
    }

    /// The names of all figures, as their types are told.
    pub fn names(&self) -> BTreeMap<&str, &str> {
        let types = self.text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(|line| line.split_once(' ').unwrap()).collect()
    }
}
