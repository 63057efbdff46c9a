//! The problem: moves a window of one distributed array into a window of another.
//!
//! Everything is checked when a [`Problem`] is made. After that any rank's [`Part`] follows from the problem alone, one axis
//! at a time: the elements of the window it holds, and the ranks it shares them with. The part of one rank does not
//! depend on the parts of others.
//!
//! A source with replicated dimensions sends each receiver the copy that it takes; a destination with replicated dimensions gets every copy.

use crate::copies::Copies;
use crate::distribution::{Distribution, same_dims};
use crate::error::{Error, Result};
use crate::grid::{Grid, by_x, elems_of, product};
use crate::memory;
use crate::overlap::{CommonPeriod, Method, Overlap, Side, Sides};
use std::ops::Range;
use std::sync::Arc;

/// The part of the source that moves, and its destination: `A[from..]` into `B[to..]`, axes perhaps permuted.
///
/// ```
/// use reshard_plan::Window;
/// // Rows 10..30 and columns 0..5 of A, transposed, into B from (2, 100) on.
/// let window = Window::of(&[20, 5]).from(&[10, 0]).to(&[2, 100]).permuted(&[1, 0]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    shape: Vec<u64>,
    from: Vec<u64>,
    to: Vec<u64>,
    axes: Vec<usize>,
}

impl Window {
    /// A window of this shape (in the source's order of axes) at the beginning of both arrays.
    pub fn of(shape: &[u64]) -> Self {
        let zeros = vec![0; shape.len()];
        Self { shape: shape.to_vec(), from: zeros.clone(), to: zeros, axes: (0..shape.len()).collect() }
    }

    /// Sets where the window begins in the source.
    #[must_use]
    pub fn from(mut self, index: &[u64]) -> Self {
        self.from = index.to_vec();
        self
    }

    /// Where the window begins in the destination, in the destination's order of axes.
    #[must_use]
    pub fn to(mut self, index: &[u64]) -> Self {
        self.to = index.to_vec();
        self
    }

    /// Destination axis `j` takes source axis `axes[j]`, as in NumPy: `[1, 0]` transposes a matrix.
    #[must_use]
    pub fn permuted(mut self, axes: &[usize]) -> Self {
        self.axes = axes.to_vec();
        self
    }
}

/// A redistribution: source, destination, and the window that moves.
///
/// ```
/// use reshard_plan::{Method, Problem};
/// let problem = Problem::new("2/3 of 12".parse()?, "3/2 of 12".parse()?)?;
/// // Rank 0 has elements 0, 1, 2 and 6, 7, 8; ranks 0, 1 and 2 want two each of every six.
/// let sends = problem.sends(0, Method::default())?;
/// assert_eq!(sends.shares(problem.to().grid())?, [(0, 4), (1, 2)]);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    from: Distribution,
    to: Distribution,
    shape: Vec<u64>,
    from_offset: Vec<u64>,
    to_offset: Vec<u64>,
    /// Destination axis `j` takes source axis `axes[j]`; source axis `d` goes to destination axis `lands[d]`.
    axes: Arc<[usize]>,
    lands: Arc<[usize]>,
    /// The common period along each source axis.
    periods: Vec<CommonPeriod>,
    /// Elements that are written, each copy counted.
    elems: u64,
    /// Which copy of the source each receiver takes, if it has several.
    copies: Option<Arc<Copies>>,
}

impl Problem {
    /// Moves all of one array into all of another of equal shape.
    pub fn new(from: Distribution, to: Distribution) -> Result<Self> {
        same_dims(from.dims(), to.dims())?;
        if from.shape() != to.shape() {
            return Err(Error::mismatch(format!(
                "the source is {} and the destination {}; they must be equal, or a window must be given",
                by_x(&from.shape()),
                by_x(&to.shape())
            )));
        }
        let window = Window::of(&from.shape());
        Self::windowed(from, to, window)
    }

