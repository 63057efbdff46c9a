//! `reshard plan`: the communication grid of a redistribution, as the papers print it.

use crate::args;
use crate::failure::Failure;
use crate::screen::{Screen, by_x, counted};
use reshard_plan::notation::{parse_index, parse_shape};
use reshard_plan::{
    Classes, Message, Method, Overlap, Part, Pattern, Problem, Run, Traffic, Window, one_period,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// More messages than this are not listed.
const MOST_MESSAGES: u128 = 10_000_000;

/// Grids with more ranks than this a side are listed by sender instead of drawn.
const DRAWN_RANKS: u64 = 64;

/// The answer, with the keys scripts depend on.
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
    of_rank: Option<OfRank>,
}

/// What `--rank` adds: one entry for each axis of the rank's own array.
#[derive(Serialize)]
struct OfRank {
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
struct Listed {
    from: u64,
    to: u64,
    elems: u64,
}

#[derive(Serialize)]
struct ListedRun {
    peer: u64,
    start: u64,
    len: u64,
    stride: u64,
    count: u64,
}

pub fn run(args: &args::Plan) -> Result<(), Failure> {
    let from: Pattern = args.from.parse().map_err(Failure::of_flag("--from"))?;
    let to: Pattern = args.to.parse().map_err(Failure::of_flag("--to"))?;
    let method: Method = args.method.parse().map_err(Failure::of_flag("--method"))?;
    let problem = problem(args, &from, &to)?;
    let traffic = Traffic::new(&problem).by(method);
    let (messages, of_rank) = match args.rank {
        Some(rank) => {
            let (messages, of_rank) = of_rank(&problem, &traffic, rank, method)?;
            (messages, Some(of_rank))
        }
        None => (all_messages(&problem, &traffic)?, None),
    };
    let planned = Planned {
        shape: problem.shape().to_vec(),
        from: from.to_string(),
        to: to.to_string(),
        period: periods(&problem),
        total_elems: messages.iter().map(|message| message.elems).sum(),
        local_elems: messages
            .iter()
            .filter(|message| message.from == message.to)
            .map(|message| message.elems)
            .sum(),
        messages: messages.iter().map(|&Message { from, to, elems }| Listed { from, to, elems }).collect(),
        of_rank,
    };
    let mut screen = Screen::new();
    if args.json {
        serde_json::to_writer(&mut screen.out, &planned)?;
        writeln!(screen.out)?;
    } else {
        show(&mut screen, &problem, &planned)?;
    }
    Ok(screen.out.flush()?)
}

/// The shape typed with `--shape`; without it, one period of the two layouts.
pub fn shape_or_period(text: Option<&str>, from: &Pattern, to: &Pattern) -> Result<Vec<u64>, Failure> {
    match text {
        Some(text) => parse_shape(text).map_err(Failure::of_flag("--shape")),
        None => one_period(from, to).map_err(Failure::hint("give the shape of the array", "--shape")),
    }
}

/// What was typed about shapes, windows and axes, as a problem.
fn problem(args: &args::Plan, from: &Pattern, to: &Pattern) -> Result<Problem, Failure> {
    let dims = from.grid().dims();
    let shape_of = |flag: &'static str, text: &Option<String>| {
        text.as_ref().map(|text| parse_shape(text).map_err(Failure::of_flag(flag))).transpose()
    };
    let index_of = |flag: &'static str, text: &Option<String>| {
        text.as_ref().map(|text| parse_index(text).map_err(Failure::of_flag(flag))).transpose()
    };
    let axes: Vec<usize> = match index_of("--permute", &args.permute)? {
        Some(axes) => axes.into_iter().map(|axis| usize::try_from(axis).unwrap_or(usize::MAX)).collect(),
        None if args.transpose => (0..dims).rev().collect(),
        None => (0..dims).collect(),
    };
    let shape = match &args.shape {
        None if args.transpose || args.permute.is_some() || args.to_shape.is_some() => {
            return Err(Failure::usage(
                "give the shape of the array with --shape; only an array moved as it is has one period",
            ));
        }
        text => shape_or_period(text.as_deref(), from, to)?,
    };
    let to_shape = match shape_of("--to-shape", &args.to_shape)? {
        Some(shape) => shape,
        // Where the permutation makes no sense the problem will say so.
        None => axes.iter().map(|&axis| shape.get(axis).copied().unwrap_or(0)).collect(),
    };
    let (source, destination) = (from.over(&shape)?, to.over(&to_shape)?);
    let from_at = index_of("--from-at", &args.from_at)?.unwrap_or_else(|| vec![0; dims]);
    let to_at = index_of("--to-at", &args.to_at)?.unwrap_or_else(|| vec![0; dims]);
    let window = match shape_of("--window", &args.window)? {
        Some(window) => window,
        // All that is left behind the offsets of the source.
        None => shape.iter().zip(&from_at).map(|(len, at)| len.saturating_sub(*at)).collect(),
    };
    let window = Window::of(&window).from(&from_at).to(&to_at).permuted(&axes);
    Ok(Problem::windowed(source, destination, window)?)
}

