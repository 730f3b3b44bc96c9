//! The detour: a route over loopback that redirected users' packets find when there is no other.
//!
//! Without any route the kernel answers ENETUNREACH before a rule could redirect the packet. So a
//! routing table of the boundary's own holds a default route over `lo`, and one routing rule per
//! range of uids, behind all the usual ones, leads only these users there. What then is not
//! redirected is refused on output, so that the route carries nothing anywhere.
//!
//! Messages of `NETLINK_ROUTE`; reading needs no privilege, changing needs CAP_NET_ADMIN.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RuleUidRange};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::accounts::UidRange;
use crate::netlink::NetlinkError;
use crate::ruleset::Detour;
use crate::verify::{Difference, Kind};

/// After "main" (32766) and "default" (32767).
pub const PRIORITY: u32 = 33_000;
/// Index of the loopback interface: 1 in every network namespace.
const LOOPBACK: u32 = 1;
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// Adds what is missing and takes away what does not belong into the routing table. Without
/// `wanted`: everything of it.
pub fn apply(routing_table: u32, wanted: Option<&Detour>) -> Result<(), NetlinkError> {
    let mut connection = Connection::open()?;
    if wanted.is_some() {
        connection.raise_loopback()?;
    }
    for family in FAMILIES {
        let held = connection.held(routing_table, family)?;
        let wanted = Standing::wanted(wanted, family);
        for users in held.users.difference(&wanted.users) {
            connection.rule(routing_table, family, *users, false)?;
        }
        if held.routes > 0 && !(wanted.route && held.route && held.routes == 1) {
            connection.flush(routing_table, family)?;
        }
        if wanted.route {
            connection.route(routing_table, family)?;
        }
        for users in wanted.users.difference(&held.users) {
            connection.rule(routing_table, family, *users, true)?;
        }
    }
    Ok(())
}

/// What is missing or extra.
pub fn differences(
    routing_table: u32,
    wanted: Option<&Detour>,
) -> Result<Vec<Difference>, NetlinkError> {
    let mut connection = Connection::open()?;
    let mut found = Vec::new();
    for family in FAMILIES {
        let name = if family == AddressFamily::Inet {
            "IPv4"
        } else {
            "IPv6"
        };
        let held = connection.held(routing_table, family)?;
        let wanted = Standing::wanted(wanted, family);
        let mut add = |kind, what: String, detail: String| {
            found.push(Difference { kind, what, detail });
        };
        let route = format!("{name} route of table {routing_table}");
        if wanted.route && !held.route {
            let detail = "default over lo: without it a host without routes redirects nothing";
            add(Kind::Missing, route, detail.to_owned());
        } else if held.routes > u32::from(wanted.route) {
            add(Kind::Extra, route, format!("{} routes there", held.routes));
        }
        let rule = format!("{name} routing rule to table {routing_table}");
        for users in wanted.users.difference(&held.users) {
            add(Kind::Missing, rule.clone(), format!("for uids {users}"));
        }
        for users in held.users.difference(&wanted.users) {
            add(Kind::Extra, rule.clone(), format!("for uids {users}"));
        }
    }
    Ok(found)
}

/// What one protocol has in our table.
#[derive(Debug, Default)]
struct Standing {
    /// Our default route is there.
    route: bool,
    /// Routes in the table, ours included.
    routes: u32,
    users: BTreeSet<UidRange>,
}

impl Standing {
    fn wanted(detour: Option<&Detour>, family: AddressFamily) -> Self {
        // A kernel without IPv6 on loopback has nothing that could be redirected.
        let spoken = family == AddressFamily::Inet || loopback_speaks_ipv6();
        match detour.filter(|_| spoken) {
            None => Self::default(),
            Some(detour) => Self {
                route: true,
                routes: 1,
                users: detour.users.iter().copied().collect(),
            },
        }
    }
}

