//! The listener of `METRICS_BIND`: `/metrics` and `/healthz`. It is unauthenticated, so bind it to an address that only
//! the operator can reach.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use recado_postgres::PoolConfig;

use super::gauges::{ProcessStatsSource, Queues, render_gauges};
use super::sealed_values::SealedValues;

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The interval at which the recorder moves histogram samples into buckets. Until then they occupy memory.
const UPKEEP: Duration = Duration::from_secs(5);

struct Metrics {
    recorder: PrometheusHandle,
    source: Arc<dyn ProcessStatsSource>,
    queues: Queues,
    sealed: Arc<SealedValues>,
}

/// A running listener.
pub struct MetricsListener {
    server: ServerHandle,
    upkeep: tokio::task::JoinHandle<()>,
    counting: tokio::task::JoinHandle<()>,
}

impl MetricsListener {
    pub(super) fn start(
        bind: SocketAddr,
        recorder: PrometheusHandle,
        source: Arc<dyn ProcessStatsSource>,
    ) -> anyhow::Result<Self> {
        let upkeep_recorder = recorder.clone();
        let upkeep = tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                upkeep_recorder.run_upkeep();
            }
        });
        let sealed = Arc::new(SealedValues::default());
        let counting = count_sealed_values(sealed.clone(), source.as_ref());
        let server = HttpServer::new(move || {
            let (url, tls, pool_registry) = source.database();
            let metrics = Queues::new(url, tls, &pool_registry).map(|queues| Metrics {
                recorder: recorder.clone(),
                source: source.clone(),
                queues,
                sealed: sealed.clone(),
            });
            App::new().configure(move |config| match metrics {
                Ok(metrics) => {
                    config.app_data(Data::new(metrics));
                    config.route("/metrics", web::get().to(render_metrics));
                    config.route("/healthz", web::get().to(HttpResponse::Ok));
                }
                Err(error) => tracing::error!(
                    cause = format!("{error:#}"),
                    "the metrics listener cannot serve metrics"
                ),
            })
        });
        let server = server
            .workers(1)
            .disable_signals()
            .bind(bind)
            .with_context(|| format!("configuration: METRICS_BIND: cannot listen on {bind}"))?;
        // Differs from `bind` for port 0.
        let address = server.addrs().first().copied().unwrap_or(bind);
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        tracing::info!(bind = %address, "serving metrics");
        Ok(Self {
            server: handle,
            upkeep,
            counting,
        })
    }

    /// Stops the listener. It stops last, so that operators can watch a process until its end.
    pub async fn stop(self) {
        self.upkeep.abort();
        self.counting.abort();
        self.server.stop(false).await;
    }
}

fn count_sealed_values(sealed: Arc<SealedValues>, source: &dyn ProcessStatsSource) -> tokio::task::JoinHandle<()> {
    let ((url, tls, pool_registry), marker) = (source.database(), source.sealing_marker());
    let config = PoolConfig::new(url, 1).tls(tls).counted(&pool_registry, "metrics");
    tokio::spawn(async move { sealed.count_forever(config, &marker).await })
}

async fn render_metrics(metrics: Data<Metrics>) -> HttpResponse {
    let mut text = metrics.recorder.render();
    text.push_str(&render_gauges(metrics.source.as_ref(), &metrics.queues, &metrics.sealed).await);
    HttpResponse::Ok().insert_header((CONTENT_TYPE, FORMAT)).body(text)
}