    /// Moves a window of one array into a window of another.
    pub fn windowed(from: Distribution, to: Distribution, window: Window) -> Result<Self> {
        let dims = from.dims();
        same_dims(dims, to.dims())?;
        let lengths = [window.shape.len(), window.from.len(), window.to.len(), window.axes.len()];
        if let Some(wrong) = lengths.into_iter().find(|&len| len != dims) {
            return Err(Error::mismatch(format!(
                "the window is described with {wrong} numbers where the arrays have {dims} dimensions; \
                 shape, offsets and permutation need one for each"
            )));
        }
        let mut lands = vec![usize::MAX; dims];
        for (to_dim, &from_dim) in window.axes.iter().enumerate() {
            match lands.get_mut(from_dim) {
                Some(slot) if *slot == usize::MAX => *slot = to_dim,
                _ => {
                    return Err(Error::mismatch(format!(
                        "{:?} is not a permutation of the {dims} axes; name each from 0 to {} once",
                        window.axes,
                        dims - 1
                    )));
                }
            }
        }
        for (from_dim, &to_dim) in lands.iter().enumerate() {
            let extent = window.shape[from_dim];
            let sides = [
                ("source", from_dim, window.from[from_dim], from.axes()[from_dim].len()),
                ("destination", to_dim, window.to[to_dim], to.axes()[to_dim].len()),
            ];
            for (which, dim, offset, len) in sides {
                if offset.checked_add(extent).is_none_or(|end| end > len) {
                    return Err(Error::out_of_range(format!(
                        "the window takes {extent} elements from index {offset} of dimension {dim} of the {which}, \
                         which has {len}; make the window smaller or move it"
                    )));
                }
            }
        }
        let Window { shape, from: from_offset, to: to_offset, axes } = window;
        let period_of = |(from_dim, &to_dim): (usize, &usize)| {
            let here = Side { axis: &from.axes()[from_dim], offset: from_offset[from_dim] };
            let there = Side { axis: &to.axes()[to_dim], offset: to_offset[to_dim] };
            Ok(Sides::new(here, there, shape[from_dim])?.common_period())
        };
        let periods = lands.iter().enumerate().map(period_of).collect::<Result<_>>()?;
        let elems = elems_of(&shape);
        let elems = product(&[elems, to.copies()]).ok_or_else(|| {
            Error::too_large(format!(
                "{elems} elements were to be written {} times, and at most 2^62 can move; give the destination fewer copies",
                to.copies()
            ))
        })?;
        let copies = Copies::new(&from, &to, &lands).map(Arc::new);
        let (axes, lands) = (axes.into(), lands.into());
        Ok(Self { from, to, shape, from_offset, to_offset, axes, lands, periods, elems, copies })
    }

    /// The source.
    pub fn from(&self) -> &Distribution {
        &self.from
    }

    /// The destination.
    pub fn to(&self) -> &Distribution {
        &self.to
    }

    /// Elements moved along each axis of the source.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Where the window begins in the source.
    pub fn from_offset(&self) -> &[u64] {
        &self.from_offset
    }

    /// Where the window begins in the destination.
    pub fn to_offset(&self) -> &[u64] {
        &self.to_offset
    }

    /// For each axis of the destination, the axis of the source that it takes.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// For each axis of the source, the axis of the destination that takes it: the inverse of `axes`.
    pub fn lands(&self) -> &[usize] {
        &self.lands
    }

    /// Number of elements moved; of a replicated destination each copy counts.
    pub fn elems(&self) -> u64 {
        self.elems
    }

    /// Which copy of the source each receiver takes; `None` if it has only one.
    pub(crate) fn copies(&self) -> Option<&Copies> {
        self.copies.as_deref()
    }

    /// Both sides of one source axis, with the sender as `here`.
    pub fn sides(&self, from_dim: usize) -> Sides<'_> {
        let to_dim = self.lands[from_dim];
        let here = Side { axis: &self.from.axes()[from_dim], offset: self.from_offset[from_dim] };
        let there = Side { axis: &self.to.axes()[to_dim], offset: self.to_offset[to_dim] };
        // That the window fits both axes was checked when the problem was made.
        Sides::known(here, there, self.shape[from_dim], self.periods[from_dim])
    }

    /// The part of a rank of the source: its elements of the window, split among the destination's processes.
    pub fn sends(&self, rank: u64, method: Method) -> Result<Part> {
        let coords = self.from.coords(rank)?;
        let overlaps = (0..self.from.dims())
            .map(|dim| Overlap::by(method, &self.sides(dim), coords[dim]))
            .collect::<Result<Vec<_>>>()?;
        let (held_by, copies) = (self.receivers_of_copies(), self.copies.clone());
        Ok(Part { rank, coords, overlaps, peer_dims: self.lands.clone(), held_by, copies })
    }

    /// For each source axis the receivers that get all of it, if its destination is replicated; empty if none is.
    pub(crate) fn receivers_of_copies(&self) -> Vec<Option<Range<u64>>> {
        if !self.to.is_replicated() {
            return Vec::new();
        }
        let holders =
            |&dim: &usize| self.to.axes()[dim].is_replicated().then(|| self.to.axes()[dim].holders(0));
        self.lands.iter().map(holders).collect()
    }

    /// The part of a rank of the destination: the elements it receives, split among the source's processes.
    pub fn receives(&self, rank: u64, method: Method) -> Result<Part> {
        let coords = self.to.coords(rank)?;
        let overlaps = (0..self.to.dims())
            .map(|dim| Overlap::by(method, &self.sides(self.axes[dim]).reversed(), coords[dim]))
            .collect::<Result<Vec<_>>>()?;
        let held_by = match self.copies() {
            None => Vec::new(),
            Some(copies) => {
                let taken = copies.taken_by(rank, &coords);
                let one =
                    |&dim: &usize| self.from.axes()[dim].is_replicated().then(|| taken[dim]..taken[dim] + 1);
                self.axes.iter().map(one).collect()
            }
        };
        Ok(Part { rank, coords, overlaps, peer_dims: self.axes.clone(), held_by, copies: None })
    }
}

