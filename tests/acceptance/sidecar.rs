//! The gate as a container beside somebody's own agent containers: the shipped image, the shipped compose files, a real
//! engine.

mod alone;
mod entrypoint;
mod image;
mod lab;
mod shared;
