//! `reshard plan`: the communication grid of a redistribution, as the papers print it.

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::message_table::{self, Listed};
use crate::problem::MoveRequest;
use crate::screen::{Screen, counted};
use reshard_plan::memory;
use reshard_plan::notation::print_shape;
use reshard_plan::{Classes, Message, Method, Overlap, Part, Problem, Run, Traffic};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;

/// The most messages that are listed.
const MAX_MESSAGES: u128 = 10_000_000;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Planned {
    shape: Vec<u64>,
    from: String,
    to: String,
    /// `lcm(P r, Q s)` for each dimension; null where an irregular layout has none, or past 64 bits.
    period: Vec<Option<u64>>,
    messages: Vec<Listed>,
    total_elems: u64,
    local_elems: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    window: Option<Windowed>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    of_rank: Option<RankRuns>,
}

/// The keys that a window or a permutation adds: `shape` is then that of the window.
#[derive(Serialize)]
struct Windowed {
    from_shape: Vec<u64>,
    from_at: Vec<u64>,
    to_shape: Vec<u64>,
    to_at: Vec<u64>,
    axes: Vec<usize>,
}

impl Windowed {
    fn of(problem: &Problem) -> Self {
        Self {
            from_shape: problem.from().shape(),
            from_at: problem.from_offset().to_vec(),
            to_shape: problem.to().shape(),
            to_at: problem.to_offset().to_vec(),
            axes: problem.axes().to_vec(),
        }
    }
}

/// The keys that `--rank` adds: one entry for each axis of the rank's own array.
#[derive(Serialize)]
struct RankRuns {
    rank: u64,
    sends: Vec<AxisRuns>,
    receives: Vec<AxisRuns>,
}

#[derive(Serialize)]
struct AxisRuns {
    axis: usize,
    peer_axis: usize,
    period: u64,
    extent: u64,
    runs: Vec<ListedRun>,
}

#[derive(Serialize)]
struct ListedRun {
    peer: u64,
    /// The number of processes, from `peer` on, that all get these elements; only if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<u64>,
    start: u64,
    len: u64,
    stride: u64,
    count: u64,
}

pub fn run(args: &args::Plan) -> Result<(), Failure> {
    let request = MoveRequest::read(&args.moved)?;
    let method: Method = args.method.parse().map_err(Failure::of_flag("--method"))?;
    let problem = &request.problem;
    let (messages, of_rank) = match args.rank {
        Some(rank) => {
            let (messages, of_rank) = of_rank(problem, rank, method)?;
            (messages, Some(of_rank))
        }
        None => (all_messages(problem, method)?, None),
    };
    let staying = messages.iter().filter(|message| message.from == message.to);
    let planned = Planned {
        shape: problem.shape().to_vec(),
        from: request.from.to_string(),
        to: request.to.to_string(),
        period: periods(problem),
        total_elems: messages.iter().map(|message| message.elems).sum(),
        local_elems: staying.map(|message| message.elems).sum(),
        messages: memory::listed(messages.iter().map(Listed::from), "the messages as they are printed")?,
        window: (!request.is_plain()).then(|| Windowed::of(problem)),
        of_rank,
    };
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &planned)?;
    } else {
        show(&mut screen, problem, &planned)?;
    }
    Ok(screen.out.flush()?)
}

fn all_messages(problem: &Problem, method: Method) -> Result<Vec<Message>, Failure> {
    let table =
        Traffic::new(problem).by(method).table().map_err(Failure::hint("one rank at a time", "--rank"))?;
    match table.message_count() {
        count if count > MAX_MESSAGES => Err(Failure::usage(&format!(
            "this redistribution has {count} messages, and at most {MAX_MESSAGES} are listed; ask for one rank at a \
             time with --rank"
        ))),
        count => {
            let mut messages = memory::with_room(count as usize, "a list of all messages")?;
            messages.extend(table.messages());
            Ok(messages)
        }
    }
}

/// The messages a rank sends and receives, and the runs of its elements on each axis.
fn of_rank(problem: &Problem, rank: u64, method: Method) -> Result<(Vec<Message>, RankRuns), Failure> {
    let (from, to) = (problem.from().grid(), problem.to().grid());
    if !from.contains(rank) && !to.contains(rank) {
        return Err(Failure::usage(&format!(
            "--rank: rank {rank} is part of neither the source nor the destination"
        )));
    }
    let (mut messages, mut sends, mut receives) = (Vec::new(), Vec::new(), Vec::new());
    if from.contains(rank) {
        let part = problem.sends(rank, method)?;
        messages.extend(part.shares(to)?.into_iter().map(|(to, elems)| Message { from: rank, to, elems }));
        sends = axis_runs(&part);
    }
    if to.contains(rank) {
        let part = problem.receives(rank, method)?;
        // A message to itself is listed once.
        let others = part.shares(from)?.into_iter().filter(|&(from, _)| from != rank);
        messages.extend(others.map(|(from, elems)| Message { from, to: rank, elems }));
        receives = axis_runs(&part);
    }
    Ok((messages, RankRuns { rank, sends, receives }))
}