/// Whether `lo` has ::1. Down or not yet up counts as yes: raising it brings the address.
fn loopback_speaks_ipv6() -> bool {
    let path = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            crate::netlink::limit_waiting(&socket)?;
            Ok(socket)
        };
        let socket = open().map_err(|error| NetlinkError::new("opening rtnetlink", error))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    fn held(&mut self, table: u32, family: AddressFamily) -> Result<Standing, NetlinkError> {
        let mut standing = Standing::default();
        let mut rules = RuleMessage::default();
        rules.header.family = family;
        let doing = "reading routing rules";
        for answer in self.ask(RouteNetlinkMessage::GetRule(rules), NLM_F_DUMP, doing)? {
            if let RouteNetlinkMessage::NewRule(rule) = answer
                && rule_table(&rule) == table
            {
                standing.users.insert(users(&rule));
            }
        }
        for route in self.routes(table, family)? {
            standing.routes += 1;
            standing.route |= is_ours(&route);
        }
        Ok(standing)
    }

    fn routes(
        &mut self,
        table: u32,
        family: AddressFamily,
    ) -> Result<Vec<RouteMessage>, NetlinkError> {
        let mut routes = RouteMessage::default();
        routes.header.address_family = family;
        let doing = "reading routes";
        let answers = self.ask(RouteNetlinkMessage::GetRoute(routes), NLM_F_DUMP, doing)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(route) if route_table(&route) == table => Some(route),
                _ => None,
            })
            .collect())
    }

    fn route(&mut self, table: u32, family: AddressFamily) -> Result<(), NetlinkError> {
        let (source, _) = loopback(family);
        let mut route = RouteMessage::default();
        route.header.address_family = family;
        route.header.protocol = RouteProtocol::Static;
        route.header.scope = RouteScope::Universe;
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![
            RouteAttribute::Table(table),
            RouteAttribute::Oif(LOOPBACK),
            RouteAttribute::PrefSource(source),
        ];
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.ask(
            RouteNetlinkMessage::NewRoute(route),
            flags,
            "adding a route over loopback",
        )?;
        Ok(())
    }

    /// Empties our routing table.
    fn flush(&mut self, table: u32, family: AddressFamily) -> Result<(), NetlinkError> {
        for route in self.routes(table, family)? {
            let message = RouteNetlinkMessage::DelRoute(route);
            let gone = self.ask(message, NLM_F_ACK, "removing a route");
            unless_gone(gone)?;
        }
        Ok(())
    }

    fn rule(
        &mut self,
        table: u32,
        family: AddressFamily,
        users: UidRange,
        add: bool,
    ) -> Result<(), NetlinkError> {
        let mut rule = RuleMessage::default();
        rule.header.family = family;
        rule.header.action = RuleAction::ToTable;
        rule.attributes = vec![
            RuleAttribute::Table(table),
            RuleAttribute::Priority(PRIORITY),
            RuleAttribute::UidRange(RuleUidRange {
                start: users.first,
                end: users.last,
            }),
        ];
        if add {
            let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
            let doing = "adding a routing rule";
            self.ask(RouteNetlinkMessage::NewRule(rule), flags, doing)?;
        } else {
            let doing = "removing a routing rule";
            unless_gone(self.ask(RouteNetlinkMessage::DelRule(rule), NLM_F_ACK, doing))?;
        }
        Ok(())
    }

    /// Without loopback nobody reaches the gate; at boot this may come before anything raised it.
    fn raise_loopback(&mut self) -> Result<(), NetlinkError> {
        let mut link = LinkMessage::default();
        link.header.index = LOOPBACK;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.ask(
            RouteNetlinkMessage::SetLink(link),
            NLM_F_ACK,
            "raising loopback",
        )?;
        Ok(())
    }

    /// One request and all its answers.
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        doing: &str,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let fail = |error| NetlinkError::new(doing, error);
        let malformed = || NetlinkError::Malformed {
            doing: doing.to_owned(),
        };
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(fail)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full().map_err(fail)?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|_| malformed())?;
                let length = usize::try_from(answer.header.length).map_err(|_| malformed())?;
                if answer.header.sequence_number == self.sequence {
                    match answer.payload {
                        NetlinkPayload::Done(_) => return Ok(answers),
                        NetlinkPayload::Error(error) => {
                            return match error.code {
                                None => Ok(answers),
                                Some(code) => Err(fail(io::Error::from_raw_os_error(-code.get()))),
                            };
                        }
                        NetlinkPayload::InnerMessage(message) => answers.push(message),
                        _ => {}
                    }
                }
                rest = rest
                    .get(length.max(1).next_multiple_of(4)..)
                    .unwrap_or_default();
            }
        }
    }
}

/// It went by itself between the two questions.
fn unless_gone(answer: Result<Vec<RouteNetlinkMessage>, NetlinkError>) -> Result<(), NetlinkError> {
    match answer {
        Err(NetlinkError::Io { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) =>
        {
            Ok(())
        }
        other => other.map(|_| ()),
    }
}

fn rule_table(rule: &RuleMessage) -> u32 {
    let named = rule
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RuleAttribute::Table(table) => Some(*table),
            _ => None,
        });
    named.unwrap_or(u32::from(rule.header.table))
}

/// A rule without a range is for everybody.
fn users(rule: &RuleMessage) -> UidRange {
    let range = rule
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RuleAttribute::UidRange(range) => Some(UidRange {
                first: range.start,
                last: range.end,
            }),
            _ => None,
        });
    range.unwrap_or(UidRange {
        first: 0,
        last: u32::MAX,
    })
}

fn route_table(route: &RouteMessage) -> u32 {
    let named = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    named.unwrap_or(u32::from(route.header.table))
}

fn is_ours(route: &RouteMessage) -> bool {
    let (_, source) = loopback(route.header.address_family);
    let has = |wanted: &RouteAttribute| route.attributes.contains(wanted);
    route.header.destination_prefix_length == 0
        && route.header.kind == RouteType::Unicast
        && has(&RouteAttribute::Oif(LOOPBACK))
        && has(&RouteAttribute::PrefSource(source))
}

/// Loopback's address, as it is sent and as it is read.
fn loopback(family: AddressFamily) -> (RouteAddress, RouteAddress) {
    let address = match family {
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    (RouteAddress::from(address), RouteAddress::from(address))
}
