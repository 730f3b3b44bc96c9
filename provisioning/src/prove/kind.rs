//! The words a proof may use: what is attempted, as whom, when, and what has to come of it.

use serde::{Deserialize, Serialize};

/// One of a closed list of words in `proofs.toml`.
pub trait Word: Copy + Sized + 'static {
    /// Every value with its word.
    const WORDS: &'static [(&'static str, Self)];

    /// The value of a word.
    #[must_use]
    fn of(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, value)| *value)
    }
}

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $value,)+ }

        impl Word for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value),)+];
        }

        impl $name {
            /// The word of this value.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }
        }
    };
}

words! {
    /// What is attempted.
    Kind {
        /// A TCP connection to the outside peer, and a word sent over it.
        Tcp = "tcp",
        /// The same with data in the first packet.
        FastOpen = "tcp-fast-open",
        /// The same over the peer's link-local address.
        LinkLocal = "tcp-link-local",
        /// A TCP connection from an address that is the peer's own, so that a refusal would travel there.
        SpoofedTcp = "spoofed-tcp",
        /// A datagram to the outside peer.
        Udp = "udp",
        /// The same over UDP-Lite.
        UdpLite = "udp-lite",
        /// A datagram from an address that is the peer's own.
        SpoofedUdp = "spoofed-udp",
        /// A DNS question to the outside peer.
        Dns = "dns",
        /// An echo request through a datagram socket.
        Icmp = "icmp",
        /// An echo request through a raw socket.
        Raw = "raw",
        /// A socket that writes frames to the interface itself.
        Packet = "packet",
        /// The set-user-id `ping` of this machine.
        Ping = "ping-program",
        /// The peer connects to a port that the user listens on.
        Inbound = "inbound",
        /// The peer asks for this machine's link address.
        Neighbour = "neighbour",
        /// A connection is closed, and the peer hears the end of it.
        Finish = "finish",
        /// A flow that is older than the rules, in a world of its own into which they are loaded.
        OlderFlow = "older-flow",
        /// Sending while the rules are replaced, likewise.
        Reload = "reload",
        /// A container behind this machine, likewise.
        Forwarded = "forwarded",
        /// What systemd starts, and after what.
        BootOrder = "boot-order",
        /// TCP to a service on this machine's loopback.
        LoopbackTcp = "loopback-tcp",
        /// A datagram to one.
        LoopbackUdp = "loopback-udp",
        /// TCP to one from the gate's own port.
        FromGatePort = "loopback-from-gate-port",
        /// TCP to the gate's port.
        GatePort = "gate-port",
        /// TCP to the gate's port while nobody listens there.
        GateAway = "gate-port-closed",
        /// Answering from the gate's port.
        Squat = "squat-port",
        /// The same by a listener whose queue is full: its handshakes have no uid.
        SquatFull = "squat-port-full",
        /// The boundary's counters name the user.
        Counted = "counted",
        /// Any message to the kernel's packet filter.
        Netlink = "netlink",
        /// Connecting to a unix socket.
        ConnectPath = "connect-path",
        /// A question to the gate's control socket.
        ControlSocket = "control-socket",
        /// Opening files for reading.
        FileReadable = "file-readable",
        /// Opening files for writing.
        FileWritable = "file-writable",
        /// Reading another process: its memory, environment, descriptors, and tracing it.
        ProcessMemory = "process-memory",
        /// Finding a credential in what can be read of all processes.
        ProcessEnvironment = "process-environment",
        /// Variables of the user's own environment.
        Environment = "environment",
        /// Becoming another user through the set-user-id helpers of user namespaces.
        NewUidMap = "newuidmap",
        /// The same for groups.
        NewGidMap = "newgidmap",
        /// Owning subordinate ids.
        SubordinateIds = "subordinate-ids",
        /// A process of the agents that may gain rights by executing a file.
        NewPrivileges = "new-privileges",
        /// A process of the agents that has a capability.
        Capabilities = "capabilities",
        /// Set-user-id files that an agent could use.
        SetUserId = "set-user-id",
        /// Commands for later, or for another manager of the user's own: timed ones, and systemd's for users.
        Later = "later",
        /// Becoming the gate's user.
        BecomeGate = "become-gate",
        /// Sharing the gate's user id with another program.
        GateNeighbour = "gate-neighbour",
        /// Core dumps of the gate.
        CoreDump = "core-dump",
        /// A socket of somebody else's in an agent's hands.
        InheritedSocket = "inherited-socket",
        /// Being in a group that is as good as root.
        Groups = "groups",
        /// Programs that run others as another user.
        Elevate = "elevate",
        /// A service of this machine that resolves names, or finds hosts, for whoever asks.
        NameService = "name-service",
        /// What nobody forbids: sockets where there are no rules, files, programs.
        Able = "able",
        /// A request through the gate with credentials of the client's own.
        GateHeaders = "gate-headers",
        /// A request through the gate by a method that is none for a credentialed place.
        GateMethod = "gate-method",
        /// A request through the gate to a place that is down: the gate's own page.
        GateError = "gate-error",
        /// A policy for the gate that puts a credential on plain HTTP.
        GatePlain = "gate-plain-credential",
        /// A request through the gate to a place that the policy does not list.
        GateUnlisted = "gate-unlisted",
        /// A request through the gate to a place that the policy lists.
        GateListed = "gate-listed",
    }
}

