//! All metrics: name, type and help text. Tests compare the documentation and the alert rules with this list.

use metrics::{describe_counter, describe_histogram};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution of durations.
    Histogram,
}

impl Kind {
    /// The name of the type in the exposition format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct MetricDefinition {
    pub name: &'static str,
    pub kind: Kind,
    /// The help text of the exposition.
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

pub const METRIC_DEFINITIONS: &[MetricDefinition] = &[
    counter(
        "recado_http_requests_total",
        "HTTP requests with a response, by route, method and status class",
    ),
    histogram(
        "recado_http_request_duration_seconds",
        "Time from the start of an HTTP request to the start of its response, in seconds",
    ),
    gauge(
        "recado_http_requests_in_flight",
        "HTTP requests whose response has not begun",
    ),
    counter(
        "recado_rate_limit_decisions_total",
        "Requests to rate-limited routes, by decision: allowed, refused or failed_open",
    ),
    counter(
        "recado_refusals_total",
        "Requests whose caller was refused, by reason: failed authentication, missing role, foreign origin, callback",
    ),
    counter(
        "recado_gateway_calls_total",
        "Calls to other systems, by gateway and outcome",
    ),
    histogram(
        "recado_gateway_call_duration_seconds",
        "Duration of calls to other systems, in seconds",
    ),
    counter(
        "recado_messages_total",
        "Messages sent to WhatsApp, by kind and outcome",
    ),
    counter(
        "recado_worker_iterations_total",
        "Iterations of background workers, by worker and outcome",
    ),
    gauge(
        "recado_worker_last_success_timestamp_seconds",
        "Unix time of a worker's last successful iteration",
    ),
    counter(
        "recado_identity_conflicts_total",
        "Contacts that turned out to be the same person as another contact and were not joined, and contact cards whose \
         number another contact has",
    ),
    counter(
        "recado_whatsapp_unread_total",
        "Fields of WhatsApp callbacks, and messages by type, that Recado does not read",
    ),
    counter(
        "recado_whatsapp_callbacks_unreadable_total",
        "Signed requests that were dropped because they are not valid WhatsApp callbacks",
    ),
    counter(
        "recado_whatsapp_callbacks_set_aside_total",
        "WhatsApp callbacks that could not be applied and are no longer retried",
    ),
    counter(
        "recado_whatsapp_unclaimed_total",
        "Held inbound events that were dropped because no profile of their number was verified in time",
    ),
    counter(
        "recado_swallowed_errors_total",
        "Errors that did not change a response, by step",
    ),
    counter("recado_panics_total", "Panics that were caught"),
    counter(
        "recado_trace_exports_total",
        "Batches of spans sent to the trace collector, by outcome",
    ),
    gauge("recado_build_info", "Always 1; the labels describe the running program"),
    gauge(
        "recado_database_up",
        "1 if the last read of the queues from the database succeeded, else 0",
    ),
    gauge("recado_queue_depth", "Waiting entries by queue, counted up to 10000"),
    gauge(
        "recado_queue_oldest_seconds",
        "Age of the oldest waiting entry by queue, in seconds; 0 if none waits",
    ),
    gauge(
        "recado_partitions_ahead",
        "Future months or days for which a partitioned table has a partition, by table",
    ),
    gauge(
        "recado_oldest_snapshot_seconds",
        "Duration of the oldest transaction that keeps old row versions, by holder; 0 if there is none",
    ),
    gauge(
        "recado_oldest_snapshot_transactions",
        "Transactions since the oldest snapshot that keeps old row versions, by holder; 0 if there is none",
    ),
    gauge(
        "recado_profiles",
        "WhatsApp numbers by the state of their verification: pending, verified or failed",
    ),
    gauge(
        "recado_messages_waiting",
        "Pending messages of POST /api/messages by phase, counted up to 10000: scheduled, waiting, held, leaving or unknown",
    ),
    gauge(
        "recado_media_pending",
        "Files of messages that are not fetched from WhatsApp yet, counted up to 10000",
    ),
    gauge(
        "recado_sealed_values",
        "Encrypted values in the database by key: current (APP_SECRET) or previous (any other)",
    ),
    gauge(
        "recado_gateway_events_in_memory",
        "Payment gateway events that wait in memory because the database could not store them",
    ),
    counter(
        "recado_gateway_events_dropped_total",
        "Payment gateway events that were dropped because the buffer in memory was full",
    ),
    gauge("recado_notification_streams", "Open notification streams"),
    gauge(
        "recado_tls",
        "1 if connections to a configured system are always encrypted, else 0, by target",
    ),
    gauge(
        "recado_pool_connections_max",
        "Maximum number of database connections, by pool and role",
    ),
    gauge(
        "recado_pool_connections_open",
        "Open database connections, by pool and role",
    ),
    gauge(
        "recado_pool_connections_idle",
        "Open database connections that are idle, by pool and role",
    ),
    gauge(
        "recado_pool_waiting",
        "Callers that wait for a database connection, by pool and role",
    ),
    counter(
        "recado_pool_timeouts_total",
        "Requests for a database connection that timed out, by pool and role",
    ),
    gauge("process_resident_memory_bytes", "Resident memory in bytes"),
    gauge("process_open_fds", "Open file descriptors"),
    gauge("process_max_fds", "Maximum number of open file descriptors"),
    gauge("process_threads", "Threads of the process"),
    counter("process_cpu_seconds_total", "User and system CPU time in seconds"),
    gauge("process_start_time_seconds", "Unix time of the start of the process"),
];

pub(super) fn definition(name: &str) -> Option<&'static MetricDefinition> {
    METRIC_DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// Registers the help texts with the recorder.
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
    fn metric_names_are_unique_and_have_their_type_suffix() {
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
