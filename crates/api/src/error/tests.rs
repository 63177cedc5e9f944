//! The caller sees no internal cause; the log has all of it.

use actix_web::body::to_bytes;

use super::*;

#[actix_web::test]
async fn store_error_response_hides_its_cause() {
    for (error, status) in [
        (
            StoreError::Failed("password=hunter2".into()),
            StatusCode::INTERNAL_SERVER_ERROR,
        ),
        (StoreError::Corrupt("hunter2".into()), StatusCode::INTERNAL_SERVER_ERROR),
        (
            StoreError::Unavailable("hunter2".into()),
            StatusCode::SERVICE_UNAVAILABLE,
        ),
    ] {
        let response = ApiError::from(error).error_response();
        assert_eq!(response.status(), status);
        let retry = response.headers().contains_key(header::RETRY_AFTER);
        assert_eq!(retry, status == StatusCode::SERVICE_UNAVAILABLE);
        let body = to_bytes(response.into_body()).await.unwrap();
        assert!(!String::from_utf8_lossy(&body).contains("hunter2"));
    }
}

#[test]
fn cause_chain_contains_every_source() {
    let inner = std::io::Error::other("refused");
    let cause = Cause::from(StoreError::Unavailable(inner.into()));
    assert_eq!(cause.chain(), "the store is unavailable: refused");
}
