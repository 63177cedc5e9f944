//! IP networks in CIDR notation, for configuration, API keys and egress rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The length of the prefix `::ffff:0:0/96` of IPv4-mapped IPv6 addresses.
const MAPPED_BITS: u8 = 96;

/// An IP network, for example `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(Self)
            .ok_or_else(|| format!("{text} is not an IP address or a network in CIDR notation"))
    }
}

/// An IPv4-mapped network (`::ffff:10.0.0.0/104`) becomes IPv4, because `contains` compares canonical addresses.
fn parse(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
    let address: IpAddr = address.parse().ok()?;
    let Some(prefix) = prefix else {
        return Some(address.to_canonical().into());
    };
    let prefix: u8 = prefix.parse().ok()?;
    match (address, address.to_canonical()) {
        (IpAddr::V6(_), mapped @ IpAddr::V4(_)) if prefix >= MAPPED_BITS => {
            IpNet::new(mapped, prefix.checked_sub(MAPPED_BITS)?).ok()
        }
        _ => IpNet::new(address, prefix).ok(),
    }
}

impl Network {
    /// An IPv4 network for constant tables.
    pub(crate) const fn v4(address: [u8; 4], prefix: u8) -> Self {
        let [a, b, c, d] = address;
        Self(IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)))
    }

    /// An IPv6 network for constant tables, by its first two groups.
    pub(crate) const fn v6(first: u16, second: u16, prefix: u8) -> Self {
        let address = Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0);
        Self(IpNet::V6(Ipv6Net::new_assert(address, prefix)))
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Clears the host bits.
    pub(crate) fn trunc(self) -> IpNet {
        self.0.trunc()
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
