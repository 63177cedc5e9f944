//! Streamed bodies of any length with a minimum transfer rate. A client that sends more slowly than `MIN_RATE` gets
//! `ErrorCode::SlowBody`.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Bytes;
use tokio::time::Instant;

use super::body::{declared_length, next_chunk};
use crate::error::ApiError;

/// The waiting time that every body has in addition to its bytes divided by `MIN_RATE`.
const GRACE: Duration = Duration::from_secs(30);

/// The minimum transfer rate in bytes per second.
const MIN_RATE: u64 = 16 * 1024;

/// The maximum waiting time for a body of undeclared length.
const MAX_UNDECLARED_WAIT: Duration = Duration::from_secs(3600);

/// A body with a waiting-time budget. Only the wait for the client counts, not the server's processing of a chunk.
pub struct PacedBody {
    payload: Payload,
    is_declared: bool,
    received: u64,
    waited: Duration,
}

impl PacedBody {
    pub fn new(request: &HttpRequest, payload: Payload) -> Self {
        Self {
            payload,
            is_declared: declared_length(request).is_some(),
            received: 0,
            waited: Duration::ZERO,
        }
    }

    /// Returns the next chunk, or None at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let left = self.allowed().saturating_sub(self.waited);
        let began = Instant::now();
        let chunk = tokio::time::timeout(left, next_chunk(&mut self.payload)).await;
        let chunk = chunk.unwrap_or_else(|_| Err(ApiError::slow_body()))?;
        self.waited = self.waited.saturating_add(began.elapsed());
        let length = chunk.as_ref().map_or(0, Bytes::len);
        self.received = self.received.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        Ok(chunk)
    }

    /// The waiting time that the received bytes allow.
    fn allowed(&self) -> Duration {
        let allowed = GRACE.saturating_add(Duration::from_millis(self.received.saturating_mul(1000) / MIN_RATE));
        if self.is_declared {
            allowed
        } else {
            allowed.min(MAX_UNDECLARED_WAIT)
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::error::PayloadError;
    use actix_web::test::TestRequest;
    use futures_util::{StreamExt as _, stream};

    use super::*;
    use crate::error::ErrorCode;

    /// An endless body: a chunk of `bytes` bytes at every `interval`.
    fn endless(bytes: usize, interval: Duration, length: Option<&str>) -> PacedBody {
        let chunks = stream::repeat(()).then(move |()| async move {
            tokio::time::sleep(interval).await;
            Ok::<_, PayloadError>(Bytes::from(vec![b'x'; bytes]))
        });
        let request = TestRequest::post();
        let request = match length {
            Some(length) => request.insert_header(("Content-Length", length)),
            None => request,
        };
        let payload = Payload::Stream {
            payload: chunks.boxed_local(),
        };
        PacedBody::new(&request.to_http_request(), payload)
    }

    /// Reads until the body is too slow. Returns the number of chunks, and the time.
    async fn read_until_slow(mut body: PacedBody) -> (usize, Duration) {
        let began = Instant::now();
        let mut chunks = 0;
        loop {
            match body.next().await {
                Ok(Some(_)) => chunks += 1,
                Err(error) if error.code() == ErrorCode::SlowBody => return (chunks, began.elapsed()),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_with_trickle_is_rejected_after_the_grace() {
        for length in [None, Some("1000000000")] {
            let trickle = endless(1, Duration::from_secs(20), length);
            let (chunks, took) = read_until_slow(trickle).await;
            assert_eq!((chunks, took.as_secs()), (1, 30), "{length:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_at_half_the_rate_is_rejected_after_twice_the_grace() {
        let slow = endless(8 * 1024, Duration::from_secs(1), Some("1000000000"));
        let (_, took) = read_until_slow(slow).await;
        assert!((58..=61).contains(&took.as_secs()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn body_of_undeclared_length_has_a_maximum_wait() {
        let (chunks, took) = read_until_slow(endless(64 * 1024, Duration::from_secs(1), None)).await;
        assert_eq!((chunks, took), (3600, MAX_UNDECLARED_WAIT));
        let mut declared = endless(64 * 1024, Duration::from_secs(1), Some("1000000000"));
        for _ in 0..5000 {
            assert!(declared.next().await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn processing_time_of_the_server_does_not_count() {
        let mut body = endless(1, Duration::from_millis(10), Some("1000000000"));
        for _ in 0..100 {
            assert!(body.next().await.is_ok());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}
