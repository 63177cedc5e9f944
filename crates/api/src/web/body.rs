//! Request bodies, bounded in size and time. An error in a JSON body names the path of the wrong field.

use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::web::{Bytes, BytesMut};
use actix_web::{FromRequest, HttpRequest};
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use garde::Validate;
use recado_domain::shared::{FieldErrors, Strict, text};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;

/// The maximum size of a JSON body in bytes.
pub(crate) const JSON_BYTES: usize = 1024 * 1024;

/// The timeout of a whole body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of one chunk of a streamed body.
pub(crate) const CHUNK_TIMEOUT: Duration = Duration::from_secs(30);

/// A JSON body, deserialized and validated.
pub struct Json<T>(pub T);

/// An optional JSON body. A missing body is `T::default()`.
pub struct MaybeJson<T>(pub T);

/// The JSON body of a partial update. An absent field leaves its value unchanged.
pub struct JsonChange<T>(pub T);

/// The null rules of a partial update.
pub trait PatchFields {
    /// Fields that reject null. In every other field null clears the value.
    const NEVER_NULL: &'static [&'static str];
}

async fn json<T: DeserializeOwned + Validate<Context = ()>>(
    request: HttpRequest,
    payload: Payload,
    never_null: &'static [&'static str],
) -> Result<T, ApiError> {
    check_media_type(&request, "application/json")?;
    parse(&read(&request, payload, JSON_BYTES).await?, never_null)
}

impl<T: DeserializeOwned + Validate<Context = ()> + 'static> FromRequest for Json<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let body = json(request.clone(), payload.take(), &[]);
        Box::pin(async move { body.await.map(Self) })
    }
}

impl<T: DeserializeOwned + PatchFields + Validate<Context = ()> + 'static> FromRequest for JsonChange<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let body = json(request.clone(), payload.take(), T::NEVER_NULL);
        Box::pin(async move { body.await.map(Self) })
    }
}

impl<T: DeserializeOwned + Default + Validate<Context = ()> + 'static> FromRequest for MaybeJson<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let body = read(&request, payload, JSON_BYTES).await?;
            if body.is_empty() {
                return Ok(Self(T::default()));
            }
            check_media_type(&request, "application/json")?;
            parse(&body, &[]).map(Self)
        })
    }
}

/// Rejects other media types, and every content encoding, because size limits count the bytes as sent. A request
/// without a body passes: the parser then reports what is missing.
pub fn check_media_type(request: &HttpRequest, expected: &'static str) -> Result<(), ApiError> {
    media_type(request, &[(expected, ())], expected)
}

/// Maps the body's media type by `accepted`. Rejects every other type, and every content encoding. A request without a
/// body has the first type. `expected` describes the accepted types in the error.
pub fn media_type<T: Copy>(
    request: &HttpRequest,
    accepted: &[(&str, T)],
    expected: &'static str,
) -> Result<T, ApiError> {
    if let Some((_, first)) = accepted.first().filter(|_| has_no_body(request)) {
        return Ok(*first);
    }
    let text = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let media_type = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    let encoding = text(header::CONTENT_ENCODING).trim();
    let is_unencoded = encoding.is_empty() || encoding.eq_ignore_ascii_case("identity");
    let matching = accepted.iter().find(|(name, _)| media_type.eq_ignore_ascii_case(name));
    match matching {
        Some((_, value)) if is_unencoded => Ok(*value),
        _ => Err(ApiError::media_type(expected)),
    }
}

/// Whether the head declares neither a body nor its type.
fn has_no_body(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let declared = [header::CONTENT_TYPE, header::TRANSFER_ENCODING].map(|name| headers.contains_key(name));
    let length = headers.get(header::CONTENT_LENGTH).map(|_| declared_length(request));
    declared == [false, false] && matches!(length, None | Some(Some(0)))
}

/// The value of `Content-Length`.
pub fn declared_length(request: &HttpRequest) -> Option<u64> {
    let declared = request.headers().get(header::CONTENT_LENGTH)?;
    declared.to_str().ok()?.parse().ok()
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Bytes, ApiError> {
    read_reserving(request, payload, limit, |_| Ok(())).await
}

/// Like [`read`]. Calls `reserve` with the length of each chunk before storing it; an error ends the read.
pub(super) async fn read_reserving(
    request: &HttpRequest,
    mut payload: Payload,
    limit: usize,
    mut reserve: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let max_bytes = u64::try_from(limit).unwrap_or(u64::MAX);
    if declared_length(request).is_some_and(|bytes| bytes > max_bytes) {
        return Err(ApiError::too_large());
    }
    let whole = async {
        let mut body = BytesMut::new();
        while let Some(chunk) = next_chunk(&mut payload).await? {
            if body.len() + chunk.len() > limit {
                return Err(ApiError::too_large());
            }
            reserve(chunk.len())?;
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    };
    tokio::time::timeout(BODY_TIMEOUT, whole)
        .await
        .unwrap_or_else(|_| Err(ApiError::slow_body()))
}

/// Returns the next chunk of a streamed body, or None at its end.
pub(super) async fn next_chunk(payload: &mut Payload) -> Result<Option<Bytes>, ApiError> {
    match tokio::time::timeout(CHUNK_TIMEOUT, payload.next()).await {
        Err(_) => Err(ApiError::slow_body()),
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(_))) => Err(FieldErrors::one("body", "ended before it was complete").into()),
    }
}

