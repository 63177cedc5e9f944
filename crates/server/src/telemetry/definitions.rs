//! Every figure: its name, what kind it is, and what it says. The documentation and the alerts are held to this list by
//! tests.

use metrics::{describe_counter, describe_histogram};

/// What a figure does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many took how long.
    Histogram,
}

impl Kind {
    /// The word of the exposition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct MetricDefinition {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub kind: Kind,
    /// What it says.
    pub help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> MetricDefinition {
    let kind = Kind::Counter;
    MetricDefinition { name, kind, help }
}

const fn gauge(name: &'static str, help: &'static str) -> MetricDefinition {
    let kind = Kind::Gauge;
    MetricDefinition { name, kind, help }
}

const fn histogram(name: &'static str, help: &'static str) -> MetricDefinition {
    let kind = Kind::Histogram;
    MetricDefinition { name, kind, help }
}

/// All of them.
pub const METRIC_DEFINITIONS: &[MetricDefinition] = &[
    counter(
        "recado_http_requests_total",
        "Requests answered, by route, method and class of status",
    ),
    histogram(
        "recado_http_request_duration_seconds",
        "How long requests took until their answer began",
    ),
    gauge("recado_http_requests_in_flight", "Requests whose answer has not begun"),
    counter(
        "recado_rate_limit_decisions_total",
        "Requests to limited routes: allowed, refused, or let in uncounted",
    ),
    counter(
        "recado_gateway_calls_total",
        "Calls to the outside, by gateway and outcome",
    ),
    histogram(
        "recado_gateway_call_duration_seconds",
        "How long calls to the outside took",
    ),
    counter(
        "recado_messages_total",
        "Messages handed to the messaging platform, by kind and outcome",
    ),
    counter(
        "recado_worker_iterations_total",
        "Rounds of background work, by worker and outcome",
    ),
    gauge(
        "recado_worker_last_success_timestamp_seconds",
        "When a worker's last round went well",
    ),
    counter(
        "recado_whatsapp_unread_total",
        "Fields of callbacks, and messages by type, that nothing reads",
    ),
    counter(
        "recado_whatsapp_callbacks_unreadable_total",
        "Signed callbacks that were dropped because they are not callbacks of WhatsApp",
    ),
    counter(
        "recado_whatsapp_callbacks_set_aside_total",
        "Callbacks that could not be applied and are not tried any more",
    ),
    counter(
        "recado_swallowed_errors_total",
        "Errors that did not change an answer, by step",
    ),
    counter("recado_panics_total", "Panics, all of which were caught"),
    counter(
        "recado_trace_exports_total",
        "Batches of spans handed to the collector, by outcome",
    ),
    gauge("recado_build_info", "1; its labels say what is running"),
    gauge(
        "recado_database_up",
        "Whether the database told how its queues stand, within a second",
    ),
    gauge("recado_queue_depth", "How much waits, by queue, counted up to 10000"),
    gauge(
        "recado_queue_oldest_seconds",
        "How long the oldest waits, by queue; 0 where nothing does",
    ),
    gauge(
        "recado_gateway_events_in_memory",
        "Events of the payment gateway that the database could not take yet",
    ),
    counter(
        "recado_gateway_events_dropped_total",
        "Events of the payment gateway that memory had no room for",
    ),
    gauge("recado_notification_streams", "Open streams of notifications"),
    gauge(
        "recado_pool_connections_max",
        "Connections to the database that pools may have, by purpose and role",
    ),
    gauge(
        "recado_pool_connections_open",
        "Connections to the database that pools have",
    ),
    gauge("recado_pool_connections_idle", "Open connections that nobody uses"),
    gauge("recado_pool_waiting", "Whoever waits for a connection"),
    counter("recado_pool_timeouts_total", "Whoever waited for a connection in vain"),
    gauge("process_resident_memory_bytes", "Resident memory"),
    gauge("process_open_fds", "Open file descriptors"),
    gauge("process_max_fds", "File descriptors that may be open"),
    gauge("process_threads", "Threads"),
    counter(
        "process_cpu_seconds_total",
        "Time on processors, of the user and of the system",
    ),
    gauge("process_start_time_seconds", "When the process began"),
];

/// The figure of this name.
pub(super) fn definition(name: &str) -> Option<&'static MetricDefinition> {
    METRIC_DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// Tells the recorder what its figures say.
pub(super) fn describe() {
    for definition in METRIC_DEFINITIONS {
        match definition.kind {
            Kind::Counter => describe_counter!(definition.name, definition.help),
            Kind::Histogram => describe_histogram!(definition.name, definition.help),
            Kind::Gauge => metrics::describe_gauge!(definition.name, definition.help),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_of_the_field_and_each_is_there_once() {
        let names: BTreeSet<&str> = METRIC_DEFINITIONS.iter().map(|definition| definition.name).collect();
        assert_eq!(names.len(), METRIC_DEFINITIONS.len());
        for MetricDefinition { name, kind, help } in METRIC_DEFINITIONS {
            assert!(name.starts_with("recado_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_duration_seconds"), *kind == Kind::Histogram, "{name}");
            assert!(
                !help.is_empty() && !help.contains('\n') && !help.contains('\\'),
                "{name}"
            );
        }
    }
}
