//! The outside world over HTTP, behind ports of the domain: the messaging platform and the identity provider.
#![doc = include_str!("../README.md")]

pub mod http;
pub mod sessions;
pub mod whatsapp;
