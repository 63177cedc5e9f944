//! The outside world, behind ports of the domain: the messaging platform, the identity provider, the store of files.
#![doc = include_str!("../README.md")]

pub mod http;
pub mod media;
pub mod sessions;
pub mod whatsapp;
