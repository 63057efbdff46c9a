//! `reshard simulate`: a redistribution in virtual time, with a chart of the messages of each sender.
//!
//! Most runs list their messages. Those too large for a list are streamed where the planner can: one dimension, whole
//! periods, the optimal schedule, a flat switch.

mod compare;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::problem::{Echo, MoveRequest};
use crate::schedule::{IN_FLIGHT, check_flags};
use crate::screen::{Screen, counted, index};
use reshard_draw::time;
use reshard_plan::Problem;
use reshard_plan::cost::{CostModel, Duplex, predict};
use reshard_plan::memory;
use reshard_plan::schedule::{Options, Schedule, Strategy};
use reshard_plan::simulate::{Busy, Machine, Network, Sent, Stream, Timeline, simulate};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;

/// The most messages of a timeline in the result; with more, the run is streamed where that is possible.
const MAX_LISTED_MESSAGES: usize = 100_000;

/// The most ranks of the chart on the screen.
const CHART_RANKS: usize = 8;
/// The columns of the chart on the screen.
const CHART_COLUMNS: usize = 64;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Simulated {
    #[serde(flatten)]
    input: Echo,
    strategy: &'static str,
    network: String,
    barriers: bool,
    ranks: u64,
    messages: u64,
    steps: u64,
    makespan: f64,
    bound: f64,
    predicted: f64,
    busy: OfPorts,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Vec<ListedSend>>,
}

#[derive(Serialize)]
struct OfPorts {
    sending: f64,
    receiving: f64,
}

/// For streamed runs: the memory that the run needed, and that of the whole program (where the system reports it).
#[derive(Serialize)]
struct Memory {
    calculated_bytes: u64,
    peak_bytes: Option<u64>,
}

#[derive(Serialize)]
struct ListedSend {
    from: u64,
    to: u64,
    elems: u64,
    start: f64,
    end: f64,
}

/// The request: the move, the schedule's options, and the machine.
pub struct SimulationRequest {
    pub move_request: MoveRequest,
    pub options: Options,
    pub machine: Machine,
    pub barriers: bool,
    /// The layouts and flags of the move, as they are typed.
    pub command: Vec<String>,
    /// For min-cost and for eager, if they were given.
    pub most_steps: Option<u64>,
    pub in_flight: Option<u64>,
}

impl SimulationRequest {
    /// Reads what was typed; with `compare`, flags of any strategy may be given.
    pub fn read(args: &args::Timed, compare: bool) -> Result<Self, Failure> {
        let move_request = MoveRequest::read(&args.moved)?;
        let strategy: Strategy = args.strategy.parse().map_err(Failure::of_flag("--strategy"))?;
        let network: Network = args.network.parse().map_err(Failure::of_flag("--network"))?;
        let default = CostModel::default();
        let alpha = args.alpha.unwrap_or(default.alpha());
        CostModel::new(alpha, 0.0).map_err(Failure::of_flag("--alpha"))?;
        let cost = CostModel::new(alpha, args.beta.unwrap_or(default.beta()))
            .map_err(Failure::of_flag("--beta"))?
            .with_pack(args.pack)
            .map_err(Failure::of_flag("--pack"))?
            .with_barrier(args.barrier_cost.unwrap_or(0.0))
            .map_err(Failure::of_flag("--barrier-cost"))?
            .with_ports(args.ports)
            .map_err(Failure::of_flag("--ports"))?
            .with_duplex(if args.half_duplex { Duplex::Half } else { Duplex::Full });
        if !compare {
            check_flags(strategy, &[("--steps", args.steps.is_some())], args.in_flight.is_some())?;
        }
        if args.barrier_cost.is_some() && !args.barriers {
            return Err(Failure::usage("--barrier-cost is the cost of --barriers; add that"));
        }
        let in_flight = args.in_flight.unwrap_or(IN_FLIGHT);
        let (shared_ranks, most_steps) = (args.shared_ranks, args.steps);
        let options = cost
            .weigh(Options::default())
            .with_strategy(strategy)
            .with_shared_ranks(shared_ranks)
            .with_in_flight(in_flight)
            .with_most_steps(most_steps);
        Ok(Self {
            move_request,
            options,
            machine: Machine { cost, network },
            barriers: args.barriers,
            command: args.command(),
            most_steps: args.steps,
            in_flight: args.in_flight,
        })
    }

    /// The schedule and its run, message by message.
    pub fn run(&self) -> Result<(Schedule, Timeline), Failure> {
        self.run_by(self.options.strategy)
    }

    /// The schedule by a strategy, which need not be that of the request, and its run.
    pub fn run_by(&self, strategy: Strategy) -> Result<(Schedule, Timeline), Failure> {
        let options = self.options.with_strategy(strategy);
        let schedule = Schedule::with(&self.move_request.problem, &options).map_err(|error| {
            let message = error.to_string();
            let message = message.replace(
                "ask for one rank at a time",
                "larger runs are simulated by the strategy optimal, in one block-cyclic dimension over whole periods",
            );
            Failure::of(&error, message)
        })?;
        let timeline = simulate(&schedule, &self.machine, self.barriers)?;
        Ok((schedule, timeline))
    }

