//! The networks from which a key may be used.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::shared::Network;

/// Parses a network in CIDR notation, or a single address, and clears its host bits. An IPv4-mapped network becomes
/// IPv4, because callers' addresses are compared in canonical form.
pub fn parse_network(text: &str) -> Option<IpNet> {
    // `str::parse` would accept a sign before the prefix length.
    let network: Network = text.parse().ok().filter(|_| !text.contains('+'))?;
    Some(network.trunc())
}

/// Whether a caller's address lies in one of the networks. An empty list permits every address. An unknown address is
/// in no network.
pub(super) fn permit(networks: &[IpNet], address: Option<IpAddr>) -> bool {
    let address = address.map(|address| address.to_canonical());
    networks.is_empty() || address.is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_is_stored_in_canonical_form() {
        for (text, stored) in [
            ("203.0.113.0/24", "203.0.113.0/24"),
            ("203.0.113.77/24", "203.0.113.0/24"),
            ("203.0.113.7", "203.0.113.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ] {
            assert_eq!(
                parse_network(text).map(|network| network.to_string()).as_deref(),
                Some(stored),
                "{text}"
            );
        }
        for wrong in [
            "",
            "/",
            "x",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/33",
            "10.0.0.0/8/8",
            " 10.0.0.0/8",
            "010.0.0.0/8",
            "::/129",
            "::ffff:10.0.0.0/129",
            "fe80::1%eth0/64",
            "example.com",
        ] {
            assert_eq!(parse_network(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn address_must_lie_in_one_of_the_networks() {
        let networks: Vec<IpNet> = ["10.0.0.0/8", "2001:db8::/32"]
            .into_iter()
            .filter_map(parse_network)
            .collect();
        let permits = |address: &str| permit(&networks, Some(address.parse().unwrap()));
        assert!(permits("10.255.255.255") && permits("::ffff:10.0.0.1") && permits("2001:db8:1::1"));
        assert!(!permits("11.0.0.0") && !permits("2001:db9::1") && !permits("::1"));
        assert!(!permit(&networks, None));
        assert!(permit(&[], None) && permit(&[], Some([8, 8, 8, 8].into())));
        let all_of_one_family = [parse_network("0.0.0.0/0").unwrap()];
        assert!(permit(&all_of_one_family, Some([8, 8, 8, 8].into())));
        assert!(!permit(&all_of_one_family, Some("2001:db8::1".parse().unwrap())));
    }
}
