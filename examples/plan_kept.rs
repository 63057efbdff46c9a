//! A plan that is kept: two arrays, planned once, moved together again and again, one of them scaled.

use reshard::{Layout, Move, Pair, Redistribution, Result};

fn main() -> Result<()> {
    let (from, to): (Layout, Layout) = ("4/3 of 100".parse()?, "3/5 of 100".parse()?);
    let moves = vec![Move::of::<f64>(from.clone(), to.clone())?, Move::of::<u32>(from.clone(), to.clone())?];
    let mut redistribution = Redistribution::several(moves)?;
    let (x, ids) = (from.parts(|index| index[0] as f64)?, from.parts(|index| index[0] as u32)?);
    let (mut sum, mut moved) = (to.parts(|_| 0.0)?, to.parts(|_| 0_u32)?);
    for _ in 0..10 {
        let sums = &mut Pair::new(&x, &mut sum).scaled(2.0, 1.0); // sum becomes 2 x + sum
        redistribution.run_all(&mut [sums, &mut Pair::new(&ids, &mut moved)])?;
    }
    assert_eq!(*to.get(&sum, &[70])?, 10.0 * 2.0 * 70.0);
    assert_eq!(*to.get(&moved, &[70])?, 70);
    Ok(())
}
