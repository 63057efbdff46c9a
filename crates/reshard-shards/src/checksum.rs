//! The checksums of a file of a set: BLAKE3 of the whole, so that no change goes unnoticed, and CRC-32C of each block, so that a reader
//! of a few rows can check what it reads. Both are of all bytes of the file, its header among them.

use reshard::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Both checksums take bytes that the caches have.
const CHUNK_BYTES: usize = 128 << 10;

/// A BLAKE3 hash. As text, 64 lower-case hexadecimal digits and nothing else.
///
/// ```
/// use reshard_shards::Digest;
/// let digest = Digest::of(b"");
/// let said = digest.to_string();
/// assert!(said.starts_with("af1349b9f5f9a1a6"), "{said}");
/// assert_eq!(digest.to_string().parse::<Digest>()?, digest);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// A hash that was worked out elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The value of a lower-case hexadecimal digit: upper case would be a second text for the same value.
pub(crate) fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits: Option<Vec<u8>> = text.bytes().take(65).map(hex_value).collect();
        match digits {
            Some(digits) if digits.len() == 64 => {
                Ok(Self(std::array::from_fn(|at| digits[2 * at] << 4 | digits[2 * at + 1])))
            }
            _ => Err(Error::new(
                ErrorKind::Mismatch,
                "a BLAKE3 hash has 64 lower-case hexadecimal digits; what was given has others or another number of them",
            )),
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// CRC-32C (Castagnoli) of some bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// The checksum of checksums that goes on with another one.
pub(crate) fn append_crc(crc: u32, next: u32) -> u32 {
    ::crc32c::crc32c_append(crc, &next.to_le_bytes())
}

/// Works out the checksums of a file while its bytes pass by, from the first to the last.
///
/// ```
/// use reshard_shards::{Digest, Sums, crc32c};
/// let mut sums = Sums::new(4096);
/// sums.update(&[1; 5000]);
/// sums.update(&[1; 5000]);
/// let (bytes, digest, crcs) = sums.finish();
/// assert_eq!((bytes, digest), (10_000, Digest::of(&[1; 10_000])));
/// assert_eq!(crcs, [crc32c(&[1; 4096]), crc32c(&[1; 4096]), crc32c(&[1; 10_000 - 8192])]);
/// ```
pub struct Sums {
    whole: blake3::Hasher,
    block_bytes: u64,
    bytes: u64,
    crcs: Vec<u32>,
}

impl Sums {
    /// Of a file whose blocks have this many bytes, at least 1; the last block may be shorter.
    pub fn new(block_bytes: u64) -> Self {
        Self { whole: blake3::Hasher::new(), block_bytes: block_bytes.max(1), bytes: 0, crcs: Vec::new() }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let filled = self.bytes % self.block_bytes;
            let room = usize::try_from(self.block_bytes - filled).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at(room.min(bytes.len()).min(CHUNK_BYTES));
            self.whole.update(now);
            match self.crcs.last_mut().filter(|_| filled > 0) {
                Some(crc) => *crc = ::crc32c::crc32c_append(*crc, now),
                None => self.crcs.push(::crc32c::crc32c(now)),
            }
            self.bytes += now.len() as u64;
            bytes = rest;
        }
    }

    /// The number of bytes, the hash of all and the CRC of each block.
    pub fn finish(self) -> (u64, Digest, Vec<u32>) {
        (self.bytes, Digest(*self.whole.finalize().as_bytes()), self.crcs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(
            Digest::of(b"abc").to_string(),
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
        );
    }

    #[test]
    fn sums_do_not_depend_on_how_bytes_pass_by() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * 7 % 251) as u8).collect();
        for block in [1, 7, 64, 999, 1000, 1001, u64::MAX] {
            let expected: Vec<u32> =
                bytes.chunks(usize::try_from(block.min(4096)).unwrap()).map(crc32c).collect();
            for step in [1, 3, 64, 500, 1000] {
                let mut sums = Sums::new(block);
                bytes.chunks(step).for_each(|chunk| sums.update(chunk));
                assert_eq!(sums.finish(), (1000, Digest::of(&bytes), expected.clone()), "{block} {step}");
            }
        }
        assert_eq!(Sums::new(0).finish(), (0, Digest::of(b""), Vec::new()));
    }

    #[test]
    fn a_hash_has_one_text_only() {
        let text = Digest::of(b"x").to_string();
        for wrong in
            [text.to_uppercase(), text[1..].into(), format!("{text}0"), text.replace('a', "g"), String::new()]
        {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        assert!("0".repeat(1 << 20).parse::<Digest>().is_err());
    }
}
