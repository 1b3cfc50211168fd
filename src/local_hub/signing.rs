//! Signatures: of download URLs, and of the tokens for the content-addressed store.

use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What a CAS token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Signs with a key of this hub.
pub(super) struct Signer {
    /// As long as a block of SHA-256, which HMAC takes as it is.
    key: [u8; 64],
}

impl Signer {
    /// With a key that nobody else has.
    pub(super) fn new() -> Self {
        Self {
            key: rand::random(),
        }
    }

    /// The signature of `text`, in hex.
    pub(super) fn sign(&self, text: &str) -> String {
        hex(&self.mac(text).finalize().into_bytes())
    }

    pub(super) fn verify(&self, text: &str, signature: &str) -> bool {
        unhex(signature).is_some_and(|bytes| self.mac(text).verify_slice(&bytes).is_ok())
    }

    /// A token of its own content: nothing needs to be remembered of it.
    pub(super) fn cas_token(&self, access: Access, expires: DateTime<Utc>) -> String {
        let right = match access {
            Access::Read => 'r',
            Access::Write => 'w',
        };
        let text = format!("cas_{right}_{}", expires.timestamp());
        let signature = self.sign(&text);
        format!("{text}_{signature}")
    }

    /// What a token allows now, `None` if it is none of this hub's or has expired.
    pub(super) fn read_cas_token(&self, token: &str, now: DateTime<Utc>) -> Option<Access> {
        let (text, signature) = token.rsplit_once('_')?;
        if !self.verify(text, signature) {
            return None;
        }
        let (right, expires) = text.strip_prefix("cas_")?.split_once('_')?;
        if expires.parse::<i64>().ok()? <= now.timestamp() {
            return None;
        }
        match right {
            "r" => Some(Access::Read),
            "w" => Some(Access::Write),
            _ => None,
        }
    }

    fn mac(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new(&self.key.into());
        mac.update(text.as_bytes());
        mac
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn a_token_holds_until_it_expires_and_for_no_other_hub() {
        let signer = Signer::new();
        let now = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
        let token = signer.cas_token(Access::Write, now + TimeDelta::seconds(10));
        assert_eq!(signer.read_cas_token(&token, now), Some(Access::Write));
        assert_eq!(
            signer.read_cas_token(&token, now + TimeDelta::seconds(10)),
            None
        );
        assert_eq!(Signer::new().read_cas_token(&token, now), None);
        let forged = token.replacen("_w_", "_r_", 1);
        assert_eq!(signer.read_cas_token(&forged, now), None);
        assert_eq!(signer.read_cas_token("é_ü", now), None);
        assert_eq!(signer.read_cas_token("", now), None);
    }
}
