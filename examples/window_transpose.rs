//! A window of one matrix, transposed, into a window of another: rows 10..310 and columns 0..200 of A into B.

use reshard::{Layout, Move, Redistribution, Result, Window};

fn main() -> Result<()> {
    let (a, b): (Layout, Layout) = ("2x2/64x64 of 400x300".parse()?, "4x1/50x50 of 250x400".parse()?);
    let window = Window::of(&[300, 200]).from(&[10, 0]).to(&[5, 7]).permuted(&[1, 0]);
    let from = a.parts(|index| (index[0] * 1000 + index[1]) as f32)?;
    let mut to = b.parts(|_| -1.0_f32)?;
    Redistribution::new(Move::windowed::<f32>(a, b.clone(), window)?)?.run(&from, &mut to)?;
    assert_eq!(*b.get(&to, &[5, 7])?, 10_000.0); // A[10][0]
    assert_eq!(*b.get(&to, &[5 + 199, 7 + 299])?, 309_199.0); // A[309][199]
    assert_eq!(*b.get(&to, &[0, 0])?, -1.0); // outside of the window
    Ok(())
}
