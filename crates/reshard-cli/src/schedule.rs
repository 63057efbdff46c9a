//! `reshard schedule`: the step of each message, as the papers print it: a, b, c, ... are the steps.

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::message_table::{self, Listed};
use crate::problem::{Echo, MoveRequest};
use crate::screen::{Screen, counted};
use reshard_draw::step_name;
use reshard_plan::memory;
use reshard_plan::notation::print_shape;
use reshard_plan::schedule::{Judgement, Options, Schedule, Strategy, of_rank};
use reshard_plan::{Deal, Message, Pattern, Problem, Traffic};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// The default of `--in-flight`: messages in flight from each sender of the strategy eager.
pub const IN_FLIGHT: u64 = 8;

/// The most messages of a schedule that is compared with the linear programme; with more, that would take longer than the
/// schedule itself.
const MAX_JUDGED_MESSAGES: u128 = 1_000;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Scheduled {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    input: Option<Echo>,
    strategy: &'static str,
    num_steps: u64,
    total_cost: u128,
    bound_steps: u64,
    bound_cost: u128,
    optimal_steps: Option<bool>,
    optimal_cost: Option<bool>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    priced: Option<Priced>,
    /// For Walker and Otto's method over blocks of `lcm(r, s)`: the layout between its two redistributions.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<ListedStep>>,
}

/// The keys that min-cost adds: alpha * steps + beta * cost, and its lower bound.
#[derive(Serialize)]
struct Priced {
    price: f64,
    bound_price: f64,
    /// The most by which the price is above the least price, in per cent.
    gap_percent: f64,
}

#[derive(Serialize)]
struct ListedStep {
    cost: u64,
    messages: Vec<Listed>,
}

/// The result of `--rank`.
#[derive(Serialize)]
struct RankSchedule {
    #[serde(flatten)]
    input: Echo,
    rank: u64,
    messages: Vec<AtStep>,
}

#[derive(Serialize)]
struct AtStep {
    step: u64,
    #[serde(flatten)]
    message: Listed,
}

#[derive(Serialize)]
struct Compared {
    #[serde(flatten)]
    input: Echo,
    rows: Vec<Compare>,
}

