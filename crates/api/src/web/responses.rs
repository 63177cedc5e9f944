//! Responses in the success envelope.

use actix_web::HttpResponse;
use recado_domain::shared::{CursorPage, Page};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize)]
struct Envelope<T> {
    data: T,
}

/// 200 `{ "data": T }`.
pub fn ok<T: Serialize>(data: T) -> HttpResponse {
    HttpResponse::Ok().json(Envelope { data })
}

/// 201 `{ "data": T }`.
pub fn created<T: Serialize>(data: T) -> HttpResponse {
    HttpResponse::Created().json(Envelope { data })
}

/// 202 `{ "data": T }`: a worker does the rest.
pub fn accepted<T: Serialize>(data: T) -> HttpResponse {
    HttpResponse::Accepted().json(Envelope { data })
}

/// 204.
pub fn no_content() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// 200 with a page as the whole body. The page has its own `data`.
pub fn page<T: Serialize>(page: &Page<T>) -> HttpResponse {
    HttpResponse::Ok().json(page)
}

/// 200 with a page of a list with a cursor as the whole body.
pub fn cursor_page<T: Serialize>(page: CursorPage<T>) -> HttpResponse {
    HttpResponse::Ok().json(page)
}

/// A page that also states its maximum size.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}LimitedPage")]
pub struct LimitedPage<T> {
    #[serde(flatten)]
    page: Page<T>,
    /// The maximum number of items of a page.
    limit: i64,
}

/// 200 with a page and its maximum size in the envelope.
pub fn wrapped_page<T: Serialize>(page: Page<T>) -> HttpResponse {
    let limit = page.limit;
    ok(LimitedPage { page, limit })
}

/// Declares the published form of a domain type and its conversion. A field without a value has the value of the
/// domain's field of the same name.
macro_rules! response_type {
    ($(#[$meta:meta])* $vis:vis struct $name:ident from $source:ident: $domain:ty {
        $($(#[$field_meta:meta])* $field:ident: $type:ty $(= $value:expr)?),+ $(,)?
    }) => {
        #[derive(serde::Serialize, schemars::JsonSchema)]
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field: $type),+
        }

        impl From<$domain> for $name {
            fn from($source: $domain) -> Self {
                Self {
                    $($field: $crate::web::responses::response_type!(@value $source.$field $(, $value)?)),+
                }
            }
        }
    };
    (@value $field:expr) => { $field.into() };
    (@value $field:expr, $value:expr) => { $value };
}
pub(crate) use response_type;
