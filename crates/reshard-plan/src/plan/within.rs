//! A box of the destination: the same plan for some of its elements, cut out of the tracks that are there. Nothing is planned
//! again, so a large redistribution, of mapped files for instance, can go box by box.

use super::Plan;
use super::array::{Array, Target};
use super::moves::Move;
use crate::error::{Error, Result, counted};
use crate::problem::{Problem, Window};
use crate::track::Track;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

impl Plan {
    /// The plan of those elements whose indices in the destination lie in a box, one range for each dimension. It lists the
    /// ranks that this plan lists; their parts are the same, whole ones, and all elements outside the box stay as they are. Of a
    /// plan of several arrays the box is cut out of each, and all must have as many dimensions as it.
    ///
    /// ```
    /// use reshard_plan::{Move, Plan};
    /// let moving = Move::of::<f64>("2x2/64x64 of 300x300".parse()?, "4x1/32x50 of 300x300".parse()?)?;
    /// let plan = Plan::new(vec![moving])?;
    /// let rows = [0, 100, 200].map(|row| plan.within(&[row..row + 100, 0..300]));
    /// assert!(rows.into_iter().all(|rows| rows.is_ok_and(|rows| rows.bytes() == plan.bytes() / 3)));
    /// # Ok::<(), reshard_plan::Error>(())
    /// ```
    pub fn within(&self, region: &[Range<u64>]) -> Result<Self> {
        let arrays = self.arrays.iter().map(|array| array.within(region)).collect::<Result<Vec<_>>>()?;
        Ok(Self::of_arrays(arrays, self.hosted.clone()))
    }
}

impl Array {
    fn within(&self, region: &[Range<u64>]) -> Result<Self> {
        let wanted = self.wanted.within(region)?;
        let mut tracks = CutTracks { of: &self.wanted, into: &wanted, cut: HashMap::new() };
        let targets = self.targets.iter().map(|target| tracks.target(target)).collect::<Result<_>>()?;
        Ok(Self { sources: self.sources.clone(), targets, wanted })
    }
}

impl Move {
    /// The move of those elements whose indices in the destination lie in a box.
    fn within(&self, region: &[Range<u64>]) -> Result<Self> {
        let problem = self.problem();
        if region.len() != problem.axes().len() {
            return Err(Error::mismatch(format!(
                "a box of {} was given for a destination of {}; give a range for each",
                counted(region.len(), "dimension"),
                problem.axes().len()
            )));
        }
        let (mut shape, mut from) = (problem.shape().to_vec(), problem.from_offset().to_vec());
        let mut to = problem.to_offset().to_vec();
        for (dim, (range, &source_dim)) in region.iter().zip(problem.axes()).enumerate() {
            let window = to[dim]..to[dim] + shape[source_dim];
            let start = range.start.clamp(window.start, window.end);
            let end = range.end.clamp(start, window.end);
            shape[source_dim] = end - start;
            from[source_dim] += start - to[dim];
            to[dim] = start;
        }
        let window = Window::of(&shape).from(&from).to(&to).permuted(problem.axes());
        let cut = Problem::windowed(problem.from().clone(), problem.to().clone(), window)?;
        // The diagonal stays where it is in the arrays.
        let moved = |dim: usize| (from[dim] - problem.from_offset()[dim]) as i64;
        let triangle = self.triangle().map(|part| part.shifted(moved(0) - moved(1)));
        Ok(self.with_problem(cut, triangle))
    }
}

/// The tracks of a plan, cut for a box: once for each that its ranks share.
struct CutTracks<'a> {
    of: &'a Move,
    into: &'a Move,
    /// By dimension and track.
    cut: HashMap<(usize, *const Track), CutTrack>,
}

/// A track within a box, and its positions on the whole track.
type CutTrack = (Arc<Track>, Range<u64>);

impl CutTracks<'_> {
    fn target(&mut self, target: &Target) -> Result<Target> {
        let coords = self.into.problem().to().coords(target.rank)?;
        let along = target.tracks.iter().zip(coords).enumerate();
        let cut: Vec<CutTrack> = along.map(|(dim, (track, coord))| self.cut(dim, track, coord)).collect();
        let rows = target.rows.as_ref().map(|rows| {
            let (kept, columns) = (&cut[0].1, &cut[1].1);
            let within = |row: &Range<u64>| {
                let [start, end] = [row.start, row.end].map(|at| at.clamp(kept.start, kept.end) - kept.start);
                start..end
            };
            rows[columns.start as usize..columns.end as usize].iter().map(within).collect()
        });
        let tracks = cut.into_iter().map(|(track, _)| track).collect();
        Ok(Target { tracks, rows, strides: target.strides.clone(), ..*target })
    }

    /// The track of an axis within the box.
    fn cut(&mut self, dim: usize, track: &Arc<Track>, coord: u64) -> CutTrack {
        let Self { of, into, cut } = self;
        let make = || {
            let axis = &into.problem().to().axes()[dim];
            let first = axis.elems_before(coord, of.problem().to_offset()[dim]);
            let start = into.problem().to_offset()[dim];
            let end = start + into.problem().shape()[into.problem().axes()[dim]];
            let [start, end] = [start, end].map(|index| axis.elems_before(coord, index) - first);
            let whole = start == 0 && end == track.elems();
            let cut = if whole { Arc::clone(track) } else { Arc::new(track.within(start..end)) };
            (cut, start..end)
        };
        cut.entry((dim, Arc::as_ptr(track))).or_insert_with(make).clone()
    }
}
