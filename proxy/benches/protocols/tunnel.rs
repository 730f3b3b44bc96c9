//! What the gate is compared with: a proxy that opens a tunnel and copies, and looks at nothing.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::processors::{self, Side};

/// Starts one that leads to `origin`, whatever it is asked for, on a thread of its own, which is
/// never stopped.
pub(crate) fn start(origin: SocketAddr) -> SocketAddr {
    let (sender, address) = std::sync::mpsc::channel();
    let serving = move || {
        let runtime = processors::runtime_on(Side::Gate(1));
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(lead(client, origin));
            }
        });
    };
    // By its name its time is found.
    std::thread::Builder::new()
        .name("gate-tunnel".to_owned())
        .spawn(serving)
        .unwrap();
    address.recv().unwrap()
}

async fn lead(mut client: TcpStream, origin: SocketAddr) {
    client.set_nodelay(true).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let mut upstream = TcpStream::connect(origin).await.unwrap();
    upstream.set_nodelay(true).unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    // However a connection ends, there will be others.
    let _ = copy_bidirectional(&mut client, &mut upstream).await;
}