words! {
    /// Who makes the attempt.
    Who {
        /// One agent, chosen from the boundary's configuration.
        Agent = "agent",
        /// The first and the last uid of every range that is shut.
        EveryAgent = "every-agent",
        /// The agent, and every account that the boundary's configuration calls an agent.
        EveryAccount = "every-account",
        /// Every user of an exception, to a place that none of its exceptions names.
        Excepted = "excepted",
        /// A user that nothing names.
        Stranger = "stranger",
        /// The gate's own user.
        Gate = "gate",
        /// Root with every capability.
        Root = "root",
    }
}

words! {
    /// A service that resolves names, or looks for hosts, in its own name.
    Service {
        /// systemd-resolved, over its own socket.
        Varlink = "resolved-varlink",
        /// The same over the system's D-Bus.
        Bus = "resolved-bus",
        /// A resolver that listens on loopback: that of systemd, and those that `/etc/resolv.conf` names.
        Stub = "stub",
        /// The name service's cache, which asks resolvers itself.
        Nscd = "nscd",
        /// The daemon of multicast DNS.
        Avahi = "avahi",
    }
}

impl Service {
    /// Where it listens, by any of its names.
    #[must_use]
    pub fn sockets(self) -> &'static [&'static str] {
        match self {
            Self::Varlink => &["/run/systemd/resolve/io.systemd.Resolve"],
            Self::Bus => &[
                "/run/dbus/system_bus_socket",
                "/var/run/dbus/system_bus_socket",
            ],
            Self::Stub => &[],
            Self::Nscd => &["/run/nscd/socket", "/var/run/nscd/socket"],
            Self::Avahi => &["/run/avahi-daemon/socket", "/var/run/avahi-daemon/socket"],
        }
    }
}

words! {
    /// What has to come of it.
    Must {
        Fail = "fail",
        Succeed = "succeed",
    }
}

words! {
    /// Internet protocols.
    Families {
        Ipv4 = "ipv4",
        Ipv6 = "ipv6",
        Both = "both",
    }
}

words! {
    /// Where the attempt is made from.
    Inside {
        /// As root of a user namespace of the user's own.
        UserNamespace = "user-namespace",
        /// The same, with a network namespace as well.
        NetworkNamespace = "network-namespace",
    }
}

words! {
    /// On which hosts a proof is meant.
    OnlyIn {
        Agents = "agents",
        Guest = "guest",
    }
}

words! {
    /// How a refused caller has to hear it.
    Answer {
        /// At once, by a reset.
        Reset = "reset",
        /// At once, by an error.
        Error = "error",
    }
}

impl Kind {
    /// Whether it aims at the outside peer and is judged by what arrives there.
    #[must_use]
    pub fn aims_at_peer(self) -> bool {
        matches!(
            self,
            Self::Tcp
                | Self::FastOpen
                | Self::LinkLocal
                | Self::SpoofedTcp
                | Self::Udp
                | Self::UdpLite
                | Self::SpoofedUdp
                | Self::Dns
                | Self::Icmp
                | Self::Raw
                | Self::Ping
        )
    }

    /// Whether it exists once per Internet protocol.
    #[must_use]
    pub fn has_family(self) -> bool {
        self.aims_at_peer()
            || matches!(
                self,
                Self::Inbound
                    | Self::Neighbour
                    | Self::Finish
                    | Self::LoopbackTcp
                    | Self::LoopbackUdp
                    | Self::FromGatePort
                    | Self::GatePort
                    | Self::GateAway
                    | Self::Squat
                    | Self::SquatFull
            )
    }

    /// Whether it needs `ports`.
    #[must_use]
    pub fn has_ports(self) -> bool {
        matches!(
            self,
            Self::Tcp
                | Self::FastOpen
                | Self::LinkLocal
                | Self::SpoofedTcp
                | Self::Udp
                | Self::UdpLite
                | Self::SpoofedUdp
                | Self::Dns
                | Self::Finish
        )
    }

    /// Whether it needs `names`.
    #[must_use]
    pub fn has_names(self) -> bool {
        matches!(
            self,
            Self::Environment | Self::NameService | Self::GateMethod
        )
    }

    /// Whether yes and no are both said here, by this machine itself: silence is neither.
    #[must_use]
    pub fn is_answered_aloud(self) -> bool {
        matches!(
            self,
            Self::ConnectPath
                | Self::ControlSocket
                | Self::FileReadable
                | Self::FileWritable
                | Self::NameService
                | Self::GateListed
                | Self::GateUnlisted
                | Self::GateHeaders
                | Self::GateMethod
                | Self::GateError
        )
    }

    /// Whether it needs `headers`.
    #[must_use]
    pub fn has_headers(self) -> bool {
        matches!(self, Self::GateHeaders | Self::GateError)
    }

    /// Whether it needs `paths`.
    #[must_use]
    pub fn has_paths(self) -> bool {
        matches!(
            self,
            Self::ConnectPath | Self::FileReadable | Self::FileWritable
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_to_their_values_and_back() {
        for (word, kind) in Kind::WORDS {
            assert_eq!(Kind::of(word), Some(*kind));
            assert_eq!(kind.word(), *word);
        }
        assert_eq!(Kind::of("tpc"), None);
        assert!(Kind::Tcp.aims_at_peer() && !Kind::Squat.aims_at_peer());
    }
}
