//! The fault matrix: what must hold when a server, the platform or the database fails, and when people get in each
//! other's way. Each file is a kind of fault.

mod answers;
mod kills;
mod months;
mod outages;
mod races;
mod starvation;
mod stops;
