//! Query parameters. An empty parameter counts as absent, a malformed one is an error, and a number out of range is
//! clamped.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use recado_domain::redacted_debug;
use recado_domain::shared::{CursorQuery, FieldErrors, PageQuery, timestamp};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::ApiError;
use crate::web::parameters::{
    BoolParam, CursorParam, EnumParam, IdParam, IntegerParam, LIMIT, ORDER, PAGE, SortParam, TextParam, TimeParam,
};

/// The parameters of a request, and the errors found in them so far.
#[derive(Default)]
pub struct Params {
    values: BTreeMap<String, String>,
    errors: FieldErrors,
}

redacted_debug!(Params {});

impl FromRequest for Params {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::parse(request.query_string()))
    }
}

/// `cursor` (in most lists the id of the last item of the previous page) and `limit`.
pub struct CursorParams<C = Uuid>(pub CursorQuery<C>);

impl<C: FromStr> FromRequest for CursorParams<C> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let query = Params::parse(request.query_string()).and_then(|mut params| {
            let query = params.cursor_query();
            params.check().map(|()| Self(query))
        });
        ready(query)
    }
}

impl Params {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(query)
            .map_err(|_| FieldErrors::one("query", "is not a valid query string"))?;
        let mut params = Self::default();
        for (name, value) in pairs.into_inner() {
            if value.contains('\0') {
                params.errors.add(&name, "contains a NUL character");
            }
            // HTTP parameter pollution: parsers disagree on which repeated value wins.
            if params.values.contains_key(&name) {
                params.errors.add(&name, "must be given only once");
            }
            params.values.insert(name, value);
        }
        Ok(params)
    }

    /// The value of a parameter. None: it is absent or empty.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns a text. None: it is absent or empty.
    pub fn text(&self, param: &TextParam) -> Option<String> {
        self.value(param.name).map(str::to_owned)
    }

    /// Parses an enum value or an id. `accepted` completes the error message "must be".
    pub fn parsed<T: FromStr>(&mut self, name: &str, accepted: &str) -> Option<T> {
        let text = self.value(name)?;
        let value = text.parse().ok();
        if value.is_none() {
            self.errors.add(name, format!("must be {accepted}"));
        }
        value
    }

    pub fn id<T: From<Uuid>>(&mut self, param: &IdParam) -> Option<T> {
        self.parsed::<Uuid>(param.name, "a UUID").map(T::from)
    }

    /// `cursor`, of a list whose cursor is an id.
    pub fn id_cursor<T: From<Uuid>>(&mut self) -> Option<T> {
        self.parsed::<Uuid>(CursorParam::NAME, "a UUID").map(T::from)
    }

    pub fn time(&mut self, param: &TimeParam) -> Option<OffsetDateTime> {
        let text = self.value(param.name)?;
        let time = timestamp::parse(text);
        if time.is_none() {
            self.errors
                .add(param.name, "must be an RFC 3339 time like 2026-01-31T23:59:59Z");
        }
        time
    }

    /// Parses a whole number. A number that exceeds `i64` becomes the nearest `i64`.
    fn number(&mut self, name: &str) -> Option<i64> {
        let text = self.value(name)?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            self.errors.add(name, "must be a whole number");
            return None;
        }
        Some(
            text.parse()
                .unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }),
        )
    }

    /// `page` and `limit` with the default sizes.
    pub fn page(&mut self) -> PageQuery {
        self.page_of(&LIMIT)
    }

    /// `page` and `limit`, for a list with its own default and maximum size.
    pub fn page_of(&mut self, limit: &IntegerParam) -> PageQuery {
        let (page, size) = (self.number(PAGE.name), self.number(limit.name));
        PageQuery::new(page, size, limit.default, limit.max)
    }

    /// A whole number, clamped to 1 and the maximum.
    pub fn integer(&mut self, param: &IntegerParam) -> i64 {
        self.number(param.name).unwrap_or(param.default).clamp(1, param.max)
    }

    pub fn boolean(&mut self, param: &BoolParam) -> bool {
        self.parsed(param.name, "true or false").unwrap_or(param.default)
    }

    pub fn one_of<T: FromStr>(&mut self, param: &EnumParam<T>) -> Option<T> {
        self.parsed(param.name, param.accepted)
    }

    /// `sort`, or its default.
    pub fn sort<T: FromStr + Copy>(&mut self, param: &SortParam<T>) -> T {
        self.parsed("sort", param.accepted).unwrap_or(param.default)
    }

    /// Adds an error of a parameter that was read as text.
    pub fn add_error(&mut self, name: &str, message: &str) {
        self.errors.add(name, message);
    }

    /// Whether `cursor` is present. An empty cursor requests the first page.
    pub fn has_cursor(&self) -> bool {
        self.values.contains_key(CursorParam::NAME)
    }

    /// `cursor` and `limit`.
    pub fn cursor_query<C: FromStr>(&mut self) -> CursorQuery<C> {
        let limit = self.number(LIMIT.name);
        CursorQuery {
            cursor: self.parsed(CursorParam::NAME, "a cursor of an earlier response"),
            limit: PageQuery::new(None, limit, LIMIT.default, LIMIT.max).limit(),
        }
    }

    /// `order`: whether the list is in descending order, which is the default.
    pub fn descending(&mut self) -> bool {
        let order = self.value(ORDER.name);
        if order.is_some_and(|order| order != ORDER.ascending && order != ORDER.descending) {
            self.errors.add(ORDER.name, "must be asc or desc");
            return true;
        }
        order != Some(ORDER.ascending)
    }

    /// Returns the collected errors, if there are any.
    pub fn check(self) -> Result<(), ApiError> {
        Ok(self.errors.into_result()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(query: &str) -> Params {
        Params::parse(query).unwrap()
    }

    /// The names of the invalid parameters.
    fn invalid_names(params: Params) -> Vec<String> {
        let error = params.check().unwrap_err();
        error.field_errors().unwrap().0.keys().cloned().collect()
    }

    #[test]
    fn empty_parameter_is_absent_except_the_cursor() {
        let folder = IdParam {
            name: "folder_id",
            description: "",
        };
        let mut empty = params("page=&limit=&order=&folder_id=&cursor=");
        assert_eq!(empty.page(), PageQuery::new(None, None, 20, 100));
        assert_eq!(
            empty.page_of(&IntegerParam::limit(50, 70)),
            PageQuery::new(None, Some(50), 20, 100)
        );
        assert!(empty.has_cursor() && empty.descending());
        assert_eq!(empty.id::<recado_domain::shared::FolderId>(&folder), None);
        assert_eq!(
            empty.cursor_query::<Uuid>(),
            CursorQuery {
                cursor: None,
                limit: 20
            }
        );
        empty.check().unwrap();
    }

    #[test]
    fn numbers_are_clamped_and_malformed_values_rejected() {
        let mut wide = params("page=999999999999999999999&limit=-999999999999999999999");
        assert_eq!((wide.page().page(), wide.page().limit()), (i64::MAX, 1));
        assert_eq!(params("limit=99").page_of(&IntegerParam::limit(50, 70)).limit(), 70);
        wide.check().unwrap();
        let mut wrong = params("page=1e18&limit=abc&order=up&id=7");
        wrong.page();
        wrong.descending();
        wrong.parsed::<Uuid>("id", "a UUID");
        assert_eq!(invalid_names(wrong), ["id", "limit", "order", "page"]);
    }

    #[test]
    fn repeated_parameter_is_rejected() {
        for query in [
            "limit=1&limit=2",
            "limit=1&limit=1",
            "limit=1&x=2&limit=",
            "l%69mit=1&limit=1",
        ] {
            assert_eq!(invalid_names(params(query)), ["limit"], "{query}");
        }
    }

    #[test]
    fn parameter_with_nul_is_rejected() {
        assert_eq!(invalid_names(params("search=%00")), ["search"]);
    }
}
