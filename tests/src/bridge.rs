//! A TCP port on loopback in front of a unix socket, for clients that know no unix sockets.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

/// Carries connections for as long as the test's process lives.
///
/// # Panics
/// No port can be had.
#[must_use]
pub fn to(socket: &Path) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port on loopback");
    let address = listener.local_addr().expect("a bound port has an address");
    let socket = socket.to_owned();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let socket = socket.clone();
            // A client whose server is gone finds its own connection closed.
            thread::spawn(move || carry(&client, &socket));
        }
    });
    address
}

fn carry(client: &TcpStream, socket: &PathBuf) -> io::Result<()> {
    let server = UnixStream::connect(socket)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let there = thread::spawn(move || {
        let _cut = io::copy(&mut from_client, &mut to_server);
        to_server.shutdown(Shutdown::Write)
    });
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let _cut = io::copy(&mut from_server, &mut to_client);
    client.shutdown(Shutdown::Both)?;
    server.shutdown(Shutdown::Both)?;
    // Ends with the connection.
    let _ended = there.join();
    Ok(())
}
