//! The queued jobs, from which callbacks are made.

use std::sync::Arc;

use serde_json::Value;

/// The fields of an accepted message that its status updates need.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) number: String,
    pub(super) waba: String,
    pub(super) recipient: String,
    pub(super) by_user_id: bool,
    pub(super) callback_data: Option<String>,
    pub(super) category: String,
    /// Whether it is free: a utility template within an open service window.
    pub(super) is_free: bool,
}

/// A queued job.
#[derive(Debug, Clone)]
pub(super) enum Job {
    Status {
        message: Arc<Message>,
        status: &'static str,
        /// Unix time of the status in seconds. It does not depend on the order of the callbacks.
        at: u64,
        wrong_signature: bool,
    },
    /// WhatsApp's decision on a template. It has no effect if the template changed meanwhile.
    Decide {
        id: u64,
        version: u32,
        event: &'static str,
        reason: Option<String>,
    },
    /// Any other change, as it is sent.
    Change { waba: String, change: Value },
}
