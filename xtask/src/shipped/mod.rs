//! Checks of what ships besides the program: the image, the systemd unit, the minimum Rust version, and the version that
//! shipped before.

mod buildah;
mod container;
mod image;
mod minimum_rust;
mod previous;
mod systemd_unit;

pub(crate) use image::check as image;
pub(crate) use minimum_rust::check as minimum_rust;
pub(crate) use previous::build as build_previous;
pub(crate) use systemd_unit::check as systemd_unit;