    /// The stream, if the run can be streamed and is too large for a list.
    fn stream(&self) -> Result<Option<Stream>, Failure> {
        let streamed = self.options.strategy == Strategy::Optimal
            && !self.options.shared_ranks
            && self.machine.network == Network::Flat;
        let stream = if streamed { Stream::new(&self.move_request.problem)? } else { None };
        Ok(stream.filter(|stream| stream.messages() > MAX_LISTED_MESSAGES as u128))
    }

    /// The title of a result.
    pub fn title(&self) -> String {
        let MoveRequest { from, to, problem } = &self.move_request;
        format!(
            "{from} to {to}, {}: {} on {} {} barriers",
            counted(problem.elems(), "element"),
            self.options.strategy,
            self.machine.network,
            if self.barriers { "with" } else { "without" }
        )
    }

    /// The title of a picture.
    pub fn layouts(&self) -> String {
        format!("{} to {}", self.move_request.from, self.move_request.to)
    }

    /// What a picture says besides its title: the machine, in numbers.
    pub fn about(&self) -> String {
        format!("{}, by the strategy {}", self.machine_in_words(), self.options.strategy)
    }

    fn machine_in_words(&self) -> String {
        let cost = &self.machine.cost;
        let mut words = format!(
            "{} over the network {}: {} to start a message (alpha), {} for each element (beta), {} barriers",
            self.moved_in_words(),
            self.machine.network,
            time(cost.alpha()),
            time(cost.beta()),
            if self.barriers { "with" } else { "without" }
        );
        if self.barriers && cost.barrier() > 0.0 {
            words += &format!(" of {}", time(cost.barrier()));
        }
        if cost.pack() > 0.0 {
            words += &format!(", {} to pack an element", time(cost.pack()));
        }
        if cost.ports() > 1 {
            words += &format!(", {} messages at a time", cost.ports());
        }
        if cost.duplex() == Duplex::Half {
            words += ", half duplex";
        }
        words
    }

    /// What moves, and how, as a sentence begins: `20 x 30 elements move, transposed`.
    pub fn moved_in_words(&self) -> String {
        let problem = &self.move_request.problem;
        let window = problem.shape();
        let shape = window.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let one = window.iter().all(|&len| len == 1);
        let mut words = format!("{shape} {}", if one { "element moves" } else { "elements move" });
        let axes = problem.axes();
        if !axes.is_sorted() {
            words += &match axes {
                [1, 0] => ", transposed".to_string(),
                axes => format!(
                    ", axes permuted as {}",
                    index(&axes.iter().map(|&axis| axis as u64).collect::<Vec<_>>())
                ),
            };
        }
        if window != problem.from().shape() || problem.to_offset().iter().any(|&at| at > 0) {
            words += &format!(
                ", a window from {} to {}",
                index(problem.from_offset()),
                index(problem.to_offset())
            );
        }
        words
    }
}

pub fn run(args: &args::Simulate) -> Result<(), Failure> {
    let request = SimulationRequest::read(&args.timed, args.compare)?;
    if args.compare {
        return compare::run(args, &request);
    }
    let problem = &request.move_request.problem;
    let mut screen = Screen::new();
    let (simulated, timeline) = match request.stream()? {
        Some(stream) => (streamed(&request, &stream)?, None),
        None => {
            let (schedule, timeline) = request.run()?;
            let messages = schedule.steps().iter().flat_map(|step| &step.messages);
            let simulated = Simulated {
                messages: timeline.messages().len() as u64,
                steps: schedule.num_steps(),
                makespan: timeline.makespan(),
                bound: request.machine.cost.bound(messages),
                predicted: predict(&schedule, &request.machine.cost).seconds,
                busy: of_ports(timeline.busy()),
                timeline: (timeline.messages().len() <= MAX_LISTED_MESSAGES)
                    .then(|| {
                        memory::listed(
                            timeline.messages().iter().map(listed),
                            "the timeline as it is printed",
                        )
                    })
                    .transpose()?,
                ..empty(&request, problem)
            };
            (simulated, Some(timeline))
        }
    };
    if args.json {
        json::write(&mut screen, &simulated)?;
    } else {
        show(&mut screen, &request, &simulated)?;
        if let Some(timeline) = timeline {
            chart(&mut screen, &timeline)?;
        }
    }
    Ok(screen.out.flush()?)
}

fn empty(request: &SimulationRequest, problem: &Problem) -> Simulated {
    Simulated {
        input: request.move_request.echo(),
        strategy: request.options.strategy.name(),
        network: request.machine.network.to_string(),
        barriers: request.barriers,
        ranks: ranks(problem),
        messages: 0,
        steps: 0,
        makespan: 0.0,
        bound: 0.0,
        predicted: 0.0,
        busy: of_ports(Busy::default()),
        memory: None,
        timeline: None,
    }
}

