//! IP networks in CIDR notation, for configuration and egress rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The length of the prefix `::ffff:0:0/96` of IPv4-mapped IPv6 addresses.
const MAPPED_BITS: u32 = 96;

/// An IP network, for example `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || format!("{text} is not an IP address or a network in CIDR notation");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u32 = prefix.map_or(Ok(bits), str::parse).map_err(|_| invalid())?;
        // An IPv4-mapped network (`::ffff:10.0.0.0/104`) is stored as IPv4, because `contains` compares canonical
        // addresses.
        match (address, address.to_canonical()) {
            _ if prefix > bits => Err(invalid()),
            (IpAddr::V6(_), IpAddr::V4(address)) if prefix >= MAPPED_BITS => Ok(Self {
                address: address.into(),
                prefix: prefix - MAPPED_BITS,
            }),
            _ => Ok(Self { address, prefix }),
        }
    }
}

impl Network {
    /// An IPv4 network for constant tables. `prefix` is at most 32.
    pub(crate) const fn v4(address: [u8; 4], prefix: u32) -> Self {
        let [a, b, c, d] = address;
        Self {
            address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    /// An IPv6 network for constant tables, by its first two groups. `prefix` is at most 128.
    pub(crate) const fn v6(first: u16, second: u16, prefix: u32) -> Self {
        Self {
            address: IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)),
            prefix,
        }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(other)) => {
                let shift = 32 - self.prefix;
                network.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(other)) => {
                let shift = 128 - self.prefix;
                network.to_bits().checked_shr(shift) == other.to_bits().checked_shr(shift)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_parses_cidr_and_contains_addresses() {
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
