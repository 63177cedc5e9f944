//! Fault injection (`docs/faults.md`): failures of servers, WhatsApp and the database, hostile clients, and concurrent
//! commands. Each file covers one kind of fault. `F01` and `R1` at a test are rows of that document.

mod acknowledged;
mod anonymous;
mod bodies;
mod budgets;
mod clocks;
mod connections;
mod disks;
mod fuzz;
mod kills;
mod media_kills;
mod message_kills;
mod months;
mod outages;
mod races;
mod responses;
mod rollouts;
mod secrets;
mod shares;
mod starvation;
mod stops;
mod timing;
mod versions;
