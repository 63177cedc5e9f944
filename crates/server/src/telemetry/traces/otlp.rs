//! Exports spans to the collector: batches in OTLP JSON, sent by the HTTP client of the gateways.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use metrics::{Counter, counter};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use recado_domain::shared::TRACED;
use recado_gateways::http::{GatewayRequest, Http};
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// The timeout of one batch.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of the last batch, when the process stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

const SERVICE: &str = "recado";

/// The trace exporter. None: no endpoint is configured.
#[derive(Debug)]
pub struct OtlpTraces(Option<SdkTracerProvider>);

impl OtlpTraces {
    /// Whether this program can send spans to a collector.
    pub const BUILT_IN: bool = true;

    /// Starts the exporter. It sends its calls on the current runtime.
    pub fn start(endpoint: Option<&str>) -> anyhow::Result<Self> {
        let Some(endpoint) = endpoint else {
            return Ok(Self(None));
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new()?)
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(TIMEOUT)
            .build()
            .context("configuration: OTEL_EXPORTER_OTLP_ENDPOINT is not a valid URL of a collector")?;
        let resource = Resource::builder().with_service_name(service_name()).build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        Ok(Self(Some(provider)))
    }

    /// The layer that exports spans. It exports no events: they belong to the log only.
    pub(crate) fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = self.0.as_ref()?.tracer(SERVICE);
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_level(false)
            .with_target(false);
        let traced = filter_fn(|metadata| metadata.is_span() && metadata.target() == TRACED);
        Some(layer.with_filter(traced.with_max_level_hint(LevelFilter::DEBUG)))
    }

    /// Sends the remaining spans. Blocks the thread; the runtime MUST keep running meanwhile.
    pub fn end(self) {
        if let Some(provider) = self.0
            && let Err(error) = provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT)
        {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// The value of `OTEL_SERVICE_NAME`, or `SERVICE`.
fn service_name() -> String {
    let name = std::env::var("OTEL_SERVICE_NAME").ok();
    name.filter(|name| !name.trim().is_empty())
        .unwrap_or_else(|| SERVICE.to_owned())
}

/// The HTTP client of the exporter. The exporter's thread has no runtime, so calls run on the server's. They are
/// neither traced nor counted as gateway calls.
#[derive(Debug)]
struct Client {
    http: Http,
    runtime: Handle,
    delivered: Counter,
    failed: Counter,
}

impl Client {
    fn new() -> anyhow::Result<Self> {
        let count = |outcome: &'static str| counter!("recado_trace_exports_total", "outcome" => outcome);
        Ok(Self {
            http: Http::new().map_err(anyhow::Error::msg)?,
            runtime: Handle::current(),
            delivered: count("delivered"),
            failed: count("failed"),
        })
    }

    async fn post(&self, message: opentelemetry_http::Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = message.into_parts();
        let length = u64::try_from(body.len())?;
        let mut request = GatewayRequest::post_stream(head.uri.to_string(), length, stream::iter([Ok(body)]).boxed());
        for (name, value) in head.headers {
            if let Some(name) = name {
                request = request.header(name, value);
            }
        }
        let http = self.http.clone();
        let call = async move { http.call(request.timeout(TIMEOUT)).await };
        let gateway_response = self.runtime.spawn(call).await??;
        let mut response = Response::new(gateway_response.body);
        *response.status_mut() = gateway_response.status.try_into()?;
        *response.headers_mut() = gateway_response.headers;
        Ok(response)
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: opentelemetry_http::Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let result = self.post(request).await;
        match &result {
            Ok(response) if response.status().is_success() => self.delivered.increment(1),
            Ok(_) | Err(_) => self.failed.increment(1),
        }
        result
    }
}
