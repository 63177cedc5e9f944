//! How what is written in a form of its own looks in the published reference: named in `#[schemars(with = "...")]`.

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
    /// A moment: RFC 3339, answered in UTC with milliseconds.
    Timestamp = "date-time",
    /// A day: `YYYY-MM-DD`.
    Day = "date",
}
