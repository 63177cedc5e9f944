//! Bodies of callbacks. They are read before their callers are authenticated, so they share one memory budget.

use std::ops::Deref;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::read_reserving;
use crate::error::ApiError;

/// The maximum size of a callback in bytes.
pub const CALLBACK_BYTES: usize = 4 * 1024 * 1024;

/// The memory budget of all callback bodies of the process, in bytes.
#[derive(Clone)]
pub struct CallbackMemory(Arc<Semaphore>);

/// A callback body. Dropping it returns its part of the budget.
pub struct CallbackBody {
    bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl CallbackMemory {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Reads a whole body. Only received bytes count, not `Content-Length`: a declaration costs the caller nothing.
    pub async fn read(&self, request: &HttpRequest, payload: Payload) -> Result<CallbackBody, ApiError> {
        let mut share: Option<OwnedSemaphorePermit> = None;
        let reserve = |length: usize| {
            let more = u32::try_from(length).ok();
            let more = more.and_then(|length| self.0.clone().try_acquire_many_owned(length).ok());
            let more = more
                .ok_or_else(|| ApiError::unavailable("the memory for callback bodies (CALLBACK_MEMORY) is used up"))?;
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
