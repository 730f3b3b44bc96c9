//! The environment that makes each family of clients use the gate and trust its CA.
//!
//! [`client_families`] is the whole table; measured client by client (which variable each one
//! reads, and which it ignores) in `docs/exec.md`. Credentials are never here: the gate adds them.

pub mod files;

use std::path::Path;

/// Variables for every client family.
///
/// `gate` is the proxy's URL as clients see it (`http://127.0.0.1:3128`); `trust_dir` is where the
/// CA files are *as clients see them* (inside a container: `/opt/portcullis/trust`); `on_host` is
/// where the same files are now, to know which exist. `bundle.pem` holds the system's roots and
/// the CA, because most of these variables replace the system's roots; `ca.pem` the CA alone.
pub fn client_families_at(gate: &str, trust_dir: &str, on_host: &Path) -> Vec<(String, String)> {
    client_families_with(gate, trust_dir, &|name| on_host.join(name).exists())
}

/// The same where something else than a directory knows which files there will be.
pub(crate) fn client_families_with(
    gate: &str,
    trust_dir: &str,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let bundle = format!("{trust_dir}/bundle.pem");
    let ca = format!("{trust_dir}/ca.pem");
    let mut table: Vec<(&str, String)> = Vec::new();

    // curl, git, pip, requests, httpx, cargo, go, gh, deno, npm, agents' own clients. Lower case
    // first: curl ignores HTTP_PROXY in capitals, on purpose.
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        table.push((name, gate.to_owned()));
    }
    for name in ["all_proxy", "ALL_PROXY"] {
        table.push((name, gate.to_owned()));
    }
    // Services inside the container itself are reached directly; there is nothing else to reach.
    for name in ["no_proxy", "NO_PROXY"] {
        table.push((name, "localhost,127.0.0.1,::1".to_owned()));
    }
    // node 24 and later; node 20 ignores it and is stopped by the missing network instead.
    table.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    // Adds to node's own roots, so the CA alone would do; the bundle also serves clients that
    // read this variable as a replacement.
    table.push(("NODE_EXTRA_CA_CERTS", bundle.clone()));
    // Each of these replaces the system's roots: curl, python's ssl, httpx, go, gh, codex, …
    for name in [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "CARGO_HTTP_CAINFO",
        "DENO_CERT",
        "npm_config_cafile",
        "CODEX_CA_CERTIFICATE",
        "AWS_CA_BUNDLE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    ] {
        table.push((name, bundle.clone()));
    }
    table.push(("DENO_TLS_CA_STORE", "system".to_owned()));
    // Debian's wget reads no CA variable; its own configuration file it does.
    if exists("wgetrc") {
        table.push(("WGETRC", format!("{trust_dir}/wgetrc")));
    }
    if exists("apt.conf") {
        table.push(("APT_CONFIG", format!("{trust_dir}/apt.conf")));
    }
    // Maven 3.9 and later; older ones are given the file by hand.
    if exists("maven-settings.xml") {
        let settings = format!("--global-settings={trust_dir}/maven-settings.xml");
        table.push(("MAVEN_ARGS", settings));
    }
    if let Some(java) = java(gate, trust_dir, exists) {
        table.push(("JAVA_TOOL_OPTIONS", java));
    }
    // A prompt would wait for ever; an answer from the gate is what the command should see.
    table.push(("GIT_TERMINAL_PROMPT", "0".to_owned()));
    table.push(("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()));
    table.push(("PORTCULLIS_CA", ca));
    table
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// [`client_families_at`] for clients that see the files where they are.
pub fn client_families(gate: &str, trust_dir: &str) -> Vec<(String, String)> {
    client_families_at(gate, trust_dir, Path::new(trust_dir))
}

/// Java reads neither proxy nor CA variables, only properties (Maven and Gradle run on it).
fn java(gate: &str, trust_dir: &str, exists: &dyn Fn(&str) -> bool) -> Option<String> {
    let gate = Gate::parse(gate)?;
    let mut options = Vec::new();
    for scheme in ["http", "https"] {
        options.push(format!("-D{scheme}.proxyHost={}", gate.host));
        options.push(format!("-D{scheme}.proxyPort={}", gate.port));
        // Java itself looks at neither; build tools and programs that set an Authenticator do.
        if let Some((user, password)) = gate.login {
            options.push(format!("-D{scheme}.proxyUser={user}"));
            options.push(format!("-D{scheme}.proxyPassword={password}"));
        }
    }
    if gate.login.is_some() {
        // By default Java shows a proxy no password in the clear, not even one it asks for.
        options.push("-Djdk.http.auth.tunneling.disabledSchemes=".to_owned());
    }
    options.push("-Dhttp.nonProxyHosts=localhost|127.0.0.1".to_owned());
    if exists("truststore.p12") {
        options.push(format!(
            "-Djavax.net.ssl.trustStore={trust_dir}/truststore.p12"
        ));
        options.push("-Djavax.net.ssl.trustStoreType=PKCS12".to_owned());
        options.push("-Djavax.net.ssl.trustStorePassword=changeit".to_owned());
    }
    Some(options.join(" "))
}

/// The parts of a proxy's URL, for what cannot read one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gate<'u> {
    /// A name or an address; without the brackets of IPv6.
    pub(crate) host: &'u str,
    /// In decimal.
    pub(crate) port: &'u str,
    /// User and password, where the gate wants the token of a run.
    pub(crate) login: Option<(&'u str, &'u str)>,
}

impl<'u> Gate<'u> {
    /// Reads `http://[USER:PASSWORD@]HOST:PORT`.
    pub(crate) fn parse(url: &'u str) -> Option<Self> {
        let rest = url.rsplit('/').next()?;
        let (login, at) = match rest.rsplit_once('@') {
            Some((login, at)) => (Some(login.split_once(':')?), at),
            None => (None, rest),
        };
        let (host, port) = at.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self { host, port, login })
    }
}

