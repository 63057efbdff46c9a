//! Element by element: its owner on both sides. The oracle for every other method.

use super::Sides;

pub(super) fn visit(sides: &Sides<'_>, process: u64, span: u64, visit: &mut impl FnMut(u64, u64, u64)) {
    let (here, there) = (sides.here, sides.there);
    for index in 0..span {
        if here.axis.owner(here.offset + index) == Some(process)
            && let Some(peer) = there.axis.owner(there.offset + index)
        {
            visit(peer, index, 1);
        }
    }
}
