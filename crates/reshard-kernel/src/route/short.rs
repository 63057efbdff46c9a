//! Rounds of short pieces, copied without a branch on any length.
//!
//! A line holds many pieces of a few bytes, and branches on their lengths are mispredicted too often. But all lengths and
//! offsets are known when the route is made, so a loop of short pieces is stored as tables of what to do, in sections that stay
//! in the first-level cache. There are two kinds:
//!
//! - *Lines*, where the destination is contiguous and the processor has masks: each line of the destination is made of a few
//!   lines of the sources, see [`crate::simd::compose`].
//! - *Moves*, everywhere else: a piece of `n` bytes is one move of the largest power of two that is not above `n`, or two such
//!   moves that overlap. Moves of one width are one table.
//!
//! Both are exact: they touch no byte outside their pieces. So they may be made in any order, and rounds may be copied twice.

use crate::simd::{CACHE_LINE, Level, LineGroup, Lines, Patch, Shuffle, Window};
use reshard_plan::{Loop, Stretch};
use std::collections::HashMap;

/// Which pieces are short, and how many are copied at a time.
#[derive(Clone, Copy)]
pub(crate) struct ShortLimits {
    /// Pieces are short below this many bytes on average; longer ones are copied one by one.
    pub(crate) piece_bytes: u64,
    /// Bytes of a section at most: it stays in the first-level cache, with its tables.
    pub(crate) section_bytes: usize,
}

/// The limits for rows.
pub(crate) const ROW_LIMITS: ShortLimits = ShortLimits { piece_bytes: 96, section_bytes: 2048 };

/// Pieces of several rounds together at most.
const MAX_BATCH_PIECES: u64 = 1024;

/// Pieces of a loop at most; loops of more are copied piece by piece.
const MAX_PIECES: usize = 1 << 16;

/// The widest move in bytes.
const WIDEST: usize = 64;

/// A loop of short pieces: its rounds in batches, a batch in sections.
pub(crate) struct ShortPieces {
    /// Positions of a round.
    pub(crate) elems: u64,
    /// Rounds of a batch.
    pub(crate) rounds: u64,
    /// Parts of a batch, in the order of its positions; only one if a batch has several rounds.
    pub(crate) sections: Vec<Section>,
    /// Where each peer's pieces begin.
    pub(crate) origins: Vec<Origin>,
    /// Byte offset of the first round in the destination, and bytes from one round to the next.
    pub(crate) to: [usize; 2],
    /// True if the rounds are contiguous in the destination.
    pub(crate) contiguous: bool,
    /// The permutations of windows.
    pub(crate) shuffles: Vec<Shuffle>,
    /// Bytes of a lane of a window.
    pub(crate) lane: usize,
}

/// The part of one peer that a batch takes from; windows and moves count from its first byte.
pub(crate) struct Origin {
    pub(crate) peer: usize,
    /// Byte offset of the first byte that the first batch takes.
    pub(crate) first: usize,
    /// Bytes from one round to the next.
    pub(crate) step: usize,
    /// Byte offset and bytes of what this destination prefetches in a batch. The destinations of a route take from the same
    /// lines, so each prefetches a part for all.
    pub(crate) prefetched: [usize; 2],
}

/// Some positions of a batch.
pub(crate) struct Section {
    /// The first position in the batch.
    pub(crate) at: u64,
    /// The number of positions.
    pub(crate) elems: u64,
    /// The number of bytes.
    pub(crate) bytes: usize,
    pub(crate) how: Tables,
}

/// What a section is copied by.
pub(crate) enum Tables {
    Lines(Lines),
    Moves(Vec<MoveTable>),
}

/// Moves of one width.
pub(crate) struct MoveTable {
    /// Bytes of a move: a power of two, at most 64.
    pub(crate) width: usize,
    /// True if each piece is moved in two parts that overlap.
    pub(crate) twice: bool,
    pub(crate) moves: Vec<ShortMove>,
}

