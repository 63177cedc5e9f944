//! Streaming CSV export. A slow client holds no database connection.

use std::io;

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use actix_web::web::Data;
use bytes::Bytes;
use futures_util::{Stream, stream};
use recado_domain::analytics::{Export, ExportKind, Exports, Period};
use recado_domain::shared::FieldErrors;
use serde_json::json;

pub(crate) use super::TAG;
use super::{period_parameters, report_period};
use crate::error::ApiError;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::operation::{Operation, Parameter, custom};
use crate::web::parameters::EnumParam;
use crate::web::query::Params;
use crate::web::route::{Endpoint, endpoint};

const KIND: EnumParam<ExportKind> = EnumParam {
    name: "type",
    description: "The table to export.",
    accepted: "messages, contacts or campaigns",
    example: Some(ExportKind::Messages),
};

/// `GET /api/analytics/export`: the first chunk is read before the response starts, so that an early error still gets
/// an error response.
async fn export(
    exports: Data<Exports>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let kind = params.one_of(&KIND);
    let absent = params.value(KIND.name).is_none();
    let report_period = report_period(params, Period::Month)?;
    let missing = if absent {
        "is required"
    } else {
        "must be messages, contacts or campaigns"
    };
    let kind = kind.ok_or_else(|| FieldErrors::one("type", missing))?;
    let mut export = exports.begin(&tenant, kind, &report_period)?;
    let first = export.next().await?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/csv; charset=utf-8"))
        .insert_header((
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{kind}_export.csv\""),
        ))
        .streaming(body(first, export)))
}

pub(crate) const EXPORT: Endpoint = endpoint!(export, {
    let description = "Streams a table as CSV: UTF-8 with a byte order mark, comma-separated, with a header line. \
                Contains at most the 10,000 newest records. A cell that a spreadsheet would read as a formula is \
                prefixed with an apostrophe. `period` and `tz` apply to messages only.";
    let content = "Data,Direção,Tipo,Status,Conteúdo,address\r\n2026-02-01T09:30:00.000Z,outbound,template,read,\"Oi Ana\",phone\r\n";
    Operation::new("Export a table as CSV", description)
        .takes(Parameter::from(&KIND).required())
        .takes_all(period_parameters(Period::Month))
        .responds(
            custom("text/csv", "The CSV file, streamed.", json!({ "type": "string" }))
                .example(json!(content))
                .header(
                    "Content-Disposition",
                    "The file's name: `{type}_export.csv`.",
                    json!({ "type": "string", "examples": ["attachment; filename=\"messages_export.csv\""] }),
                ),
        )
});

/// Streams the chunks; each is read when the client has received the previous one. A failed read aborts the response,
/// so that the client detects an incomplete file.
fn body(first: Option<String>, export: Export) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((first, Some(export)), |(pending, export)| async move {
        if let Some(text) = pending {
            return Some((Ok(Bytes::from(text)), (None, export)));
        }
        let mut export = export?;
        match export.next().await {
            Ok(text) => text.map(|text| (Ok(Bytes::from(text)), (None, Some(export)))),
            Err(error) => {
                tracing::error!(cause = ?error, "export aborted: the next chunk could not be read");
                Some((Err(io::Error::other("the next chunk could not be read")), (None, None)))
            }
        }
    })
}
