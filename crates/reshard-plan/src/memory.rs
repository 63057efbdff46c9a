//! Fallible allocation of lists that grow with the problem: too little memory is an error, not the end of the program.
//!
//! Every caller handles a failed allocation. Long lists are allocated twice. First as cache lines of 64 bytes, which are freed
//! at once: only this module allocates with that alignment, so an allocator that ends the program with a message when memory
//! runs out, as the program `reshard` has one, can tell that this failure is handled. Then as the list itself, for which
//! there is enough memory now. Pages that were never written to cost next to nothing, so neither does the first allocation.

use crate::error::{Error, ErrorKind, Result};

/// Lists of fewer bytes are allocated once, without the check.
const MIN_CHECKED_BYTES: u128 = 1 << 16;

/// The unit of the first allocation: its alignment marks allocations whose failure is handled.
#[repr(align(64))]
struct CacheLine(#[allow(dead_code)] [u8; 64]);

/// Fails if `bytes` bytes cannot be allocated at once. `what` names their use in the error.
pub fn check(bytes: u128, what: &str) -> Result<()> {
    if bytes < MIN_CHECKED_BYTES {
        return Ok(());
    }
    let lines =
        usize::try_from(bytes.div_ceil(size_of::<CacheLine>() as u128)).map_err(|_| refused(bytes, what))?;
    Vec::<CacheLine>::new().try_reserve_exact(lines).map_err(|_| refused(bytes, what))
}

/// Fails if a B-tree of `entries` entries cannot be allocated. Its nodes may be half empty, and have links.
pub fn check_tree<K, V>(entries: usize, what: &str) -> Result<()> {
    check(3 * entries as u128 * (size_of::<K>() + size_of::<V>()) as u128, what)
}

/// Appends an item to a list whose length is not known beforehand; the capacity grows by half each time.
pub fn push<T>(list: &mut Vec<T>, item: T, what: &str) -> Result<()> {
    if list.len() == list.capacity() {
        reserve(list, (list.len() / 2).max(4), what)?;
    }
    list.push(item);
    Ok(())
}

/// Reserves room for exactly `count` more items of a list.
pub fn reserve<T>(list: &mut Vec<T>, count: usize, what: &str) -> Result<()> {
    if list.capacity() - list.len() >= count {
        return Ok(());
    }
    // A list that grows may have to be copied: old and new exist together.
    let bytes = (list.len() as u128 + count as u128) * size_of::<T>() as u128;
    check(bytes, what)?;
    list.try_reserve_exact(count).map_err(|_| refused(bytes, what))
}

/// Appends items to a list whose length is not known beforehand; the capacity grows by at least half.
pub fn extend<T>(list: &mut Vec<T>, items: impl ExactSizeIterator<Item = T>, what: &str) -> Result<()> {
    if list.capacity() - list.len() < items.len() {
        reserve(list, items.len().max(list.len() / 2), what)?;
    }
    list.extend(items);
    Ok(())
}

/// Makes an empty list with room for `count` items.
pub fn with_room<T>(count: usize, what: &str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    reserve(&mut list, count, what)?;
    Ok(list)
}

/// Makes a list of `count` equal items.
pub fn filled<T: Clone>(item: T, count: usize, what: &str) -> Result<Vec<T>> {
    let mut list = with_room(count, what)?;
    list.resize(count, item);
    Ok(list)
}

/// Makes a list of `count` zero bytes. Pages of a long list take memory only when they are written to.
pub fn zeroed(count: usize, what: &str) -> Result<Vec<u8>> {
    if (count as u128) < MIN_CHECKED_BYTES {
        return filled(0, count, what);
    }
    // Fails here if there is not enough memory.
    check(count as u128, what)?;
    Ok(vec![0; count])
}

/// Collects the items of an iterator that knows an upper bound of their number.
pub fn listed<T>(items: impl Iterator<Item = T>, what: &str) -> Result<Vec<T>> {
    let (least, most) = items.size_hint();
    let mut list = with_room(most.unwrap_or(least), what)?;
    list.extend(items);
    Ok(list)
}

fn refused(bytes: u128, what: &str) -> Error {
    Error::new(
        ErrorKind::Memory,
        format!("{bytes} bytes for {what} do not fit in memory; take a smaller problem or allow more memory"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_held_is_refused_with_its_size_and_purpose() {
        let error = with_room::<u64>(1 << 59, "messages").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory);
        assert_eq!(
            error.to_string(),
            "4611686018427387904 bytes for messages do not fit in memory; take a smaller problem or allow more memory"
        );
        let said = filled([0_u64; 4], usize::MAX, "cells").unwrap_err().to_string();
        assert!(said.contains("bytes for cells"), "{said}");
        assert!(check(u128::MAX, "everything").is_err());
        let mut list = vec![1_u32, 2];
        assert!(reserve(&mut list, usize::MAX - 1, "more").is_err());
        assert_eq!(list, [1, 2]);
    }

    #[test]
    fn lists_have_the_requested_capacity() {
        let list = with_room::<u32>(100_000, "numbers").unwrap();
        assert!(list.is_empty() && list.capacity() >= 100_000);
        assert_eq!(filled(7_u8, 3, "numbers").unwrap(), [7, 7, 7]);
        assert_eq!(zeroed(3, "bytes").unwrap(), [0, 0, 0]);
        assert!(zeroed(100_000, "bytes").unwrap().iter().all(|&byte| byte == 0));
        let said = zeroed(1 << 62, "bytes").unwrap_err().to_string();
        assert!(said.contains("bytes for bytes do not fit"), "{said}");
        assert_eq!(listed((0..100).filter(|number| number % 50 == 1), "numbers").unwrap(), [1, 51]);
        check(0, "nothing").unwrap();
    }
}
