//! JSON bodies that contain secrets (cards). They are read into memory that is zeroized on drop, and no error repeats
//! their values.

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future::LocalBoxFuture;
use recado_domain::shared::{FieldErrors, Strict};
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::error::ApiError;
use crate::web::body::{BODY_TIMEOUT, JSON_BYTES, check_media_type, declared_length, next_chunk};

/// The initial capacity of the buffer in bytes.
const INITIAL_CAPACITY: usize = 16 * 1024;

/// A JSON body whose errors name the field and never its value.
pub struct SecretJson<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for SecretJson<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            check_media_type(&request, "application/json")?;
            let read = tokio::time::timeout(BODY_TIMEOUT, read(&request, payload));
            let body = read.await.unwrap_or_else(|_| Err(ApiError::slow_body()))?;
            Ok(Self(parse(&body)?))
        })
    }
}

async fn read(request: &HttpRequest, mut payload: Payload) -> Result<Zeroizing<Vec<u8>>, ApiError> {
    let declared = declared_length(request).unwrap_or_default();
    let declared = usize::try_from(declared).unwrap_or(usize::MAX);
    if declared > JSON_BYTES {
        return Err(ApiError::too_large());
    }
    let mut body = Zeroizing::new(Vec::with_capacity(declared.max(INITIAL_CAPACITY)));
    while let Some(chunk) = next_chunk(&mut payload).await? {
        if body.len() + chunk.len() > JSON_BYTES {
            return Err(ApiError::too_large());
        }
        if body.len() + chunk.len() > body.capacity() {
            // A vector that grows by itself would leave a copy in memory that is not zeroized.
            let mut larger = Zeroizing::new(Vec::with_capacity(JSON_BYTES));
            larger.extend_from_slice(&body);
            body = larger;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, FieldErrors> {
    // PostgreSQL's text cannot contain NUL.
    if body.windows(6).any(|bytes| bytes == b"\\u0000") {
        return Err(FieldErrors::one("body", "contains a NUL character"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(Strict::new(&mut json)).map_err(|error| {
        let path = error.path().to_string();
        // serde's messages repeat the value.
        match error.inner().is_data() && path != "." {
            true => FieldErrors::one(path, "has the wrong type"),
            false => FieldErrors::one("body", "is not valid JSON for this endpoint"),
        }
    })?;
    match json.end() {
        Ok(()) => Ok(value),
        Err(_) => Err(FieldErrors::one("body", "is not valid JSON for this endpoint")),
    }
}

/// Deserializes an optional string that is zeroized on drop.
pub fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Card {
        #[serde(default, deserialize_with = "secret")]
        number: Option<SecretString>,
    }

    #[derive(Deserialize)]
    struct Body {
        card: Option<Card>,
    }

    #[test]
    fn secret_body_error_names_the_field_without_its_value() {
        for (body, field) in [
            (r#"{"card":{"number":4111111111111111}}"#, "card.number"),
            (r#"{"card":{"number":["4111111111111111"]}}"#, "card.number"),
            (r#"{"card":"4111111111111111"}"#, "card"),
            (r#"{"card":["4111111111111111"]}"#, "card"),
            (r#"{"card":{"number":"4111111111111111}"#, "body"),
            (r#"{"card":{"number":"4111111111111111"}} 4111111111111111"#, "body"),
            (r#"["4111111111111111"]"#, "body"),
            (r#""4111111111111111""#, "body"),
            ("4111111111111111", "body"),
            (r#"{"card":{"number":"4111111111111111\u0000"}}"#, "body"),
            ("", "body"),
        ] {
            let errors = parse::<Body>(body.as_bytes()).err().unwrap();
            assert_eq!(errors.0.keys().collect::<Vec<_>>(), [field], "{body}");
            assert!(!format!("{errors:?}").contains("4111"), "{errors:?}");
        }
        let body = parse::<Body>(br#"{"card":{"number":"4111"}}"#).unwrap();
        assert!(body.card.is_some_and(|card| card.number.is_some()));
    }
}
