//! What the page carries: everything that the planner knows of a redistribution and the script looks up.

use crate::failure::Failure;
use crate::simulate::SimulationRequest;
use reshard_plan::cost::{CostModel, Duplex};
use reshard_plan::schedule::{Schedule, Strategy};
use reshard_plan::simulate::Timeline;
use reshard_plan::{Distribution, Problem, Traffic, memory};
use serde::Serialize;

/// The most ranks of a side: more cannot be seen.
pub const MAX_RANKS: u64 = 512;
/// The most messages of a strategy.
const MAX_MESSAGES: usize = 50_000;
/// The most messages of a page that a server plans by async, whose time grows with their square: half a second.
const MAX_LIVE_ASYNC: u128 = 10_000;
/// The most messages of all strategies together: beyond, only that which was asked for is carried.
const MAX_IN_ALL: usize = 60_000;
/// The most blocks of an axis.
const MAX_BLOCKS: usize = 4096;

/// The data of a page.
#[derive(Serialize)]
pub struct PageData {
    schema: u32,
    /// Where other layouts can be asked for; null in a file.
    live: Option<String>,
    from: SideData,
    to: SideData,
    window: WindowData,
    machine: MachineData,
    /// The strategy that was asked for.
    strategy: &'static str,
    strategies: Vec<StrategyData>,
    /// What moves, in words.
    about: String,
    /// The words of a command line that describe the move.
    command: Vec<String>,
    most_steps: Option<u64>,
    in_flight: Option<u64>,
}

/// A layout over its array.
#[derive(Serialize)]
struct SideData {
    layout: String,
    shape: Vec<u64>,
    grid: Vec<u64>,
    /// In row-major order of the grid's coordinates.
    ranks: Vec<u64>,
    axes: Vec<AxisData>,
    /// The part of the array that is drawn.
    corner: Vec<u64>,
    caption: String,
}

#[derive(Serialize)]
struct AxisData {
    replicated: bool,
    /// Start, end, owner and local index of the start.
    blocks: Vec<[u64; 4]>,
}

#[derive(Serialize)]
struct WindowData {
    shape: Vec<u64>,
    from: Vec<u64>,
    to: Vec<u64>,
    axes: Vec<usize>,
}

#[derive(Serialize)]
struct MachineData {
    alpha: f64,
    beta: f64,
    pack: f64,
    barrier: f64,
    ports: u64,
    half_duplex: bool,
    network: String,
    barriers: bool,
}

#[derive(Serialize)]
struct StrategyData {
    name: &'static str,
    /// Why it does not apply, or is not carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// It would apply, but there are too many messages to carry all strategies.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    left_out: bool,
    /// For each step: sender, receiver and elements of its messages.
    steps: Vec<Vec<[u64; 3]>>,
    total_cost: String,
    makespan: f64,
    /// Sender, receiver, elements, start and end, as simulated for the machine of this page.
    timeline: Vec<(u64, u64, u64, f64, f64)>,
}

impl PageData {
    pub fn new(request: &SimulationRequest, live: Option<&str>) -> Result<Self, Failure> {
        let problem = &request.move_request.problem;
        let most = problem.from().grid().size().max(problem.to().grid().size());
        if most > MAX_RANKS {
            return Err(Failure::usage(&format!(
                "a grid with {most} ranks a side is too large to draw, at most {MAX_RANKS} can be; take smaller grids"
            )));
        }
        if let Some(number) = inexact(problem) {
            return Err(Failure::usage(&format!(
                "{number} is too large for a page, whose numbers are exact up to 2^53; `reshard explain --svg` draws a picture"
            )));
        }
        // Before anything is simulated, which takes longer.
        let messages = Traffic::new(problem).table().map(|table| table.message_count())?;
        if messages > MAX_MESSAGES as u128 {
            return Err(Failure::usage(&format!(
                "{messages} messages are too many for a page, at most {MAX_MESSAGES} can be; take smaller grids"
            )));
        }
        if live.is_some() && messages > MAX_LIVE_ASYNC && request.options.strategy == Strategy::Async {
            return Err(Failure::usage(&format!(
                "{messages} messages are too many for async on a page that is served, at most {MAX_LIVE_ASYNC} can be; use optimal"
            )));
        }
        let (schedule, timeline) = request.run()?;
        let messages = timeline.messages().len();
        let asked = request.options.strategy;
        let all = messages * Strategy::ALL.len() <= MAX_IN_ALL;
        let mut strategies = Vec::new();
        for strategy in Strategy::ALL {
            strategies.push(if strategy == asked {
                carried(strategy, &schedule, &timeline)?
            } else if !all {
                {
                    let why = "there are too many messages to carry all strategies";
                    StrategyData { left_out: true, ..refused(strategy, why.to_string()) }
                }
            } else {
                match request.run_by(strategy) {
                    Ok((schedule, timeline)) => carried(strategy, &schedule, &timeline)?,
                    Err(Failure::Usage(why)) => refused(strategy, why.message().to_string()),
                    Err(failure) => return Err(failure),
                }
            });
        }
        let corners = reshard_draw::corners(problem);
        Ok(Self {
            schema: 1,
            live: live.map(String::from),
            from: side(problem.from(), &corners[0])?,
            to: side(problem.to(), &corners[1])?,
            window: window(problem),
            machine: machine(request),
            strategy: asked.name(),
            strategies,
            about: request.moved_in_words(),
            command: request.command.clone(),
            most_steps: request.most_steps,
            in_flight: request.in_flight,
        })
    }
}

