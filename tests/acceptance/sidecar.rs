//! The gate as a container beside somebody's own agent containers: the shipped image, the shipped compose files, a real
//! engine.

mod alone;
mod entrypoint;
mod hostile;
pub(crate) mod image;
mod internal;
mod lab;
mod lxc;
pub(crate) mod reboot;
mod shared;
mod stored;
