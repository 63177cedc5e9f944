//! The services the product needs: found, else installed, and run privately on free ports of 127.0.0.1.
//!
//! Whatever is started here is stopped when its value is dropped, whichever way that comes about.

pub(crate) mod find;
mod install;
mod owner;
pub(crate) mod postgres;
pub(crate) mod redis;

pub(crate) use find::{postgres as find_postgres, wrk_or_install};

use std::net::TcpListener;

use crate::error::{Context, Result};

/// A port nobody listens on. Somebody may take it before we use it; who starts a service then tries again.
pub(crate) fn free_port() -> Result<u16> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .context(|| "cannot find a free port".to_owned())
}
