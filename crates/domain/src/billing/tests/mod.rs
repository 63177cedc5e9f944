//! Tests of the use cases with an in-memory store and gateway that inject faults. The rule of gateway events is tested
//! as a property.

mod changes;
mod events;
mod fakes;
mod gateway;
mod reconciler;
mod rule;
mod subscribe;
