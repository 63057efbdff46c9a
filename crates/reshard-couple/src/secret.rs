//! What both jobs must know before they hear anything of each other: a secret, and proofs that one knows it.
//!
//! A proof is a MAC (HMAC with SHA-256) over everything that was said before: who speaks, in which session, and a random number
//! of each side. So no proof can be used again, by another role or for another connection. Nothing is encrypted: who reads along
//! sees the data, and who changes packets on their way can change it.

use hmac::{Hmac, KeyInit, Mac};
use reshard::{Error, ErrorKind, Result};
use sha2::Sha256;
use std::fmt;

/// Bytes of a proof, and of a key.
pub const PROOF_BYTES: usize = 32;

/// The fewest bytes of a secret that somebody chose.
const MIN_BYTES: usize = 16;

/// The variable that has the secret where no meeting file carries it.
pub const SECRET_VARIABLE: &str = "RESHARD_SECRET";

/// A secret that both jobs know. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A secret that somebody chose: at least 16 bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let bytes = bytes.into();
        if bytes.len() < MIN_BYTES {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!(
                    "a secret of {} bytes was given; it must have at least {MIN_BYTES}: take a random one, as openssl rand -hex 32 prints",
                    bytes.len()
                ),
            ));
        }
        Ok(Self(bytes))
    }

    /// A random secret.
    pub fn random() -> Result<Self> {
        Ok(Self(random::<32>()?.to_vec()))
    }

    /// The secret in the environment variable `RESHARD_SECRET`.
    pub fn from_environment() -> Result<Self> {
        match std::env::var(SECRET_VARIABLE) {
            Ok(text) => Self::new(text.trim()),
            Err(_) => Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "no secret was given; set {SECRET_VARIABLE} to the same text in both jobs, or let them meet by a file"
                ),
            )),
        }
    }

    /// In hexadecimal digits, as it stands in a meeting file.
    pub(crate) fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Two digits for each byte, and nothing else: `from_str_radix` would take a sign, and one digit.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |&[high, low]: &[u8; 2]| Some((16 * digit(high)? + digit(low)?) as u8);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Self::new(bytes?).ok()
    }

    /// The proof that whoever has this secret said this in this role.
    pub(crate) fn prove(&self, role: &str, said: &[u8]) -> [u8; PROOF_BYTES] {
        self.mac(role, said).finalize().into_bytes().into()
    }

    /// True if a proof is right. Takes equally long wherever it differs.
    pub(crate) fn verify(&self, role: &str, said: &[u8], proof: &[u8; PROOF_BYTES]) -> bool {
        self.mac(role, said).verify_slice(proof).is_ok()
    }

    /// A key for a session, which another session's partner cannot know.
    pub(crate) fn derive(&self, said: &[u8]) -> Self {
        Self(self.prove("session", said).to_vec())
    }

    fn mac(&self, role: &str, said: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length is taken");
        // The length first: no role is the beginning of another's message.
        mac.update(&[role.len() as u8]);
        mac.update(role.as_bytes());
        mac.update(said);
        mac
    }
}

/// Random bytes of the system.
pub fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::External, format!("the system gives no random numbers: {error}"))
    })?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_secret_one_role_and_one_text() {
        let secret = Secret::new("sixteen letters.").unwrap();
        let proof = secret.prove("consumer", b"said");
        assert!(secret.verify("consumer", b"said", &proof));
        assert!(!secret.verify("producer", b"said", &proof));
        assert!(!secret.verify("consumer", b"Said", &proof));
        assert!(!Secret::random().unwrap().verify("consumer", b"said", &proof));
        assert!(!secret.derive(b"one").verify("consumer", b"said", &proof));
        assert_ne!(secret.derive(b"one"), secret.derive(b"two"));
        for bit in 0..8 * PROOF_BYTES {
            let mut wrong = proof;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.verify("consumer", b"said", &wrong), "bit {bit}");
        }
    }

    #[test]
    fn the_mac_is_the_one_of_the_standard() {
        // RFC 4231, test case 1, with the length and the name of the role taken into account: the text is what follows them.
        let secret = Secret(vec![0x0b; 20]);
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).unwrap();
        mac.update(b"Hi There");
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        assert_eq!(bytes[..4], [0xb0, 0x34, 0x4c, 0x61]);
        assert_eq!(secret.prove("H", b"i There"), {
            let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).unwrap();
            mac.update(b"\x01Hi There");
            <[u8; 32]>::from(mac.finalize().into_bytes())
        });
    }

    #[test]
    fn secrets_are_long_and_not_printed() {
        let said = Secret::new("short").unwrap_err().to_string();
        assert!(said.contains("5 bytes"), "{said}");
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret.clone()));
        assert_eq!(Secret::from_hex("zz"), None);
        for wrong in ["é0000000000000000000000000000000", "+f000000000000000000000000000000", &"0".repeat(33)]
        {
            assert_eq!(Secret::from_hex(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
