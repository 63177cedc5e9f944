//! Bodies of callbacks, whose callers have proved nothing when they are read: they share one budget of bytes.

use std::ops::Deref;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::{CALLBACK_BYTES, read_reserving};
use crate::error::ApiError;

/// The bytes of all callback bodies that the process holds.
#[derive(Clone)]
pub struct CallbackMemory(Arc<Semaphore>);

/// A body; its share of the budget is given back when it is dropped.
pub struct CallbackBody {
    bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl CallbackMemory {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Reads a whole body. What has arrived counts, not what was announced: an announcement costs the caller nothing.
    pub async fn read(&self, request: &HttpRequest, payload: Payload) -> Result<CallbackBody, ApiError> {
        let mut share: Option<OwnedSemaphorePermit> = None;
        let reserve = |length: usize| {
            let more = u32::try_from(length).ok();
            let more = more.and_then(|length| self.0.clone().try_acquire_many_owned(length).ok());
            let more = more.ok_or_else(|| {
                ApiError::Unavailable("the memory for callback bodies (CALLBACK_MEMORY) is used up".into())
            })?;
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
            Ok(())
        };
        let bytes = read_reserving(request, payload, CALLBACK_BYTES, reserve).await?;
        Ok(CallbackBody { bytes, _share: share })
    }
}

impl Deref for CallbackBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
