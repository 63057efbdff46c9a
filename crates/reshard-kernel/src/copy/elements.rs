//! The element kernel, for layouts with strides that make neither side contiguous along a useful axis.
//!
//! It also copies parts of rows that are not contiguous on both sides. Slow, and correct for every route.

use super::cursor::RowCursor;
use crate::route::{InnerStretch, Route};
use crate::simd::{Strided, copy_strided};
use crate::store::Scaling;
use std::ops::Range;

/// Copies, or scales, some positions of some rows.
///
/// # Safety
/// As for `rows::copy`, for a route with one destination and any kernel. With a scaling, elements are of its type.
pub unsafe fn copy(
    route: &Route,
    from: &[*const u8],
    to: *mut u8,
    rows: Range<u64>,
    part: &Range<u64>,
    bases: &mut [*const u8],
    scaling: Option<&Scaling>,
) {
    if rows.is_empty() {
        return;
    }
    let destination = &route.destinations[0];
    let fast = route.outer.len();
    let to_stride = destination.strides[fast];
    let mut cursor = RowCursor::at(route, from, rows.start, bases);
    for row in rows.clone() {
        let mut range = part.clone();
        if let Some(clip) = &destination.clip {
            let clip = &clip[row as usize];
            range = range.start.max(clip.start)..range.end.min(clip.end);
        }
        let row_start = to.wrapping_add(cursor.to(&destination.strides));
        for each in &destination.loops {
            let (begin, last) = (range.start.max(each.at), range.end.min(each.at + each.rounds * each.elems));
            if begin >= last {
                continue;
            }
            for round in (begin - each.at) / each.elems..(last - each.at).div_ceil(each.elems) {
                for InnerStretch { stretch, .. } in &each.stretches {
                    let at = each.at + round * each.elems + stretch.at;
                    let (first, stop) = (begin.max(at), last.min(at + stretch.len));
                    if first >= stop {
                        continue;
                    }
                    let peer = stretch.peer as usize;
                    let from_stride = cursor.stride(route, peer, fast);
                    let from_index = stretch.from + round * stretch.from_step + (first - at);
                    let to_index = stretch.to + round * stretch.to_step + (first - at);
                    let strided = Strided {
                        to: row_start.wrapping_add(to_index as usize * to_stride),
                        to_stride,
                        from: cursor.bases()[peer].wrapping_add(from_index as usize * from_stride),
                        from_stride,
                    };
                    // SAFETY: elements of the part that the base points into, and of the destination, at their strides.
                    unsafe {
                        match scaling {
                            Some(scaling) => scaling.apply(strided, (stop - first) as usize),
                            None => copy_strided(strided, (stop - first) as usize, route.elem),
                        }
                    }
                }
            }
        }
        if row + 1 < rows.end {
            cursor.advance(route, from);
        }
    }
}
