//! Rounds of short pieces, copied without a branch on any length.
//!
//! A line holds many pieces of a few bytes, and branches on their lengths are mispredicted too often. But all lengths and
//! offsets are known when the route is made, so a loop of short pieces is stored as tables of what to do, in sections that stay
//! in the first-level cache. There are two kinds:
//!
//! - *Lines*, where the destination is contiguous and the processor has masks: each line of the destination is made of a few
//!   lines of the sources, see [`crate::simd::compose`].
//! - *Moves*, everywhere else, and where they take less: a piece of `n` bytes is one move of the largest power of two that is not above `n`, or two such
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
    /// Byte offsets and bytes of what this destination prefetches in a batch.
    pub(crate) prefetched: Vec<[usize; 2]>,
}

/// Some positions of a batch.
pub(crate) struct Section {
    /// The first position in the batch.
    pub(crate) at: u64,
    /// The number of positions.
    pub(crate) elems: u64,
    /// The number of bytes.
    pub(crate) bytes: usize,
    /// Indices of the origins it takes from.
    pub(crate) origins: Vec<u16>,
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
    /// even by these limits. `turn` is the number of this destination in the route, and of how many.
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
            let moves = moves(runs)?;
            let how = match contiguous && level.composes() {
                false => Tables::Moves(moves),
                true => lines(runs, bytes, level, move_cost(&moves), &mut shuffles)?
                    .map_or(Tables::Moves(moves), Tables::Lines),
            };
            let elems = bytes as u64 / elem;
            let mut origins: Vec<u16> = runs.iter().map(|run| run.origin as u16).collect();
            origins.sort_unstable();
            origins.dedup();
            sections.push(Section { at, elems, bytes, origins, how });
            at += elems;
        }
        let to = [(first.to * elem) as usize, (first.to_step * elem) as usize];
        let shuffles = shuffles.list;
        Some(Self { elems: each.elems, rounds, sections, origins, to, contiguous, shuffles, lane })
    }
}

/// Gaps of at most this many bytes between the pieces of a peer are prefetched with them.
const MAX_PREFETCHED_GAP_BYTES: u64 = 256;

