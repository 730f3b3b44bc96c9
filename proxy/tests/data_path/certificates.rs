//! What is wrong with an upstream's certificate is told apart, and what would help is named.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::HOST;
use super::stand::{Stand, ask, get};
use super::upstream::{Identity, Upstream};

/// A server that shows this certificate.
fn showing(certificate: CertificateDer<'static>, key: &KeyPair, ca: &str) -> Identity {
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private)
        .unwrap();
    Identity {
        config,
        ca: ca.to_owned(),
        pin: String::new(),
    }
}

fn issuer(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

async fn answered(identity: Identity, policy: impl Fn(&Upstream) -> String) -> (Upstream, String) {
    let upstream = Upstream::serve(identity).await;
    let stand = Stand::new(&upstream, &policy(&upstream));
    let mut tls = stand.tunnel(HOST).await;
    let answer = ask(&mut tls, &get(HOST, "/v1/x")).await;
    (upstream, answer)
}

fn trusting(upstream: &Upstream, how: &str) -> String {
    format!(
        "version = 1\n[[service]]\nkind = \"http\"\nhost = \"{HOST}\"\naddress = \"{}\"\n{how}\ncredential = \"api\"\n\
         allow = [\"* /v1/**\"]\n",
        upstream.address
    )
}

/// Attack: TLS-04, TLS-05, TLS-06
#[tokio::test]
async fn each_flaw_has_its_code_and_a_remedy() {
    let known = issuer("the known one");
    let other = issuer("another");
    let key = KeyPair::generate().unwrap();
    let named = |name: &str| CertificateParams::new(vec![name.to_owned()]).unwrap();
    let mut expired = named(HOST);
    expired.not_after = rcgen::date_time_ymd(2024, 1, 1);
    let mut future = named(HOST);
    future.not_before = rcgen::date_time_ymd(2090, 1, 1);
    future.not_after = rcgen::date_time_ymd(2091, 1, 1);
    let mut common = CertificateParams::new(Vec::<String>::new()).unwrap();
    common.distinguished_name.push(DnType::CommonName, HOST);
    let by_known = |params: CertificateParams| params.signed_by(&key, &known).unwrap();
    let cases = [
        (by_known(expired), "upstream_tls_expired", "renew"),
        (by_known(future), "upstream_tls_expired", "clock"),
        (
            by_known(named("other.example")),
            "upstream_tls_wrong_name",
            "name that",
        ),
        (by_known(common), "upstream_tls_wrong_name", "name that"),
        (
            by_known(named("*.com")),
            "upstream_tls_wrong_name",
            "name that",
        ),
        (
            named(HOST).signed_by(&key, &other).unwrap(),
            "upstream_tls_unknown_ca",
            "pin = \\\"sha256/",
        ),
        (
            named(HOST).self_signed(&key).unwrap(),
            "upstream_tls_self_signed",
            "pin = \\\"sha256/",
        ),
    ];
    for (certificate, code, remedy) in cases {
        let identity = showing(certificate.der().clone(), &key, &known.pem());
        let (upstream, answer) = answered(identity, |upstream| {
            trusting(upstream, "ca_file = \"CA_FILE\"")
        })
        .await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{code}: {answer}");
        assert_eq!(super::code(&answer), code, "{answer}");
        assert!(answer.contains(remedy), "{code}: {answer}");
        assert!(upstream.is_untouched(), "{code}: no request byte was sent");
    }
    let good = by_known(named(HOST));
    let identity = showing(good.der().clone(), &key, &known.pem());
    let (_, answer) = answered(identity, |upstream| {
        trusting(upstream, "ca_file = \"CA_FILE\"")
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "control: {answer}");
}

/// The environment names the system's roots to the library that reads them when a gate starts, so that
/// this test is run once more as a process of its own.
#[test]
fn a_root_of_the_system_is_enough_and_any_other_is_not() {
    const CHILD: &str = "DATA_PATH_SYSTEM_ROOTS";
    let name = "certificates::a_root_of_the_system_is_enough_and_any_other_is_not";
    if std::env::var_os(CHILD).is_none() {
        let dir = tempfile::tempdir().unwrap();
        let roots = dir.path().join("roots.pem");
        let run = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, &roots)
            .env("SSL_CERT_FILE", &roots)
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(
            run.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&run.stderr)
        );
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let good = super::upstream::identity(HOST);
        std::fs::write(std::env::var_os(CHILD).unwrap(), &good.ca).unwrap();
        let (_, answer) = answered(good, |upstream| trusting(upstream, "")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let key = KeyPair::generate().unwrap();
        let named = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        let other = issuer("another");
        let signed = named.signed_by(&key, &other).unwrap();
        let other = showing(signed.der().clone(), &key, &other.pem());
        let (upstream, answer) = answered(other, |upstream| trusting(upstream, "")).await;
        assert_eq!(super::code(&answer), "upstream_tls_unknown_ca", "{answer}");
        assert!(upstream.is_untouched());
        let elsewhere = super::upstream::identity("other.example");
        std::fs::write(std::env::var_os(CHILD).unwrap(), &elsewhere.ca).unwrap();
        let (_, answer) = answered(elsewhere, |upstream| trusting(upstream, "")).await;
        assert_eq!(super::code(&answer), "upstream_tls_wrong_name", "{answer}");
    });
}

/// Attack: TLS-08
#[tokio::test]
async fn the_pin_that_a_refusal_names_is_the_one_that_helps() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["pve.lan".to_owned()]).unwrap();
    // As openssl makes them: a CA of its own.
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let identity = || showing(certificate.der().clone(), &key, &certificate.pem());
    let other = format!("pin = \"sha256/{}=\"", "A".repeat(43));
    let (_, answer) = answered(identity(), |upstream| trusting(upstream, &other)).await;
    assert_eq!(
        super::code(&answer),
        "upstream_tls_pin_mismatch",
        "{answer}"
    );
    let (_, refused) = answered(identity(), |upstream| trusting(upstream, "")).await;
    assert_eq!(
        super::code(&refused),
        "upstream_tls_self_signed",
        "{refused}"
    );
    let named = refused.split("pin = \\\"").nth(1).unwrap();
    let pin = named.split("\\\"").next().unwrap();
    let how = format!("pin = \"{pin}\"");
    let (_, answer) = answered(identity(), |upstream| trusting(upstream, &how)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{pin}: {answer}");
}
