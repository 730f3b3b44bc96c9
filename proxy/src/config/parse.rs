//! From the document to [`Config`]: one function per table, problems collected as they are met.

mod credentials;
mod listen;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::unistd::User;

use super::document::{At, Problems as Found, Section};
use super::{
    AllowanceConfig, AuditConfig, Config, ConfigError, Control, Limits, Listen, MetricsConfig,
    Peer, Problems, Profile, SecretSource,
};
use crate::boundary::Source;

/// The kernel's answer for a user it cannot name here.
pub(super) const OVERFLOW_UID: u32 = 65_534;

pub(super) type Resolve<'r> = &'r dyn Fn(&str) -> Option<u32>;

/// A user name or a decimal uid.
pub(super) fn uid_of(user: &str) -> Option<u32> {
    match user.parse::<u32>() {
        Ok(uid) => Some(uid),
        Err(_) => User::from_name(user)
            .ok()
            .flatten()
            .map(|found| found.uid.as_raw()),
    }
}

pub(super) fn parse(text: &str, path: &Path, uid_of: Resolve<'_>) -> Result<Config, ConfigError> {
    let file = path.display().to_string();
    let found = Found::new(&file, text);
    let mut root = Section::document(&found);

    let profiles = profiles(&mut root);
    let listen = root
        .section("listen")
        .and_then(|section| listen::listen(section, &profiles));
    let control = required(&mut root, "control", "[control] with socket = \"/…\"")
        .and_then(|section| control(section, &profiles, uid_of));
    let runs_directory = directory(&mut root, "runs");
    let board_socket = root.section("board").and_then(|mut section| {
        let socket = path_key(&mut section, "socket", true);
        section.close();
        socket
    });
    let ca_directory = directory(&mut root, "ca");
    let example = "[audit] with directory = \"/…\"";
    let audit = required(&mut root, "audit", example).map(|mut section| {
        let directory = path_key(&mut section, "directory", true);
        let rest = AuditConfig::read(&mut section);
        section.close();
        (directory, rest)
    });
    let (audit_directory, audit) = audit.unwrap_or_default();
    let metrics = root
        .section("metrics")
        .and_then(|section| MetricsConfig::read(section, uid_of));
    let boundary = boundary(&mut root);
    let store = store::store(&mut root);
    let credentials = credentials::credentials(&mut root, store.as_ref());
    let limits = Limits::read(root.section("limits"));
    let allowance = AllowanceConfig::read(root.section("allowance"));
    let control_socket = control.as_ref().map(|control| control.socket.as_path());
    let mut private: Vec<(&str, &Path)> = vec![];
    private.extend(control_socket.map(|path| ("control.socket", path)));
    private.extend(
        runs_directory
            .iter()
            .map(|path| ("runs.directory", path.as_path())),
    );
    private.extend(
        ca_directory
            .iter()
            .map(|path| ("ca.directory", path.as_path())),
    );
    private.extend(
        audit_directory
            .iter()
            .map(|path| ("audit.directory", path.as_path())),
    );
    private.extend(
        credentials
            .values()
            .filter_map(|credential| match &credential.source {
                SecretSource::File(path) => Some(("credential.file", path.as_path())),
                SecretSource::Descriptor(_) | SecretSource::Entry(_) => None,
            }),
    );
    if let Some(Ok(store)) = &store {
        private.push(("store.directory", &store.directory));
        private.push(("store.key", &store.key));
    }
    keep_apart(&root, listen.as_ref(), &private);
    root.close();

    let problems = found.into_sorted();
    let parts = (
        control,
        runs_directory,
        ca_directory,
        audit_directory,
        boundary,
    );
    match parts {
        (Some(control), Some(runs), Some(ca), Some(audit_directory), Some(boundary))
            if problems.is_empty() =>
        {
            Ok(Config {
                path: path.to_owned(),
                listen,
                control,
                runs_directory: runs,
                board_socket,
                ca_directory: ca,
                audit_directory,
                audit,
                metrics,
                boundary,
                profiles,
                store: store.and_then(Result::ok),
                credentials,
                limits,
                allowance,
            })
        }
        (..) => Err(ConfigError::Invalid(Problems(problems))),
    }
}

/// A directory that agents are given for the gate's socket holds nothing else of the gate's: whoever mounts it would have
/// that too.
fn keep_apart(root: &Section<'_, '_>, listen: Option<&Listen>, private: &[(&str, &Path)]) {
    let agents = listen.iter().flat_map(|listen| &listen.unix);
    for directory in agents.filter_map(|socket| socket.parent()) {
        for (key, path) in private
            .iter()
            .filter(|(_, path)| path.starts_with(directory))
        {
            root.problem(
                root.at(),
                key,
                format!(
                    "{} lies in {}, which listen.unix gives to agents",
                    path.display(),
                    directory.display()
                ),
                "put it where no agent looks: agents mount the directory of their socket",
            );
        }
    }
}

fn required<'p, 't>(
    root: &mut Section<'p, 't>,
    key: &'static str,
    example: &str,
) -> Option<Section<'p, 't>> {
    let before = root.has(key);
    if !before {
        root.problem(root.at(), key, "is missing", &format!("add {example}"));
    }
    root.section(key)
}

