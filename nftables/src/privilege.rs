//! Holding CAP_NET_ADMIN and nothing else.

use caps::{CapSet, Capability, CapsHashSet};

#[derive(Debug, thiserror::Error)]
#[error("giving up privileges: {doing}")]
pub struct PrivilegeError {
    doing: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Drops every capability but CAP_NET_ADMIN from every set, the bounding set first, and forbids
/// gaining any by exec. Fails when CAP_NET_ADMIN is not there to keep.
pub fn keep_net_admin() -> Result<(), PrivilegeError> {
    let keep = Capability::CAP_NET_ADMIN;
    let wrap = |doing| {
        move |source: caps::errors::CapsError| PrivilegeError {
            doing,
            source: source.into(),
        }
    };
    let bounding = caps::read(None, CapSet::Bounding).map_err(wrap("reading the bounding set"))?;
    for capability in bounding
        .into_iter()
        .filter(|capability| *capability != keep)
    {
        caps::drop(None, CapSet::Bounding, capability).map_err(wrap("the bounding set"))?;
    }
    let only: CapsHashSet = std::iter::once(keep).collect();
    let none = CapsHashSet::new();
    caps::set(None, CapSet::Ambient, &none).map_err(wrap("the ambient set"))?;
    caps::set(None, CapSet::Inheritable, &none).map_err(wrap("the inheritable set"))?;
    caps::set(None, CapSet::Effective, &only).map_err(wrap("the effective set"))?;
    caps::set(None, CapSet::Permitted, &only).map_err(wrap("the permitted set"))?;
    nix::sys::prctl::set_no_new_privs().map_err(|source| PrivilegeError {
        doing: "no_new_privs",
        source: source.into(),
    })
}
