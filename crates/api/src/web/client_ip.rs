//! The client's IP address: the address of the peer, or the one that a trusted proxy reports.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::HttpRequest;
use actix_web::http::header::HeaderValue;
use recado_domain::shared::Network;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns the client's address. If the peer is a trusted proxy, it is the right-most untrusted hop of
/// `X-Forwarded-For`. A malformed hop ends the search, because the hops to its left may be forged. `Forwarded` is not
/// read.
pub fn address(request: &HttpRequest, trusted: &[Network]) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    let trusts = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !trusts(peer) {
        return Some(peer);
    }
    let lines: Vec<&[u8]> = request
        .headers()
        .get_all(FORWARDED_FOR)
        .map(HeaderValue::as_bytes)
        .collect();
    // From the right and by bytes, so that invalid text on the left, which a client can write, does not matter.
    let hops = lines
        .into_iter()
        .rev()
        .flat_map(|line| line.rsplit(|byte| *byte == b','));
    let mut address = peer;
    for hop in hops.map(<[u8]>::trim_ascii).filter(|hop| !hop.is_empty()) {
        let Some(next) = std::str::from_utf8(hop).ok().and_then(hop_address) else {
            break;
        };
        address = next;
        if !trusts(address) {
            break;
        }
    }
    Some(address)
}

/// The part of an address under which limits count. One client usually has a whole IPv6 /64 network and can change its
/// address within it for every request.
pub fn limit_key(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// Warns once if an untrusted peer sends `X-Forwarded-For`. It may be a proxy that is missing in `TRUSTED_PROXIES`:
/// then all of its clients share one address, and its limits.
pub fn warn_of_untrusted_proxy(request: &HttpRequest, trusted: &[Network]) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !request.headers().contains_key(FORWARDED_FOR) || WARNED.load(Ordering::Relaxed) {
        return;
    }
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    let is_trusted = peer.is_none_or(|peer| trusted.iter().any(|network| network.contains(peer)));
    if !is_trusted && !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            peer = peer.map(tracing::field::display),
            "X-Forwarded-For is ignored: its sender is not in TRUSTED_PROXIES"
        );
    }
}

