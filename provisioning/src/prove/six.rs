//! Whether this network namespace has IPv6 at all: what was not tried over it is nothing only where there is nothing.

use std::fs;
use std::path::Path;

/// Nothing when there is no IPv6 here; else what there is, in words.
///
/// # Errors
/// An interface that has an address, or may be given one.
pub fn is_off() -> Result<(), String> {
    judge(
        Path::new("/proc/net/if_inet6"),
        Path::new("/proc/sys/net/ipv6/conf"),
    )
}

fn judge(addresses: &Path, settings: &Path) -> Result<(), String> {
    let Ok(addresses) = fs::read_to_string(addresses) else {
        // A kernel without it has neither of them.
        return if settings.exists() {
            Err("IPv6 cannot be looked at".to_owned())
        } else {
            Ok(())
        };
    };
    // One address to a line, its interface last.
    let with_address = addresses
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .find(|interface| *interface != "lo");
    if let Some(interface) = with_address {
        return Err(format!("{interface} has an IPv6 address"));
    }
    let entries = fs::read_dir(settings).into_iter().flatten().flatten();
    let mut enabled: Vec<String> = entries
        .filter(|entry| {
            let disabled = fs::read_to_string(entry.path().join("disable_ipv6"));
            disabled.map_or(true, |text| text.trim() != "1")
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != "lo")
        .collect();
    enabled.sort();
    match enabled.first() {
        None => Ok(()),
        Some(name) => Err(format!(
            "IPv6 is not disabled (net.ipv6.conf.{name}.disable_ipv6)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_only_without_an_address_and_disabled_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let (table, settings) = (dir.path().join("if_inet6"), dir.path().join("conf"));
        judge(&table, &settings).unwrap();
        for (name, value) in [("all", "1"), ("default", "1"), ("eth0", "1"), ("lo", "0")] {
            fs::create_dir_all(settings.join(name)).unwrap();
            fs::write(settings.join(name).join("disable_ipv6"), value).unwrap();
        }
        assert!(judge(&table, &settings).is_err());
        let lo = "00000000000000000000000000000001 01 80 10 80       lo\n";
        fs::write(&table, lo).unwrap();
        judge(&table, &settings).unwrap();
        for name in ["all", "default", "eth0"] {
            let path = settings.join(name).join("disable_ipv6");
            fs::write(&path, "0").unwrap();
            assert!(judge(&table, &settings).unwrap_err().contains(name));
            fs::write(&path, "1").unwrap();
        }
        let eth0 = "20010db8000000000000000000000001 02 40 00 80     eth0\n";
        fs::write(&table, format!("{lo}{eth0}")).unwrap();
        assert!(judge(&table, &settings).unwrap_err().contains("eth0"));
    }
}
