//! Minimum versions and forbidden packages in `Cargo.lock`. The versions fix known vulnerabilities; some of those are
//! in no advisory database.

use std::path::Path;

use super::Finding;

/// Packages with their minimum versions. A package may be absent.
const FLOORS: &[(&str, &str)] = &[
    // Request smuggling by two lengths; idle connections at shutdown.
    ("actix-http", "3.13.3"),
    // Time claims of type string were not checked.
    ("jsonwebtoken", "10.3.0"),
    // Timing side channel of the key.
    ("aws-lc-sys", "0.39.0"),
    // Lengths that overflow the protocol; injection into COPY options.
    ("diesel", "2.3.8"),
    // A dropped, unfinished transaction returned to the pool.
    ("diesel-async", "0.9.0"),
    // Malformed messages of a malicious server.
    ("tokio-postgres", "0.7.18"),
    ("postgres-protocol", "0.6.12"),
    // Names that parse as other names.
    ("hickory-proto", "0.26.1"),
    ("hickory-resolver", "0.26.1"),
    ("idna", "1.0.3"),
    // Frame floods. Concerns outbound clients only; the server uses HTTP/1.
    ("h2", "0.4.16"),
    // Revocation lists and dates that crash the process.
    ("rustls-webpki", "0.103.13"),
    ("time", "0.3.47"),
];

/// Packages without a fixed version.
const NEVER: &[&str] = &["rsa"];

pub(crate) fn check(root: &Path) -> Vec<Finding> {
    check_text(&std::fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default())
}

fn check_text(lock: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut name = "";
    for (at, line) in lock.lines().enumerate() {
        let value = |key: &str| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"');
        if let Some(found) = value("name") {
            name = found;
            if NEVER.contains(&name) {
                findings.push(Finding::new("Cargo.lock", at + 1, format!("{name} must not be used")));
            }
        }
        let Some(version) = value("version") else { continue };
        let floor = FLOORS.iter().find(|(package, _)| *package == name);
        if let Some((_, floor)) = floor.filter(|(_, floor)| numbers(version) < numbers(floor)) {
            let message = format!("{name} {version} is below {floor}");
            findings.push(Finding::new("Cargo.lock", at + 1, message));
        }
    }
    if name.is_empty() {
        findings.push(Finding::new("Cargo.lock", 1, "the file has no packages"));
    }
    findings
}

/// The numbers of a version: 1, 2 and 3 of `1.2.3-beta+4`.
fn numbers(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    release.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &[(&str, &str)]) -> String {
        let package =
            |(name, version): &(&str, &str)| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
        packages.iter().map(package).collect()
    }

    #[test]
    fn version_below_its_minimum_is_found() {
        let found = check_text(&lock(&[
            ("h2", "0.3.27"),
            ("h2", "0.4.20"),
            ("time", "0.3.46"),
            ("serde", "0.1.0"),
        ]));
        let found: Vec<_> = found.into_iter().map(|finding| finding.message).collect();
        assert_eq!(found, ["h2 0.3.27 is below 0.4.16", "time 0.3.46 is below 0.3.47"]);
        assert_eq!(
            check_text(&lock(&[("time", "0.3.47"), ("time", "0.4.0"), ("diesel", "2.10.0")])),
            []
        );
        assert_eq!(check_text(&lock(&[("rsa", "0.9.9")])).len(), 1);
        assert_eq!(check_text("").len(), 1);
    }

    #[test]
    fn cargo_lock_meets_the_minimum_versions() {
        assert_eq!(check(&recado_testkit::paths::root()), []);
    }
}
