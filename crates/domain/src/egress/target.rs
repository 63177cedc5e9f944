//! The rules for URLs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use thiserror::Error;
use url::{Host, Url};

use super::{AllowList, allowed};

const MAX_URL_BYTES: usize = 2048;

/// The allowed ports of public hosts.
const PLAIN_PORTS: [u16; 1] = [80];
const SECURE_PORTS: [u16; 2] = [443, 8443];

/// Why a URL is rejected. The user who entered the URL reads these messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TargetRefusal {
    /// It is not a URL, has no host or is too long.
    #[error("must be a URL of at most {MAX_URL_BYTES} characters")]
    Malformed,
    /// The parser would have to correct it.
    #[error("must be an absolute http or https URL without spaces, backslashes or a fragment")]
    Spelling,
    /// The scheme is neither http nor https.
    #[error("must start with http:// or https://")]
    Scheme,
    /// It contains a user name or password.
    #[error("must not contain a user name or password")]
    UserInfo,
    /// The port is not allowed.
    #[error("must use port 80 for http, or 443 or 8443 for https")]
    Port,
    /// The address is not public.
    #[error("must not point to a private address")]
    Address,
}

/// A URL that may be called after the resolved addresses of its host pass [`Target::may_be_at`].
#[derive(Clone, PartialEq, Eq)]
pub struct Target(Url);

/// Shows only the host: the rest of a URL may hold secrets.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.host()).finish()
    }
}

impl Target {
    /// Parses and checks a URL without name resolution. A host name passes here; the caller MUST check each of its
    /// resolved addresses with [`Target::may_be_at`].
    ///
    /// Public hosts are allowed only at `PLAIN_PORTS` and `SECURE_PORTS`, hosts of the list at any port. With a list,
    /// the port of a host name is checked together with its address.
    pub fn parse(text: &str, allow: &AllowList) -> Result<Self, TargetRefusal> {
        if text.len() > MAX_URL_BYTES {
            return Err(TargetRefusal::Malformed);
        }
        let mut url = Url::parse(text).map_err(|_| TargetRefusal::Malformed)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetRefusal::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetRefusal::UserInfo);
        }
        url.set_fragment(None);
        if let Some(Host::Domain(name)) = url.host() {
            // Remove the root dot: certificates do not contain it.
            let host = name.strip_suffix('.').unwrap_or(name).to_owned();
            url.set_host(Some(&host)).map_err(|_| TargetRefusal::Malformed)?;
        }
        let target = Self(url);
        target.check_host(allow)?;
        Ok(target)
    }

    /// Like `parse`, for a URL that is stored as entered: also rejects what the parser would correct or drop, so that
    /// people read the URL that is called.
    pub fn written(text: &str, allow: &AllowList) -> Result<Self, TargetRefusal> {
        let rest = ["http://", "https://"].iter().find_map(|start| {
            let (scheme, rest) = text.split_at_checked(start.len())?;
            scheme.eq_ignore_ascii_case(start).then_some(rest)
        });
        let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', ':']));
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['\\', '#']);
        let target = Self::parse(text, allow)?;
        match has_host && is_printable {
            true => Ok(target),
            false => Err(TargetRefusal::Spelling),
        }
    }

    /// Parses and checks the location of a redirect.
    pub fn redirected(&self, location: &str, allow: &AllowList) -> Result<Self, TargetRefusal> {
        let next = self.0.join(location).map_err(|_| TargetRefusal::Malformed)?;
        Self::parse(next.as_str(), allow)
    }

    fn check_host(&self, allow: &AllowList) -> Result<(), TargetRefusal> {
        match self.0.host().ok_or(TargetRefusal::Malformed)? {
            Host::Domain("") => Err(TargetRefusal::Malformed),
            // Loopback names, regardless of the resolver's answer (RFC 6761).
            Host::Domain(name) if name == "localhost" || name.ends_with(".localhost") => {
                self.may_be_at(Ipv4Addr::LOCALHOST.into(), allow)
            }
            Host::Domain(_) if self.has_web_port() || !allow.is_empty() => Ok(()),
            Host::Domain(_) => Err(TargetRefusal::Port),
            Host::Ipv4(address) => self.may_be_at(address.into(), allow),
            Host::Ipv6(address) => self.may_be_at(address.into(), allow),
        }
    }

    /// Checks an address to which the host resolves, together with the port.
    pub fn may_be_at(&self, address: IpAddr, allow: &AllowList) -> Result<(), TargetRefusal> {
        if !allowed(address, allow) {
            return Err(TargetRefusal::Address);
        }
        match self.has_web_port() || allow.contains(address) {
            true => Ok(()),
            false => Err(TargetRefusal::Port),
        }
    }

    fn has_web_port(&self) -> bool {
        match self.is_secure() {
            true => SECURE_PORTS.contains(&self.port()),
            false => PLAIN_PORTS.contains(&self.port()),
        }
    }

    /// The URL of the call: in ASCII, without a fragment.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether the scheme is https.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The explicit port or the scheme's default port.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// The host name or address, without brackets. Logs may show it; the rest of a URL may hold secrets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// The IP address, or `None` if the host is a name.
    pub fn address(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }
}
