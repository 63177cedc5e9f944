//! Adapters to other systems, behind ports of the domain: WhatsApp, the payment gateway, the identity provider and the
//! AI service over HTTP, URLs of tenants through the egress client, mail over SMTP, and the media store.
#![doc = include_str!("../README.md")]

pub mod ai;
pub mod brand;
pub mod egress;
pub mod http;
pub mod mail;
pub mod media;
mod meter;
pub mod payment;
mod runtime;
pub mod sessions;
pub mod tls;
pub mod webhooks;
pub mod whatsapp;
