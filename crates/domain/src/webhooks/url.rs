//! Which addresses an endpoint may have, as far as they say themselves. Where a name leads is asked at every delivery.

/// How long an address may be.
const URL_CHARS: usize = 2048;

/// What is wrong with an address, if anything is.
pub(super) fn fault(url: &str, plain_http: bool) -> Option<&'static str> {
    if url.chars().count() > URL_CHARS {
        return Some("must have at most 2048 characters");
    }
    let lower = url.to_ascii_lowercase();
    let known = lower.starts_with("https://") || plain_http && lower.starts_with("http://");
    if !known {
        return Some(match plain_http {
            true => "must be an http or https address",
            false => "must be an https address",
        });
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains('\\') {
        return Some("must not hold spaces, backslashes or letters other than ASCII: write them encoded");
    }
    if url.contains('#') {
        return Some("must not have a fragment (#): it would not be sent");
    }
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("must not hold a user name or password");
    }
    if is_host_and_port(authority) {
        None
    } else {
        Some("must name a host")
    }
}

fn is_host_and_port(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => (address, None),
            Some((address, rest)) => match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None => return false,
            },
            None => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_bracketed = authority.starts_with('[');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let named = match is_bracketed {
        true => host.parse::<std::net::Ipv6Addr>().is_ok(),
        false => host.bytes().all(fits) && host.bytes().any(|byte| byte.is_ascii_alphanumeric()),
    };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    named && port.is_none_or(|port| digits(port) && port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_say_what_they_are_pass() {
        for url in [
            "https://e.example",
            "HTTPS://e.example:8443/a/b?c=d&e=%20",
            "https://[2001:4860::1]:443/x",
            "https://93.184.216.34",
            "https://e.example?x=y@z",
        ] {
            assert_eq!(fault(url, false), None, "{url}");
        }
        assert_eq!(fault("http://127.0.0.1:9/x", true), None);
        assert_eq!(fault(&format!("https://e.example/{}", "a".repeat(2030)), false), None);
    }

    #[test]
    fn every_other_is_refused() {
        for url in [
            "",
            "e.example",
            "http://e.example",
            "ftp://e.example",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://",
            "https:///path",
            "https://?x",
            "https://user@e.example",
            "https://user:pass@e.example/",
            "https://e.example/#part",
            "https://e.example/a b",
            "https://e.example\\@127.0.0.1/",
            "https://e.example\n",
            "https://é.example",
            "https://e.example:0",
            "https://e.example:70000",
            "https://e.example:",
            "https://e.example:8x",
            "https://[::1",
            "https://[x]",
            "https://[::1]8",
            "https://a,b.example",
            "https://...",
            " https://e.example",
        ] {
            assert!(fault(url, false).is_some(), "{url:?}");
        }
        assert!(fault("ftp://e.example", true).is_some());
        assert!(fault(&format!("https://e.example/{}", "a".repeat(2048)), false).is_some());
    }
}
