//! Types of elements. Both jobs must name the same: nothing is converted on the way.

use reshard::{Error, ErrorKind, Result};

pub use reshard::ElementType;

/// Fails unless elements of this type are given for an array of that name.
pub fn check_element<T>(element: ElementType, name: &str) -> Result<()> {
    match element.bytes() == size_of::<T>() as u64 {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "elements of {} bytes were given for the array '{name}', whose type is {element}",
                size_of::<T>()
            ),
        )),
    }
}
