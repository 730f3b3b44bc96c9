//! Loopback connections in, one unix connection each out.

use std::io::{self, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Connections carried at once; more are answered and closed.
pub const CONNECTIONS: usize = 280;

/// Each takes two descriptors, of the 1,024 that a process has unless somebody gave it more, and so
/// does one of [`super::direct`], which has listeners and clients of its own.
const _: () = assert!(2 * (CONNECTIONS + super::direct::CONNECTIONS) + 128 <= 1024);

/// How long to wait for something to end when descriptors or memory have run out.
const BREATH: Duration = Duration::from_millis(10);

/// What a client hears when the gate's socket does not answer.
pub(super) const GATE_AWAY: &[u8] = b"HTTP/1.1 503 Portcullis gate is not answering\r\n\
Content-Type: text/plain\r\nConnection: close\r\nRetry-After: 1\r\n\r\n\
portcullis: the gate is not answering, so nothing leaves; try again shortly\n";

/// What a client hears when too many connections are open.
pub(super) const TOO_MANY: &[u8] =
    b"HTTP/1.1 429 Too many connections through the Portcullis relay\r\n\
Content-Type: text/plain\r\nConnection: close\r\nRetry-After: 1\r\n\r\n\
portcullis: this run has too many connections open; close some and try again\n";

/// Listens on `address` (and on `[::1]` with the same port when it is IPv4 loopback and IPv6
/// exists) and pumps every connection to the unix socket `gate`, in threads of its own.
/// Returns the addresses bound.
///
/// # Errors
/// `address` cannot be bound.
pub fn listen(address: SocketAddr, gate: &Path) -> io::Result<Vec<SocketAddr>> {
    let open = Arc::new(AtomicUsize::new(0));
    let first = TcpListener::bind(address)?;
    let mut bound = vec![first.local_addr()?];
    serve(first, gate.to_owned(), Arc::clone(&open));
    if address.is_ipv4() && address.ip().is_loopback() {
        let other = SocketAddr::from((Ipv6Addr::LOCALHOST, bound[0].port()));
        if let Ok(second) = TcpListener::bind(other) {
            bound.push(other);
            serve(second, gate.to_owned(), open);
        }
    }
    Ok(bound)
}

fn serve(listener: TcpListener, gate: PathBuf, open: Arc<AtomicUsize>) {
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else {
                // Out of descriptors or memory: let some connections end first.
                thread::sleep(BREATH);
                continue;
            };
            let gate = gate.clone();
            let slot = Slot::take(&open);
            let carried = small_thread().spawn(move || carry(client, &gate, slot));
            // No thread means no memory: the dropped socket tells the client.
            drop(carried);
        }
    });
}

fn carry(mut client: TcpStream, gate: &Path, slot: Slot) {
    let _best_effort = client.set_nodelay(true);
    if !slot.granted {
        let _unheard = client.write_all(TOO_MANY);
        return;
    }
    match UnixStream::connect(gate) {
        Ok(gate) => both_ways(&client, &gate),
        Err(_away) => {
            let _unheard = client.write_all(GATE_AWAY);
        }
    }
}

/// Copies until both directions have ended; the end of one is passed on as a half-close.
fn both_ways(client: &TcpStream, gate: &UnixStream) {
    thread::scope(|scope| {
        let upwards = small_thread().spawn_scoped(scope, || {
            let ended = io::copy(&mut &*client, &mut &*gate);
            // A broken direction breaks the other: nobody is left to read it.
            let how = if ended.is_ok() {
                Shutdown::Write
            } else {
                Shutdown::Both
            };
            let _gone = gate.shutdown(how);
        });
        // The command may use up the container's processes; one direction alone is of no use.
        if upwards.is_err() {
            return;
        }
        let ended = io::copy(&mut &*gate, &mut &*client);
        let how = if ended.is_ok() {
            Shutdown::Write
        } else {
            Shutdown::Both
        };
        let _gone = client.shutdown(how);
        if ended.is_err() {
            let _gone = gate.shutdown(Shutdown::Both);
        }
    });
}

fn small_thread() -> thread::Builder {
    thread::Builder::new().stack_size(128 * 1024)
}

/// One of the [`CONNECTIONS`]; given back on drop.
struct Slot {
    open: Arc<AtomicUsize>,
    granted: bool,
}

impl Slot {
    fn take(open: &Arc<AtomicUsize>) -> Self {
        let granted = open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS;
        Self {
            open: Arc::clone(open),
            granted,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
