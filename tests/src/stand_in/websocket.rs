//! A WebSocket server that sends every message back.

use std::io;

use tokio_tungstenite::tungstenite::Message;

use super::listener::Listen;

/// Serves until the process ends. Errors are those of binding.
pub async fn serve(listen: &Listen) -> io::Result<()> {
    use futures_util::{SinkExt, StreamExt};
    let bound = listen.bind().await?;
    loop {
        let Ok((stream, _)) = bound.tcp.accept().await else {
            continue;
        };
        let tls = bound.tls.clone();
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
                return;
            };
            while let Some(Ok(message)) = socket.next().await {
                let back = match message {
                    Message::Text(_) | Message::Binary(_) => message,
                    _ => continue,
                };
                if socket.send(back).await.is_err() {
                    return;
                }
            }
        });
    }
}