/// Parses `1.2.3.4`, `::1` or `[::1]`, also with a port, which some proxies add.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let bracketed = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let bracketed = bracketed.map(|address| address.parse::<Ipv6Addr>().map(IpAddr::from));
    let address = match bracketed {
        Some(address) => address.ok(),
        None => hop
            .parse::<IpAddr>()
            .ok()
            .or_else(|| Some(hop.parse::<SocketAddr>().ok()?.ip())),
    };
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn client_address(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let bytes: Vec<&[u8]> = forwarded.iter().map(|line| line.as_bytes()).collect();
        client_address_of_bytes(peer, &bytes, trusted)
    }

    fn client_address_of_bytes(peer: &str, forwarded: &[&[u8]], trusted: &[&str]) -> String {
        let peer: IpAddr = peer.parse().unwrap();
        let mut request = TestRequest::default().peer_addr(SocketAddr::from((peer, 1)));
        for value in forwarded {
            request = request.append_header(("X-Forwarded-For", HeaderValue::from_bytes(value).unwrap()));
        }
        // Headers that must be ignored.
        request = request.insert_header(("Forwarded", "for=6.6.6.6"));
        request = request.insert_header(("X-Real-IP", "6.6.6.6"));
        let trusted: Vec<Network> = trusted.iter().map(|network| network.parse().unwrap()).collect();
        address(&request.to_http_request(), &trusted).unwrap().to_string()
    }

    #[test]
    fn forwarded_for_counts_only_from_a_trusted_proxy() {
        assert_eq!(client_address("9.9.9.9", &["1.1.1.1"], &[]), "9.9.9.9");
        assert_eq!(client_address("9.9.9.9", &["1.1.1.1"], &["10.0.0.0/8"]), "9.9.9.9");
        assert_eq!(client_address("10.1.2.3", &["1.1.1.1"], &["10.0.0.0/8"]), "1.1.1.1");
        assert_eq!(
            client_address("10.1.2.3", &["6.6.6.6, 1.1.1.1", "10.0.0.9"], &["10.0.0.0/8"]),
            "1.1.1.1"
        );
        assert_eq!(
            client_address("10.1.2.3", &["6.6.6.6, junk"], &["10.0.0.0/8"]),
            "10.1.2.3"
        );
        assert_eq!(client_address("10.1.2.3", &[], &["10.1.2.3"]), "10.1.2.3");
    }

    #[test]
    fn hop_may_have_a_port_and_brackets() {
        let behind = |hops: &[&str]| client_address("10.1.2.3", hops, &["10.0.0.0/8", "fd00::/8"]);
        for (hop, address) in [
            ("1.2.3.4:5678", "1.2.3.4"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:DB8::1", "2001:db8::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
            ("[::ffff:1.2.3.4]:9", "1.2.3.4"),
            ("6.6.6.6, 1.2.3.4:1, [fd00::1]:443, 10.0.0.1:2", "1.2.3.4"),
            ("1.2.3.4,, ,", "1.2.3.4"),
        ] {
            assert_eq!(behind(&[hop]), address, "{hop}");
        }
        for junk in [
            "unknown",
            "_hidden",
            "1.2.3",
            "01.2.3.4",
            "1.2.3.4:99999",
            "[1.2.3.4]",
            "[::1",
            "::1]",
            "fe80::1%eth0",
            "for=1.2.3.4",
            "\"1.2.3.4\"",
            "-",
            "1.2.3.4 5.6.7.8",
        ] {
            assert_eq!(behind(&[&format!("6.6.6.6, {junk}")]), "10.1.2.3", "{junk}");
            assert_eq!(
                behind(&[junk, "1.2.3.4"]),
                "1.2.3.4",
                "{junk} is left of the first untrusted hop"
            );
        }
    }

    #[test]
    fn limits_count_ipv6_networks_and_ipv4_addresses() {
        let key = |text: &str| limit_key(text.parse().unwrap());
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_eq!(key("192.0.2.7"), "192.0.2.7");
        assert_eq!(key("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn invalid_text_of_client_does_not_hide_hop_of_proxy() {
        assert_eq!(
            client_address_of_bytes("10.1.2.3", &[b"\xff\xfe, 1.2.3.4"], &["10.0.0.0/8"]),
            "1.2.3.4"
        );
        assert_eq!(
            client_address_of_bytes("10.1.2.3", &[b"\xff", b"1.2.3.4"], &["10.0.0.0/8"]),
            "1.2.3.4"
        );
        assert_eq!(
            client_address_of_bytes("10.1.2.3", &[b"6.6.6.6, \xff"], &["10.0.0.0/8"]),
            "10.1.2.3"
        );
        let long = format!("{}1.2.3.4, 10.0.0.1", "6.6.6.6, ".repeat(5000));
        assert_eq!(client_address("10.1.2.3", &[&long], &["10.0.0.0/8"]), "1.2.3.4");
        let trusted = vec!["10.0.0.1"; 5000].join(",");
        assert_eq!(
            client_address("10.1.2.3", &[&trusted], &["10.0.0.0/8"]),
            "10.0.0.1",
            "every hop is trusted"
        );
    }

    #[test]
    fn ipv4_peer_on_ipv6_socket_is_matched_as_ipv4() {
        for trusted in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:10.1.2.3"] {
            assert_eq!(
                client_address("::ffff:10.1.2.3", &["1.2.3.4"], &[trusted]),
                "1.2.3.4",
                "{trusted}"
            );
        }
        assert_eq!(
            client_address("::ffff:9.9.9.9", &["1.2.3.4"], &["10.0.0.0/8"]),
            "9.9.9.9"
        );
        assert_eq!(
            client_address("2001:db8::7", &["1.2.3.4"], &["2001:db8::/32"]),
            "1.2.3.4"
        );
        assert_eq!(
            client_address("2001:db9::7", &["1.2.3.4"], &["2001:db8::/32"]),
            "2001:db9::7"
        );
    }
}
