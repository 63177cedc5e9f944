//! OpenAPI documentation of CSV exports.

use recado_domain::analytics::Period;
use serde_json::json;

pub(crate) use super::TAG;
use super::period_parameters;
use crate::reference::operation::{Operation, Parameter, custom};
use crate::routes::analytics::exports::KIND;

pub(crate) fn export() -> Operation {
    let description = "Streams a table as CSV: UTF-8 with a byte order mark, comma-separated, with a header line. \
                Contains at most the 10,000 newest records. A cell that a spreadsheet would read as a formula is \
                prefixed with an apostrophe. `period` and `tz` apply to messages only.";
    let content = "Data,Direção,Tipo,Status,Conteúdo\r\n2026-02-01T09:30:00.000Z,outbound,template,read,\"Oi Ana\"\r\n";
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
}
