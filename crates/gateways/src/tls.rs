//! The certificate authorities that all outgoing TLS of the process trusts.
//!
//! These are the authorities of the system and, in addition, those of `SSL_CERT_FILE`. A system without its own list,
//! such as a container with the program alone, has Mozilla's list as of the build.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::{ClientConfig, RootCertStore};

/// Where systems store their authorities; the first file that exists is read.
const SYSTEM_FILES: [&str; 6] = [
    // Debian, Ubuntu, Arch, Alpine, Gentoo.
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora, Red Hat.
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    // SUSE.
    "/etc/ssl/ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    // Alpine, FreeBSD, macOS.
    "/etc/ssl/cert.pem",
];

/// Length of a line of a PEM file.
const PEM_LINE: usize = 64;

/// A set of trusted authorities. Clones share it.
#[derive(Clone)]
pub struct Authorities {
    certificates: Arc<Vec<CertificateDer<'static>>>,
    roots: Arc<RootCertStore>,
    is_system_list: bool,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorities").field(&self.certificates.len()).finish()
    }
}

static INSTALLED: OnceLock<Authorities> = OnceLock::new();

/// Sets the authorities that every client of the process trusts from now on. MUST be called before the first client is
/// created; otherwise, and for every later call, returns false and changes nothing.
pub fn install(authorities: Authorities) -> bool {
    // Clients of other crates take the process's provider. An error means that one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    INSTALLED.set(authorities).is_ok()
}

/// The authorities of the process. Without [`install`] these are the system's.
pub fn authorities() -> &'static Authorities {
    INSTALLED.get_or_init(Authorities::system)
}

impl Authorities {
    /// The authorities of the system; without such a list, Mozilla's as of the build.
    pub fn system() -> Self {
        let system = SYSTEM_FILES
            .iter()
            .filter_map(|file| read_certificates(Path::new(file)).ok())
            .find(|certificates| !certificates.is_empty());
        let is_system_list = system.is_some();
        let certificates = system.unwrap_or_else(|| webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec());
        Self::of(certificates, is_system_list)
    }

    /// Only the authorities of a PEM file. The error continues the name of the variable.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let authorities = Self::of(read_all(path)?, false);
        Ok(authorities)
    }

    /// Adds the authorities of a PEM file. The error continues the name of the variable.
    pub fn with_file(&self, path: &Path) -> Result<Self, String> {
        let mut certificates = self.certificates.to_vec();
        certificates.extend(read_all(path)?);
        Ok(Self::of(certificates, self.is_system_list))
    }

    /// Leaves out certificates that no verifier accepts as an authority.
    fn of(certificates: Vec<CertificateDer<'static>>, is_system_list: bool) -> Self {
        let mut roots = RootCertStore::empty();
        let certificates = certificates
            .into_iter()
            .filter(|certificate| roots.add(certificate.clone()).is_ok())
            .collect();
        Self {
            certificates: Arc::new(certificates),
            roots: Arc::new(roots),
            is_system_list,
        }
    }

    /// Whether the system has a list of authorities.
    pub fn is_system_list(&self) -> bool {
        self.is_system_list
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        self.roots.clone()
    }

    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// The authorities as a PEM file.
    pub fn to_pem(&self) -> String {
        let mut text = String::new();
        for certificate in self.certificates.iter() {
            let encoded = STANDARD.encode(certificate);
            text.push_str("-----BEGIN CERTIFICATE-----\n");
            for line in encoded.as_bytes().chunks(PEM_LINE) {
                text.push_str(&String::from_utf8_lossy(line));
                text.push('\n');
            }
            text.push_str("-----END CERTIFICATE-----\n");
        }
        text
    }

    /// A client configuration that trusts these authorities.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, String> {
        client_config(self.roots())
    }
}

/// A client configuration that trusts `roots`.
pub(crate) fn client_config(roots: Arc<RootCertStore>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Reads a file of the configuration, in which every certificate MUST be usable.
fn read_all(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = read_certificates(path).map_err(|error| format!("cannot be read: {error}"))?;
    if certificates.is_empty() {
        return Err("has no certificate; it must be a PEM file".to_owned());
    }
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        let added = roots.add(certificate.clone());
        added.map_err(|error| format!("has a certificate that cannot be used as an authority: {error}"))?;
    }
    Ok(certificates)
}

fn read_certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let bytes = std::fs::read(path)?;
    CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, pem::Error>>()
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;

    use super::*;

    fn file(name: &str, content: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("recado-authorities-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn file_adds_authorities_to_those_of_the_system() {
        let system = Authorities::system();
        assert!(system.roots().len() > 50, "{}", system.roots().len());
        let own = generate_simple_self_signed(vec!["ca.example".to_owned()]).unwrap().cert;
        let path = file("own.pem", &own.pem());
        let both = system.with_file(&path).unwrap();
        assert_eq!(both.roots().len(), system.roots().len() + 1);
        let only = Authorities::from_file(&path).unwrap();
        assert_eq!(only.certificates(), [own.der().clone()]);
        // The PEM text is read back unchanged.
        let again = Authorities::from_file(&file("again.pem", &both.to_pem())).unwrap();
        assert_eq!(again.certificates(), both.certificates());
    }

    #[test]
    fn unusable_files_are_refused() {
        for (name, content, expected) in [
            ("empty.pem", "", "has no certificate"),
            ("text.pem", "no PEM at all", "has no certificate"),
            (
                "broken.pem",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "cannot be used as an authority",
            ),
            ("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n", "cannot be read"),
        ] {
            let error = Authorities::from_file(&file(name, content)).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
        let missing = Authorities::from_file(Path::new("/nowhere/ca.pem")).unwrap_err();
        assert!(missing.contains("cannot be read"), "{missing}");
    }
}
