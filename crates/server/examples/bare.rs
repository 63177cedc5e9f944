//! A minimal HTTP server, the baseline of `cargo xtask bench read`.
//!
//! `bare <address> <file>` responds to every request with the bytes of the file as JSON. It shares only the allocator,
//! the number of worker threads and the timeouts with the real server.

use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpResponse, HttpServer};
use anyhow::Context as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().context("usage: bare <address> <file>")?;
    let file = arguments.next().context("usage: bare <address> <file>")?;
    let body = Bytes::from(std::fs::read(&file).with_context(|| file.clone())?);
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(2)
        .build()?;
    runtime.block_on(async move {
        let server = HttpServer::new(move || {
            let body = body.clone();
            App::new().default_service(web::to(move || {
                let response = HttpResponse::Ok().content_type(ContentType::json()).body(body.clone());
                std::future::ready(response)
            }))
        });
        let server = server
            .workers(threads)
            .client_request_timeout(Duration::from_secs(5))
            .keep_alive(Duration::from_secs(75))
            .bind(address)?;
        Ok(server.run().await?)
    })
}
