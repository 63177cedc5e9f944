//! The outside systems as small servers: [`whatsapp`], [`payment`], [`ai`] and [`smtp`],
//! and the systems of our customers that webhooks go to: [`receiver`]. Beside them stand servers that say whatever
//! bytes a test has for them: [`raw`]. The other modules are what they share: a
//! server on a thread of its own (`host`), its control routes (`control`), the record of what it received
//! ([`ledger`]), scripted faults ([`fault`]) and the background worker that posts callbacks (`callback_sender`).
//!
#![doc = include_str!("../README.md")]

pub mod ai;
mod callback_sender;
mod control;
pub mod fault;
mod host;
pub mod ledger;
pub mod payment;
pub mod raw;
pub mod receiver;
pub mod smtp;
pub mod whatsapp;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not another thread panicked while it held the lock: a simulator keeps answering.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The wall clock in milliseconds since 1970.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// Sets a field of a JSON object.
fn set(object: &mut serde_json::Value, field: &str, value: serde_json::Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}
