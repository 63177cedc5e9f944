//! The lifecycle of a server process: start, serve, drain, stop.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::middleware::from_fn;
use actix_web::web::{Data, to};
use actix_web::{App, HttpResponse, HttpServer};
use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, check_databases};
use crate::telemetry;
use crate::telemetry::traces::Traces;
use crate::wiring::{Services, Shared};
use crate::workers;
use recado_api::error::ApiError;
use recado_api::routes::OpenApiDocument;
use recado_api::streams::Streams;
use recado_api::web::cors::cors;
use recado_api::web::request::request_context;
use recado_api::worker_handles::RunSubmitter;
use recado_api::{app, reference};

use crate::{contact_search, logging, tenant_role};

/// How long a client may take to send a request head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection may be idle between requests.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How long a stopping server accepts requests while `/readyz` already fails, so that load balancers notice first.
const READINESS_DRAIN: Duration = Duration::from_millis(500);

/// How long requests, then workers, may take to finish when the server stops. Together they stay below the 30 s in
/// which a process promises to exit.
const DRAIN_REQUESTS: Duration = Duration::from_secs(20);
const DRAIN_WORKERS: Duration = Duration::from_secs(8);

/// Which parts of the server a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRole {
    /// Routes and workers.
    Everything,
    /// Routes only.
    Routes,
    /// Workers only.
    Workers,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(role: ProcessRole) -> anyhow::Result<()> {
    let config = Config::from_env()?;
    // Before the first client of another system.
    recado_gateways::tls::install(config.tls.authorities.clone());
    // Workers, and the connections to other systems of all HTTP threads (wiring/clients.rs).
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(threads.max(2))
        .build()?;
    // The recorder comes first: a metric handle that is created earlier records nothing.
    let recorder = telemetry::start(config.metrics_bind)?;
    let traces = runtime.block_on(async { Traces::start(config.otlp_endpoint.as_deref()) })?;
    let _log_guard = logging::start_with(config.log_format, &traces)?;
    if config.otlp_endpoint.is_some() && !Traces::BUILT_IN {
        tracing::warn!("OTEL_EXPORTER_OTLP_ENDPOINT is set, but this program was built without the cargo feature otel");
    }
    let result = runtime.block_on(run_until_stopped(config, role, recorder));
    traces.end();
    result
}

async fn run_until_stopped(
    config: Config,
    role: ProcessRole,
    recorder: Option<telemetry::Recorder>,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    // From here on a signal stops the process gracefully.
    let signals = StopSignals::register()?;
    let tasks = TaskTracker::new();
    config.tls.log_warnings();
    let urls: Vec<_> = [Some(&config.database_url), config.tenant_database_url.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    check_databases(&urls, &config.tls.database).await?;
    tenant_role::check(&config).await?;
    let run_submitter = RunSubmitter::new(role != ProcessRole::Routes, stop.clone());
    let shared = Shared::new(config, run_submitter, Streams::new(stop.clone()))?;
    let metrics = recorder
        .map(|recorder| recorder.serve(Arc::new(shared.clone())))
        .transpose()?;
    match role {
        ProcessRole::Everything | ProcessRole::Workers => workers::start(&shared, &stop, &tasks)?,
        ProcessRole::Routes => workers::start_without_workers(&shared, &stop, &tasks)?,
    }
    let result = if role == ProcessRole::Workers {
        tracing::info!("workers are running");
        signals.wait_and_stop(&stop).await;
        Ok(())
    } else {
        tasks.spawn(shared.streams.clone().publish(shared.notification_feed()?));
        let served = CancellationToken::new();
        workers::start_clicks(&shared, &served, &tasks)?;
        let result = serve(&shared, signals, &stop).await;
        // The workers end in order also after a failure, so that nothing that they hold is lost.
        stop.cancel();
        served.cancel();
        result
    };
    tasks.close();
    if tokio::time::timeout(DRAIN_WORKERS, tasks.wait()).await.is_err() {
        tracing::warn!("workers did not stop in time, leases will expire");
    }
    if let Some(metrics) = metrics {
        metrics.stop().await;
    }
    tracing::info!("stopped");
    result
}

async fn serve(shared: &Shared, signals: StopSignals, stop: &CancellationToken) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let bind = shared.config.bind;
    let document = Data::new(OpenApiDocument(reference::document().to_string().into()));
    // Reports a configuration error before the server binds its port.
    Services::new(shared, threads)?;
    contact_search::log_mode(&shared.stores(1, 1)?.owner).await;
    let process_shared = shared.clone();
    let failure: Arc<OnceLock<anyhow::Error>> = Arc::default();
    let (thread_failure, stop_all) = (failure.clone(), stop.clone());
    let server = HttpServer::new(move || {
        let services = Services::new(&process_shared, threads);
        let document = document.clone();
        let (failure, stop) = (thread_failure.clone(), stop_all.clone());
        App::new()
            .wrap(cors(&process_shared.config.cors_origins))
            .wrap(from_fn(request_context))
            .configure(move |config| match services {
                Ok(services) => {
                    services.register(config);
                    config.app_data(document).configure(app::configure);
                }
                Err(error) => {
                    let cause = format!("{error:#}");
                    tracing::error!(cause, "the services of an HTTP thread cannot be created");
                    failure.set(error).ok();
                    stop.cancel();
                    config.default_service(to(|| async {
                        Err::<HttpResponse, _>(ApiError::unavailable("this thread has no services"))
                    }));
                }
            })
    });
    let server = server
        .workers(threads)
        .max_connections((shared.config.limits.max_connections / threads).max(1))
        .client_request_timeout(HEAD_TIME)
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(DRAIN_REQUESTS.as_secs())
        .disable_signals()
        .bind(bind)
        .with_context(|| format!("configuration: BIND: cannot listen on {bind}"))?;
    // Differs from `bind` for port 0.
    let address = server.addrs().first().copied().unwrap_or(bind);
    let server = server.run();
    let handle = server.handle();
    let stopping = stop.clone();
    let stopper = tokio::spawn(async move {
        signals.wait_and_stop(&stopping).await;
        tokio::time::sleep(READINESS_DRAIN).await;
        handle.stop(true).await;
    });
    tracing::info!(bind = %address, "listening");
    server.await.context("the HTTP server failed")?;
    stop.cancel();
    stopper.abort();
    match failure.get() {
        Some(error) => Err(anyhow::anyhow!(
            "the services of an HTTP thread cannot be created: {error:#}"
        )),
        None => Ok(()),
    }
}

/// The signals that stop the process.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From now on, signals are recorded until [`Self::wait_and_stop`] waits for them.
    fn register() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for SIGTERM or SIGINT, then cancels `stop`: the process is no longer ready, claims no work and releases
    /// its leases.
    async fn wait_and_stop(mut self, stop: &CancellationToken) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = stop.cancelled() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
    }
}