/// What stands where a client wants a credential before it asks anything at all.
pub const PLACEHOLDER: &str = "injected-by-portcullis";

/// Variables that such clients read. The gate removes what they send and puts the real one there.
pub fn placeholders() -> Vec<(String, String)> {
    [
        "GH_TOKEN",
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "CODEX_API_KEY",
    ]
    .map(|name| (name.to_owned(), PLACEHOLDER.to_owned()))
    .to_vec()
}

/// What every command in a container needs beside the client families.
pub fn base() -> Vec<(String, String)> {
    [
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("HOME", "/home/agent"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        ("XDG_CACHE_HOME", "/home/agent/.cache"),
        ("XDG_CONFIG_HOME", "/home/agent/.config"),
        // A git built elsewhere than in /usr looks for its system file elsewhere than in /etc.
        ("GIT_CONFIG_SYSTEM", "/etc/gitconfig"),
        ("PORTCULLIS", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_client_table_has_its_variable() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("truststore.p12"), "x").unwrap();
        let table = client_families_at("http://127.0.0.1:3128", "/opt/t", dir.path());
        let value = |name: &str| {
            let found = table.iter().find(|(other, _)| other == name);
            found
                .unwrap_or_else(|| panic!("{name} is missing"))
                .1
                .clone()
        };
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            assert_eq!(value(name), "http://127.0.0.1:3128");
        }
        for name in [
            "CURL_CA_BUNDLE",
            "SSL_CERT_FILE",
            "GIT_SSL_CAINFO",
            "NODE_EXTRA_CA_CERTS",
            "npm_config_cafile",
            "PIP_CERT",
            "REQUESTS_CA_BUNDLE",
            "CARGO_HTTP_CAINFO",
            "DENO_CERT",
            "CODEX_CA_CERTIFICATE",
            "AWS_CA_BUNDLE",
        ] {
            assert_eq!(value(name), "/opt/t/bundle.pem", "{name}");
        }
        assert_eq!(value("NODE_USE_ENV_PROXY"), "1");
        let java = value("JAVA_TOOL_OPTIONS");
        assert!(
            java.contains("-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128"),
            "{java}"
        );
        assert!(java.contains("trustStore=/opt/t/truststore.p12"), "{java}");
        assert!(!java.contains(dir.path().to_str().unwrap()));
    }

    #[test]
    fn names_are_unique_and_nothing_looks_like_a_credential() {
        let mut table = client_families("http://127.0.0.1:3128", "/nonexistent");
        table.extend(base());
        let mut names: Vec<_> = table.iter().map(|(name, _)| name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(
            !names
                .iter()
                .any(|name| name.contains("KEY") || name.contains("TOKEN"))
        );
    }
}
