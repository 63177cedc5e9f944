//! Use cases against a store and a gateway in memory that break on command, and the rule of events as a property.

mod changes;
mod events;
mod fakes;
mod gateway;
mod reconciler;
mod rule;
mod subscribe;
