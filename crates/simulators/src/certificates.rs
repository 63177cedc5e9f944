//! A certificate authority for tests of TLS.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An authority with its own key. Each one is different, so none trusts another's certificates.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Result<Self, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "Recado test authority");
        CertifiedIssuer::self_signed(params, KeyPair::generate()?).map(Self)
    }

    /// The authority's own certificate as a PEM file.
    pub fn pem(&self) -> String {
        self.0.as_ref().pem()
    }

    /// Issues a certificate of a server with these names or addresses.
    pub fn issue(&self, names: &[&str]) -> Result<Identity, Error> {
        self.sign(params(names)?)
    }

    /// Issues a certificate that expired long ago.
    pub fn issue_expired(&self, names: &[&str]) -> Result<Identity, Error> {
        let mut params = params(names)?;
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Identity, Error> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Identity {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        })
    }
}

fn params(names: &[&str]) -> Result<CertificateParams, Error> {
    CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
}

/// A server's certificate with its key.
pub struct Identity {
    pub certificate_pem: String,
    pub key_pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    /// The configuration of a TLS server with this certificate.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![self.certificate.clone()],
                PrivateKeyDer::Pkcs8(self.key.clone().into()),
            )?;
        Ok(Arc::new(config))
    }
}
