//! Tests of the rules with a corpus of URLs. The tests of the HTTP client use the same corpus.

use std::net::IpAddr;

use super::*;

const HOSTILE: &str = include_str!("corpus/hostile.txt");
const PUBLIC: &str = include_str!("corpus/public.txt");

/// The number of entries of the two.
const HOSTILE_URLS: usize = 341;
const PUBLIC_URLS: usize = 52;

/// Parses the corpus into URLs and the addresses to which their host names resolve.
fn entries(corpus: &'static str) -> Vec<(&'static str, Vec<IpAddr>)> {
    let lines = corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split_once(" => ") {
            Some((url, resolved)) => (url, resolved.split(", ").map(|ip| ip.parse().unwrap()).collect()),
            None => (line, vec![]),
        })
        .collect()
}

/// Checks like the HTTP client: the URL, then every resolved address.
fn check_target(url: &str, resolved: &[IpAddr], allow: &AllowList) -> Result<(), TargetRefusal> {
    let target = Target::parse(url, allow)?;
    match target.address() {
        Some(address) => target.may_be_at(address, allow),
        None => resolved
            .iter()
            .try_for_each(|address| target.may_be_at(*address, allow)),
    }
}

fn networks(list: &[&str]) -> AllowList {
    let networks: Vec<_> = list.iter().map(|network| network.parse().unwrap()).collect();
    networks.into()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn egress_rejects_the_hostile_corpus() {
    let entries = entries(HOSTILE);
    assert_eq!(entries.len(), HOSTILE_URLS);
    let passed: Vec<_> = entries
        .iter()
        .filter(|(url, resolved)| check_target(url, resolved, &AllowList::default()).is_ok())
        .collect();
    assert!(passed.is_empty(), "{passed:?}");
}

#[test]
fn egress_allows_the_public_corpus() {
    let entries = entries(PUBLIC);
    assert_eq!(entries.len(), PUBLIC_URLS);
    for (url, resolved) in entries {
        assert_eq!(check_target(url, &resolved, &AllowList::default()), Ok(()), "{url}");
    }
}

#[test]
fn egress_parses_hosts_to_addresses_before_the_check() {
    let any = networks(&["0.0.0.0/0", "::/0"]);
    for (url, read) in [
        ("http://0177.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://１２７.０.０.１/", "http://127.0.0.1/"),
        ("http://127。0。0。1/", "http://127.0.0.1/"),
        ("http://%31%32%37.1/", "http://127.0.0.1/"),
        ("http:\\\\127.1\\x", "http://127.0.0.1/x"),
        (" ht\ntp://127.1#frag ", "http://127.0.0.1/"),
        ("http://[::FFFF:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
        ("https://EXAMPLE.com.:443/a b", "https://example.com/a%20b"),
        ("https://pão.example/", "https://xn--po-sia.example/"),
    ] {
        assert_eq!(Target::parse(url, &any).unwrap().as_str(), read, "{url}");
    }
}

#[test]
fn egress_closed_networks_have_exact_bounds() {
    let closed = [
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("169.254.0.0", "169.254.255.255"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.0.2.0", "192.0.2.255"),
        ("192.88.99.0", "192.88.99.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"),
        ("224.0.0.0", "255.255.255.255"),
        ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];
    let public_only = AllowList::default();
    for (first, last) in closed {
        assert!(!allowed(address(first), &public_only), "{first}");
        assert!(!allowed(address(last), &public_only), "{last}");
    }
    let open = [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.99.255",
        "198.51.101.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "2000::",
        "2001:200::",
        "2001:db7:ffff::",
        "2001:db9::",
        "2001:4860:4860::8888",
        "2003::",
        "2a00:1450::1",
        "3ffe::",
        "3fff:1000::",
    ];
    for text in open {
        assert!(allowed(address(text), &public_only), "{text}");
    }
}

#[test]
fn egress_checks_ipv4_addresses_inside_ipv6() {
    let public_only = AllowList::default();
    for (text, open) in [
        ("::ffff:8.8.8.8", true),
        ("::ffff:10.0.0.1", false),
        ("::8.8.8.8", false),
        ("::ffff:0:8.8.8.8", false),
        ("64:ff9b::8.8.8.8", true),
        ("64:ff9b::10.0.0.1", false),
        ("64:ff9b::169.254.169.254", false),
        ("64:ff9b:1::8.8.8.8", false),
        ("64:ff9b::1:808:808", false),
        ("2002:808:808::", false),
        ("2a00:1450::5efe:808:808", false),
        ("2a00:1450::200:5efe:808:808", false),
    ] {
        assert_eq!(allowed(address(text), &public_only), open, "{text}");
    }
}

#[test]
fn egress_allow_list_opens_networks_at_any_port() {
    let list = networks(&["127.0.0.0/8", "fd00::/8"]);
    for url in [
        "http://127.0.0.1:9000/",
        "http://localhost:1234/",
        "https://[fd00::1]:1/",
        "http://[::ffff:127.0.0.1]:5/",
    ] {
        assert_eq!(check_target(url, &[address("127.0.0.1")], &list), Ok(()), "{url}");
    }
    let named_host = |at: &str| check_target("http://hooks.example:9000/", &[address(at)], &list);
    assert_eq!(named_host("127.0.0.9"), Ok(()));
    assert_eq!(named_host("8.8.8.8"), Err(TargetRefusal::Port));
    assert_eq!(named_host("10.0.0.1"), Err(TargetRefusal::Address));
    // The list does not apply to addresses behind a NAT64 translator.
    assert_eq!(
        check_target("http://[64:ff9b::7f00:1]/", &[], &list),
        Err(TargetRefusal::Address)
    );
    assert_eq!(
        check_target("http://10.0.0.1:9000/", &[], &list),
        Err(TargetRefusal::Address)
    );
    assert_eq!(
        check_target("http://8.8.8.8:9000/", &[], &list),
        Err(TargetRefusal::Port)
    );
}

#[test]
fn egress_refusal_names_the_violated_rule() {
    let public_only = AllowList::default();
    let long = format!("https://example.com/{}", "a".repeat(2048));
    for (url, refusal) in [
        ("", TargetRefusal::Malformed),
        ("example.com", TargetRefusal::Malformed),
        ("https://", TargetRefusal::Malformed),
        ("https://./", TargetRefusal::Malformed),
        (&long, TargetRefusal::Malformed),
        ("file:///etc/passwd", TargetRefusal::Scheme),
        ("https://ana@example.com/", TargetRefusal::UserInfo),
        ("https://:x@example.com/", TargetRefusal::UserInfo),
        ("https://example.com:80/", TargetRefusal::Port),
        ("http://example.com:443/", TargetRefusal::Port),
        ("http://10.0.0.1/", TargetRefusal::Address),
        ("http://localhost./", TargetRefusal::Address),
    ] {
        assert_eq!(Target::parse(url, &public_only), Err(refusal), "{url}");
    }
}

#[test]
fn egress_checks_redirects_like_first_urls() {
    let public_only = AllowList::default();
    let start = Target::parse("https://example.com/a/b?c", &public_only).unwrap();
    let next = |location: &str| {
        start
            .redirected(location, &public_only)
            .map(|target| target.as_str().to_owned())
    };
    assert_eq!(next("../d"), Ok("https://example.com/d".into()));
    assert_eq!(next("//other.example/x"), Ok("https://other.example/x".into()));
    assert_eq!(next("http://example.com"), Ok("http://example.com/".into()));
    for (location, refusal) in [
        ("http://127.0.0.1/", TargetRefusal::Address),
        ("//169.254.169.254/latest", TargetRefusal::Address),
        ("file:///etc/passwd", TargetRefusal::Scheme),
        ("https://a:b@example.com/", TargetRefusal::UserInfo),
        ("https://example.com:22/", TargetRefusal::Port),
        ("https://[", TargetRefusal::Malformed),
    ] {
        assert_eq!(next(location), Err(refusal), "{location}");
    }
}

#[test]
fn egress_written_url_rejects_corrected_spelling() {
    let parse_written = |url: &str| Target::written(url, &AllowList::default());
    for url in [
        "https://e.example",
        "HTTPS://E.example:8443/a/b?c=d&e=%20",
        "https://[2606:4700::1111]:443/x",
        "https://93.184.216.34",
        "https://e.example?x=y@z",
        "http://e.example/",
        &format!("https://e.example/{}", "a".repeat(2030)),
    ] {
        assert!(parse_written(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "e.example",
        "ftp://e.example",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "https:///path",
        "https://?x",
        "https:e.example",
        "https://user@e.example",
        "https://user:pass@e.example/",
        "https://e.example/#part",
        "https://e.example/a b",
        "https://e.example\\@127.0.0.1/",
        "https://e.example\n",
        "https://\u{e9}.example",
        "https://e.example:0",
        "https://e.example:22",
        "https://e.example:70000",
        "https://:443/",
        "https://e.example:8x",
        "https://[::1",
        "https://[::1]",
        "https://[x]",
        "https://[::1]8",
        "https://127.1",
        " https://e.example",
        &format!("https://e.example/{}", "a".repeat(2048)),
    ] {
        assert!(parse_written(url).is_err(), "{url:?}");
    }
    // `Spelling` rejects URLs that the parser would correct.
    for url in [
        "https:///e.example",
        "https://e.example/#part",
        " https://e.example",
        "https:\\\\e.example",
    ] {
        assert_eq!(parse_written(url), Err(TargetRefusal::Spelling), "{url:?}");
        assert!(Target::parse(url, &AllowList::default()).is_ok(), "{url:?}");
    }
}

#[test]
fn egress_target_has_host_and_address() {
    for (url, host, address) in [
        ("https://example.com./a?b", "example.com", None),
        ("http://93.184.216.34/", "93.184.216.34", Some("93.184.216.34")),
        (
            "https://[2606:2800:220:1::1]:8443/",
            "2606:2800:220:1::1",
            Some("2606:2800:220:1::1"),
        ),
    ] {
        let target = Target::parse(url, &AllowList::default()).unwrap();
        let address = address.map(|address| address.parse().unwrap());
        assert_eq!((target.host(), target.address()), (host, address), "{url}");
    }
}