fn directory(root: &mut Section<'_, '_>, key: &'static str) -> Option<PathBuf> {
    let mut section = required(root, key, &format!("[{key}] with directory = \"/…\""))?;
    let path = path_key(&mut section, "directory", true);
    section.close();
    path
}

pub(super) fn path_key(
    section: &mut Section<'_, '_>,
    key: &'static str,
    required: bool,
) -> Option<PathBuf> {
    let At { value, at } = match required {
        true => section.required_string(key, "\"/…\"")?,
        false => section.string(key)?,
    };
    let path = PathBuf::from(&value);
    if path.is_absolute() {
        return Some(path);
    }
    section.problem(
        at,
        key,
        format!("{value} is not an absolute path"),
        "start it with /",
    );
    None
}

fn profiles(root: &mut Section<'_, '_>) -> BTreeMap<String, Profile> {
    let mut profiles = BTreeMap::new();
    for (name, mut section) in root.named_sections("profile") {
        let policy = path_key(&mut section, "policy", true);
        if !is_label(&name.value) {
            section.problem(name.at, "", "is not a profile name", LABEL_HINT);
        }
        section.close();
        if let Some(policy) = policy {
            profiles.insert(name.value, Profile { policy });
        }
    }
    profiles
}

fn control(
    mut section: Section<'_, '_>,
    profiles: &BTreeMap<String, Profile>,
    uid_of: Resolve<'_>,
) -> Option<Control> {
    let socket = path_key(&mut section, "socket", true);
    let mut peers: BTreeMap<u32, Peer> = BTreeMap::new();
    for mut entry in section.sections("peer") {
        if !entry.has("user") {
            entry.problem(
                entry.at(),
                "user",
                "is missing",
                "add user = \"NAME\" or user = UID",
            );
        }
        let user = entry.string_or_integer("user");
        let allowed = entry
            .strings("profiles")
            .map(|list| list.value)
            .unwrap_or_default();
        for name in &allowed {
            known_profile(&entry, name, "profiles", profiles);
        }
        let inline = entry.boolean("inline").unwrap_or(false);
        let admin = entry.boolean("admin").unwrap_or(false);
        if let Some(user) = user {
            match uid_of(&user.value) {
                None => entry.problem(
                    user.at,
                    "user",
                    format!("there is no user {}", user.value),
                    "create it (useradd --system) or give a uid",
                ),
                Some(OVERFLOW_UID | u32::MAX) => entry.problem(
                    user.at,
                    "user",
                    format!(
                        "{} is what the kernel answers for unknown users",
                        user.value
                    ),
                    "give the peer a user of its own",
                ),
                Some(uid) if peers.contains_key(&uid) => entry.problem(
                    user.at,
                    "user",
                    format!("{} is listed twice", user.value),
                    "keep one of them",
                ),
                Some(uid) => {
                    let profiles = allowed.into_iter().map(|name| name.value).collect();
                    let user = user.value;
                    peers.insert(
                        uid,
                        Peer {
                            uid,
                            user,
                            profiles,
                            inline,
                            admin,
                        },
                    );
                }
            }
        }
        entry.close();
    }
    section.close();
    Some(Control {
        socket: socket?,
        peers,
    })
}

fn boundary(root: &mut Section<'_, '_>) -> Option<Source> {
    let example = "[boundary] with status = \"/run/portcullis/boundary/status.json\"";
    let mut section = required(root, "boundary", example)?;
    let given = (section.has("status"), section.has("external"));
    let status = path_key(&mut section, "status", false);
    let external = section.string("external");
    match given {
        (true, true) => section.problem(
            section.at(),
            "",
            "has both status and external",
            "keep status; external is for machines where somebody else enforces the boundary",
        ),
        (false, false) => section.problem(
            section.at(),
            "",
            "names no proof",
            "add status = \"/run/portcullis/boundary/status.json\", or external = \"REASON\"",
        ),
        (true, false) | (false, true) => {}
    }
    section.close();
    status
        .map(Source::Status)
        .or_else(|| external.map(|reason| Source::External(reason.value)))
}

const LABEL_HINT: &str = "use 1 to 128 printable ASCII characters without spaces at the ends";

fn label(section: &mut Section<'_, '_>, key: &'static str) -> Option<String> {
    let text = section.required_string(key, "\"NAME\"")?;
    if is_label(&text.value) {
        return Some(text.value);
    }
    section.problem(text.at, key, "is not a short label", LABEL_HINT);
    None
}

/// The same shape as the fields of `policy::grant::Grant`.
fn is_label(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && text.trim() == text
}

fn known_profile(
    section: &Section<'_, '_>,
    name: &At<String>,
    key: &str,
    profiles: &BTreeMap<String, Profile>,
) {
    if !profiles.contains_key(&name.value) {
        section.problem(
            name.at,
            key,
            format!("there is no profile {}", name.value),
            &format!("add [profile.{}] with policy = \"/…\"", name.value),
        );
    }
}
