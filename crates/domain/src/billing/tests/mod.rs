//! Tests of the use cases with the in-memory store and gateway, which can fail. The rule of gateway events is tested
//! as a property.

mod changes;
mod events;
mod fixture;
mod reconciler;
mod rule;
mod subscribe;