fn all_messages(problem: &Problem, traffic: &Traffic<'_>) -> Result<Vec<Message>, Failure> {
    let too_many = |count: u128| {
        Failure::usage(&format!(
            "this redistribution has {count} messages or more, and at most {MOST_MESSAGES} are listed; \
             ask for one rank with --rank"
        ))
    };
    let processes: u128 = problem.from().grid().extents().iter().map(|&extent| u128::from(extent)).sum();
    if processes > MOST_MESSAGES || u128::from(problem.from().grid().size()) > MOST_MESSAGES {
        return Err(too_many(problem.from().grid().size().into()));
    }
    let table = traffic.table().map_err(Failure::hint("one rank at a time", "--rank"))?;
    match table.message_count() {
        count if count > MOST_MESSAGES => Err(too_many(count)),
        _ => Ok(table.messages().collect()),
    }
}

/// The messages a rank sends and receives, and where on each axis its elements lie.
fn of_rank(
    problem: &Problem,
    traffic: &Traffic<'_>,
    rank: u64,
    method: Method,
) -> Result<(Vec<Message>, OfRank), Failure> {
    let (is_sender, is_receiver) = (problem.from().grid().contains(rank), problem.to().grid().contains(rank));
    if !is_sender && !is_receiver {
        return Err(Failure::usage(&format!(
            "--rank: rank {rank} is part of neither the source nor the destination"
        )));
    }
    let mut messages = traffic.sent_by(rank)?;
    // A message to itself is listed once.
    messages.extend(traffic.received_by(rank)?.into_iter().filter(|message| message.from != rank));
    let runs = |part: Part| -> Vec<AxisRuns> {
        let axis_runs = |(axis, overlap): (usize, &Overlap)| AxisRuns {
            axis,
            peer_axis: part.peer_dim(axis),
            period: overlap.period(),
            extent: overlap.extent(),
            runs: overlap.runs().iter().map(listed_run).collect(),
        };
        part.overlaps().iter().enumerate().map(axis_runs).collect()
    };
    let sends = if is_sender { runs(problem.sends(rank, method)?) } else { Vec::new() };
    let receives = if is_receiver { runs(problem.receives(rank, method)?) } else { Vec::new() };
    Ok((messages, OfRank { rank, sends, receives }))
}

fn listed_run(&Run { peer, start, len, stride, count }: &Run) -> ListedRun {
    ListedRun { peer, start, len, stride, count }
}

fn periods(problem: &Problem) -> Vec<Option<u64>> {
    (0..problem.from().dims())
        .map(|dim| Classes::new(&problem.sides(dim)).and_then(|classes| u64::try_from(classes.period()).ok()))
        .collect()
}

