//! OpenAPI schemas of string formats, for `#[schemars(with = "...")]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $format:literal),+ $(,)?) => {$(
        $(#[$doc])*
        pub struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $format })
            }
        }
    )+};
}

texts! {
    /// A timestamp (RFC 3339). Responses use UTC with milliseconds.
    Timestamp = "date-time",
    /// A day: `YYYY-MM-DD`.
    Day = "date",
}
