//! `PLAINTEXT_HOSTS`: the only hosts to which secrets may be sent over plain HTTP, besides loopback hosts.

use std::net::IpAddr;

use actix_web::http::Uri;

use super::values::{ConfigError, Source, http_url, invalid};

const NAME: &str = "PLAINTEXT_HOSTS";

/// The variables from which `object_store` reads addresses: of the bucket's service, and of that of its tokens.
const BUCKET_ENDPOINTS: [&str; 4] = [
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL_STS",
];

/// The URL of a system that gets secrets. It must be https, except for loopback hosts and `PLAINTEXT_HOSTS`.
pub(super) fn secret_url(source: Source<'_>, name: &'static str) -> Result<Option<String>, ConfigError> {
    let Some(url) = http_url(source, name)? else {
        return Ok(None);
    };
    check(source, name, &url)?;
    Ok(Some(url))
}

/// The address of the bucket's service, as it is checked for [`secret_url`]. An address without a scheme is left to
/// the store, which refuses it.
pub(super) fn bucket_url(source: Source<'_>) -> Result<Option<String>, ConfigError> {
    let mut found = None;
    for name in BUCKET_ENDPOINTS {
        let Some(url) = source(name) else { continue };
        check(source, name, url.trim())?;
        found = found.or(Some(url));
    }
    Ok(found)
}

fn check(source: Source<'_>, name: &'static str, url: &str) -> Result<(), ConfigError> {
    let allowed = plaintext_hosts(source)?;
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).map(normalized).unwrap_or_default();
    if !is_plain(url) || is_loopback(&host) || allowed.contains(&host) {
        return Ok(());
    }
    Err(invalid(
        name,
        "must be an https URL, because the calls carry secrets; http is allowed for loopback hosts and for hosts in \
         PLAINTEXT_HOSTS",
    ))
}

/// Whether a URL is plain HTTP.
pub(super) fn is_plain(url: &str) -> bool {
    url.get(..7)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}

/// `PLAINTEXT_HOSTS`: names and addresses without a scheme or a port.
pub(super) fn plaintext_hosts(source: Source<'_>) -> Result<Vec<String>, ConfigError> {
    let text = source(NAME).unwrap_or_default();
    let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty());
    hosts
        .map(|host| {
            let host = normalized(host);
            let is_name = host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
            match is_name || host.parse::<IpAddr>().is_ok() {
                true => Ok(host),
                false => Err(invalid(
                    NAME,
                    "must be a comma-separated list of host names or IP addresses, without a scheme or a port",
                )),
            }
        })
        .collect()
}

/// A host in lower case, without the brackets of an IPv6 address and the final dot of a name.
fn normalized(host: &str) -> String {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &'static str, hosts: &'static str) -> Result<Option<String>, ConfigError> {
        secret_url(
            &move |name| Some(if name == NAME { hosts } else { url }.to_owned()),
            "WHATSAPP_API_URL",
        )
    }

    #[test]
    fn plain_http_needs_a_loopback_or_listed_host() {
        for (url, hosts) in [
            ("https://graph.example/v25.0", ""),
            ("http://127.0.0.1:9000/v25.0", ""),
            ("http://127.1.2.3/v25.0", ""),
            ("http://LOCALHOST:9000", ""),
            ("http://[::1]:9000", ""),
            ("http://minio:9000", "minio"),
            ("http://Minio.internal.:9000", " other, MINIO.internal "),
            ("http://10.0.0.5/v1", "10.0.0.5"),
            ("http://[fd00::5]/v1", "fd00::5"),
            ("http://[fd00::5]/v1", "[FD00::5]"),
        ] {
            assert_eq!(read(url, hosts).unwrap().as_deref(), Some(url), "{hosts}");
        }
        for (url, hosts) in [
            ("http://graph.example/v25.0", ""),
            ("HTTP://graph.example/v25.0", ""),
            ("http://graph.example/v25.0", "example, other.example"),
            ("http://127.0.0.1.example", "127.0.0.1"),
            ("http://10.0.0.6/v1", "10.0.0.5"),
            ("http://localhost@graph.example/", ""),
        ] {
            let error = read(url, hosts).unwrap_err();
            assert_eq!(error.variable, "WHATSAPP_API_URL", "{url}");
            assert!(!error.problem.contains("example"), "{error}");
        }
    }

    #[test]
    fn plaintext_hosts_are_names_without_scheme_and_port() {
        for hosts in ["http://minio", "minio:9000", "10.0.0.0/8", "*", "a b"] {
            let error = read("http://minio", hosts).unwrap_err();
            assert_eq!(error.variable, NAME, "{hosts}");
        }
    }

    #[test]
    fn every_name_of_the_bucket_address_is_checked() {
        for name in BUCKET_ENDPOINTS {
            let source = move |asked: &str| (asked == name).then(|| "http://minio:9000".to_owned());
            assert_eq!(bucket_url(&source).unwrap_err().variable, name);
        }
    }
}
