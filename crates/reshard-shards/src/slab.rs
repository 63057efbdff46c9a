//! One piece of memory for the parts of all files: as large as a box, whatever the files are. A buffer for each file would keep what its largest
//! part needed, and where boxes pass through the files one after the other, all together would have the whole array in the end.

use reshard::{Error, ErrorKind, Result};

/// Memory that is cut anew for each box.
#[derive(Default)]
pub struct Slab(Vec<u8>);

impl Slab {
    /// Parts of these lengths, one after the other; what is in them is left over from before.
    pub fn cut(&mut self, lengths: &[u64]) -> Result<Vec<&mut [u8]>> {
        let wanted = lengths.iter().try_fold(0_u64, |sum, &length| sum.checked_add(length));
        let missing = || {
            Error::new(
                ErrorKind::Memory,
                format!("{} bytes for a box of the array cannot be had", wanted.unwrap_or(u64::MAX)),
            )
        };
        let bytes = wanted.and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(missing)?;
        self.0.try_reserve_exact(bytes.saturating_sub(self.0.len())).map_err(|_| missing())?;
        if self.0.len() < bytes {
            self.0.resize(bytes, 0);
        }
        let mut rest = &mut self.0[..bytes];
        let cut = lengths.iter().map(|&length| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(length as usize);
            rest = after;
            part
        });
        Ok(cut.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let mut slab = Slab::default();
        for lengths in [&[3, 0, 4][..], &[], &[10], &[1, 1]] {
            let parts = slab.cut(lengths).unwrap();
            assert_eq!(parts.iter().map(|part| part.len() as u64).collect::<Vec<_>>(), lengths);
        }
        assert_eq!(slab.0.capacity(), 10);
        assert_eq!(slab.cut(&[u64::MAX, 1]).unwrap_err().kind(), ErrorKind::Memory);
        assert_eq!(slab.cut(&[1 << 62]).unwrap_err().kind(), ErrorKind::Memory);
    }
}
