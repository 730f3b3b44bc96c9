//! Upstreams that stand in for the internet: a git host behind Basic authentication, and a web
//! server that keeps every decrypted byte it was sent; and for the client matrix a plain web server, model
//! APIs, GitHub's and Proxmox VE's APIs, gRPC and WebSocket.
//!
//! Both speak TLS with a leaf of a private authority (see [`crate::pki`]) and HTTP/1.1. They listen
//! before they say so, and say so by writing their address into a ready file.

pub mod git;
pub mod github;
pub mod graphql;
pub mod grpc;
pub mod https;
pub mod lfs;
pub mod listener;
pub mod model;
pub mod plain;
pub mod proxmox;
pub mod server;
pub mod websocket;
