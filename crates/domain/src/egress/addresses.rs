//! The rules for IP addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::shared::Network;

/// The IPv4 networks that are not public: the IANA special-purpose registry and multicast.
const CLOSED_V4: [Network; 16] = [
    // This network.
    Network::v4([0, 0, 0, 0], 8),
    // Private.
    Network::v4([10, 0, 0, 0], 8),
    Network::v4([172, 16, 0, 0], 12),
    Network::v4([192, 168, 0, 0], 16),
    // Carrier-grade NAT.
    Network::v4([100, 64, 0, 0], 10),
    // Loopback.
    Network::v4([127, 0, 0, 0], 8),
    // Link-local, with the metadata services of cloud providers.
    Network::v4([169, 254, 0, 0], 16),
    // Protocol assignments, 6to4 relays, benchmarks.
    Network::v4([192, 0, 0, 0], 24),
    Network::v4([192, 88, 99, 0], 24),
    Network::v4([198, 18, 0, 0], 15),
    // Documentation.
    Network::v4([192, 0, 2, 0], 24),
    Network::v4([198, 51, 100, 0], 24),
    Network::v4([203, 0, 113, 0], 24),
    // Multicast, reserved, broadcast.
    Network::v4([224, 0, 0, 0], 4),
    Network::v4([240, 0, 0, 0], 4),
    Network::v4([255, 255, 255, 255], 32),
];

/// The only public part of the IPv6 space. Everything else is closed: `::/8` with its compatible, translated and
/// loopback addresses, `64:ff9b:1::/48`, `100::/64`, `5f00::/16`, `fc00::/7`, `fe80::/10`, `fec0::/10`, `ff00::/8`.
const PUBLIC_V6: Network = Network::v6(0x2000, 0, 3);

/// The networks in `PUBLIC_V6` that are not public: protocol assignments with Teredo, documentation, 6to4.
const CLOSED_V6: [Network; 4] = [
    Network::v6(0x2001, 0, 23),
    Network::v6(0x2001, 0x0db8, 32),
    Network::v6(0x2002, 0, 16),
    Network::v6(0x3fff, 0, 20),
];

/// Private networks that the configuration allows (`EGRESS_ALLOW_CIDRS`); none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Network>);

impl AllowList {
    /// Whether only public addresses are allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address is in one of the networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl From<Vec<Network>> for AllowList {
    fn from(networks: Vec<Network>) -> Self {
        Self(networks)
    }
}

/// Whether Recado may connect to an address: a public one, or one of the list.
///
/// An IPv4-mapped address (`::ffff:a.b.c.d`) counts as the IPv4 address. An address with the well-known NAT64 prefix is
/// public if the embedded IPv4 address is. The list is compared with the address of the connection, so that it never
/// opens a private address behind a translator.
pub fn allowed(address: IpAddr, allow: &AllowList) -> bool {
    let public = match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    };
    public || allow.contains(address)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let address = IpAddr::V4(address);
    !CLOSED_V4.iter().any(|network| network.contains(address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = nat64_target(address) {
        return is_public_v4(inner);
    }
    let outer = IpAddr::V6(address);
    PUBLIC_V6.contains(outer) && !CLOSED_V6.iter().any(|network| network.contains(outer)) && !is_isatap(address)
}

/// Returns the IPv4 address in an address with the well-known NAT64 prefix `64:ff9b::/96`.
fn nat64_target(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([first, second], [third, fourth]) = (high.to_be_bytes(), low.to_be_bytes());
            Some(Ipv4Addr::new(first, second, third, fourth))
        }
        _ => None,
    }
}

/// Whether this is an ISATAP tunnel address, which embeds a private IPv4 address under any prefix.
fn is_isatap(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [_, _, _, _, 0x0000 | 0x0200, 0x5efe, _, _])
}