/// One rank's part in a problem: for each of its axes, the elements it shares with each coordinate of the other grid.
/// The elements it shares with one rank of the other side are the product over the axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    rank: u64,
    coords: Vec<u64>,
    overlaps: Vec<Overlap>,
    peer_dims: Arc<[usize]>,
    /// For each axis whose peers are copies, the coordinates of those that this rank has to do with; empty if none is such.
    held_by: Vec<Option<Range<u64>>>,
    /// If this rank is one of several copies: which of them each peer takes.
    copies: Option<Arc<Copies>>,
}

impl Part {
    /// The rank whose part this is.
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// The coordinates of the rank on its grid.
    pub fn coords(&self) -> &[u64] {
        &self.coords
    }

    /// One overlap for each axis of the rank's own array. Of a replicated axis of the other array peer 0 stands for all copies.
    pub fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }

    /// The axis of the other array on which the peers of overlap `dim` are counted.
    pub fn peer_dim(&self, dim: usize) -> usize {
        self.peer_dims[dim]
    }

    /// The coordinates that peer 0 of overlap `dim` stands for, if the other array is replicated along that axis: as a receiver the copy
    /// that this rank takes, as a sender all copies, each of which gets these elements. `None` if peers are coordinates themselves.
    pub fn copies_of_peers(&self, dim: usize) -> Option<Range<u64>> {
        self.held_by.get(dim).and_then(Clone::clone)
    }

    /// Elements of the window this rank holds.
    pub fn elems(&self) -> u64 {
        elems_of(&self.overlaps.iter().map(Overlap::elems).collect::<Vec<_>>())
    }

    /// Each rank of the other grid that shares elements with this rank, ascending, and their number.
    pub fn shares(&self, other: &Grid) -> Result<Vec<(u64, u64)>> {
        let per_axis: Vec<_> = self.overlaps.iter().map(Overlap::shares).collect();
        let copies =
            |dim: usize| self.held_by.get(dim).and_then(Option::as_ref).map_or(1, |of| of.end - of.start);
        let lengths = per_axis
            .iter()
            .enumerate()
            .map(|(dim, shares)| (shares.len() as u64).saturating_mul(copies(dim)));
        let peers = check_peers(&lengths.collect::<Vec<_>>())?;
        memory::check(u128::from(peers) * 16, "what one rank shares with others")?;
        let rows: Vec<&[(u64, u64)]> = per_axis.iter().map(Vec::as_slice).collect();
        let mut shares = multiply_copies(&rows, &self.held_by, &self.peer_dims, other);
        if let Some(copies) = &self.copies {
            copies.retain_takers(&mut shares, &self.coords);
        }
        Ok(shares)
    }
}

/// The most peers in one rank's list.
const MAX_PEERS: u64 = 10_000_000;

/// The number of peers, given their number on each axis; an error if a list of them would be too long.
pub(crate) fn check_peers(on_axes: &[u64]) -> Result<u64> {
    match product(on_axes) {
        Some(peers) if peers <= MAX_PEERS => Ok(peers),
        _ => Err(Error::too_large(format!(
            "one rank shares elements with more than {MAX_PEERS} others; their coordinates can be asked for, axis by axis"
        ))),
    }
}

/// As [`multiply`], where peer 0 of some axes stands for several coordinates, each of which shares as much.
pub(crate) fn multiply_copies(
    rows: &[&[(u64, u64)]],
    held_by: &[Option<Range<u64>>],
    peer_dims: &[usize],
    other: &Grid,
) -> Vec<(u64, u64)> {
    if held_by.is_empty() {
        return multiply(rows, peer_dims, other);
    }
    let each = |(row, holders): (&&[(u64, u64)], &Option<Range<u64>>)| match holders {
        Some(holders) => {
            row.iter().flat_map(|&(_, elems)| holders.clone().map(move |at| (at, elems))).collect()
        }
        None => row.to_vec(),
    };
    let rows: Vec<Vec<(u64, u64)>> = rows.iter().zip(held_by).map(each).collect();
    multiply(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), peer_dims, other)
}

/// The product over the axes of the elements shared with each peer coordinate, as (rank, elements) by rank.
pub(crate) fn multiply(rows: &[&[(u64, u64)]], peer_dims: &[usize], other: &Grid) -> Vec<(u64, u64)> {
    if rows.iter().any(|row| row.is_empty()) {
        return Vec::new();
    }
    let mut shares = Vec::with_capacity(rows.iter().map(|row| row.len()).product());
    let mut at = vec![0; rows.len()];
    let mut coords = vec![0; rows.len()];
    loop {
        let mut elems = 1;
        for (dim, row) in rows.iter().enumerate() {
            let (peer, shared) = row[at[dim]];
            coords[peer_dims[dim]] = peer;
            elems *= shared;
        }
        // Peers are coordinates on the other grid's axes, so they lie inside it.
        shares.push((other.rank(&coords).expect("peers lie on the other grid"), elems));
        let Some(dim) = (0..rows.len()).rev().find(|&dim| at[dim] + 1 < rows[dim].len()) else { break };
        at[dim] += 1;
        at[dim + 1..].fill(0);
    }
    shares.sort_unstable();
    shares
}
