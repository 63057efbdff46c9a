//! One array of a plan: what it says of each source rank and of each destination rank.

use super::moves::Move;
use crate::error::{Error, Result};
use crate::grid::{Grid, MAX_DIMS};
use crate::layout::MemoryOrder;
use crate::memory;
use crate::overlap::Method;
use crate::problem::Problem;
use crate::track::Track;
use crate::triangle::Triangle;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The most ranks on each side of a plan, which has something to say about every one of them.
const MAX_RANKS: u64 = 1 << 24;

/// The most positions along an axis of a triangle, each of which has its own range.
const MAX_RANGES: u64 = 1 << 28;

/// A source rank's part, as an engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The rank.
    pub rank: u64,
    /// Elements of memory its part reaches over, padding included.
    pub span: u64,
    /// From one element to the next along each axis of the *destination*, in elements.
    pub strides: Vec<u64>,
}

/// The elements that one destination rank receives: an n-dimensional box of positions, with one track for each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The rank.
    pub rank: u64,
    /// Elements of memory its part reaches over, padding included.
    pub span: u64,
    /// From one element to the next along each axis, in elements.
    pub strides: Vec<u64>,
    /// Where its elements come from, axis by axis. Ranks with equal coordinates on an axis share the track, unless they take
    /// different copies of the source.
    pub tracks: Vec<Arc<Track>>,
    /// For a triangle: which positions of axis 0 move, for each position of axis 1.
    pub rows: Option<Arc<[Range<u64>]>>,
}

impl Target {
    /// Positions along each axis.
    pub fn shape(&self) -> Vec<u64> {
        self.tracks.iter().map(|track| track.elems()).collect()
    }

    /// Combinations of one peer of each axis, `(p0, p1, ...)`: each is a source, see [`Array::source_at`]. A combination's place is
    /// `(p0 * tracks[1].peers().len() + p1) * ...`.
    pub fn places(&self) -> usize {
        self.tracks.iter().map(|track| track.peers().len()).product()
    }

    /// Which peer of each axis a place stands for.
    pub fn peers_at(&self, place: usize) -> Vec<u32> {
        let mut place = place;
        let mut peers = vec![0; self.tracks.len()];
        for (peer, track) in peers.iter_mut().zip(&self.tracks).rev() {
            *peer = (place % track.peers().len()) as u32;
            place /= track.peers().len();
        }
        peers
    }

    /// Elements that move here.
    pub fn elems(&self) -> u64 {
        match &self.rows {
            Some(rows) => rows.iter().map(|row| row.end - row.start).sum(),
            None if self.tracks.iter().any(|track| track.elems() == 0) => 0,
            // No more than the array has, which was checked.
            None => self.tracks.iter().map(|track| track.elems()).product(),
        }
    }
}

/// One array of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    pub(super) wanted: Move,
    pub(super) sources: Vec<Source>,
    pub(super) targets: Vec<Target>,
}

/// The tracks of a destination's axes, worked out once for each coordinate and shared by the ranks that have it.
#[derive(Default)]
struct Tracks(BTreeMap<(usize, u64, u64), Arc<Track>>);

impl Tracks {
    /// The tracks of a rank, one for each axis.
    fn of_rank(&mut self, problem: &Problem, rank: u64, coords: &[u64]) -> Result<Vec<Arc<Track>>> {
        let taken = problem.copies().map_or([0; MAX_DIMS], |copies| copies.taken_by(rank, coords));
        (0..coords.len()).map(|dim| self.of(problem, dim, coords[dim], taken[problem.axes()[dim]])).collect()
    }

    /// The track of a coordinate, from one copy of the source if that is replicated along the axis.
    fn of(&mut self, problem: &Problem, dim: usize, coord: u64, copy: u64) -> Result<Arc<Track>> {
        let from_dim = problem.axes()[dim];
        let copied = problem.from().axes()[from_dim].is_replicated();
        let key = (dim, problem.to().axes()[dim].part_of(coord), if copied { copy } else { 0 });
        if let Some(track) = self.0.get(&key) {
            return Ok(Arc::clone(track));
        }
        let track = Track::new(&problem.sides(from_dim).reversed(), coord)?;
        let track = Arc::new(if copied { track.taking_copy(copy) } else { track });
        self.0.insert(key, Arc::clone(&track));
        Ok(track)
    }
}