fn show(screen: &mut Screen, problem: &Problem, planned: &Planned) -> Result<(), Failure> {
    let periods: Vec<_> = planned
        .period
        .iter()
        .map(|period| period.map_or("none".to_string(), |period| period.to_string()))
        .collect();
    writeln!(
        screen.out,
        "Communication grid from {} to {}, {} elements, period {}",
        planned.from,
        planned.to,
        by_x(&planned.shape),
        periods.join("x")
    )?;
    match &planned.of_rank {
        Some(of_rank) => show_rank(screen, planned, of_rank)?,
        None if problem.from().grid().size().max(problem.to().grid().size()) <= DRAWN_RANKS => {
            draw_grid(screen, problem, planned)?;
        }
        None => list_by_sender(screen, planned)?,
    }
    writeln!(
        screen.out,
        "{}, {}, of which {} keep their rank",
        counted(planned.messages.len() as u128, "message"),
        counted(planned.total_elems, "element"),
        planned.local_elems
    )?;
    Ok(())
}

/// The table of the papers: a row for each sender, a column for each receiver, message counts at the edges.
fn draw_grid(screen: &mut Screen, problem: &Problem, planned: &Planned) -> Result<(), Failure> {
    let sorted = |ranks: Vec<u64>| {
        let mut ranks = ranks;
        ranks.sort_unstable();
        ranks
    };
    let senders = sorted(problem.from().grid().ranks().collect());
    let receivers = sorted(problem.to().grid().ranks().collect());
    let lengths: BTreeMap<(u64, u64), u64> =
        planned.messages.iter().map(|message| ((message.from, message.to), message.elems)).collect();
    let widest = planned.messages.iter().map(|message| message.elems).chain(receivers.iter().copied()).max();
    let width = widest.unwrap_or(0).to_string().len().max(2);
    let row =
        |name: &str, cells: Vec<String>, count: &str| format!("{name:<12} {}  {count}", cells.join(" "));
    let names = receivers.iter().map(|rank| format!("{rank:>width$}")).collect();
    writeln!(screen.out, "{}", row("Sender/Recv.", names, "Nbr of msg."))?;
    let mut received = vec![0_usize; receivers.len()];
    for sender in senders {
        let mut sent = 0;
        let mut cells = Vec::with_capacity(receivers.len());
        for (receiver, received) in receivers.iter().zip(&mut received) {
            cells.push(match lengths.get(&(sender, *receiver)) {
                Some(elems) => {
                    sent += 1;
                    *received += 1;
                    format!("{elems:>width$}")
                }
                None => screen.faint(&format!("{:>width$}", "-")),
            });
        }
        let line = row(&sender.to_string(), cells, &sent.to_string());
        writeln!(screen.out, "{line}")?;
    }
    let counts = received.iter().map(|count| format!("{count:>width$}")).collect();
    writeln!(screen.out, "{}", row("Nbr of msg.", counts, "").trim_end())?;
    Ok(())
}

/// For grids too wide to draw: a line for each sender.
fn list_by_sender(screen: &mut Screen, planned: &Planned) -> Result<(), Failure> {
    for messages in planned.messages.chunk_by(|a, b| a.from == b.from) {
        let to: Vec<_> = messages.iter().map(|message| format!("{}:{}", message.to, message.elems)).collect();
        writeln!(screen.out, "{} sends (rank:elements) {}", messages[0].from, to.join(" "))?;
    }
    Ok(())
}

fn show_rank(screen: &mut Screen, planned: &Planned, of_rank: &OfRank) -> Result<(), Failure> {
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
            writeln!(
                screen.out,
                "  axis {axis}: every {period} of {extent} elements, with axis {peer_axis} there"
            )?;
            for ListedRun { peer, start, len, stride, count } in runs {
                let again =
                    if *count > 1 { format!(", {count} times, {stride} apart") } else { String::new() };
                writeln!(screen.out, "    process {peer}: {start}..{}{again}", start + len)?;
            }
        }
    }
    Ok(())
}
