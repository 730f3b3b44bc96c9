//! The files that make clients use the gate where no variable can: git's remotes, apt, wget, Maven.

use std::fmt::Write as _;

use super::Gate;

/// git's system configuration in every run, before the hosts of the run's policy are known.
pub const GITCONFIG: &str = "\
[user]
\tname = Portcullis agent
\temail = agent@portcullis.internal
[init]
\tdefaultBranch = main
[credential]
\thelper =
[gc]
\tauto = 0
[protocol \"ext\"]
\tallow = never
[ssh]
\tvariant = ssh
[core]
\tsshCommand = \"sh -c 'echo \\\"Portcullis: ssh (port 22) is refused: the gate carries git over https only \
[destination_not_listed]\\\" >&2; \
echo \\\"hint: use https://HOST/OWNER/NAME.git; remotes of hosts that the policy lists are rewritten to that\\\" >&2; \
exit 128' ssh\"
";

/// [`GITCONFIG`], and for each of `hosts` every spelling of a remote over ssh rewritten to https.
///
/// A host is a name as `policy::authority::Host` prints it, so nothing in it needs quoting.
///
/// ```text
/// [url "https://github.com/"]
///     insteadOf = git@github.com:
///     insteadOf = ssh://git@github.com/
/// ```
pub fn gitconfig<H: AsRef<str>>(hosts: &[H]) -> String {
    let mut text = GITCONFIG.to_owned();
    for host in hosts {
        let host = host.as_ref();
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "[url \"https://{host}/\"]");
        for remote in [
            format!("git@{host}:"),
            format!("git@{host}:/"),
            format!("{host}:"),
            format!("ssh://git@{host}/"),
            format!("ssh://git@{host}:22/"),
            format!("ssh://{host}/"),
            format!("git+ssh://git@{host}/"),
            format!("git://{host}/"),
        ] {
            let _infallible = writeln!(text, "\tinsteadOf = {remote}");
        }
    }
    text
}

/// `apt.conf`: apt reads no variable but the one that names this file.
pub fn apt_conf(gate: &str, bundle: &str) -> String {
    format!(
        "Acquire::http::Proxy \"{gate}\";\n\
         Acquire::https::Proxy \"{gate}\";\n\
         Acquire::https::CaInfo \"{bundle}\";\n"
    )
}

/// `maven-settings.xml`: Maven 3 ignores variables, and Java's proxy properties too.
///
/// `gate` is `http://[USER:PASSWORD@]HOST:PORT`; another form has no settings.
pub fn maven_settings(gate: &str) -> Option<String> {
    let Gate { host, port, login } = Gate::parse(gate)?;
    let login = login.map(|(user, password)| {
        format!("<username>{user}</username>\n      <password>{password}</password>\n      ")
    });
    let login = login.unwrap_or_default();
    let mut text =
        String::from("<settings xmlns=\"http://maven.apache.org/SETTINGS/1.0.0\">\n  <proxies>\n");
    for protocol in ["http", "https"] {
        // The protocol is that of the request, not of the way to the proxy.
        let _infallible = write!(
            text,
            "    <proxy>\n      <id>portcullis-{protocol}</id>\n      <active>true</active>\n      \
             <protocol>{protocol}</protocol>\n      <host>{host}</host>\n      <port>{port}</port>\n      {login}\
             <nonProxyHosts>localhost|127.0.0.1</nonProxyHosts>\n    </proxy>\n"
        );
    }
    text.push_str("  </proxies>\n</settings>\n");
    Some(text)
}

/// `wgetrc`: Debian's wget reads no variable for the certificates it trusts.
pub fn wgetrc(bundle: &str) -> String {
    format!("ca_certificate = {bundle}\n")
}

/// Every file above, by name, for clients that see the trust directory as `trust_dir`.
pub fn client_files<H: AsRef<str>>(
    gate: &str,
    trust_dir: &str,
    git_hosts: &[H],
) -> Vec<(&'static str, String)> {
    let bundle = format!("{trust_dir}/bundle.pem");
    let mut files = vec![
        ("apt.conf", apt_conf(gate, &bundle)),
        ("gitconfig", gitconfig(git_hosts)),
        ("wgetrc", wgetrc(&bundle)),
    ];
    files.extend(maven_settings(gate).map(|text| ("maven-settings.xml", text)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_remote_is_rewritten_and_only_for_listed_hosts() {
        let text = gitconfig(&["git.example.com"]);
        assert!(text.contains("[url \"https://git.example.com/\"]"));
        for remote in [
            "git@git.example.com:\n",
            "ssh://git@git.example.com/\n",
            "ssh://git@git.example.com:22/\n",
        ] {
            assert!(text.contains(&format!("insteadOf = {remote}")), "{text}");
        }
        assert!(!gitconfig::<&str>(&[]).contains("insteadOf"));
    }

    #[test]
    fn maven_is_told_host_and_port() {
        let text = maven_settings("http://127.0.0.1:3128").unwrap();
        assert_eq!(text.matches("<host>127.0.0.1</host>").count(), 2);
        assert_eq!(text.matches("<port>3128</port>").count(), 2);
        assert!(!text.contains("username"));
        assert_eq!(maven_settings("nonsense"), None);
        let text = maven_settings("http://run:t0ken@[fd20::1]:3128").unwrap();
        for part in [
            "<host>fd20::1</host>",
            "<port>3128</port>",
            "<username>run</username>",
            "<password>t0ken</password>",
        ] {
            assert_eq!(text.matches(part).count(), 2, "{part} in {text}");
        }
    }
}