/// One move, or two.
#[derive(Clone, Copy)]
pub(crate) struct ShortMove {
    /// Byte offset from the peer's origin.
    pub(crate) from: u32,
    /// Byte offset in the section if rounds are contiguous in the destination, else from the first byte of the batch there.
    pub(crate) to: u32,
    /// Index of the peer's origin.
    pub(crate) origin: u16,
    /// Offset of the second part.
    pub(crate) second: u16,
}

/// Some bytes of one piece.
#[derive(Clone, Copy)]
struct Run {
    origin: usize,
    from: usize,
    to: usize,
    bytes: usize,
}

impl ShortPieces {
    /// Returns the tables of a loop whose peers are those of the route, if its pieces are short and their steps
    /// even by these limits. `turn` is the number of this destination in the route, and of how many;
    /// see [`ShortLimits`].
    pub fn new(each: &Loop, elem: u64, turn: [usize; 2], limits: ShortLimits, level: Level) -> Option<Self> {
        let section = limits.section_bytes;
        let pieces = each.stretches.len() as u64;
        let round_bytes = each.elems.checked_mul(elem)?;
        let first = each.stretches.first()?;
        let one_piece_is_all = pieces * each.rounds < 2;
        if one_piece_is_all
            || round_bytes / pieces >= limits.piece_bytes
            || elem as usize > section
            || pieces as usize > MAX_PIECES
        {
            return None;
        }
        let in_order = each.stretches.iter().all(|s| s.to == first.to + s.at);
        let contiguous = in_order && (each.rounds == 1 || first.to_step == each.elems);
        if each.stretches.iter().any(|s| s.to_step != first.to_step || s.to < first.to) {
            return None;
        }
        let fit = (section as u64 / round_bytes).min(MAX_BATCH_PIECES / pieces);
        let rounds = fit.clamp(1, each.rounds);
        let origins = origins(each, elem, rounds, turn)?;
        let mut parts =
            Parts { most: section / elem as usize * elem as usize, contiguous, parts: Vec::new(), filled: 0 };
        for round in 0..rounds {
            for stretch in &each.stretches {
                let origin =
                    origins.binary_search_by_key(&(stretch.peer as usize), |origin| origin.peer).ok()?;
                let from =
                    ((stretch.from + round * stretch.from_step) * elem) as usize - origins[origin].first;
                let to = ((stretch.to - first.to + round * stretch.to_step) * elem) as usize;
                parts.push(Run { origin, from, to, bytes: (stretch.len * elem) as usize });
            }
        }
        let lane = 1 << elem.trailing_zeros().min(3);
        let mut shuffles = Shuffles { lane, ..Shuffles::default() };
        let mut sections = Vec::with_capacity(parts.parts.len());
        let mut at = 0;
        for runs in &parts.parts {
            let bytes: usize = runs.iter().map(|run| run.bytes).sum();
            let how = match contiguous && level.composes() {
                false => Tables::Moves(moves(runs)?),
                true => Tables::Lines(lines(runs, bytes, level, &mut shuffles)?),
            };
            let elems = bytes as u64 / elem;
            sections.push(Section { at, elems, bytes, how });
            at += elems;
        }
        let to = [(first.to * elem) as usize, (first.to_step * elem) as usize];
        let shuffles = shuffles.list;
        Some(Self { elems: each.elems, rounds, sections, origins, to, contiguous, shuffles, lane })
    }
}

/// Returns where each peer's pieces begin, by peer; `None` if the pieces of one peer have different steps.
fn origins(each: &Loop, elem: u64, rounds: u64, [turn, turns]: [usize; 2]) -> Option<Vec<Origin>> {
    let mut stretches: Vec<&Stretch> = each.stretches.iter().collect();
    stretches.sort_by_key(|s| (s.peer, s.from));
    let mut origins = Vec::new();
    for of_peer in stretches.chunk_by(|a, b| a.peer == b.peer) {
        let (first, step) = (of_peer[0].from, of_peer[0].from_step);
        if of_peer.iter().any(|s| s.from_step != step) {
            return None;
        }
        let end = of_peer.iter().map(|s| s.from + s.len).max()?;
        let span = match each.rounds {
            1 => end - first,
            _ => (end - first + (rounds - 1) * step).max(rounds * step),
        };
        // Offsets from an origin are stored in 32 bits, with a sign.
        let bytes = i32::try_from(span.checked_mul(elem)?).ok()? as usize;
        origins.push(Origin {
            peer: of_peer[0].peer as usize,
            first: (first * elem) as usize,
            step: (step * elem) as usize,
            prefetched: [bytes * turn / turns, bytes.div_ceil(turns)],
        });
    }
    u16::try_from(origins.len()).is_ok().then_some(origins)
}

