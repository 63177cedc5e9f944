//! CSRF protection. Browsers also send a session cookie with requests of other sites' pages, so a write with a cookie
//! is checked against the origins that may use it.

use std::fmt;
use std::str::FromStr;

use actix_web::http::header::{HeaderMap, ORIGIN};
use actix_web::http::{Method, Uri};

const FETCH_SITE: &str = "sec-fetch-site";

/// Scheme, host and port of a site in the form of browsers: lowercase, without the scheme's default port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// The origin of an http or https URL.
    pub fn of(url: &str) -> Option<Self> {
        let uri: Uri = url.trim().parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let port = uri.port_u16().filter(|&port| port != default_port);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Some(Self(format!("{scheme}://{host}{port}")))
    }
}

impl FromStr for Origin {
    type Err = String;

    /// Rejects a URL with a path or a trailing slash.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let has_no_path = text.parse::<Uri>().is_ok_and(|uri| matches!(uri.path(), "" | "/"));
        let origin = Self::of(text).filter(|_| has_no_path && !text.ends_with('/'));
        origin.ok_or_else(|| format!("{text} is not an origin like https://app.example.com"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The sites whose pages may write with a session cookie.
#[derive(Clone, Debug)]
pub struct OwnOrigins(Vec<Origin>);

impl OwnOrigins {
    /// `own` is the server's origin. `allowed` are other sites (`CORS_ORIGINS`).
    pub fn new(own: Option<Origin>, allowed: &[Origin]) -> Self {
        Self(own.into_iter().chain(allowed.iter().cloned()).collect())
    }

    /// Whether a page of another site sends a write. A request with neither `Origin` nor `Sec-Fetch-Site` is not sent
    /// by a browser's page.
    pub fn is_cross_site_write(&self, method: &Method, headers: &HeaderMap) -> bool {
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return false;
        }
        let mut origins = headers.get_all(ORIGIN).peekable();
        if origins.peek().is_some() {
            return !origins.all(|origin| origin.to_str().is_ok_and(|origin| self.contains(origin)));
        }
        let site = headers.get(FETCH_SITE);
        site.is_some_and(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"))
    }

    /// Rejects `null`, which browsers send for pages without an origin.
    fn contains(&self, origin: &str) -> bool {
        origin.parse().is_ok_and(|origin: Origin| self.0.contains(&origin))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn is_cross_site(method: Method, headers: &[(&str, &str)]) -> bool {
        let own = OwnOrigins::new(
            Origin::of("https://recado.example/app"),
            &["http://localhost:3000".parse().unwrap()],
        );
        let mut request = TestRequest::default();
        for header in headers {
            request = request.append_header(*header);
        }
        own.is_cross_site_write(&method, request.to_http_request().headers())
    }

    #[test]
    fn write_of_own_page_or_program_passes() {
        for headers in [
            &[][..],
            &[("Origin", "https://recado.example")],
            &[("Origin", "https://RECADO.example:443")],
            &[("Origin", "http://localhost:3000"), ("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-origin")],
            &[("Sec-Fetch-Site", "none")],
        ] {
            assert!(!is_cross_site(Method::POST, headers), "{headers:?}");
        }
    }

    #[test]
    fn cross_site_page_may_read_and_not_write() {
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
                assert!(is_cross_site(method, headers), "{headers:?}");
            }
            assert!(!is_cross_site(Method::GET, headers), "{headers:?}");
        }
    }

    #[test]
    fn origin_with_path_or_other_scheme_is_rejected() {
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