fn axis_runs(part: &Part) -> Vec<AxisRuns> {
    let on_axis = |(axis, overlap): (usize, &Overlap)| AxisRuns {
        axis,
        peer_axis: part.peer_dim(axis),
        period: overlap.period(),
        extent: overlap.extent(),
        runs: overlap.runs().iter().map(|run| listed_run(run, part.copies_of_peers(axis))).collect(),
    };
    part.overlaps().iter().enumerate().map(on_axis).collect()
}

fn listed_run(&Run { peer, start, len, stride, count }: &Run, copies: Option<Range<u64>>) -> ListedRun {
    // Of a replicated axis: the first of the copies, and how many follow it.
    let (peer, peers) = copies.map_or((peer, 1), |copies| (copies.start, copies.end - copies.start));
    ListedRun { peer, peers: (peers > 1).then_some(peers), start, len, stride, count }
}

fn periods(problem: &Problem) -> Vec<Option<u64>> {
    (0..problem.from().dims())
        .map(|dim| Classes::new(&problem.sides(dim)).and_then(|classes| u64::try_from(classes.period()).ok()))
        .collect()
}

fn show(screen: &mut Screen, problem: &Problem, planned: &Planned) -> Result<(), Failure> {
    let (from, to, shape) = (&planned.from, &planned.to, print_shape(&planned.shape));
    write!(screen.out, "Communication grid from {from} to {to}, array {shape}, ")?;
    match planned.period.iter().copied().collect::<Option<Vec<u64>>>() {
        Some(period) => writeln!(screen.out, "period {}", print_shape(&period))?,
        None => writeln!(screen.out, "not periodic in every dimension")?,
    }
    match &planned.of_rank {
        Some(of_rank) => show_rank(screen, planned, of_rank)?,
        None if message_table::fits(problem) => draw_grid(screen, problem, planned)?,
        None => list_by_sender(screen, planned)?,
    }
    let (messages, elems) =
        (counted(planned.messages.len() as u128, "message"), counted(planned.total_elems, "element"));
    writeln!(screen.out, "{messages}, {elems}; {}", staying(planned.local_elems))?;
    Ok(())
}

fn staying(elems: u64) -> String {
    if elems == 1 {
        "1 element stays on its rank".to_string()
    } else {
        format!("{elems} elements stay on their rank")
    }
}

/// Draws the communication grid: the length of each message.
fn draw_grid(screen: &mut Screen, problem: &Problem, planned: &Planned) -> Result<(), Failure> {
    let lengths: BTreeMap<(u64, u64), u64> =
        planned.messages.iter().map(|message| ((message.from, message.to), message.elems)).collect();
    message_table::draw(
        screen,
        problem,
        |sender, receiver| Some(lengths.get(&(sender, receiver))?.to_string()),
        true,
    )
}

/// Writes a line for each sender, for grids too wide to draw.
fn list_by_sender(screen: &mut Screen, planned: &Planned) -> Result<(), Failure> {
    for messages in planned.messages.chunk_by(|a, b| a.from == b.from) {
        let to: Vec<_> = messages.iter().map(|message| format!("{}:{}", message.to, message.elems)).collect();
        writeln!(screen.out, "{} sends (rank:elements) {}", messages[0].from, to.join(" "))?;
    }
    Ok(())
}

fn show_rank(screen: &mut Screen, planned: &Planned, of_rank: &RankRuns) -> Result<(), Failure> {
    let rank = of_rank.rank;
    for (verb, preposition, axes, is_sender) in
        [("sends", "to", &of_rank.sends, true), ("receives", "from", &of_rank.receives, false)]
    {
        if axes.is_empty() {
            writeln!(screen.out, "Rank {rank} {verb} nothing: it is not part of that grid")?;
            continue;
        }
        let mine = |message: &&Listed| if is_sender { message.from == rank } else { message.to == rank };
        let peers: Vec<_> = planned
            .messages
            .iter()
            .filter(mine)
            .map(|message| format!("{}:{}", if is_sender { message.to } else { message.from }, message.elems))
            .collect();
        writeln!(screen.out, "Rank {rank} {verb} {preposition} (rank:elements) {}", peers.join(" "))?;
        for AxisRuns { axis, peer_axis, period, extent, runs } in axes {
            let repeats = if period < extent { format!(", repeating every {period}") } else { String::new() };
            writeln!(screen.out, "  axis {axis}, with axis {peer_axis} there: {extent} elements{repeats}")?;
            for ListedRun { peer, peers, start, len, stride, count } in runs {
                let again =
                    if *count > 1 { format!(", {count} times, {stride} apart") } else { String::new() };
                let whose = match peers {
                    Some(peers) => format!("processes {peer} to {} each", peer + peers - 1),
                    None => format!("process {peer}"),
                };
                writeln!(screen.out, "    {whose}: {start}..{}{again}", start + len)?;
            }
        }
    }
    Ok(())
}
