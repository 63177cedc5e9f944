//! The fault matrix: what must hold when a server, the platform or the database fails, and when people get in each
//! other's way. Each file is a kind of fault.

mod acknowledged;
mod anonymous;
mod answers;
mod bodies;
mod budgets;
mod clocks;
mod connections;
mod disks;
mod fuzz;
mod kills;
mod months;
mod outages;
mod races;
mod rollouts;
mod secrets;
mod shares;
mod starvation;
mod stops;
mod timing;
