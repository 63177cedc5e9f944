//! Simulators of the external systems: [`whatsapp`], [`payment`], [`ai`], [`smtp`], and [`receiver`] for a customer's
//! system that receives webhooks. [`raw`] holds servers that send any bytes that a test chooses. The other modules are
//! shared: an HTTP server on its own thread (`host`), its requests and responses (`call`), its control routes
//! (`control`), the record of received requests ([`ledger`]), scripted faults ([`fault`]) and the background worker
//! that posts callbacks (`callback_sender`).
//!
#![doc = include_str!("../README.md")]

pub mod ai;
mod call;
mod callback_sender;
pub mod certificates;
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

/// Locks a mutex even if it is poisoned, so that a simulator responds after a thread panicked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The wall clock in milliseconds since 1970.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

fn set(object: &mut serde_json::Value, field: &str, value: serde_json::Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}
