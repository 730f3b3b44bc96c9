//! What of an entry is the value.

use super::*;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// The provider shows id and secret as two fields; an entry may hold them so.
#[test]
fn a_proxmox_id_may_stand_in_a_field_below_the_secret() {
    let joined = |id: Option<&str>, first: &str, below: &str| {
        let kind = CredentialKind::ProxmoxToken {
            id: id.map(str::to_owned),
        };
        let text = format!("{first}\n{below}\n");
        let value = Zeroizing::new(first.as_bytes().to_vec());
        let value = with_proxmox_id(&kind, text.as_bytes(), value);
        String::from_utf8(value.to_vec()).unwrap()
    };
    let once = format!("agent@pve!ci={UUID}");
    for field in [
        "user: agent@pve!ci",
        "id: agent@pve!ci",
        "Login:agent@pve!ci ",
        "url: pve.example.com\ntokenid: agent@pve!ci",
        "user: agent\ntoken-id: agent@pve!ci",
    ] {
        assert_eq!(joined(None, UUID, field), once, "{field}");
    }
    // Not twice, not where the configuration says it, and nothing that is no id.
    assert_eq!(joined(None, &once, "user: agent@pve!ci"), once);
    assert_eq!(
        joined(Some("agent@pve!ci"), UUID, "user: agent@pve!ci"),
        UUID
    );
    for field in ["user: agent", "note: agent@pve!ci", "agent@pve!ci", ""] {
        assert_eq!(joined(None, UUID, field), UUID, "{field}");
    }
    let text = format!("{UUID}\nuser: agent@pve!ci\n");
    let value = Zeroizing::new(UUID.as_bytes().to_vec());
    let bearer = with_proxmox_id(&CredentialKind::Bearer, text.as_bytes(), value);
    assert_eq!(bearer.as_slice(), UUID.as_bytes(), "another kind has no id");
}
