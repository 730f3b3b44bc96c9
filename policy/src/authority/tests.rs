//! The destination cases by id, each with its positive control, and the round-trip property.

use proptest::prelude::*;

use super::*;

#[derive(Debug)]
enum Expect {
    Is(&'static str),
    Refused,
}
use Expect::{Is, Refused};

/// Attack: AUT-14, DST-01, DST-02, DST-07, DST-10, DST-11, DST-13, DST-14, DST-21
#[test]
fn destination_cases() {
    let long_label = format!("{}.example.com:443", "a".repeat(64));
    let fitting_label = format!("{}.example.com:443", "a".repeat(63));
    let long_name = format!("{}com:443", "a.".repeat(126)); // 255 bytes
    let name_254 = format!("{}{}:443", "ab.".repeat(82), "a".repeat(8));
    let fitting_name = format!("{}c:443", "a.".repeat(126)); // 253 bytes
    let huge = format!("{}:443", "x".repeat(10_000));
    let cases: &[(&str, &str, Expect)] = &[
        (
            "DST-01 control",
            "api.github.com:443",
            Is("api.github.com:443"),
        ),
        ("DST-01", "API.GitHub.COM:443", Is("api.github.com:443")),
        ("DST-02", "api.github.com.:443", Is("api.github.com:443")),
        ("DST-02 two dots", "api.github.com..:443", Refused),
        ("DST-02 only a dot", ".:443", Refused),
        ("DST-07 full width", "ｇithub.com:443", Refused),
        ("DST-07 script g", "ɡithub.com:443", Refused),
        ("DST-07 dotless i", "gıthub.com:443", Refused),
        ("DST-07 ideographic dot", "github。com:443", Refused),
        (
            "DST-07 control: punycode literally",
            "xn--gthub-2ya.com:443",
            Is("xn--gthub-2ya.com:443"),
        ),
        ("DST-10 raw", "evil.example\0.github.com:443", Refused),
        ("DST-10 encoded", "evil.example%00.github.com:443", Refused),
        ("DST-11", "api.github.com@evil.example:443", Refused),
        ("DST-11 password", "user:pass@api.github.com:443", Refused),
        ("DST-11 url", "http://api.github.com@evil.example/", Refused),
        ("DST-13", "[api.github.com]:443", Refused),
        ("DST-13 v4", "[127.0.0.1]:443", Refused),
        ("DST-13 open", "[::1:443", Refused),
        ("DST-13 tail", "[::1]x:443", Refused),
        (
            "DST-13 control",
            "[2001:DB8::1]:443",
            Is("[2001:db8::1]:443"),
        ),
        ("DST-13 zone", "[fe80::1%25eth0]:443", Refused),
        ("DST-13 bare v6 with port", "2001:db8::1:443", Refused),
        ("DST-14 hex", "0x7f000001:443", Refused),
        ("DST-14 octal", "0177.0.0.1:443", Refused),
        ("DST-14 decimal", "2130706433:443", Refused),
        ("DST-14 short", "127.1:443", Refused),
        ("DST-14 zero", "0:443", Refused),
        ("DST-14 leading zero", "010.0.0.1:443", Refused),
        ("DST-14 hex label", "127.0.0.0x1:443", Refused),
        ("DST-14 empty hex", "1.0x:443", Refused),
        ("DST-14 five parts", "1.2.3.4.5:443", Refused),
        (
            "DST-14 name with a numeric tail",
            "example.123:443",
            Refused,
        ),
        ("DST-14 dotted", "127.0.0.1.:443", Refused),
        ("DST-14 mapped", "[::ffff:127.0.0.1]:443", Refused),
        ("DST-14 control", "192.0.2.7:443", Is("192.0.2.7:443")),
        (
            "DST-14 control: digits in a name",
            "1.example.com:443",
            Is("1.example.com:443"),
        ),
        ("DST-21 label", &long_label, Refused),
        ("DST-21 label control", &fitting_label, Is("")),
        ("DST-21 name 255", &long_name, Refused),
        ("DST-21 name 254", &name_254, Refused),
        ("DST-21 name control", &fitting_name, Is("")),
        ("DST-21 huge", &huge, Refused),
        ("AUT-14 no port", "api.github.com", Refused),
        ("AUT-14 path", "api.github.com:443/", Refused),
        ("AUT-14 scheme", "https://api.github.com:443", Refused),
        ("AUT-14 empty host", ":443", Refused),
        ("AUT-14 star", "*", Refused),
        ("port zero", "a.example:0", Refused),
        ("port plus", "a.example:+443", Refused),
        ("port leading zero", "a.example:0443", Refused),
        ("port too large", "a.example:65536", Refused),
        ("port empty", "a.example:", Refused),
        ("port space", "a.example: 443", Refused),
        ("port control", "a.example:65535", Is("a.example:65535")),
        ("underscore inside", "a_b.example:443", Refused),
        (
            "underscore first",
            "_dmarc.example:443",
            Is("_dmarc.example:443"),
        ),
        ("hyphen first", "-a.example:443", Refused),
        ("hyphen last", "a-.example:443", Refused),
        ("inner empty label", "a..example:443", Refused),
        ("leading dot", ".example.com:443", Refused),
        ("space", "a b.example:443", Refused),
        ("comma", "a.example,b.example:443", Refused),
        ("tab", "a.example\t:443", Refused),
    ];
    for (id, text, expect) in cases {
        let got = Authority::parse(text);
        match expect {
            Is("") => assert_eq!(got.unwrap().to_string(), *text, "{id}"),
            Is(want) => assert_eq!(got.unwrap().to_string(), *want, "{id}"),
            Refused => assert!(got.is_err(), "{id}: {text:?} was accepted as {got:?}"),
        }
    }
}

/// Attack: DST-04
#[test]
fn dst_04_look_alikes_are_other_hosts() {
    let listed = Host::parse("github.com").unwrap();
    for other in [
        "evilgithub.com",
        "github.com.evil.example",
        "api.github.com.evil",
        "xapi.github.com",
    ] {
        assert_ne!(Host::parse(other).unwrap(), listed, "{other}");
    }
    assert_eq!(Host::parse("GITHUB.com.").unwrap(), listed);
}

#[test]
fn non_ascii_suggests_the_name_that_dns_would_be_asked_for() {
    let error = Host::parse("bücher.example").unwrap_err();
    assert!(
        error.to_string().contains("xn--bcher-kva.example"),
        "{error}"
    );
}

/// Attack: DST-21
#[test]
fn errors_repeat_little_of_a_hostile_value() {
    let error = Authority::parse(&format!("{}@x:1", "\u{1b}".repeat(5_000))).unwrap_err();
    assert!(error.to_string().len() < 600, "{}", error.to_string().len());
    assert!(!error.to_string().contains('\u{1b}'));
}

#[test]
fn host_header_form_takes_the_default_port() {
    let explicit = Authority::with_default_port("a.example:443", 443).unwrap();
    assert_eq!(
        Authority::with_default_port("A.example.", 443).unwrap(),
        explicit
    );
    assert_ne!(
        Authority::with_default_port("a.example:8443", 443).unwrap(),
        explicit
    );
    assert!(Authority::with_default_port("a.example:", 443).is_err());
    assert_eq!(explicit.host_header(Scheme::Https), "a.example");
    assert_eq!(explicit.host_header(Scheme::Http), "a.example:443");
    let v6 = Authority::with_default_port("[::1]", 443).unwrap();
    assert_eq!(v6.host_header(Scheme::Https), "[::1]");
}

proptest! {
    #[test]
    fn what_is_accepted_round_trips(text in "[a-zA-Z0-9.:\\[\\]_%@x-]{1,40}") {
        if let Ok(authority) = Authority::parse(&text) {
            let again = Authority::parse(&authority.to_string());
            prop_assert_eq!(again.as_ref(), Ok(&authority));
        }
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
        }
    }

