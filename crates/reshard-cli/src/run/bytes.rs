//! Writes and verifies the bytes of elements whose keys grow evenly.
//!
//! Any bit of a key changes all bytes of its element, so an element in a wrong place, or made of two, does not pass.

use std::ops::Range;

/// Adjacent elements whose keys grow evenly.
pub struct ByteRun {
    /// The range of bytes they take.
    pub bytes: Range<usize>,
    /// The key of the first element.
    pub key: u64,
    /// The difference of keys from one element to the next.
    pub step: u64,
}

impl ByteRun {
    /// Writes the elements, of `elem_bytes` bytes each.
    pub fn write(&self, to: &mut [u8], elem_bytes: usize) {
        // The usual sizes are constants, so that the compiler specialises the loop.
        match elem_bytes {
            1 => write(to, 1, self),
            2 => write(to, 2, self),
            4 => write(to, 4, self),
            8 => write(to, 8, self),
            16 => write(to, 16, self),
            size => write(to, size, self),
        }
    }

    /// The index of the first element that is wrong, and its expected bytes.
    pub fn wrong(&self, from: &[u8], elem_bytes: usize) -> Option<(usize, Vec<u8>)> {
        let at = match elem_bytes {
            1 => wrong(from, 1, self),
            2 => wrong(from, 2, self),
            4 => wrong(from, 4, self),
            8 => wrong(from, 8, self),
            16 => wrong(from, 16, self),
            size => wrong(from, size, self),
        }?;
        let mut expected = vec![0; elem_bytes];
        let key = self.key.wrapping_add((at as u64).wrapping_mul(self.step));
        write(&mut expected, elem_bytes, &Self { bytes: 0..elem_bytes, key, step: 0 });
        Some((at, expected))
    }
}

/// The finaliser of splitmix64: every bit of the key changes every bit of the value.
#[inline(always)]
fn mixed(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// The eight bytes of an element from `8 * word` on.
#[inline(always)]
fn word(key: u64, word: usize) -> [u8; 8] {
    mixed(key ^ (word as u64).rotate_right(16)).to_le_bytes()
}

#[inline(always)]
fn write(to: &mut [u8], size: usize, run: &ByteRun) {
    let mut key = run.key;
    for element in to.chunks_exact_mut(size) {
        for (number, bytes) in element.chunks_mut(8).enumerate() {
            bytes.copy_from_slice(&word(key, number)[..bytes.len()]);
        }
        key = key.wrapping_add(run.step);
    }
}

#[inline(always)]
fn wrong(from: &[u8], size: usize, run: &ByteRun) -> Option<usize> {
    let mut key = run.key;
    from.chunks_exact(size).position(|element| {
        let mut words = element.chunks(8).enumerate();
        let right = words.all(|(number, bytes)| *bytes == word(key, number)[..bytes.len()]);
        key = key.wrapping_add(run.step);
        !right
    })
}
