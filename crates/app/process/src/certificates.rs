//! Certificates in files, and until when they are valid.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, bail};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use x509_cert::der::Decode as _;

/// All certificates of a PEM file.
pub fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let name = file.display();
    let text = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let found = found.with_context(|| format!("{name} is not a PEM file"))?;
    if found.is_empty() {
        bail!("no certificate in {name}");
    }
    Ok(found)
}

/// Certificates that end this soon are reported.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// Logs if the first certificate of a file has ended, is not yet valid, or ends soon. It is used all the same:
/// this host's clock may be wrong, and clients check it themselves.
pub fn warn_of_validity(file: &Path, chain: &[CertificateDer<'_>]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let wrong = chain
        .first()
        .and_then(|first| wrong_validity(first, now.unwrap_or_default()));
    if let Some(wrong) = wrong {
        tracing::warn!(file = %file.display(), "the certificate {wrong}");
    }
}

/// The error in the validity of a certificate at a time since the Unix epoch.
fn wrong_validity(certificate: &[u8], now: Duration) -> Option<String> {
    let parsed = match x509_cert::Certificate::from_der(certificate) {
        Ok(parsed) => parsed,
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    let validity = parsed.tbs_certificate.validity;
    let (begin, end) = (validity.not_before, validity.not_after);
    if now > end.to_unix_duration() {
        Some(format!(
            "expired at {end}: clients will refuse it, renew it"
        ))
    } else if now < begin.to_unix_duration() {
        Some(format!(
            "is valid from {begin} on only: is the clock right?"
        ))
    } else if end.to_unix_duration() - now < SOON {
        Some(format!("expires at {end}: renew it"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn certificates_that_have_expired_or_expire_soon_are_reported() {
        let file = std::env::temp_dir().join(format!("skua-validity-{}.pem", std::process::id()));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ])
            .args([
                "-nodes",
                "-subj",
                "/CN=skua",
                "-days",
                "30",
                "-keyout",
                "/dev/null",
                "-out",
            ])
            .arg(&file)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let chain = certificates(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let day = Duration::from_secs(24 * 3600);
        let said = |now| wrong_validity(&chain[0], now);
        assert_eq!(said(now + day), None);
        let [early, soon, late] =
            [now - day, now + 20 * day, now + 31 * day].map(|now| said(now).unwrap());
        assert!(early.starts_with("is valid from"), "{early}");
        assert!(soon.starts_with("expires at 2"), "{soon}");
        assert!(late.starts_with("expired at 2"), "{late}");
        assert!(
            wrong_validity(b"rubbish", now)
                .unwrap()
                .starts_with("cannot be read")
        );
    }
}