fn streamed(request: &SimulationRequest, stream: &Stream) -> Result<Simulated, Failure> {
    let run = stream.run(&request.machine.cost, request.barriers)?;
    Ok(Simulated {
        // The run has refused more messages than 64 bits hold.
        messages: stream.messages() as u64,
        steps: stream.steps(),
        makespan: run.makespan,
        bound: run.bound,
        predicted: run.predicted,
        busy: of_ports(run.busy),
        memory: Some(Memory { calculated_bytes: run.bytes, peak_bytes: peak_bytes() }),
        ..empty(request, &request.move_request.problem)
    })
}

fn of_ports(Busy { sending, receiving }: Busy) -> OfPorts {
    OfPorts { sending, receiving }
}

fn listed(&Sent { from, to, elems, start, end }: &Sent) -> ListedSend {
    ListedSend { from, to, elems, start, end }
}

/// Ranks that are part of either side.
fn ranks(problem: &Problem) -> u64 {
    let (from, to) = (problem.from().grid(), problem.to().grid());
    match (from.rank_range(), to.rank_range()) {
        (Some(a), Some(b)) => {
            let both = a.end.min(b.end).saturating_sub(a.start.max(b.start));
            (a.end - a.start) + (b.end - b.start) - both
        }
        // Listed ranks come from the command line, so they are few.
        _ => from.ranks().chain(to.ranks()).collect::<BTreeSet<_>>().len() as u64,
    }
}

/// The peak resident memory of this program in bytes, as Linux reports it; `None` elsewhere.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn show(screen: &mut Screen, request: &SimulationRequest, simulated: &Simulated) -> Result<(), Failure> {
    let Simulated { ranks, messages, steps, makespan, bound, predicted, busy, memory, .. } = simulated;
    let percent = |fraction: f64| format!("{:.1} %", 100.0 * fraction);
    let rule = match request.options.strategy {
        Strategy::Async => "each message when both ends are free",
        Strategy::Eager => "all at once",
        _ => "step after step",
    };
    writeln!(screen.out, "{}", request.title())?;
    let (ranks, messages, steps) =
        (counted(*ranks, "rank"), counted(*messages, "message"), counted(*steps, "step"));
    writeln!(screen.out, "{ranks}, {messages} in {steps}")?;
    writeln!(screen.out, "makespan   {}", time(*makespan))?;
    writeln!(screen.out, "bound      {}, the busiest port", time(*bound))?;
    writeln!(screen.out, "predicted  {}, {rule}", time(*predicted))?;
    let (sending, receiving) = (percent(busy.sending), percent(busy.receiving));
    writeln!(screen.out, "busy       {sending} sending, {receiving} receiving")?;
    if let Some(Memory { calculated_bytes, peak_bytes }) = memory {
        let mega = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        let peak = peak_bytes.map_or(String::new(), |bytes| format!(", {} at the peak", mega(bytes)));
        writeln!(screen.out, "memory     {} by calculation{peak}", mega(*calculated_bytes))?;
    }
    Ok(())
}

/// Draws a line for each of the first senders, with a character for each interval of time: the receiver of the message in flight.
fn chart(screen: &mut Screen, timeline: &Timeline) -> Result<(), Failure> {
    let senders: BTreeSet<u64> = timeline.messages().iter().map(|sent| sent.from).collect();
    if senders.is_empty() || timeline.makespan() <= 0.0 {
        return Ok(());
    }
    let width = senders.iter().next_back().map_or(1, |rank| rank.to_string().len());
    let columns = screen.room(CHART_COLUMNS, 1, width + 3);
    let column = timeline.makespan() / columns as f64;
    writeln!(screen.out, "\nWho sends to whom: receivers modulo 36 as 0-9a-z, {} a column", time(column))?;
    for &sender in senders.iter().take(CHART_RANKS) {
        let mut line = vec![None; columns];
        for sent in timeline.messages().iter().filter(|sent| sent.from == sender) {
            // The columns whose middle the message covers.
            let place = |time: f64| ((time / column + 0.5) as usize).min(columns);
            line[place(sent.start)..place(sent.end)].fill(Some(sent.to));
        }
        let cells: Vec<String> = line
            .into_iter()
            .map(|to| match to {
                Some(to) => {
                    let digit = char::from_digit((to % 36) as u32, 36).unwrap_or('#');
                    screen.of_rank(to, &digit.to_string())
                }
                None => screen.faint("."),
            })
            .collect();
        writeln!(screen.out, "{sender:>width$} |{}|", cells.concat())?;
    }
    if senders.len() > CHART_RANKS {
        let more = counted((senders.len() - CHART_RANKS) as u128, "more sender");
        writeln!(screen.out, "... and {more}; --json has the whole timeline")?;
    }
    Ok(())
}