impl Array {
    /// Lists these source ranks and these destination ranks, both ascending.
    fn listing(wanted: Move, sources: &[u64], targets: &[u64]) -> Result<Self> {
        let problem = wanted.problem();
        // The entry of each rank: a few numbers for each dimension, in lists of their own.
        let ranks = sources.len() as u128 + targets.len() as u128;
        let each = size_of::<Source>().max(size_of::<Target>()) + 64 + 24 * problem.shape().len();
        memory::check(ranks * each as u128, "what a plan says of each rank")?;
        let source = |&rank: &u64| {
            let strides = wanted.from().strides(rank)?;
            let strides = problem.axes().iter().map(|&dim| strides[dim]).collect();
            Ok(Source { rank, span: wanted.from().span(rank)?, strides })
        };
        let sources = sources.iter().map(source).collect::<Result<Vec<_>>>()?;
        let mut tracks = Tracks::default();
        let target = |&rank: &u64| {
            let coords = problem.to().coords(rank)?;
            let tracks = tracks.of_rank(problem, rank, &coords)?;
            let (span, strides) = (wanted.to().span(rank)?, wanted.to().strides(rank)?);
            let rows = wanted.triangle().map(|part| rows(part, problem, &coords, &tracks)).transpose()?;
            Ok(Target { rank, span, strides, tracks, rows })
        };
        let targets = targets.iter().map(target).collect::<Result<Vec<_>>>()?;
        Ok(Self { wanted, sources, targets })
    }

    /// Lists all ranks of both sides.
    pub(super) fn of_all(wanted: Move) -> Result<Self> {
        let (from, to) = (wanted.problem().from().grid(), wanted.problem().to().grid());
        [from, to].into_iter().try_for_each(check_ranks)?;
        let (sources, targets) = (from.sorted_ranks(), to.sorted_ranks());
        Self::listing(wanted, &sources, &targets)
    }

    /// Lists hosted ranks only.
    pub(super) fn of_hosted(wanted: Move, hosted: &[u64]) -> Result<Self> {
        let on = |grid: &Grid| hosted.iter().copied().filter(|&rank| grid.contains(rank)).collect::<Vec<_>>();
        let (sources, targets) = (on(wanted.problem().from().grid()), on(wanted.problem().to().grid()));
        Self::listing(wanted, &sources, &targets)
    }

    /// Lists in addition the ranks with which those of this list share elements.
    pub(super) fn with_peers(self) -> Result<Self> {
        let problem = self.wanted.problem();
        let (from, to) = (problem.from(), problem.to());
        let mut sources: BTreeSet<u64> = self.sources.iter().map(|source| source.rank).collect();
        let mut targets: BTreeSet<u64> = self.targets.iter().map(|target| target.rank).collect();
        let (hosted_sources, hosted_targets) = (sources.clone(), targets.clone());
        let add = |shares: Vec<(u64, u64)>, ranks: &mut BTreeSet<u64>| -> Result<()> {
            memory::check_tree::<u64, ()>(shares.len(), "the peers of a rank")?;
            ranks.extend(shares.into_iter().map(|(peer, _)| peer));
            Ok(())
        };
        for &rank in &hosted_sources {
            add(problem.sends(rank, Method::default())?.shares(to.grid())?, &mut targets)?;
        }
        for &rank in &hosted_targets {
            add(problem.receives(rank, Method::default())?.shares(from.grid())?, &mut sources)?;
        }
        let [sources, targets] = [sources, targets].map(|ranks| ranks.into_iter().collect::<Vec<_>>());
        Self::listing(self.wanted, &sources, &targets)
    }

    /// The move of this array.
    pub fn wanted(&self) -> &Move {
        &self.wanted
    }

    /// The source ranks the plan lists, ascending.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The destination ranks the plan lists, ascending.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The number of the source with a rank.
    pub fn source_of(&self, rank: u64) -> Option<usize> {
        self.sources.binary_search_by_key(&rank, |source| source.rank).ok()
    }

    /// The number of the target with a rank.
    pub fn target_of(&self, rank: u64) -> Option<usize> {
        self.targets.binary_search_by_key(&rank, |target| target.rank).ok()
    }

