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

/// The number of a page.
pub struct PageParam {
    pub name: &'static str,
    pub description: &'static str,
}

/// `page` of every list with numbered pages.
pub const PAGE: PageParam = PageParam {
    name: "page",
    description: "Page number, starting at 1.",
};

/// `cursor` of a list with keyset pagination.
pub struct CursorParam {
    pub description: &'static str,
    /// None: the cursor is an id.
    pub example: Option<&'static str>,
}

impl CursorParam {
    pub const NAME: &'static str = "cursor";

    /// Of a list that begins with its first page.
    pub const fn first_page(example: Option<&'static str>) -> Self {
        Self {
            description: "The `nextCursor` of the previous page. Omit it for the first page.",
            example,
        }
    }
}

/// The direction of a list.
pub struct OrderParam {
    pub name: &'static str,
    pub description: &'static str,
    pub ascending: &'static str,
    /// The default.
    pub descending: &'static str,
}

/// `order` of every list whose direction can be chosen.
pub const ORDER: OrderParam = OrderParam {
    name: "order",
    description: "Sort direction: `asc` (smallest first) or `desc` (largest first).",
    ascending: "asc",
    descending: "desc",
};

/// Any text.
pub struct TextParam {
    pub name: &'static str,
    pub description: &'static str,
    pub example: &'static str,
}

impl TextParam {
    pub const fn new(name: &'static str, description: &'static str, example: &'static str) -> Self {
        Self {
            name,
            description,
            example,
        }
    }
}

/// The id of a resource.
pub struct IdParam {
    pub name: &'static str,
    pub description: &'static str,
}

impl IdParam {
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        Self { name, description }
    }
}

/// An RFC 3339 time.
pub struct TimeParam {
    pub name: &'static str,
    pub description: &'static str,
    pub example: &'static str,
}

impl TimeParam {
    pub const fn new(name: &'static str, description: &'static str, example: &'static str) -> Self {
        Self {
            name,
            description,
            example,
        }
    }
}

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