/// The pieces of a batch, cut into sections.
struct Parts {
    /// Bytes of a part at most.
    most: usize,
    contiguous: bool,
    parts: Vec<Vec<Run>>,
    /// Bytes of the last part.
    filled: usize,
}

impl Parts {
    /// Appends a piece, in the order of positions.
    fn push(&mut self, piece: Run) {
        let mut left = piece;
        while left.bytes > 0 {
            if self.parts.is_empty() || self.filled == self.most {
                self.parts.push(Vec::new());
                self.filled = 0;
            }
            let bytes = left.bytes.min(self.most - self.filled);
            let to = if self.contiguous { self.filled } else { left.to };
            if let Some(last) = self.parts.last_mut() {
                last.push(Run { to, bytes, ..left });
            }
            self.filled += bytes;
            left = Run { from: left.from + bytes, to: left.to + bytes, bytes: left.bytes - bytes, ..left };
        }
    }
}

/// Returns the moves of some pieces, by width.
fn moves(runs: &[Run]) -> Option<Vec<MoveTable>> {
    let mut tables: Vec<MoveTable> = Vec::new();
    for run in runs {
        let mut done = 0;
        while done < run.bytes {
            let left = run.bytes - done;
            // Of a long piece the widest moves first; what is left is one move, or two that overlap.
            let n = if left > 2 * WIDEST { WIDEST } else { left };
            let width = (1 << n.ilog2()).min(WIDEST);
            let (twice, one) = (
                n > width,
                ShortMove {
                    from: u32::try_from(run.from + done).ok()?,
                    to: u32::try_from(run.to + done).ok()?,
                    origin: run.origin as u16,
                    second: (n - width) as u16,
                },
            );
            match tables.iter_mut().find(|table| (table.width, table.twice) == (width, twice)) {
                Some(table) => table.moves.push(one),
                None => tables.push(MoveTable { width, twice, moves: vec![one] }),
            }
            done += n;
        }
    }
    Some(tables)
}

/// The permutations of a loop, each stored once.
#[derive(Default)]
struct Shuffles {
    lane: usize,
    list: Vec<Shuffle>,
    numbers: HashMap<Vec<(u8, u8)>, u16>,
}

impl Shuffles {
    /// Returns the number of the permutation that brings lanes of a window to lanes of a line: pairs (of the window, of the line).
    fn number(&mut self, lanes: Vec<(u8, u8)>) -> Option<u16> {
        if let Some(number) = self.numbers.get(&lanes) {
            return Some(*number);
        }
        let number = u16::try_from(self.list.len()).ok()?;
        self.list.push(Shuffle::new(self.lane, &lanes));
        self.numbers.insert(lanes, number);
        Some(number)
    }
}

/// Patches of a section for each window, at least, for windows to be faster.
const PATCHES_PER_WINDOW: [usize; 2] = [3, 2];

