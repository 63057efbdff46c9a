//! Complex numbers, conjugated and scaled on the way: `B = alpha * conj(A) + beta * B`, transposed.

use reshard::num_complex::Complex64;
use reshard::{Layout, Move, Pair, Redistribution, Result, Window};

fn main() -> Result<()> {
    let (a, b): (Layout, Layout) = ("2x2/4x4 of 30x20".parse()?, "2x1/3x3 of 20x30 memory=row".parse()?);
    let window = Window::of(&[30, 20]).permuted(&[1, 0]);
    let mut adjoint = Redistribution::new(Move::windowed::<Complex64>(a.clone(), b.clone(), window)?)?;
    let from = a.parts(|index| Complex64::new(index[0] as f64, index[1] as f64))?;
    let mut to = b.parts(|_| Complex64::new(1.0, 0.0))?;
    let (alpha, beta) = (Complex64::new(2.0, 0.0), Complex64::new(0.0, 1.0));
    adjoint.run_all(&mut [&mut Pair::new(&from, &mut to).scaled(alpha, beta).conjugated()])?;
    assert_eq!(*b.get(&to, &[7, 12])?, Complex64::new(24.0, -14.0 + 1.0));
    Ok(())
}
