//! One call: all ranks' parts of an array into another layout, in one process.

use reshard::{Layout, Result, redistribute};

fn main() -> Result<()> {
    let from: Layout = "2x2/64x64 of 1000x800".parse()?;
    let to: Layout = "3x1/100x800 of 1000x800".parse()?;
    let parts = from.parts(|index| (index[0] * 800 + index[1]) as f64)?;
    let mut moved = to.parts(|_| 0.0)?;
    redistribute(&from, &parts, &to, &mut moved)?;
    assert_eq!(*to.get(&moved, &[999, 799])?, 799_999.0);
    Ok(())
}
