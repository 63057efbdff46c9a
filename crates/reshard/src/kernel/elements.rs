//! Copies elements one by one: layouts with strides of their own, of which neither side is adjacent anywhere useful.
//!
//! Also how a part of a row is copied where rows are not adjacent on both sides. Slow, and right for everything.

use super::clock::Front;
use super::loops::RowStretch;
use super::route::Route;
use super::scale::{Scaling, Strided};
use std::ops::Range;

/// Copies, or scales, some positions of some rows.
///
/// # Safety
/// As for `rows::copy`, for a route with one end and any kernel. With a scaling, elements are of its type.
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
    let end = &route.ends[0];
    let fast = route.outer.len();
    let to_stride = end.strides[fast];
    let mut front = Front::at(route, from, rows.start, bases);
    for row in rows.clone() {
        let mut range = part.clone();
        if let Some(clip) = &end.clip {
            let clip = &clip[row as usize];
            range = range.start.max(clip.start)..range.end.min(clip.end);
        }
        let place = to.wrapping_add(front.to(&end.strides));
        for each in &end.loops {
            let (begin, last) = (range.start.max(each.at), range.end.min(each.at + each.rounds * each.elems));
            if begin >= last {
                continue;
            }
            for round in (begin - each.at) / each.elems..(last - each.at).div_ceil(each.elems) {
                for RowStretch { stretch, .. } in &each.stretches {
                    let at = each.at + round * each.elems + stretch.at;
                    let (first, stop) = (begin.max(at), last.min(at + stretch.len));
                    if first >= stop {
                        continue;
                    }
                    let peer = stretch.peer as usize;
                    let from_stride = front.stride(route, peer, fast);
                    let from_index = stretch.from + round * stretch.from_step + (first - at);
                    let to_index = stretch.to + round * stretch.to_step + (first - at);
                    let strided = Strided {
                        to: place.wrapping_add(to_index as usize * to_stride),
                        to_stride,
                        from: front.bases()[peer].wrapping_add(from_index as usize * from_stride),
                        from_stride,
                    };
                    // SAFETY: elements of the part the base points into and of the destination, at their strides.
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
            front.tick(route, from);
        }
    }
}

/// Copies `count` elements of `elem` bytes.
#[inline(always)]
pub(super) unsafe fn copy_strided(s: Strided, count: usize, elem: usize) {
    // SAFETY: passed on.
    unsafe {
        match elem {
            1 => of_size::<1>(s, count),
            2 => of_size::<2>(s, count),
            4 => of_size::<4>(s, count),
            8 => of_size::<8>(s, count),
            16 => of_size::<16>(s, count),
            _ => {
                for k in 0..count {
                    std::ptr::copy_nonoverlapping(
                        s.from.add(k * s.from_stride),
                        s.to.add(k * s.to_stride),
                        elem,
                    );
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn of_size<const N: usize>(s: Strided, count: usize) {
    for k in 0..count {
        // SAFETY: element k of both sides, as the caller promises; arrays of bytes need no alignment.
        unsafe {
            let value = s.from.add(k * s.from_stride).cast::<[u8; N]>().read();
            s.to.add(k * s.to_stride).cast::<[u8; N]>().write(value);
        }
    }
}
