//! Answers in the success envelope.

use actix_web::HttpResponse;
use recado_domain::shared::Page;
use serde::Serialize;
use serde_json::{Value, json};

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

/// 202 `{ "data": T }`: it will be done.
pub fn accepted<T: Serialize>(data: T) -> HttpResponse {
    HttpResponse::Accepted().json(Envelope { data })
}

/// 204.
pub fn gone() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// 200 with a page as the whole body: it holds its own `data`.
pub fn page<T: Serialize>(page: &Page<T>) -> HttpResponse {
    HttpResponse::Ok().json(page)
}

/// 200 with a page in the envelope that also publishes its `limit`.
pub fn wrapped_page<T: Serialize>(page: &Page<T>) -> HttpResponse {
    let mut data = json!(page);
    if let Value::Object(fields) = &mut data {
        fields.insert("limit".to_owned(), json!(page.limit));
    }
    ok(data)
}
