//! Where a request comes from: the peer's address, or what a trusted proxy says of it.

use std::net::IpAddr;
use std::str::FromStr;

use actix_web::HttpRequest;

/// A network, for example `10.0.0.0/8` or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| format!("{text} is no network"))?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix
            .map_or(Ok(bits), str::parse)
            .map_err(|_| format!("{text} is no network"))?;
        if prefix <= bits {
            Ok(Self { address, prefix })
        } else {
            Err(format!("{text} is no network"))
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
/// is none. A hop that is no address ends the search: what stands left of it proves nothing.
pub fn address(request: &HttpRequest, trusted: &[Network]) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    let trusts = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let headers = request
        .headers()
        .get_all("x-forwarded-for")
        .filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = headers.flat_map(|value| value.split(',')).map(str::trim).collect();
    let mut address = peer;
    for hop in hops.into_iter().rev() {
        if !trusts(address) {
            break;
        }
        match hop.parse::<IpAddr>() {
            Ok(hop) => address = hop.to_canonical(),
            Err(_) => break,
        }
    }
    Some(address)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn seen(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut request = TestRequest::default().peer_addr(format!("{peer}:1").parse().unwrap());
        for value in forwarded {
            request = request.append_header(("X-Forwarded-For", *value));
        }
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
    fn networks_are_read_and_hold_what_they_should() {
        let network: Network = "172.16.0.0/12".parse().unwrap();
        let holds = |text: &str| network.contains(text.parse().unwrap());
        assert!(holds("172.31.255.255") && holds("::ffff:172.16.0.1"));
        assert!(!holds("172.32.0.0") && !holds("::1"));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains([8, 8, 8, 8].into()));
        for wrong in ["10.0.0.0/33", "::/129", "10.0.0/8", "x", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