fn parse<T>(body: &[u8], never_null: &'static [&'static str]) -> Result<T, ApiError>
where
    T: DeserializeOwned + Validate<Context = ()>,
{
    reject_nul(body)?;
    // serde_json does not check the encoding of values that it skips.
    if std::str::from_utf8(body).is_err() {
        return Err(FieldErrors::one("body", "must be UTF-8").into());
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let strict = Strict::change(&mut json, never_null);
    let value: T = serde_path_to_error::deserialize(strict).map_err(|error| {
        let path = error.path().to_string();
        field_error(&path, error.inner())
    })?;
    json.end().map_err(|error| field_error(".", &error))?;
    validate(&value)?;
    Ok(value)
}

/// An element of a JSON body, deserialized and validated like a body of its own.
pub fn item<T: DeserializeOwned + Validate<Context = ()>>(element: &Value) -> Result<T, FieldErrors> {
    let value: T = serde_path_to_error::deserialize(Strict::new(element)).map_err(|error| {
        let path = error.path().to_string();
        field_error(&path, error.inner())
    })?;
    validate(&value)?;
    Ok(value)
}

fn validate<T: Validate<Context = ()>>(value: &T) -> Result<(), FieldErrors> {
    value.validate().map_err(|report| {
        let mut errors = FieldErrors::default();
        for (path, error) in report.iter() {
            errors.add(path.to_string(), error.message());
        }
        errors
    })
}

fn field_error(path: &str, error: &serde_json::Error) -> FieldErrors {
    let field = if path == "." || error.is_syntax() || error.is_eof() {
        "body"
    } else {
        path
    };
    let message = error.to_string();
    // For a wrong value the field's path replaces the parser's position.
    let without_position = message.split(" at line ").next().unwrap_or_default();
    FieldErrors::one(
        field,
        if error.is_data() {
            without_position
        } else {
            message.as_str()
        },
    )
}

/// PostgreSQL's text cannot contain NUL. Rejecting it here names the field instead of failing in the database.
fn reject_nul(body: &[u8]) -> Result<(), FieldErrors> {
    if !body.windows(6).any(|bytes| bytes == b"\\u0000") {
        return Ok(());
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if text::holds_nul(&value) {
        Err(FieldErrors::one("body", "contains a NUL character"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, Validate)]
    struct Inner {
        #[serde(default)]
        #[garde(skip)]
        ids: Vec<u8>,
    }

    #[derive(Debug, Deserialize, Validate)]
    struct Outer {
        #[garde(required)]
        name: Option<String>,
        #[garde(skip)]
        inner: Option<Inner>,
    }

    fn errors_of(body: &str) -> Vec<(String, Vec<String>)> {
        match parse::<Outer>(body.as_bytes(), &["inner"]) {
            Err(error) => error.field_errors().unwrap().0.clone().into_iter().collect(),
            Ok(body) => panic!("{body:?}"),
        }
    }

    #[test]
    fn body_with_array_or_null_in_wrong_field_names_it() {
        let sequence = "invalid type: sequence, expected an object";
        for (body, field, message) in [
            (r#"{"name":"x","inner":[[1]]}"#, "inner", sequence),
            (" [[1]]", "body", sequence),
            (r#"{"name":"x","inner":null}"#, "inner", "must not be null"),
        ] {
            assert_eq!(errors_of(body), [(field.into(), vec![message.into()])], "{body}");
        }
        assert!(parse::<Outer>(br#"{"name":"x","inner":null}"#, &[]).is_ok_and(|outer| outer.inner.is_none()));
    }

    #[test]
    fn media_type_check_passes_only_a_missing_body() {
        use actix_web::test::TestRequest;
        let is_missing = |headers: &[(&str, &str)]| {
            let request = headers
                .iter()
                .fold(TestRequest::post(), |request, header| request.insert_header(*header));
            has_no_body(&request.to_http_request())
        };
        assert!(
            is_missing(&[]) && is_missing(&[("Content-Length", "0")]) && is_missing(&[("Content-Encoding", "gzip")])
        );
        for header in [
            ("Content-Length", "1"),
            ("Content-Length", "x"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Type", ""),
            ("Content-Type", "text/plain"),
        ] {
            assert!(!is_missing(&[header]), "{header:?}");
            assert!(
                !is_missing(&[header, ("Content-Length", "0")]) || header.0 == "Content-Length",
                "{header:?}"
            );
        }
    }

    #[test]
    fn body_error_names_the_path_of_the_field() {
        assert_eq!(
            errors_of(r#"{"name":"x","inner":{"ids":[1,"b"]}}"#)[0].0,
            "inner.ids[1]"
        );
        assert_eq!(
            errors_of(r#"{"name":3}"#),
            [(
                "name".into(),
                vec!["invalid type: integer `3`, expected a string".into()]
            )]
        );
        assert_eq!(errors_of("{}")[0].0, "name");
        for broken in [
            r#"{"name":"#,
            "",
            "[]",
            r#"["x"]"#,
            r#"{"name":"x"} x"#,
            "{\"name\":\"\\u0000\"}",
            &"[".repeat(100_000),
        ] {
            assert_eq!(errors_of(broken)[0].0, "body", "{}", broken.get(..20).unwrap_or(broken));
        }
        let outer = parse::<Outer>(br#"{"name":"\\u0000","unknown":1}"#, &[]).unwrap();
        assert_eq!(outer.name.as_deref(), Some("\\u0000"));
        assert!(outer.inner.is_none_or(|inner| inner.ids.is_empty()));
    }
}