/// Elements of a peer from its origin on that are prefetched.
struct PrefetchedRange {
    begin: u64,
    end: u64,
    /// True if it has gaps.
    shared: bool,
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
        // Offsets from an origin are stored in 32 bits, with a sign.
        i32::try_from((end - first).checked_add(rounds.checked_mul(step)?)?.checked_mul(elem)?).ok()?;
        // Where short pieces have short gaps, these belong to the other destinations, and each prefetches a part for all.
        let bridged = |gap: u64| gap * elem <= MAX_PREFETCHED_GAP_BYTES;
        let mut ranges: Vec<PrefetchedRange> = Vec::new();
        for (round, s) in (0..rounds).flat_map(|round| of_peer.iter().map(move |s| (round, s))) {
            let begin = s.from - first + round * step;
            match ranges.last_mut() {
                Some(last) if bridged(begin.saturating_sub(last.end)) => {
                    last.shared |= begin > last.end;
                    last.end = last.end.max(begin + s.len);
                }
                _ => ranges.push(PrefetchedRange { begin, end: begin + s.len, shared: false }),
            }
        }
        if let ([only], true) = (ranges.as_mut_slice(), each.rounds > 1)
            && bridged((rounds * step).saturating_sub(only.end))
        {
            only.shared |= rounds * step > only.end;
            only.end = only.end.max(rounds * step);
        }
        let part = |range: &PrefetchedRange| {
            let bytes = ((range.end - range.begin) * elem) as usize;
            let [turn, turns] = if range.shared { [turn, turns] } else { [0, 1] };
            [(range.begin * elem) as usize + bytes * turn / turns, bytes.div_ceil(turns)]
        };
        origins.push(Origin {
            peer: of_peer[0].peer as usize,
            first: (first * elem) as usize,
            step: (step * elem) as usize,
            prefetched: ranges.iter().map(part).collect(),
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
    /// Returns the number of the permutation that brings lanes of a window to lanes of a line, given as (of the window, of the
    /// line); `paired` if pairs of bytes are permuted.
    fn number(&mut self, lanes: Vec<(u8, u8)>, paired: bool) -> Option<u16> {
        if let Some(number) = self.numbers.get(&lanes) {
            return Some(*number);
        }
        let number = u16::try_from(self.list.len()).ok()?;
        self.list.push(if paired { Shuffle::of_pairs(&lanes) } else { Shuffle::new(self.lane, &lanes) });
        self.numbers.insert(lanes, number);
        Some(number)
    }
}

/// What it takes to move a piece in one part, or in two, and what a patch, a window and a window of bytes in pairs take: each
/// relative to the others, as measured on an Intel Xeon of model 85.
const MOVE_COST: usize = 2;
const DOUBLE_MOVE_COST: usize = 5;
const PATCH_COST: usize = 3;
const WINDOW_COST: usize = 4;
const PAIRED_WINDOW_COST: usize = 6;

/// Returns what the moves of a section take.
fn move_cost(tables: &[MoveTable]) -> usize {
    let of_table =
        |table: &MoveTable| table.moves.len() * if table.twice { DOUBLE_MOVE_COST } else { MOVE_COST };
    tables.iter().map(of_table).sum()
}

/// Returns the lines of a section, made of patches or of windows, if they take less than its moves: `Some(None)` if not.
fn lines(
    runs: &[Run],
    bytes: usize,
    level: Level,
    move_cost: usize,
    shuffles: &mut Shuffles,
) -> Option<Option<Lines>> {
    let lane = shuffles.lane;
    let lines: Vec<Vec<LaneOrigin>> =
        (0..bytes).step_by(CACHE_LINE).map(|line| lanes_of(runs, line, lane)).collect();
    let patches: Vec<Vec<LineInput>> = lines.iter().map(|lanes| patches_of(lanes, lane)).collect();
    let paired = !level.permutes(lane);
    let windows: Vec<Vec<LineInput>> =
        lines.iter().map(|lanes| if paired { paired_windows_of(lanes) } else { windows_of(lanes) }).collect();
    let count = |parts: &[Vec<LineInput>]| parts.iter().map(Vec::len).sum::<usize>();
    let patch_cost = count(&patches) * PATCH_COST;
    let window_cost = count(&windows) * if paired { PAIRED_WINDOW_COST } else { WINDOW_COST };
    if move_cost < patch_cost.min(window_cost) {
        return Some(None);
    }
    if patch_cost < window_cost {
        let patch = |input: &LineInput| {
            let lanes = input.lanes.iter().map(|each| (u64::MAX >> (CACHE_LINE - lane)) << (each.to * lane));
            let mask = lanes.fold(0, |mask, lane| mask | lane);
            Some(Patch { mask, from: i32::try_from(input.from).ok()?, origin: input.lanes[0].origin as u32 })
        };
        return Some(Some(Lines::Patches(grouped(&patches, patch)?)));
    }
    let window = |input: &LineInput| {
        let place =
            |each: &LaneOrigin| (((each.from as i64 - input.from) / lane as i64) as u8, each.to as u8);
        let shuffle = shuffles.number(input.lanes.iter().map(place).collect(), paired)?;
        let (from, origin) = (i32::try_from(input.from).ok()?, input.lanes[0].origin as u16);
        Some(Window { from, origin, shuffle })
    };
    Some(Some(match paired {
        true => Lines::PairedWindows(grouped(&windows, window)?),
        false => Lines::Windows(grouped(&windows, window)?),
    }))
}

/// Lanes of a line that come out of one patch or window.
struct LineInput {
    /// Byte offset from the origin of what is loaded.
    from: i64,
    lanes: Vec<LaneOrigin>,
}

/// Groups the lines of a section by the number of their patches or windows.
fn grouped<T>(
    lines: &[Vec<LineInput>],
    mut part: impl FnMut(&LineInput) -> Option<T>,
) -> Option<Vec<LineGroup<T>>> {
    let mut groups: Vec<LineGroup<T>> = Vec::new();
    for (number, parts) in lines.iter().enumerate() {
        let known = groups.iter().position(|group| group.per_line == parts.len());
        let known = known.unwrap_or_else(|| {
            groups.push(LineGroup { per_line: parts.len(), to: Vec::new(), parts: Vec::new() });
            groups.len() - 1
        });
        groups[known].to.push((number * CACHE_LINE) as u32);
        for input in parts {
            let part = part(input)?;
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

/// Returns the patches of a line: lanes that are equally far from their places, adjacent or not.
fn patches_of(lanes: &[LaneOrigin], lane: usize) -> Vec<LineInput> {
    let shift = |each: &LaneOrigin| (each.origin, each.from as i64 - (each.to * lane) as i64);
    let mut by_shift = lanes.to_vec();
    by_shift.sort_by_key(shift);
    let patches = by_shift.chunk_by(|one, next| shift(one) == shift(next));
    patches.map(|lanes| LineInput { from: shift(&lanes[0]).1, lanes: lanes.to_vec() }).collect()
}

/// Returns the windows of a line: lanes that lie in one line of the source, wherever that begins.
fn windows_of(lanes: &[LaneOrigin]) -> Vec<LineInput> {
    let mut windows = Vec::new();
    let mut rest = lanes;
    while let Some(first) = rest.first() {
        let same = |other: &LaneOrigin| other.origin == first.origin && other.from - first.from < CACHE_LINE;
        let (window, others) = rest.split_at(rest.partition_point(same));
        windows.push(LineInput { from: first.from as i64, lanes: window.to_vec() });
        rest = others;
    }
    windows
}

/// Returns the windows of a line of bytes where only pairs of bytes can be permuted: an even byte of a window goes to an even
/// byte of the line, an odd one to an odd one, and both bytes of a pair of the line come from one pair of the window.
fn paired_windows_of(lanes: &[LaneOrigin]) -> Vec<LineInput> {
    let mut windows = Vec::new();
    for parity in [0, 1] {
        let mut rest: Vec<LaneOrigin> =
            lanes.iter().filter(|each| (each.from ^ each.to) & 1 == parity).copied().collect();
        while let Some(first) = rest.first().copied() {
            let from = first.from as i64 - (first.to & 1) as i64;
            let mut pairs = [None; CACHE_LINE / 2];
            let (mut window, mut others) = (Vec::new(), Vec::new());
            for each in rest {
                let pair = (each.from as i64 - from) / 2;
                let taken = &mut pairs[each.to / 2];
                let fits = each.origin == first.origin && pair < CACHE_LINE as i64 / 2;
                if fits && taken.is_none_or(|taken| taken == pair) {
                    *taken = Some(pair);
                    window.push(each);
                } else {
                    others.push(each);
                }
            }
            windows.push(LineInput { from, lanes: window });
            rest = others;
        }
    }
    windows
}
