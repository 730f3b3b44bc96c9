//! `[limits]`: a bound for everything that somebody else can make grow or wait, each with its
//! default. Durations are whole seconds in the file (`…_seconds`).

use std::time::Duration;

use super::document::Section;

/// Bounds, in force for the whole process unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `leaf_cache` (1024): certificates kept for reuse.
    pub leaf_cache: usize,
    /// `connections` (4096): client connections open at once, all entrances together.
    pub connections: usize,
    /// `connections_per_run` (256): client connections open at once of one run or one uid.
    pub connections_per_run: usize,
    /// `exchanges_per_run` (512): requests under way at once of one run or one uid, on all its
    /// connections together.
    pub exchanges_per_run: usize,
    /// `runs` (1024): runs open at once.
    pub runs: usize,
    /// `lease_seconds` (3600): the longest lease a peer may ask for.
    pub lease: Duration,
    /// `head_bytes` (65536): the longest request or response head.
    pub head_bytes: usize,
    /// `head_headers` (100): the most fields in a head.
    pub head_headers: usize,
    /// `head_timeout_seconds` (30): from a connection or the last answer to a complete head.
    pub head_timeout: Duration,
    /// `idle_timeout_seconds` (300): the longest silence within one exchange.
    pub idle_timeout: Duration,
    /// `handshake_timeout_seconds` (10): TLS with the client, and with the upstream.
    pub handshake_timeout: Duration,
    /// `connect_timeout_seconds` (10): resolving and dialling, all addresses together.
    pub connect_timeout: Duration,
    /// `response_timeout_seconds` (600): from a request's last byte to the response's head.
    pub response_timeout: Duration,
    /// `push_commands_bytes` (1048576): the command list of a push, read before it is judged.
    pub push_commands_bytes: usize,
    /// `inspected_bytes` (268435456): room for all bodies together that are read whole before they are
    /// judged.
    pub inspected_bytes: usize,
    /// `inspect_seconds` (60): how long such a body may take to arrive.
    pub inspect_timeout: Duration,
    /// `pool_idle` (64): upstream connections kept idle per authority.
    pub pool_idle: usize,
    /// `pool_idle_seconds` (30): how long one is kept.
    pub pool_idle_timeout: Duration,
    /// `control_body_bytes` (1048576): a request body on the control socket.
    pub control_body_bytes: usize,
    /// `control_connections` (64): control connections open at once.
    pub control_connections: usize,
    /// `new_names` (200): names that one run or uid may look up anew within ten seconds.
    pub new_names: usize,
    /// `refuse_inside_tls` (true): a tunnel to an unlisted host is opened as far as a leaf, so that
    /// its refusal can be read; false refuses the CONNECT and mints nothing.
    pub refuse_inside_tls: bool,
    /// `http2` (true): HTTP/2 is offered to clients where the upstream speaks it.
    pub http2: bool,
    /// `streams` (128): requests at once on one HTTP/2 connection of a client.
    pub streams: u32,
    /// `stream_window_bytes` (1048576): what one HTTP/2 stream may send before the gate asks for
    /// more.
    pub stream_window_bytes: u32,
    /// `connection_window_bytes` (2097152): the same for all streams of a connection together.
    pub connection_window_bytes: u32,
    /// `resets_per_second` (200): HTTP/2 streams that a peer may reset in a second.
    pub resets_per_second: u32,
    /// `idle_frames_per_second` (4000): HTTP/2 frames that carry nothing (PING, PRIORITY, empty DATA,
    /// tiny WINDOW_UPDATE; SETTINGS counts as 20) in a second.
    pub idle_frames_per_second: u32,
    /// `dns_cache` (1024): look-ups of upstreams' names whose answers are kept, each for as long as it
    /// says and no longer than five minutes.
    pub dns_cache: usize,
    /// `protocols` (1024): upstreams of which it is remembered whether they speak HTTP/2.
    pub protocols: usize,
    /// `protocols_seconds` (600): for how long.
    pub protocols_timeout: Duration,
    /// `drain_seconds` (2): what an exchange in flight is given when the gate stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            leaf_cache: 1024,
            connections: 4096,
            connections_per_run: 256,
            exchanges_per_run: 512,
            runs: 1024,
            lease: Duration::from_secs(3600),
            head_bytes: 64 * 1024,
            head_headers: 100,
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(600),
            push_commands_bytes: 1024 * 1024,
            inspected_bytes: 256 * 1024 * 1024,
            inspect_timeout: Duration::from_secs(60),
            pool_idle: 64,
            pool_idle_timeout: Duration::from_secs(30),
            control_body_bytes: 1024 * 1024,
            control_connections: 64,
            new_names: 200,
            refuse_inside_tls: true,
            http2: true,
            streams: 128,
            stream_window_bytes: 1024 * 1024,
            connection_window_bytes: 2 * 1024 * 1024,
            resets_per_second: 200,
            idle_frames_per_second: 4000,
            dns_cache: 1024,
            protocols: 1024,
            protocols_timeout: Duration::from_secs(600),
            drain: Duration::from_secs(2),
        }
    }
}

