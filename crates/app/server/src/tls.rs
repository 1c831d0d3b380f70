//! TLS of the API: certificates, and clients' certificates.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use skua_config::Tls;
use skua_process::{
    certificates::{certificates, warn_of_validity},
    watched::{Watched, read_secret},
};

/// The configuration of TLS from the files.
pub type TlsFiles = Watched<ServerConfig>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Reads the files, none when TLS is not configured.
pub fn open(tls: &Tls) -> anyhow::Result<Option<TlsFiles>> {
    if tls.certificate.is_empty() {
        return Ok(None);
    }
    let path = |text: &String| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
    let certificate = PathBuf::from(&tls.certificate);
    let key = PathBuf::from(&tls.key);
    let client_ca = path(&tls.client_ca);
    let files = [certificate.clone(), key.clone()]
        .into_iter()
        .chain(client_ca.clone())
        .collect();
    let load = move || load(&certificate, &key, client_ca.as_deref());
    Watched::new("api.tls", files, load).map(Some)
}

fn load(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> anyhow::Result<ServerConfig> {
    let chain = certificates(certificate)?;
    warn_of_validity(certificate, &chain);
    let text = read_secret(key)?;
    let private = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .with_context(|| format!("no private key in {}", key.display()))?;
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots
                    .add(root)
                    .with_context(|| file.display().to_string())?;
            }
            // A client without a certificate may still have a password or a token.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                .allow_unauthenticated()
                .build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, private).with_context(|| {
        format!(
            "{} and {} do not belong together",
            certificate.display(),
            key.display()
        )
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The name that a verified client's certificate is for: the first DNS name of its subjectAltName.
pub fn client_name(connection: &rustls::ServerConnection) -> Option<Arc<str>> {
    let end = connection.peer_certificates()?.first()?;
    let parsed = webpki::EndEntityCert::try_from(end).ok()?;
    let name = parsed.valid_dns_names().next()?;
    Some(name.into())
}
