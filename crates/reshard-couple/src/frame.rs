//! Frames: what goes over a connection once both sides have proved who they are. A head of fixed length says what follows and how
//! long it is; both have checksums. Numbers are little endian. What does not fit is an error, and the connection is closed.

/// Bytes of a head.
pub const HEAD_BYTES: usize = 40;

/// The most bytes of a data frame: fits into the caches of one processor, and is long enough that heads cost nothing.
pub const MAX_DATA_BYTES: usize = 1 << 18;

/// The most bytes of a text: what jobs tell each other of arrays, with lists of cuts.
pub const MAX_TEXT_BYTES: usize = 1 << 26;

const MAGIC: u32 = u32::from_le_bytes(*b"RSHF");

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A part of a message: elements of one step that one rank sends another.
    Data = 1,
    /// The receiver of this array's messages has room for those of this step.
    Want = 2,
    /// A text, see `terms.rs`.
    Text = 3,
    /// The first of a connection over MPI, where nobody has to prove anything: `array` is 0 for the leaders' connection and 1 for data, then
    /// `sequence` is the consumer and `from` its process.
    Open = 4,
    /// Memory is passed along: `sequence` slots of `array` bytes; see `slots.rs`.
    Memory = 5,
    /// There is something in the memory that both share.
    Wake = 6,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: FrameKind,
    /// The array, by its place among those the consumer wants.
    pub array: u32,
    /// The steps of an array that go to one consumer are numbered from 0.
    pub sequence: u64,
    /// Ranks: of the producer, and of the consumer.
    pub from: u32,
    pub to: u32,
    /// Bytes that follow.
    pub bytes: u32,
    /// Their checksum.
    pub checksum: u32,
}

impl Head {
    /// The head of a frame without ranks.
    pub fn new(kind: FrameKind, array: u32, sequence: u64) -> Self {
        Self { kind, array, sequence, from: 0, to: 0, bytes: 0, checksum: 0 }
    }

    /// With what follows it.
    pub fn with(self, body: &[u8]) -> Self {
        Self { bytes: body.len() as u32, checksum: crc32fast::hash(body), ..self }
    }

    /// As it is sent.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.array.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.from.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.to.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..40].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a head; an error says what is wrong with it.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Self, String> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(0) != MAGIC {
            return Err("what came is no frame".into());
        }
        if word(36) != crc32fast::hash(&bytes[..36]) {
            return Err("the head of a frame came with a wrong checksum".into());
        }
        let kind = match word(4) {
            1 => FrameKind::Data,
            2 => FrameKind::Want,
            3 => FrameKind::Text,
            4 => FrameKind::Open,
            5 => FrameKind::Memory,
            6 => FrameKind::Wake,
            other => return Err(format!("a frame of the unknown kind {other} came")),
        };
        let sequence = u64::from(word(20)) | u64::from(word(24)) << 32;
        let most = match kind {
            FrameKind::Data => MAX_DATA_BYTES.max(MAX_ELEMENT_BYTES),
            FrameKind::Want | FrameKind::Open | FrameKind::Memory | FrameKind::Wake => 0,
            FrameKind::Text => MAX_TEXT_BYTES,
        };
        if word(28) as usize > most {
            return Err(format!("a frame of {} bytes came; there are at most {most}", word(28)));
        }
        Ok(Self {
            kind,
            array: word(8),
            sequence,
            from: word(12),
            to: word(16),
            bytes: word(28),
            checksum: word(32),
        })
    }

    /// Fails if this is not what followed the head.
    pub fn check(&self, body: &[u8]) -> Result<(), String> {
        match crc32fast::hash(body) == self.checksum {
            true => Ok(()),
            false => Err(format!("{} bytes of a frame came with a wrong checksum", body.len())),
        }
    }
}

/// One element always fits into a frame.
const MAX_ELEMENT_BYTES: usize = 1 << 20;

/// The bytes of the frames of an array whose elements have this many.
pub fn data_bytes(element: u64) -> usize {
    MAX_DATA_BYTES.max(element as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = Head { array: 3, sequence: 1 << 40, from: 7, to: 9, ..Head::new(FrameKind::Data, 0, 0) };
        let head = head.with(b"elements");
        assert_eq!(Head::decode(&head.encode()), Ok(head));
        assert_eq!(head.check(b"elements"), Ok(()));
        let said = head.check(b"Elements").err();
        assert!(said.as_ref().is_some_and(|why| why.contains("8 bytes")), "{said:?}");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let right = Head::new(FrameKind::Want, 1, 2).encode();
        for bit in 0..8 * HEAD_BYTES {
            let mut wrong = right;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&wrong).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_allocated() {
        for (kind, most) in [
            (FrameKind::Data, MAX_ELEMENT_BYTES),
            (FrameKind::Want, 0),
            (FrameKind::Open, 0),
            (FrameKind::Memory, 0),
            (FrameKind::Wake, 0),
            (FrameKind::Text, MAX_TEXT_BYTES),
        ] {
            let fits = Head { bytes: most as u32, ..Head::new(kind, 0, 0) };
            assert_eq!(Head::decode(&fits.encode()), Ok(fits));
            let longer = Head { bytes: most as u32 + 1, ..fits };
            let said = Head::decode(&longer.encode()).err();
            assert!(said.as_ref().is_some_and(|why| why.contains("at most")), "{said:?}");
        }
    }
}