impl Limits {
    pub(super) fn read(section: Option<Section<'_, '_>>) -> Self {
        let mut limits = Self::default();
        let Some(mut section) = section else {
            return limits;
        };
        count(
            &mut section,
            "leaf_cache",
            1,
            1 << 20,
            &mut limits.leaf_cache,
        );
        count(
            &mut section,
            "connections",
            1,
            1 << 20,
            &mut limits.connections,
        );
        count(
            &mut section,
            "connections_per_run",
            1,
            1 << 16,
            &mut limits.connections_per_run,
        );
        count(
            &mut section,
            "exchanges_per_run",
            1,
            1 << 20,
            &mut limits.exchanges_per_run,
        );
        count(&mut section, "runs", 1, 1 << 16, &mut limits.runs);
        seconds(&mut section, "lease_seconds", &mut limits.lease);
        // hyper refuses a read buffer under 8 KiB.
        count(
            &mut section,
            "head_bytes",
            8 * 1024,
            1 << 20,
            &mut limits.head_bytes,
        );
        count(
            &mut section,
            "head_headers",
            16,
            4096,
            &mut limits.head_headers,
        );
        seconds(
            &mut section,
            "head_timeout_seconds",
            &mut limits.head_timeout,
        );
        seconds(
            &mut section,
            "idle_timeout_seconds",
            &mut limits.idle_timeout,
        );
        seconds(
            &mut section,
            "handshake_timeout_seconds",
            &mut limits.handshake_timeout,
        );
        seconds(
            &mut section,
            "connect_timeout_seconds",
            &mut limits.connect_timeout,
        );
        seconds(
            &mut section,
            "response_timeout_seconds",
            &mut limits.response_timeout,
        );
        count(
            &mut section,
            "push_commands_bytes",
            1024,
            64 << 20,
            &mut limits.push_commands_bytes,
        );
        count(
            &mut section,
            "inspected_bytes",
            1024,
            1 << 40,
            &mut limits.inspected_bytes,
        );
        seconds(&mut section, "inspect_seconds", &mut limits.inspect_timeout);
        count(&mut section, "pool_idle", 0, 1024, &mut limits.pool_idle);
        seconds(
            &mut section,
            "pool_idle_seconds",
            &mut limits.pool_idle_timeout,
        );
        count(
            &mut section,
            "control_body_bytes",
            1024,
            64 << 20,
            &mut limits.control_body_bytes,
        );
        count(
            &mut section,
            "control_connections",
            1,
            4096,
            &mut limits.control_connections,
        );
        count(&mut section, "new_names", 1, 1 << 20, &mut limits.new_names);
        if let Some(inside) = section.boolean("refuse_inside_tls") {
            limits.refuse_inside_tls = inside;
        }
        if let Some(http2) = section.boolean("http2") {
            limits.http2 = http2;
        }
        small(&mut section, "streams", 1, 4096, &mut limits.streams);
        // The protocol's own bounds: no less than its default, no more than 31 bits.
        let windows = (65_535, (1 << 31) - 1);
        for (key, into) in [
            ("stream_window_bytes", &mut limits.stream_window_bytes),
            (
                "connection_window_bytes",
                &mut limits.connection_window_bytes,
            ),
        ] {
            small(&mut section, key, windows.0, windows.1, into);
        }
        for (key, into) in [
            ("resets_per_second", &mut limits.resets_per_second),
            ("idle_frames_per_second", &mut limits.idle_frames_per_second),
        ] {
            small(&mut section, key, 1, 1 << 20, into);
        }
        count(&mut section, "dns_cache", 0, 1 << 20, &mut limits.dns_cache);
        count(&mut section, "protocols", 1, 1 << 20, &mut limits.protocols);
        seconds(
            &mut section,
            "protocols_seconds",
            &mut limits.protocols_timeout,
        );
        seconds(&mut section, "drain_seconds", &mut limits.drain);
        section.close();
        limits
    }
}

fn count(
    section: &mut Section<'_, '_>,
    key: &'static str,
    least: usize,
    most: usize,
    into: &mut usize,
) {
    let Some(number) = section.integer(key) else {
        return;
    };
    match usize::try_from(number.value) {
        Ok(value) if (least..=most).contains(&value) => *into = value,
        Ok(_) | Err(_) => section.problem(
            number.at,
            key,
            format!("{} is not between {least} and {most}", number.value),
            &format!("leave it out for the default of {into}"),
        ),
    }
}

fn small(section: &mut Section<'_, '_>, key: &'static str, least: u32, most: u32, into: &mut u32) {
    let wide = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let mut value = wide(*into);
    count(section, key, wide(least), wide(most), &mut value);
    *into = u32::try_from(value).unwrap_or(*into);
}

fn seconds(section: &mut Section<'_, '_>, key: &'static str, into: &mut Duration) {
    let mut value = usize::try_from(into.as_secs()).unwrap_or(usize::MAX);
    count(section, key, 1, 86_400, &mut value);
    *into = Duration::from_secs(u64::try_from(value).unwrap_or(u64::MAX));
}
