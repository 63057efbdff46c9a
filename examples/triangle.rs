//! Only a triangle of a matrix moves; the rest of the destination stays as it is.

use reshard::{Layout, Move, Redistribution, Result, Triangle};

fn main() -> Result<()> {
    let (from, to): (Layout, Layout) = ("2x2/8x8 of 50x50".parse()?, "1x4/50x5 of 50x50".parse()?);
    let parts = from.parts(|index| (index[0] * 50 + index[1]) as i32)?;
    let mut moved = to.parts(|_| -1)?;
    // A lower Hessenberg matrix: the lower triangle and one diagonal above it.
    let moving = Move::of::<i32>(from, to.clone())?.only(Triangle::lower(1))?;
    Redistribution::new(moving)?.run(&parts, &mut moved)?;
    assert_eq!((*to.get(&moved, &[7, 8])?, *to.get(&moved, &[7, 9])?), (358, -1));
    Ok(())
}