/// A number of the problem that JavaScript cannot hold exactly.
fn inexact(problem: &Problem) -> Option<u64> {
    let numbers = [problem.from(), problem.to()].into_iter().flat_map(|side| {
        side.shape().into_iter().chain([side.elems()]).chain(side.grid().sorted_ranks().pop())
    });
    numbers.into_iter().find(|&number| number > 1 << 53)
}

fn window(problem: &Problem) -> WindowData {
    WindowData {
        shape: problem.shape().to_vec(),
        from: problem.from_offset().to_vec(),
        to: problem.to_offset().to_vec(),
        axes: problem.axes().to_vec(),
    }
}

fn machine(request: &SimulationRequest) -> MachineData {
    let cost: &CostModel = &request.machine.cost;
    MachineData {
        alpha: cost.alpha(),
        beta: cost.beta(),
        pack: cost.pack(),
        barrier: cost.barrier(),
        ports: cost.ports(),
        half_duplex: cost.duplex() == Duplex::Half,
        network: request.machine.network.to_string(),
        barriers: request.barriers,
    }
}

fn carried(strategy: Strategy, schedule: &Schedule, timeline: &Timeline) -> Result<StrategyData, Failure> {
    let steps = schedule.steps().iter().map(|step| {
        step.messages.iter().map(|message| [message.from, message.to, message.elems]).collect::<Vec<_>>()
    });
    let sent = timeline.messages().iter().map(|sent| (sent.from, sent.to, sent.elems, sent.start, sent.end));
    Ok(StrategyData {
        name: strategy.name(),
        refused: None,
        left_out: false,
        steps: steps.collect(),
        total_cost: schedule.total_cost().to_string(),
        makespan: timeline.makespan(),
        timeline: memory::listed(sent, "the timeline of a page")?,
    })
}

fn refused(strategy: Strategy, why: String) -> StrategyData {
    StrategyData {
        name: strategy.name(),
        refused: Some(why),
        left_out: false,
        steps: Vec::new(),
        total_cost: String::new(),
        makespan: 0.0,
        timeline: Vec::new(),
    }
}

fn side(of: &Distribution, corner: &[u64]) -> Result<SideData, Failure> {
    let grid = of.grid();
    let mut ranks = Vec::new();
    let mut coords = vec![0; grid.dims()];
    for _ in 0..grid.size() {
        ranks.push(grid.rank(&coords).unwrap_or_default());
        // The next coordinates, the last running fastest.
        for dim in (0..coords.len()).rev() {
            coords[dim] += 1;
            if coords[dim] < grid.extents()[dim] {
                break;
            }
            coords[dim] = 0;
        }
    }
    let axes = of
        .axes()
        .iter()
        .map(|axis| {
            if axis.is_replicated() {
                return AxisData { replicated: true, blocks: vec![[0, axis.len(), 0, 0]] };
            }
            let mut held = vec![0; axis.procs() as usize];
            let mut blocks = Vec::new();
            let mut start = 0;
            while let Some((owner, end)) = axis.block_at(start).filter(|_| blocks.len() < MAX_BLOCKS) {
                blocks.push([start, end, owner, held[owner as usize]]);
                held[owner as usize] += end - start;
                start = end;
            }
            AxisData { replicated: false, blocks }
        })
        .collect();
    Ok(SideData {
        layout: of.pattern().to_string(),
        shape: of.shape(),
        grid: grid.extents().to_vec(),
        ranks,
        axes,
        corner: corner.to_vec(),
        caption: reshard_draw::caption(of, corner),
    })
}
