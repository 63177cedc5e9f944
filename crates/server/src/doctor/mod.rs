//! `recado doctor`: checks every part of an installation, changes nothing, and prints a line for each check.
//!
//! All areas run at the same time, each with a time limit of its own, so that one that fails or hangs hides no other.
//! To add an area, write a function like those of the files here and add a line to `AREAS`.

mod ai_service;
mod configuration;
mod context;
mod database;
mod diagnosis;
mod erasures;
mod jwks;
mod mail;
mod media_store;
mod numbers;
mod options;
mod payment_gateway;
mod queues;
mod redaction;
mod redis;
mod report;
mod roles;
mod sealed_values;
mod tls;
mod whatsapp;

use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, join_all};

use context::{AreaOutcome, DoctorContext, NotChecked};
use diagnosis::Diagnosis;
pub use options::{DoctorOptions, parse_account_id};
use redaction::Redactor;
use report::Report;

/// Time limit of an area. Its own calls have shorter ones.
const AREA_TIMEOUT: Duration = Duration::from_secs(10);

/// A part of the installation.
struct Area {
    /// The name of its line if the area cannot be checked.
    name: &'static str,
    timeout: Duration,
    check: for<'a> fn(&'a DoctorContext) -> LocalBoxFuture<'a, AreaOutcome>,
}

/// In the order of the output.
const AREAS: &[Area] = &[
    area("configuration", |context| Box::pin(configuration::check(context))),
    area("tls", |context| Box::pin(tls::check(context))),
    area("roles", |context| Box::pin(roles::check_roles(context))),
    area("row_security", |context| Box::pin(roles::check_row_security(context))),
    area("migrations", |context| Box::pin(database::check_migrations(context))),
    area("clock", |context| Box::pin(database::check_clock(context))),
    area("account", |context| Box::pin(database::check_account(context))),
    area("redis", |context| Box::pin(redis::check(context))),
    area("media_store", |context| Box::pin(media_store::check(context))),
    area("mail", |context| Box::pin(mail::check(context))),
    area("jwks", |context| Box::pin(jwks::check(context))),
    area("payment_gateway", |context| Box::pin(payment_gateway::check(context))),
    area("ai_service", |context| Box::pin(ai_service::check(context))),
    area("whatsapp_app", |context| Box::pin(whatsapp::check_app(context))),
    area("whatsapp_callbacks", |context| {
        Box::pin(whatsapp::check_callbacks(context))
    }),
    Area {
        name: "numbers",
        timeout: numbers::TIMEOUT,
        check: |context| Box::pin(numbers::check(context)),
    },
    area("queues", |context| Box::pin(queues::check(context))),
    area("erasures", |context| Box::pin(erasures::check(context))),
    area("sealed_values", |context| Box::pin(sealed_values::check(context))),
];

const fn area(name: &'static str, check: for<'a> fn(&'a DoctorContext) -> LocalBoxFuture<'a, AreaOutcome>) -> Area {
    Area {
        name,
        timeout: AREA_TIMEOUT,
        check,
    }
}

/// Runs all checks and prints them. Exits with 1 if one failed.
pub fn run(options: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let redactor = Redactor::new(std::env::vars());
    let checks = runtime.block_on(async {
        let context = DoctorContext::new(options, &|name| std::env::var(name).ok());
        context.install_authorities();
        check_areas(AREAS, &context).await
    });
    // A name that is still being resolved must not delay the end.
    runtime.shutdown_background();
    let report = Report::new(checks, &redactor);
    report.print(options.json)?;
    Ok(report.exit_code())
}

async fn check_areas(areas: &[Area], context: &DoctorContext) -> Vec<Diagnosis> {
    let checks = areas.iter().map(|area| check_area(area, context));
    join_all(checks).await.into_iter().flatten().collect()
}

async fn check_area(area: &Area, context: &DoctorContext) -> Vec<Diagnosis> {
    match tokio::time::timeout(area.timeout, (area.check)(context)).await {
        Ok(Ok(checks)) => checks,
        Ok(Err(NotChecked(variable))) => vec![Diagnosis::warn(
            area.name,
            format!("not checked, because {variable} is not valid"),
            format!("correct {variable} and run recado doctor again"),
        )],
        Err(_) => vec![Diagnosis::fail(
            area.name,
            format!("no result within {:?}", area.timeout),
            "check the address and the network between this machine and the system",
        )],
    }
}

#[cfg(test)]
mod tests;
