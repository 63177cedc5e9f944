//! Declarations of query parameters. A handler reads a parameter by its declaration and the API reference shows the
//! same declaration, so that its name, values and bounds stand once.

/// A whole number from 1 to `max`. A number out of range is clamped.
pub struct IntegerParam {
    pub name: &'static str,
    pub description: &'static str,
    pub default: i64,
    pub max: i64,
}

impl IntegerParam {
    /// `limit`: the size of a page.
    pub const fn limit(default: i64, max: i64) -> Self {
        Self {
            name: "limit",
            description: "Maximum number of items to return.",
            default,
            max,
        }
    }
}

/// `limit` of most lists.
pub const LIMIT: IntegerParam = IntegerParam::limit(20, 100);

/// `true` or `false`.
pub struct BoolParam {
    pub name: &'static str,
    pub description: &'static str,
    pub default: bool,
}

/// A value of the enum `T`.
pub struct EnumParam<T> {
    pub name: &'static str,
    pub description: &'static str,
    /// Completes the error message "must be".
    pub accepted: &'static str,
    pub example: Option<T>,
}

/// `sort`: the key by which a list is sorted.
pub struct SortParam<T> {
    pub description: &'static str,
    /// Completes the error message "must be".
    pub accepted: &'static str,
    pub default: T,
}
