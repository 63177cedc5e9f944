//! Bodies that are taken as they come, of any length: whoever sends one more slowly than `RATE` is given up.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Bytes;
use tokio::time::Instant;

use super::body::{declared_length, next_piece};
use crate::error::ApiError;

/// How long a body may be waited for beside what its length takes.
const FLOOR: Duration = Duration::from_secs(30);

/// The bytes a second that a client sends at least.
const RATE: u64 = 16 * 1024;

/// How long a body of unknown length may be waited for altogether.
const UNDECLARED: Duration = Duration::from_secs(3600);

/// A body, and how long it was waited for. What the server does with a piece takes nothing of the client's time.
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

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let left = self.allowed().saturating_sub(self.waited);
        let began = Instant::now();
        let piece = tokio::time::timeout(left, next_piece(&mut self.payload)).await;
        let piece = piece.unwrap_or(Err(ApiError::SlowBody))?;
        self.waited = self.waited.saturating_add(began.elapsed());
        let length = piece.as_ref().map_or(0, Bytes::len);
        self.received = self.received.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        Ok(piece)
    }

    /// How long the body may have been waited for by now.
    fn allowed(&self) -> Duration {
        let allowed = FLOOR.saturating_add(Duration::from_millis(self.received.saturating_mul(1000) / RATE));
        if self.is_declared {
            allowed
        } else {
            allowed.min(UNDECLARED)
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::error::PayloadError;
    use actix_web::test::TestRequest;
    use futures_util::{StreamExt as _, stream};

    use super::*;

    /// A body without end: a piece of so many bytes, again and again after a while.
    fn endless(bytes: usize, every: Duration, length: Option<&str>) -> PacedBody {
        let pieces = stream::repeat(()).then(move |()| async move {
            tokio::time::sleep(every).await;
            Ok::<_, PayloadError>(Bytes::from(vec![b'x'; bytes]))
        });
        let request = TestRequest::post();
        let request = match length {
            Some(length) => request.insert_header(("Content-Length", length)),
            None => request,
        };
        let payload = Payload::Stream {
            payload: pieces.boxed_local(),
        };
        PacedBody::new(&request.to_http_request(), payload)
    }

    /// How many pieces were taken until it was given up, and after which time.
    async fn given_up(mut body: PacedBody) -> (usize, Duration) {
        let began = Instant::now();
        let mut pieces = 0;
        loop {
            match body.next().await {
                Ok(Some(_)) => pieces += 1,
                Err(ApiError::SlowBody) => return (pieces, began.elapsed()),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_given_up_after_the_floor() {
        for length in [None, Some("1000000000")] {
            let trickle = endless(1, Duration::from_secs(20), length);
            let (pieces, took) = given_up(trickle).await;
            assert_eq!((pieces, took.as_secs()), (1, 30), "{length:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn half_the_rate_is_given_up_after_twice_the_floor() {
        let slow = endless(8 * 1024, Duration::from_secs(1), Some("1000000000"));
        let (_, took) = given_up(slow).await;
        assert!((58..=61).contains(&took.as_secs()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_unknown_length_ends_at_last() {
        let (pieces, took) = given_up(endless(64 * 1024, Duration::from_secs(1), None)).await;
        assert_eq!((pieces, took), (3600, UNDECLARED));
        let mut declared = endless(64 * 1024, Duration::from_secs(1), Some("1000000000"));
        for _ in 0..5000 {
            assert!(declared.next().await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_servers_own_time_does_not_count() {
        let mut body = endless(1, Duration::from_millis(10), Some("1000000000"));
        for _ in 0..100 {
            assert!(body.next().await.is_ok());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}