/// Returns the lines of a section, made of patches or of windows.
fn lines(runs: &[Run], bytes: usize, level: Level, shuffles: &mut Shuffles) -> Option<Lines> {
    let lane = shuffles.lane;
    let lines: Vec<Vec<LaneOrigin>> =
        (0..bytes).step_by(CACHE_LINE).map(|line| lanes_of(runs, line, lane)).collect();
    let patches: Vec<Vec<&[LaneOrigin]>> =
        lines.iter().map(|lanes| lanes.chunk_by(|a, b| in_one_patch(a, b, lane)).collect()).collect();
    let windows: Vec<Vec<&[LaneOrigin]>> = lines.iter().map(|lanes| windows_of(lanes)).collect();
    let count = |parts: &[Vec<&[LaneOrigin]>]| parts.iter().map(Vec::len).sum::<usize>();
    let [least, each] = PATCHES_PER_WINDOW;
    if !level.permutes(lane) || count(&patches) * each < count(&windows) * least {
        let patch = |lanes: &[LaneOrigin]| {
            let first = lanes[0];
            let bytes = lanes.len() * lane;
            Some(Patch {
                mask: (u64::MAX >> (CACHE_LINE - bytes)) << (first.to * lane),
                from: i32::try_from(first.from as i64 - (first.to * lane) as i64).ok()?,
                origin: first.origin as u32,
            })
        };
        return Some(Lines::Patches(grouped(&patches, patch)?));
    }
    let window = |lanes: &[LaneOrigin]| {
        let first = lanes[0].from;
        let pairs = lanes.iter().map(|each| (((each.from - first) / lane) as u8, each.to as u8)).collect();
        let from = i32::try_from(first).ok()?;
        Some(Window { from, origin: lanes[0].origin as u16, shuffle: shuffles.number(pairs)? })
    };
    Some(Lines::Windows(grouped(&windows, window)?))
}

/// Groups the lines of a section by the number of their parts.
fn grouped<T>(
    lines: &[Vec<&[LaneOrigin]>],
    mut part: impl FnMut(&[LaneOrigin]) -> Option<T>,
) -> Option<Vec<LineGroup<T>>> {
    let mut groups: Vec<LineGroup<T>> = Vec::new();
    for (number, parts) in lines.iter().enumerate() {
        let known = groups.iter().position(|group| group.per_line == parts.len());
        let known = known.unwrap_or_else(|| {
            groups.push(LineGroup { per_line: parts.len(), to: Vec::new(), parts: Vec::new() });
            groups.len() - 1
        });
        groups[known].to.push((number * CACHE_LINE) as u32);
        for lanes in parts {
            let part = part(lanes)?;
            groups[known].parts.push(part);
        }
    }
    Some(groups)
}

/// Where a lane of a line comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LaneOrigin {
    origin: usize,
    /// Byte offset from the origin.
    from: usize,
    /// Its number in the line.
    to: usize,
}

/// Returns the lanes of a line, by origin.
fn lanes_of(runs: &[Run], line: usize, lane: usize) -> Vec<LaneOrigin> {
    let mut lanes = Vec::with_capacity(CACHE_LINE / lane);
    let first = runs.partition_point(|run| run.to + run.bytes <= line);
    for run in runs[first..].iter().take_while(|run| run.to < line + CACHE_LINE) {
        let (begin, end) = (run.to.max(line), (run.to + run.bytes).min(line + CACHE_LINE));
        let of_run = (begin..end).step_by(lane);
        lanes.extend(of_run.map(|to| LaneOrigin {
            origin: run.origin,
            from: run.from + to - run.to,
            to: (to - line) / lane,
        }));
    }
    lanes.sort_unstable();
    lanes
}

/// True if two lanes are neighbours in the source and in the line.
fn in_one_patch(one: &LaneOrigin, next: &LaneOrigin, lane: usize) -> bool {
    (one.origin, one.from + lane, one.to + 1) == (next.origin, next.from, next.to)
}

/// Cuts the lanes of a line where they do not lie in one line of the source, wherever that begins.
fn windows_of(lanes: &[LaneOrigin]) -> Vec<&[LaneOrigin]> {
    let mut windows = Vec::new();
    let mut rest = lanes;
    while let Some(first) = rest.first() {
        let same = |other: &LaneOrigin| other.origin == first.origin && other.from - first.from < CACHE_LINE;
        let (window, others) = rest.split_at(rest.partition_point(same));
        windows.push(window);
        rest = others;
    }
    windows
}
