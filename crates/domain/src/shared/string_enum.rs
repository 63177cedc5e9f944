//! Enums with published values: one macro declares the enum, its strings and both conversions.

/// The error message for an unknown value.
pub(crate) fn unknown(values: impl Iterator<Item = &'static str>) -> String {
    format!("must be one of {}", values.collect::<Vec<_>>().join(", "))
}

macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        $(#[$doc])*
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every value, for tables and messages.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stored and published value.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.as_str() == word)
                    .ok_or_else(|| $crate::shared::string_enum::unknown(Self::ALL.iter().map(|value| value.as_str())))
            }
        }
    };
}
pub(crate) use string_enum;
