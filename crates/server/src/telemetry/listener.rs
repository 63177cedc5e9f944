//! The listener of `METRICS_BIND`: figures, and whether the process lives. Nobody's identity is asked for, so it belongs
//! on an address that only the operator reaches.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;

use super::gauges::{ProcessStatsSource, Queues, exposed};

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How often what was counted is put in order; until then it lies in memory.
const UPKEEP: Duration = Duration::from_secs(5);

struct Figures {
    counted: PrometheusHandle,
    source: Arc<dyn ProcessStatsSource>,
    queues: Queues,
}

/// A running listener.
pub struct MetricsListener {
    server: ServerHandle,
    upkeep: tokio::task::JoinHandle<()>,
}

impl MetricsListener {
    pub(super) fn start(
        bind: SocketAddr,
        counted: PrometheusHandle,
        source: Arc<dyn ProcessStatsSource>,
    ) -> anyhow::Result<Self> {
        let kept = counted.clone();
        let upkeep = tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                kept.run_upkeep();
            }
        });
        let server = HttpServer::new(move || {
            let (url, pool_registry) = source.database();
            let figures = Queues::new(url, &pool_registry).map(|queues| Figures {
                counted: counted.clone(),
                source: source.clone(),
                queues,
            });
            App::new().configure(move |config| match figures {
                Ok(figures) => {
                    config.app_data(Data::new(figures));
                    config.route("/metrics", web::get().to(metrics));
                    config.route("/healthz", web::get().to(HttpResponse::Ok));
                }
                Err(error) => tracing::error!(cause = format!("{error:#}"), "there are no figures"),
            })
        });
        let server = server
            .workers(1)
            .disable_signals()
            .bind(bind)
            .with_context(|| format!("configuration: METRICS_BIND: {bind} cannot be used"))?
            .run();
        let handle = server.handle();
        tokio::spawn(server);
        tracing::info!(%bind, "figures are served");
        Ok(Self { server: handle, upkeep })
    }

    /// The last of a process to go.
    pub async fn stop(self) {
        self.upkeep.abort();
        self.server.stop(false).await;
    }
}

async fn metrics(figures: Data<Figures>) -> HttpResponse {
    let mut text = figures.counted.render();
    text.push_str(&exposed(figures.source.as_ref(), &figures.queues).await);
    HttpResponse::Ok().insert_header((CONTENT_TYPE, FORMAT)).body(text)
}
