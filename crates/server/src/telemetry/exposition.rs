//! Writes the text format of Prometheus, for metrics that are read on a scrape.

use std::fmt::Write as _;

use super::definitions::definition;

/// Builds the text. All values of one metric MUST be added in succession.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
    last: &'static str,
}

impl Exposition {
    /// Adds one value. A name that is missing in `METRIC_DEFINITIONS` is skipped.
    pub(super) fn put(&mut self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        let Some(definition) = definition(name) else { return };
        // Writing to a string cannot fail.
        if self.last != name {
            self.last = name;
            writeln!(
                self.text,
                "# HELP {name} {}\n# TYPE {name} {}",
                definition.help,
                definition.kind.as_str()
            )
            .ok();
        }
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            write!(self.text, "{separator}{label}=\"{}\"", escaped(text)).ok();
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        writeln!(self.text, " {value}").ok();
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposition_describes_each_name_once_and_escapes_values() {
        let mut exposition = Exposition::default();
        exposition.put("recado_queue_depth", &[("queue", "a\"\\\n")], 2.0);
        exposition.put("recado_queue_depth", &[("queue", "b"), ("x", "y")], 0.5);
        exposition.put("recado_database_up", &[], 1.0);
        exposition.put("recado_unknown", &[], 1.0);
        assert_eq!(
            exposition.into_text(),
            "# HELP recado_queue_depth Waiting entries by queue, counted up to 10000\n\
             # TYPE recado_queue_depth gauge\n\
             recado_queue_depth{queue=\"a\\\"\\\\\\n\"} 2\n\
             recado_queue_depth{queue=\"b\",x=\"y\"} 0.5\n\
             # HELP recado_database_up 1 if the last read of the queues from the database succeeded, else 0\n\
             # TYPE recado_database_up gauge\n\
             recado_database_up 1\n"
        );
    }
}
