//! The outside world, behind ports of the domain: the messaging platform, the payment gateway, the identity provider and the
//! AI service over HTTP, addresses that tenants choose through a guarded client, mail over SMTP, the store of files.
#![doc = include_str!("../README.md")]

pub mod ai;
pub mod brand;
pub mod egress;
pub mod http;
pub mod mail;
pub mod media;
mod meter;
pub mod payment;
pub mod sessions;
pub mod webhooks;
pub mod whatsapp;

pub use meter::TRACED;
