//! Traces: with the feature `otel` the server exports spans to a collector, without secrets. Without the feature the
//! server warns.

use crate::harness::{Options, Server};

#[cfg(not(feature = "otel"))]
#[test]
fn server_without_otel_feature_warns() {
    let server = Server::start(Options::default().with("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"));
    let log = server.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains("\"WARN\"") && line.contains("without the cargo feature otel"));
    assert_eq!(warnings.count(), 1, "{log}");
    assert!(!Server::new().log().contains("OTEL"));
}

#[cfg(feature = "otel")]
mod otel {
    use std::collections::BTreeMap;

    use recado_simulators::receiver::{self, Receiver};
    use serde_json::Value;

    use super::{Options, Server};
    use crate::harness::runs::{wait_for_stat, without_statuses};
    use crate::harness::users::phone;
    use crate::harness::{eventually, text, until};

    /// An exported span. Attribute values are text.
    #[derive(Debug)]
    struct Span {
        name: String,
        trace: String,
        parent: String,
        kind: i64,
        attributes: BTreeMap<String, String>,
    }

    fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
        value[name].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn parse_span(json: &Value) -> Span {
        let attribute = |pair: &Value| {
            let value = pair["value"].as_object().unwrap().values().next().unwrap();
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (text(&pair["key"]), value)
        };
        assert!(
            array(json, "events").is_empty(),
            "log events are not span events: {json}"
        );
        Span {
            name: text(&json["name"]),
            trace: text(&json["traceId"]),
            parent: json["parentSpanId"].as_str().unwrap_or_default().to_owned(),
            kind: json["kind"].as_i64().unwrap(),
            attributes: array(json, "attributes").iter().map(attribute).collect(),
        }
    }

    fn bodies(collector: &Receiver) -> Vec<Value> {
        let batches = collector.deliveries_to("/otlp/v1/traces");
        batches
            .iter()
            .map(|batch| serde_json::from_slice(&batch.body).unwrap())
            .collect()
    }

    fn spans(collector: &Receiver) -> Vec<Span> {
        let mut spans = Vec::new();
        for body in bodies(collector) {
            for resource in array(&body, "resourceSpans") {
                for scope in array(resource, "scopeSpans") {
                    spans.extend(array(scope, "spans").iter().map(parse_span));
                }
            }
        }
        spans
    }

    fn collector() -> Receiver {
        Receiver::start(receiver::ReceiverOptions::default()).unwrap()
    }

    fn exporting_to(collector: &Receiver) -> Options {
        let options = without_statuses().with("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url("/otlp"));
        options.with("OTEL_BSP_SCHEDULE_DELAY", "100")
    }

    fn find_span(collector: &Receiver, what: &str, condition: impl Fn(&Span) -> bool) -> Span {
        eventually(what, || spans(collector).into_iter().find(&condition))
    }

    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn request_and_gateway_spans_join_their_parent_trace() {
        let collector = collector();
        let server = Server::start(exporting_to(&collector));
        let ana = server.owner();
        ana.profile();
        ana.contact("Bia", &phone(1));
        let campaign = ana.plain_campaign();
        ana.request("GET", &format!("/api/campaigns/{campaign}"))
            .header("traceparent", &format!("00-{TRACE_ID}-00f067aa0ba902b7-01"))
            .header("X-Request-Id", "my-request")
            .send()
            .ok();
        let request = find_span(&collector, "the request's span", |span| span.trace == TRACE_ID);
        assert_eq!((request.name.as_str(), request.kind), ("GET /api/campaigns/{id}", 2));
        assert_eq!(request.parent, "00f067aa0ba902b7");
        let attribute = |name: &str| request.attributes.get(name).map(String::as_str);
        assert_eq!(attribute("http.route"), Some("/api/campaigns/{id}"));
        assert_eq!(attribute("http.response.status_code"), Some("200"));
        assert_eq!(attribute("request_id"), Some("my-request"));
        ana.execute(&campaign).ok();
        wait_for_stat(&ana, &campaign, "sent", 1);
        let dispatch = find_span(&collector, "the dispatch span", |span| span.name == "campaign.dispatch");
        assert_eq!(dispatch.attributes.get("campaign"), Some(&campaign));
        // The connection of the number called WhatsApp, too, in a trace of its own.
        let call = find_span(&collector, "the call's span", |span| {
            span.name == "gateway" && span.trace == dispatch.trace
        });
        assert_eq!((call.kind, call.attributes["outcome"].as_str()), (3, "done"));
        assert_eq!(call.attributes["gateway"], "whatsapp");
        // A log line names its request and has no attributes of exported spans.
        let log = server.log();
        let line = log.lines().find(|line| line.contains("my-request")).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            line["span"],
            serde_json::json!({ "request_id": "my-request", "name": "request" })
        );
    }

    #[test]
    fn spans_hold_no_secrets_and_are_flushed_at_stop() {
        let collector = collector();
        let (server, _) = crate::secrets::start(exporting_to(&collector));
        let (markers, _) = crate::secrets::use_every_secret(&server);
        assert_eq!(server.stop(), Some(0));
        until("spans have arrived", || spans(&collector).len() > 20);
        let exported = bodies(&collector).iter().map(Value::to_string).collect::<String>();
        crate::secrets::assert_clean("a span", &exported, &markers);
    }

    #[test]
    fn unreachable_collector_does_not_affect_requests() {
        let options = Options::default().with("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
        let server = Server::start(options.with("OTEL_BSP_SCHEDULE_DELAY", "50"));
        let ana = server.owner();
        for _ in 0..20 {
            ana.get("/api/contacts").ok();
        }
        assert_eq!(server.stop(), Some(0));
    }
}