    #[test]
    fn names_round_trip_and_fold(
        name in "[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z]([a-z0-9-]{0,8}[a-z0-9])?){0,4}",
        port in 1u16..,
    ) {
        let authority = Authority::parse(&format!("{name}:{port}")).unwrap();
        prop_assert_eq!(authority.to_string(), format!("{name}:{port}"));
        let upper = Authority::parse(&format!("{}.:{port}", name.to_uppercase())).unwrap();
        prop_assert_eq!(upper, authority);
    }

    #[test]
    fn addresses_round_trip(v4: [u8; 4], v6: [u16; 8], port in 1u16..) {
        let text = format!("{}:{port}", Ipv4Addr::from(v4));
        prop_assert_eq!(Authority::parse(&text).unwrap().to_string(), text);
        let v6 = Ipv6Addr::from(v6);
        prop_assume!(v6.to_ipv4_mapped().is_none());
        let text = format!("[{v6}]:{port}");
        prop_assert_eq!(Authority::parse(&text).unwrap().to_string(), text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*") {
        let _ = Authority::parse(&text);
        let _ = Authority::with_default_port(&text, 443);
    }
}

#[test]
fn an_error_never_repeats_user_information() {
    for text in [
        "user:s3cret@api.github.com:443",
        "user:s3cret@api.github.com",
        "user:s3cret@\u{ff47}ithub.com:443",
        "s3cret@[::1:443",
        "s3cret@@:x",
    ] {
        for error in [
            Authority::parse(text).unwrap_err().to_string(),
            Host::parse(text).unwrap_err().to_string(),
        ] {
            assert!(!error.contains("s3cret"), "{text}: {error}");
        }
    }
    let control = Authority::parse("api_github.com").unwrap_err().to_string();
    assert!(control.contains("api_github.com"), "{control}");
}