    /// The number of the source that a place of a target stands for; none if the plan does not list that source. There may
    /// be as many as ranks, for each of as many targets: so they are worked out and not kept.
    pub fn source_at(&self, target: &Target, place: usize) -> Option<usize> {
        let mut coords = [0; MAX_DIMS];
        let mut place = place;
        for (track, &dim) in target.tracks.iter().zip(self.wanted.problem().axes()).rev() {
            let peers = track.peers();
            coords[dim] = peers[place % peers.len()];
            place /= peers.len();
        }
        let rank = self.wanted.problem().from().grid().rank(&coords[..target.tracks.len()]);
        rank.and_then(|rank| self.source_of(rank))
    }

    /// The sources of the places of a target, in order, up to the first that the plan does not list.
    pub fn sources_of(&self, target: &Target) -> impl Iterator<Item = usize> {
        (0..target.places()).map_while(|place| self.source_at(target, place))
    }

    /// The place of a source at a target; none if nothing goes from the one to the other.
    pub fn place(&self, target: &Target, source: usize) -> Option<usize> {
        let coords = self.wanted.problem().from().grid().coords(self.sources.get(source)?.rank)?;
        let mut axes = target.tracks.iter().zip(self.wanted.problem().axes());
        axes.try_fold(0, |place, (track, &dim)| {
            let peer = track.peers().binary_search(&coords[dim]).ok()?;
            Some(place * track.peers().len() + peer)
        })
    }

    /// The places of a target that a rank has to do with: all of its own, and of another the one it sends from.
    pub fn places_of(&self, target: &Target, rank: u64) -> Range<usize> {
        if target.rank == rank {
            return 0..target.places();
        }
        let place = self.source_of(rank).and_then(|source| self.place(target, source));
        place.map_or(0..0, |place| place..place + 1)
    }

    /// The local order of the destination's axes.
    pub fn order(&self) -> MemoryOrder {
        self.wanted.to().order()
    }

    /// Elements that move between all ranks, also those the plan does not list; of a replicated destination each copy counts.
    pub fn elems(&self) -> u64 {
        let problem = self.wanted.problem();
        match (self.wanted.triangle(), problem.shape()) {
            // No more than the problem has, which was checked.
            (Some(part), &[rows, columns]) => part.elems(rows, columns) * problem.to().copies(),
            _ => problem.elems(),
        }
    }
}

fn check_ranks(grid: &Grid) -> Result<()> {
    match grid.size() {
        0..=MAX_RANKS => Ok(()),
        ranks => Err(Error::too_large(format!(
            "a plan for {ranks} ranks was asked for, and at most {MAX_RANKS} can be on each side; use smaller grids"
        ))),
    }
}

/// Which positions of axis 0 belong to a triangle, for each position of axis 1.
fn rows(
    part: Triangle,
    problem: &Problem,
    coords: &[u64],
    tracks: &[Arc<Track>],
) -> Result<Arc<[Range<u64>]>> {
    if let Some(track) = tracks.iter().find(|track| track.elems() > MAX_RANGES) {
        return Err(Error::too_large(format!(
            "one rank has {} positions along an axis of a triangle, and at most {MAX_RANGES} are possible; use more ranks",
            track.elems()
        )));
    }
    let part = if problem.axes() == [1, 0] { part.transposed() } else { part };
    let rows = window_indices(problem, 0, coords[0], &tracks[0])?;
    let columns = window_indices(problem, 1, coords[1], &tracks[1])?;
    let all = rows.len();
    let range = |&column: &u64| {
        // Window indices ascend with the position, so a triangle takes the first of a column, or the last.
        let (first, end) = if part.is_upper() {
            (0, rows.partition_point(|&row| part.contains(row, column)))
        } else {
            (rows.partition_point(|&row| !part.contains(row, column)), all)
        };
        first as u64..end as u64
    };
    memory::check(columns.len() as u128 * size_of::<Range<u64>>() as u128 + 16, "the rows of a triangle")?;
    Ok(columns.iter().map(range).collect())
}

/// The window index of every position along one axis of the destination.
fn window_indices(problem: &Problem, dim: usize, coord: u64, track: &Track) -> Result<Vec<u64>> {
    let axis = &problem.to().axes()[dim];
    let mut indices = memory::with_room(track.elems() as usize, "the indices of a triangle")?;
    for piece in track.pieces() {
        let global = |local: u64| axis.global_from_local(coord, local).unwrap_or(0);
        indices
            .extend((piece.to..piece.to + piece.len).map(|local| global(local) - problem.to_offset()[dim]));
    }
    Ok(indices)
}
