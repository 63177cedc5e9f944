//! Checks of what ships besides the program: the image, the systemd unit and the minimum Rust
//! version.

mod buildah;
mod container;
mod image;
mod minimum_rust;
mod systemd_unit;

pub(crate) use image::check as image;
pub(crate) use minimum_rust::check as minimum_rust;
pub(crate) use systemd_unit::check as systemd_unit;