/// A strategy's schedule, or the reason why it has none here.
#[derive(Serialize)]
#[serde(untagged)]
enum Compare {
    Scheduled(Scheduled),
    Refused { strategy: &'static str, error: String },
}

pub fn run(args: &args::Schedule) -> Result<(), Failure> {
    let request = MoveRequest::read(&args.moved)?;
    let strategy: Strategy = args.strategy.parse().map_err(Failure::of_flag("--strategy"))?;
    let scale = scale(args.alpha.as_deref().unwrap_or("1"), args.beta.as_deref().unwrap_or("1"))?;
    let options = Options::default()
        .with_strategy(strategy)
        .with_shared_ranks(args.shared_ranks)
        .with_in_flight(args.in_flight.unwrap_or(IN_FLIGHT))
        .with_alpha(scale.alpha)
        .with_beta(scale.beta)
        .with_most_steps(args.steps);
    if !args.compare {
        let of_min_cost = [
            ("--steps", args.steps.is_some()),
            ("--alpha", args.alpha.is_some()),
            ("--beta", args.beta.is_some()),
        ];
        check_flags(strategy, &of_min_cost, args.in_flight.is_some())?;
    }
    let mut screen = Screen::new();
    if let Some(rank) = args.rank {
        one_rank(&mut screen, args, &request, rank)?;
    } else if args.compare {
        compare(&mut screen, args, &request, &options, &scale)?;
    } else {
        let judge = judgement(&request.problem, args.shared_ranks);
        let schedule = make(&request.problem, &options, judge.as_ref())?;
        if args.json {
            let answer = Scheduled { input: Some(request.echo()), ..scheduled(&schedule, &scale, true)? };
            json::write(&mut screen, &answer)?;
        } else {
            show(&mut screen, &request, &schedule, &scale)?;
        }
    }
    Ok(screen.out.flush()?)
}

/// Fails if flags of strategies that were not chosen are given.
pub fn check_flags(strategy: Strategy, of_min_cost: &[(&str, bool)], in_flight: bool) -> Result<(), Failure> {
    let given = of_min_cost.iter().find(|(_, given)| *given);
    match given {
        Some((flag, _)) if strategy != Strategy::MinCost => {
            Err(Failure::usage(&format!("{flag} is for min-cost only; add --strategy min-cost")))
        }
        _ if in_flight && strategy != Strategy::Eager => {
            Err(Failure::usage("--in-flight is for eager only; add --strategy eager"))
        }
        _ => Ok(()),
    }
}

/// Shows the schedule of one rank: by the closed form if there is one, else from the schedule of all ranks.
fn one_rank(
    screen: &mut Screen,
    args: &args::Schedule,
    request: &MoveRequest,
    rank: u64,
) -> Result<(), Failure> {
    let problem = &request.problem;
    if !problem.from().grid().contains(rank) && !problem.to().grid().contains(rank) {
        return Err(Failure::usage(&format!(
            "--rank: rank {rank} is part of neither the source nor the destination"
        )));
    }
    let messages = match of_rank(problem, rank)? {
        Some(messages) => messages,
        None => {
            let schedule = Schedule::new(problem, Strategy::Optimal).map_err(|error| {
                let why = error.to_string();
                let why = why.trim_end_matches("; ask for one rank at a time");
                let formula = "these layouts have no formula for one rank alone (whole periods of block-cyclic layouts have)";
                Failure::of(&error, format!("{formula}; all ranks together: {why}"))
            })?;
            let numbered = (0..)
                .zip(schedule.steps())
                .flat_map(|(number, step)| step.messages.iter().map(move |message| (number, *message)));
            numbered.filter(|(_, message)| message.from == rank || message.to == rank).collect()
        }
    };
    if args.json {
        let messages =
            messages.iter().map(|(step, message)| AtStep { step: *step, message: message.into() }).collect();
        json::write(screen, &RankSchedule { input: request.echo(), rank, messages })?;
        return Ok(());
    }
    for (step, message) in &messages {
        let Message { from, to, elems } = message;
        let elems = counted(*elems, "element");
        match (*from == rank, *to == rank) {
            (true, true) => writeln!(screen.out, "step {step}: {elems} to itself")?,
            (true, false) => writeln!(screen.out, "step {step}: {elems} to {to}")?,
            _ => writeln!(screen.out, "step {step}: {elems} from {from}")?,
        }
    }
    writeln!(screen.out, "{} of rank {rank}", counted(messages.len() as u128, "message"))?;
    Ok(())
}

/// Bounds of the cost of any schedule of a problem, where finding them does not take longer than the schedule.
fn judgement(problem: &Problem, shared_ranks: bool) -> Option<Judgement> {
    let messages = Traffic::new(problem).table().ok()?.message_count();
    if messages <= MAX_JUDGED_MESSAGES { Judgement::new(problem, shared_ranks).ok() } else { None }
}

fn make(problem: &Problem, options: &Options, judge: Option<&Judgement>) -> Result<Schedule, Failure> {
    let schedule = Schedule::with(problem, options).map_err(Failure::hint("one rank at a time", "--rank"))?;
    Ok(match judge {
        Some(judge) => schedule.judged(judge),
        None => schedule,
    })
}

fn scheduled(schedule: &Schedule, scale: &Scale, with_steps: bool) -> Result<Scheduled, Failure> {
    if with_steps {
        let messages: usize = schedule.steps().iter().map(|step| step.messages.len()).sum();
        let bytes = messages * size_of::<Listed>() + schedule.steps().len() * size_of::<ListedStep>();
        memory::check(bytes as u128, "the steps as they are printed")?;
    }
    let priced = (schedule.options().strategy == Strategy::MinCost).then(|| Priced {
        price: schedule.price() as f64 / scale.unit,
        bound_price: schedule.bound_price() as f64 / scale.unit,
        gap_percent: gap(schedule),
    });
    let listed = |step: &reshard_plan::schedule::Step| ListedStep {
        cost: step.cost,
        messages: step.messages.iter().map(Listed::from).collect(),
    };
    Ok(Scheduled {
        input: None,
        strategy: schedule.options().strategy.name(),
        num_steps: schedule.num_steps(),
        total_cost: schedule.total_cost(),
        bound_steps: schedule.bound_steps(),
        bound_cost: schedule.bound_cost(),
        optimal_steps: schedule.optimal_steps(),
        optimal_cost: schedule.optimal_cost(),
        priced,
        via: None,
        steps: with_steps.then(|| schedule.steps().iter().map(listed).collect()),
    })
}

fn gap(schedule: &Schedule) -> f64 {
    let (price, bound) = (schedule.price() as f64, schedule.bound_price() as f64);
    if bound > 0.0 { 100.0 * (price - bound) / bound } else { 0.0 }
}

fn compare(
    screen: &mut Screen,
    args: &args::Schedule,
    request: &MoveRequest,
    options: &Options,
    scale: &Scale,
) -> Result<(), Failure> {
    let judge = judgement(&request.problem, args.shared_ranks);
    let row = |strategy: Strategy| {
        let options = options.with_strategy(strategy);
        let direct = make(&request.problem, &options, judge.as_ref());
        match direct.and_then(|schedule| scheduled(&schedule, scale, false)) {
            Ok(row) => Ok(Compare::Scheduled(row)),
            Err(Failure::Usage(why)) => {
                let refused =
                    Compare::Refused { strategy: strategy.name(), error: why.message().to_string() };
                let general = match strategy {
                    Strategy::WalkerOtto => over_common_blocks(request, &options),
                    _ => None,
                };
                Ok(general.map_or(refused, Compare::Scheduled))
            }
            Err(failure) => Err(failure),
        }
    };
    let rows = Strategy::ALL.into_iter().map(row).collect::<Result<Vec<_>, Failure>>()?;
    if args.json {
        return Ok(json::write(screen, &Compared { input: request.echo(), rows })?);
    }
    let shape = print_shape(request.problem.shape());
    writeln!(screen.out, "From {} to {}, array {shape}", request.from, request.to)?;
    writeln!(
        screen.out,
        "{:<12} {:>8} {:>10} {:>12} {:>10}",
        "strategy", "steps", "(fewest)", "cost", "(least)"
    )?;
    for row in rows {
        match row {
            Compare::Scheduled(row) => writeln!(
                screen.out,
                "{:<12} {:>8} {:>10} {:>12} {:>10}  {}",
                row.strategy,
                row.num_steps,
                row.bound_steps,
                row.total_cost,
                row.bound_cost,
                verdict(&row)
            )?,
            Compare::Refused { strategy, error } => {
                writeln!(screen.out, "{strategy:<12} not applicable: {error}")?;
            }
        }
    }
    Ok(())
}

/// Walker and Otto's general method: from blocks of r to blocks of lcm(r, s), and from these to blocks of s. `None` if it does
/// not apply, either.
fn over_common_blocks(request: &MoveRequest, options: &Options) -> Option<Scheduled> {
    let MoveRequest { from, to, problem } = request;
    let ([Deal::Cyclic(r)], [Deal::Cyclic(s)]) = (from.deals(), to.deals()) else { return None };
    if !request.is_plain() {
        return None;
    }
    let (mut divisor, mut rest) = (*r, *s);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let common = (r / divisor).checked_mul(*s)?;
    let between = Pattern::new(to.grid().clone(), vec![Deal::Cyclic(common)], vec![0]).ok()?;
    let middle = between.over(problem.shape()).ok()?;
    let halves = [(problem.from().clone(), middle.clone()), (middle, problem.to().clone())];
    let [first, second] =
        halves.map(|(from, to)| Schedule::with(&Problem::new(from, to).ok()?, options).ok());
    let (first, second) = (first?, second?);
    let direct = Schedule::with(problem, &options.with_strategy(Strategy::Optimal)).ok()?;
    let (num_steps, total_cost) =
        (first.num_steps() + second.num_steps(), first.total_cost() + second.total_cost());
    Some(Scheduled {
        input: None,
        strategy: Strategy::WalkerOtto.name(),
        num_steps,
        total_cost,
        bound_steps: direct.bound_steps(),
        bound_cost: direct.bound_cost(),
        optimal_steps: (num_steps == direct.bound_steps()).then_some(true),
        optimal_cost: (total_cost == direct.bound_cost()).then_some(true),
        priced: None,
        via: Some(between.to_string()),
        steps: None,
    })
}

fn verdict(row: &Scheduled) -> String {
    if let Some(between) = &row.via {
        return format!("in two redistributions, by way of {between}");
    }
    let words = match (row.optimal_steps, row.optimal_cost) {
        (Some(true), Some(true)) => "fewest steps, least cost",
        (Some(true), _) => "fewest steps",
        (_, Some(true)) => "least cost",
        _ => "",
    };
    words.to_string()
}

fn show(
    screen: &mut Screen,
    request: &MoveRequest,
    schedule: &Schedule,
    scale: &Scale,
) -> Result<(), Failure> {
    let (from, to) = (&request.from, &request.to);
    let shape = print_shape(request.problem.shape());
    let strategy = schedule.options().strategy;
    writeln!(screen.out, "Communication steps from {from} to {to}, array {shape}, strategy {strategy}")?;
    if message_table::fits(&request.problem) {
        draw_steps(screen, &request.problem, schedule)?;
    }
    draw_costs(screen, schedule)?;
    let steps = counted(schedule.num_steps(), "step");
    let verdict = |optimal: Option<bool>, bound: u128| match optimal {
        Some(true) => "optimal".to_string(),
        Some(false) => format!("not optimal, at least {bound}"),
        None => format!("at least {bound}"),
    };
    let (of_steps, of_cost) = (
        verdict(schedule.optimal_steps(), schedule.bound_steps().into()),
        verdict(schedule.optimal_cost(), schedule.bound_cost()),
    );
    writeln!(screen.out, "{steps} ({of_steps}), total cost {} ({of_cost})", schedule.total_cost())?;
    if strategy == Strategy::MinCost {
        let (price, gap) = (schedule.price() as f64 / scale.unit, gap(schedule));
        let proof = if gap == 0.0 { "optimal".to_string() } else { format!("within {gap:.2} % of optimal") };
        writeln!(screen.out, "alpha * steps + beta * cost = {price} ({proof}, proven)")?;
    }
    Ok(())
}

/// Draws the table of the papers: for each message, the name of its step.
fn draw_steps(screen: &mut Screen, problem: &Problem, schedule: &Schedule) -> Result<(), Failure> {
    let mut letters_of: BTreeMap<(u64, u64), String> = BTreeMap::new();
    for (number, step) in schedule.steps().iter().enumerate() {
        for message in &step.messages {
            // A message that was cut has a name for each part.
            let cell = letters_of.entry((message.from, message.to)).or_default();
            if !cell.is_empty() {
                cell.push('+');
            }
            cell.push_str(&step_name(number));
        }
    }
    message_table::draw(
        screen,
        problem,
        |sender, receiver| letters_of.get(&(sender, receiver)).cloned(),
        false,
    )
}

/// Writes the cost of each step, twenty in a line.
fn draw_costs(screen: &mut Screen, schedule: &Schedule) -> Result<(), Failure> {
    const PER_LINE: usize = 20;
    const MAX_LINES: usize = 10;
    let steps = schedule.steps();
    let width = steps
        .iter()
        .map(|step| step.cost)
        .max()
        .unwrap_or(0)
        .to_string()
        .len()
        .max(step_name(steps.len()).len());
    for (line, chunk) in steps.chunks(PER_LINE).take(MAX_LINES).enumerate() {
        let names: Vec<_> =
            (0..chunk.len()).map(|at| format!("{:>width$}", step_name(line * PER_LINE + at))).collect();
        let costs: Vec<_> = chunk.iter().map(|step| format!("{:>width$}", step.cost)).collect();
        writeln!(screen.out, "Step  {}\nCost  {}", names.join(" "), costs.join(" "))?;
    }
    if steps.len() > PER_LINE * MAX_LINES {
        writeln!(screen.out, "... and {} more steps", steps.len() - PER_LINE * MAX_LINES)?;
    }
    Ok(())
}

/// Converts two numbers to whole numbers of one unit.
struct Scale {
    alpha: u64,
    beta: u64,
    unit: f64,
}

fn scale(alpha: &str, beta: &str) -> Result<Scale, Failure> {
    let number = |flag: &str, text: &str| {
        text.parse::<f64>().ok().filter(|number| (0.0..=1e9).contains(number)).ok_or_else(|| {
            Failure::usage(&format!(
                "{flag}: {text:?} was given; expected a number from 0 to 1e9, such as 10, 0.25 or 2e-6"
            ))
        })
    };
    let (alpha, beta) = (number("--alpha", alpha)?, number("--beta", beta)?);
    // The smallest power of ten that makes both whole, if there is one; else as fine as whole numbers allow.
    let whole = |number: f64| (number - number.round()).abs() <= 1e-9 * number && number < 1e15;
    let powers = (0..24).map(|power| 10_f64.powi(power));
    let finest = 1e15 / alpha.max(beta).max(f64::MIN_POSITIVE);
    let unit = powers.clone().find(|unit| whole(alpha * unit) && whole(beta * unit));
    let unit = unit.or_else(|| powers.rev().find(|&unit| unit <= finest)).unwrap_or(1.0);
    Ok(Scale { alpha: (alpha * unit).round() as u64, beta: (beta * unit).round() as u64, unit })
}
