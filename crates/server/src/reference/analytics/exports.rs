//! What the reference says of exports.

use recado_domain::analytics::{ExportKind, Period};
use serde_json::json;

pub(crate) use super::TAG;
use super::span;
use crate::reference::operation::{Operation, string_enum, written};

pub(crate) fn export() -> Operation {
    let description = "A table as a file: UTF-8 with a byte order mark, comma-separated, with a header line. At most \
                10,000 records, the newest. A cell that a spreadsheet would take for a formula begins with an \
                apostrophe. `period` and `tz` count for messages only.";
    let content = "Data,Direção,Tipo,Status,Conteúdo\r\n2026-02-01T09:30:00.000Z,outbound,template,read,\"Oi Ana\"\r\n";
    Operation::new("Export a table", description)
        .takes(
            string_enum::<ExportKind>("type", "What the file holds.")
                .required()
                .example("messages"),
        )
        .takes_all(span(Period::Month))
        .answers(
            written("text/csv", "The file, streamed.", json!({ "type": "string" }))
                .example(json!(content))
                .header(
                    "Content-Disposition",
                    "The file's name: `{type}_export.csv`.",
                    json!({ "type": "string", "examples": ["attachment; filename=\"messages_export.csv\""] }),
                ),
        )
}
