//! The outside world, behind ports of the domain: the messaging platform, the payment gateway and the identity provider over
//! HTTP, mail over SMTP, the store of files.
#![doc = include_str!("../README.md")]

pub mod brand;
pub mod egress;
pub mod http;
pub mod mail;
pub mod media;
pub mod payment;
pub mod sessions;
pub mod webhooks;
pub mod whatsapp;
