//! Which site's page a browser sends a request for: a session in a cookie travels with requests of foreign pages too.

use std::fmt;
use std::str::FromStr;

use actix_web::http::header::{HeaderMap, ORIGIN};
use actix_web::http::{Method, Uri};

const FETCH_SITE: &str = "sec-fetch-site";

/// Scheme, host and port of a site, as browsers write them: lowercase, without the scheme's own port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// The origin of an address of whatever path.
    pub fn of(url: &str) -> Option<Self> {
        let uri: Uri = url.trim().parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let port = uri.port_u16().filter(|&port| port != usual);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Some(Self(format!("{scheme}://{host}{port}")))
    }
}

impl FromStr for Origin {
    type Err = String;

    /// An origin alone: a path is no part of it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.parse::<Uri>().is_ok_and(|uri| matches!(uri.path(), "" | "/"));
        let origin = Self::of(text).filter(|_| bare && !text.ends_with('/'));
        origin.ok_or_else(|| format!("{text} is no origin"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The sites whose pages may act with a session's cookie.
#[derive(Clone, Debug)]
pub struct OwnOrigins(Vec<Origin>);

impl OwnOrigins {
    /// The server's own, and others.
    pub fn new(own: Option<Origin>, others: &[Origin]) -> Self {
        Self(own.into_iter().chain(others.iter().cloned()).collect())
    }

    /// Whether a browser says that a foreign page asks for a change. Who sends neither header is no browser's page.
    pub fn is_foreign_change(&self, method: &Method, headers: &HeaderMap) -> bool {
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return false;
        }
        let mut origins = headers.get_all(ORIGIN).peekable();
        if origins.peek().is_some() {
            return !origins.all(|origin| origin.to_str().is_ok_and(|origin| self.has(origin)));
        }
        let site = headers.get(FETCH_SITE);
        site.is_some_and(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"))
    }

    /// `null`, which browsers send for pages without a site, is nobody's.
    fn has(&self, origin: &str) -> bool {
        origin.parse().is_ok_and(|origin: Origin| self.0.contains(&origin))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn foreign(method: Method, headers: &[(&str, &str)]) -> bool {
        let own = OwnOrigins::new(
            Origin::of("https://recado.example/app"),
            &["http://localhost:3000".parse().unwrap()],
        );
        let mut request = TestRequest::default();
        for header in headers {
            request = request.append_header(*header);
        }
        own.is_foreign_change(&method, request.to_http_request().headers())
    }

    #[test]
    fn own_pages_and_programs_pass() {
        for headers in [
            &[][..],
            &[("Origin", "https://recado.example")],
            &[("Origin", "https://RECADO.example:443")],
            &[("Origin", "http://localhost:3000"), ("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-origin")],
            &[("Sec-Fetch-Site", "none")],
        ] {
            assert!(!foreign(Method::POST, headers), "{headers:?}");
        }
    }

    #[test]
    fn foreign_pages_may_change_nothing_and_read() {
        for headers in [
            &[("Origin", "https://evil.example")][..],
            &[("Origin", "http://recado.example")],
            &[("Origin", "https://recado.example:444")],
            &[("Origin", "https://recado.example.evil.example")],
            &[("Origin", "https://recado.example/")],
            &[("Origin", "null")],
            &[("Origin", "")],
            &[("Origin", "https://recado.example"), ("Origin", "https://evil.example")],
            &[("Sec-Fetch-Site", "cross-site")],
            &[("Origin", "https://evil.example"), ("Sec-Fetch-Site", "same-origin")],
        ] {
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                assert!(foreign(method, headers), "{headers:?}");
            }
            assert!(!foreign(Method::GET, headers), "{headers:?}");
        }
    }

    #[test]
    fn an_origin_is_no_address() {
        for wrong in [
            "https://a.example/path",
            "https://a.example/",
            "a.example",
            "ftp://a.example",
            "*",
            "null",
        ] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
        assert_eq!(
            Origin::of("HTTPS://A.example:443/x").unwrap().to_string(),
            "https://a.example"
        );
    }
}
