//! Where a request comes from: the peer's address, or what a trusted proxy says of it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderValue;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// What of an IPv6 address says that it is an IPv4 one.
const MAPPED_BITS: u32 = 96;

/// A network, for example `10.0.0.0/8` or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text} is no network");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u32 = prefix.map_or(Ok(bits), str::parse).map_err(|_| wrong())?;
        // An IPv4 network written as IPv6 (`::ffff:10.0.0.0/104`) is the IPv4 network: addresses are compared so.
        match (address, address.to_canonical()) {
            _ if prefix > bits => Err(wrong()),
            (IpAddr::V6(_), IpAddr::V4(address)) if prefix >= MAPPED_BITS => Ok(Self {
                address: address.into(),
                prefix: prefix - MAPPED_BITS,
            }),
            _ => Ok(Self { address, prefix }),
        }
    }
}

impl Network {
    /// Whether an address lies in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - self.prefix;
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - self.prefix;
                own.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The caller's address: the peer, or where the peer is a trusted proxy, the right-most hop of `X-Forwarded-For` that
/// is none. A hop that is no address ends the search: what stands left of it proves nothing. `Forwarded` is not read.
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
    // From the right, and by bytes: what a caller wrote into the left part must not make the rest unreadable.
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

/// `1.2.3.4`, `::1`, `[::1]`; and both with a port, which some proxies add.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let bare = bare.map(|address| address.parse::<Ipv6Addr>().map(IpAddr::from));
    let address = match bare {
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

    fn seen(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let bytes: Vec<&[u8]> = forwarded.iter().map(|line| line.as_bytes()).collect();
        seen_bytes(peer, &bytes, trusted)
    }

    fn seen_bytes(peer: &str, forwarded: &[&[u8]], trusted: &[&str]) -> String {
        let peer: IpAddr = peer.parse().unwrap();
        let mut request = TestRequest::default().peer_addr(SocketAddr::from((peer, 1)));
        for value in forwarded {
            request = request.append_header(("X-Forwarded-For", HeaderValue::from_bytes(value).unwrap()));
        }
        // Said by nobody we know.
        request = request.insert_header(("Forwarded", "for=6.6.6.6"));
        request = request.insert_header(("X-Real-IP", "6.6.6.6"));
        let trusted: Vec<Network> = trusted.iter().map(|network| network.parse().unwrap()).collect();
        address(&request.to_http_request(), &trusted).unwrap().to_string()
    }

    #[test]
    fn a_header_counts_only_from_a_trusted_proxy() {
        assert_eq!(seen("9.9.9.9", &["1.1.1.1"], &[]), "9.9.9.9");
        assert_eq!(seen("9.9.9.9", &["1.1.1.1"], &["10.0.0.0/8"]), "9.9.9.9");
        assert_eq!(seen("10.1.2.3", &["1.1.1.1"], &["10.0.0.0/8"]), "1.1.1.1");
        assert_eq!(
            seen("10.1.2.3", &["6.6.6.6, 1.1.1.1", "10.0.0.9"], &["10.0.0.0/8"]),
            "1.1.1.1"
        );
        assert_eq!(seen("10.1.2.3", &["6.6.6.6, junk"], &["10.0.0.0/8"]), "10.1.2.3");
        assert_eq!(seen("10.1.2.3", &[], &["10.1.2.3"]), "10.1.2.3");
    }

    #[test]
    fn a_hop_may_have_a_port_and_brackets() {
        let behind = |hops: &[&str]| seen("10.1.2.3", hops, &["10.0.0.0/8", "fd00::/8"]);
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
                "{junk} stands left of what counts"
            );
        }
    }

    #[test]
    fn what_the_caller_wrote_makes_nothing_unreadable_that_the_proxy_wrote() {
        assert_eq!(
            seen_bytes("10.1.2.3", &[b"\xff\xfe, 1.2.3.4"], &["10.0.0.0/8"]),
            "1.2.3.4"
        );
        assert_eq!(
            seen_bytes("10.1.2.3", &[b"\xff", b"1.2.3.4"], &["10.0.0.0/8"]),
            "1.2.3.4"
        );
        assert_eq!(seen_bytes("10.1.2.3", &[b"6.6.6.6, \xff"], &["10.0.0.0/8"]), "10.1.2.3");
        let long = format!("{}1.2.3.4, 10.0.0.1", "6.6.6.6, ".repeat(5000));
        assert_eq!(seen("10.1.2.3", &[&long], &["10.0.0.0/8"]), "1.2.3.4");
        let trusted = vec!["10.0.0.1"; 5000].join(",");
        assert_eq!(
            seen("10.1.2.3", &[&trusted], &["10.0.0.0/8"]),
            "10.0.0.1",
            "trusted all along"
        );
    }

    #[test]
    fn an_ipv4_peer_on_an_ipv6_socket_is_an_ipv4_peer() {
        for trusted in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:10.1.2.3"] {
            assert_eq!(
                seen("::ffff:10.1.2.3", &["1.2.3.4"], &[trusted]),
                "1.2.3.4",
                "{trusted}"
            );
        }
        assert_eq!(seen("::ffff:9.9.9.9", &["1.2.3.4"], &["10.0.0.0/8"]), "9.9.9.9");
        assert_eq!(seen("2001:db8::7", &["1.2.3.4"], &["2001:db8::/32"]), "1.2.3.4");
        assert_eq!(seen("2001:db9::7", &["1.2.3.4"], &["2001:db8::/32"]), "2001:db9::7");
    }

    #[test]
    fn networks_are_read_and_hold_what_they_should() {
        let network: Network = "172.16.0.0/12".parse().unwrap();
        let holds = |text: &str| network.contains(text.parse().unwrap());
        assert!(holds("172.31.255.255") && holds("::ffff:172.16.0.1"));
        assert!(!holds("172.32.0.0") && !holds("::1"));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains([8, 8, 8, 8].into()));
        for wrong in [
            "10.0.0.0/33",
            "::/129",
            "::ffff:10.0.0.0/129",
            "10.0.0/8",
            "x",
            "10.0.0.0/",
            "10.0.0.0/-1",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
