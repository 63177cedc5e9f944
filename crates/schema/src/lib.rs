//! The tables for diesel's query language. They are a crate of their own because their macros are most of what the
//! compiler has to expand for the stores: a change of the domain does not compile them again.
#![doc = include_str!("../README.md")]

mod tables;

pub use tables::*;

diesel::allow_tables_to_appear_in_same_query!(webhook_endpoint_ids, webhook_endpoints, accounts);
