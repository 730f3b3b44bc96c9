//! Addresses, networks and ports as people write them.

use std::net::IpAddr;

/// `192.0.2.10:443`, `10.0.0.0/8:53`, `[2001:db8::/32]:443`.
pub(super) fn with_port(text: &str) -> Result<(IpAddr, u8, u16), String> {
    let (place, port) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("{text:?} has no port"))?;
    let port: u16 = port
        .parse()
        .map_err(|_| format!("{port:?} is not a port"))?;
    if port == 0 {
        return Err("0 is not a port".into());
    }
    let bracketed = place
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let (address, prefix) = network(bracketed.unwrap_or(place))?;
    if address.is_ipv6() != bracketed.is_some() {
        return Err("IPv6 stands in brackets, IPv4 does not".into());
    }
    Ok((address, prefix, port))
}

/// `192.0.2.10`, `10.0.0.0/8`, `2001:db8::/32`.
pub(super) fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("{address:?} is not an IP address"))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix: u8 = match prefix {
        None => bits,
        Some(prefix) => prefix
            .parse()
            .ok()
            .filter(|prefix| *prefix <= bits)
            .ok_or_else(|| format!("/{prefix} is not a prefix length"))?,
    };
    if prefix == 0 {
        return Err("/0 would open everything".into());
    }
    if !host_bits_zero(address, prefix) {
        return Err(format!("{address} has bits set beyond /{prefix}"));
    }
    Ok((address, prefix))
}

fn host_bits_zero(address: IpAddr, prefix: u8) -> bool {
    match address {
        IpAddr::V4(v4) => u32::from(v4).checked_shl(u32::from(prefix)).unwrap_or(0) == 0,
        IpAddr::V6(v6) => u128::from(v6).checked_shl(u32::from(prefix)).unwrap_or(0) == 0,
    }
}
