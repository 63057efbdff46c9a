//! An agreed call as a move, and what runs it.

use crate::agreement::{AgreedCall, AgreedSide, Said};
use crate::groups::{Group, Small};
use crate::routine::Shape;
use crate::settings::{Only, Settings};
use crate::small::{OneCollective, SmallMove};
use reshard::engine::MessagesOptions;
use reshard_mpi::{MpiEngine, MpiOptions};
use reshard_plan::{Deal, Error, Grid, Layout, MemoryOrder, Move, Pattern, Window};

/// Bytes that an engine takes on each process at least, as all count them.
const BYTES_OF_AN_ENGINE: u64 = 1 << 18;

/// Bytes up to which the data of a call goes with a round of a gather, or in one collective of MPI.
const MAX_GATHERED_BYTES: u64 = 1 << 20;
const MAX_COLLECTIVE_BYTES: u64 = 1 << 16;

/// What runs a call.
pub enum Way {
    /// A small move: in one round, or one collective.
    Small,
    Engine,
}

/// Which way a call goes: the same on all processes.
pub fn way(call: &AgreedCall, elem: u64, group: &Group, settings: &Settings) -> Way {
    let bytes = call.bytes(elem);
    // A collective of MPI has no timeout.
    let small = match (&group.gather, settings.deadline) {
        _ if settings.only == Some(Only::Engine) => false,
        (Some(_), _) => bytes <= MAX_GATHERED_BYTES,
        (None, None) => bytes <= MAX_COLLECTIVE_BYTES,
        (None, Some(_)) => false,
    };
    // Factors are the engine's affair.
    let transposes = matches!(call.routine.shape, Shape::Transposed { .. });
    if small && !transposes { Way::Small } else { Way::Engine }
}

/// Prepares a small move. Local.
pub fn small(call: &AgreedCall, elem: u64, group: &Group) -> Result<Small, Error> {
    let (rank, ranks) = (group.comm.rank(), group.comm.size());
    let small = SmallMove::new(call, elem, rank, ranks)?;
    Ok(match group.gather {
        Some(_) => Small::Gathered { small, expected: Vec::new(), bytes: call.bytes(elem) },
        None => Small::Collective(OneCollective::new(small, ranks)?),
    })
}

/// Bytes that a small move takes at most, as all processes count them: runs of a triangle are listed one by one, and others for each pair of
/// processes, row by row and column by column.
pub fn small_bytes(call: &AgreedCall, ranks: usize) -> u64 {
    const RUN_BYTES: u64 = 2 * size_of::<[usize; 3]>() as u64;
    let elems = call.bytes(1);
    let runs = match call.routine.shape {
        Shape::Trapezoid { .. } => elems,
        _ => {
            let peers = call.sides.iter().flat_map(|side| side.grid).max().unwrap_or(1);
            elems.min((call.rows + call.columns).saturating_mul(peers))
        }
    };
    4096 + (size_of::<Said>() * ranks) as u64 + RUN_BYTES * runs
}

/// Prepares an engine, and keeps it. Collective.
pub fn engine<'a>(
    call: &AgreedCall,
    elem: u64,
    group: &'a mut Group,
    settings: &Settings,
) -> Result<(&'a mut MpiEngine, bool), Error> {
    let cached = group.engines.get(call).is_some();
    if !cached {
        let bytes = call.bytes(elem) / 8 / group.comm.size().max(1) as u64 + BYTES_OF_AN_ENGINE;
        group.engines.make_room(bytes);
        let messages = MessagesOptions::default().with_level(settings.level);
        let options = MpiOptions::default().with_messages(messages).with_deadline(settings.deadline);
        let moves = moving(call, elem).map(|moving| vec![moving]);
        let engine = MpiEngine::of_moves(moves, group.comm.communicator(), options)?;
        group.engines.insert(call.clone(), Box::new(engine), bytes);
    }
    match group.engines.look(call) {
        Some(engine) => Ok((engine, cached)),
        None => {
            Err(Error::new(reshard_plan::ErrorKind::External, "an engine that was kept is gone".to_string()))
        }
    }
}

/// The move of an agreed call.
fn moving(call: &AgreedCall, elem: u64) -> Result<Move, Error> {
    let layout = |side: &AgreedSide| {
        let grid = Grid::new(&side.grid)?.with_ranks(&side.ranks)?;
        let deals = side.block.map(Deal::Cyclic).to_vec();
        let matrix = Pattern::new(grid, deals, side.source.to_vec())?.over(&side.shape)?;
        let tight = Layout::new(matrix, MemoryOrder::ColMajor);
        let mut strides = side.ranks.iter().zip(&side.leading);
        strides.try_fold(tight, |layout, (&rank, &leading)| layout.with_strides_of(rank, &[1, leading]))
    };
    let [a, b] = &call.sides;
    let window = match call.routine.shape {
        Shape::Transposed { .. } => Window::of(&[call.columns, call.rows]).permuted(&[1, 0]),
        _ => Window::of(&[call.rows, call.columns]),
    };
    let window = window.from(&a.first).to(&b.first);
    let moving = Move::windowed::<u8>(layout(a)?, layout(b)?, window)?.of_bytes(elem)?;
    match call.routine.shape.triangle(call.rows, call.columns) {
        Some(triangle) => moving.only(triangle),
        None => Ok(moving),
    }
}
