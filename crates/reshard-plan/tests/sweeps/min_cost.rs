//! `min-cost` against an exact solver: a mixed integer programme of the block model, on random small redistributions.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, microlp, variable};
use reshard_plan::schedule::{Options, Schedule, Strategy};
use reshard_plan::{Message, Pattern, Problem, Traffic, one_period};
use reshard_testkit::{Random, full_sweep};

/// The least `alpha * steps + beta * cost`: `n[w]` steps of cost `w`, every message in a block at least as costly as it
/// is long, nobody with more messages in a block than it has steps. With `whole` messages this is exact; without, a bound.
fn exact(messages: &[Message], alpha: u64, beta: u64, most_steps: Option<u64>, whole: bool) -> f64 {
    let mut lengths: Vec<u64> = messages.iter().map(|message| message.elems).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut variables = ProblemVariables::new();
    let steps: Vec<_> = lengths.iter().map(|_| variables.add(variable().integer().min(0))).collect();
    let in_block: Vec<Vec<_>> = messages
        .iter()
        .map(|message| {
            let fits = lengths.iter().filter(|&&length| length >= message.elems);
            let unknown = || if whole { variable().binary() } else { variable().min(0).max(1) };
            fits.map(|_| variables.add(unknown())).collect()
        })
        .collect();
    let price: Expression =
        steps.iter().zip(&lengths).map(|(&steps, &length)| (alpha + beta * length) as f64 * steps).sum();
    let mut model = variables.minimise(price.clone()).using(microlp);
    for blocks in &in_block {
        let sum: Expression = blocks.iter().sum();
        model = model.with(constraint!(sum == 1));
    }
    let level = |message: usize, block: usize| {
        let first = lengths.len() - in_block[message].len();
        block.checked_sub(first).map(|at| in_block[message][at])
    };
    for (block, &steps) in steps.iter().enumerate() {
        for rank in 0..32 {
            for end in [|message: &Message| message.from, |message: &Message| message.to] {
                let at = (0..messages.len())
                    .filter(|&m| end(&messages[m]) == rank)
                    .filter_map(|m| level(m, block));
                let sum: Expression = at.sum();
                model = model.with(constraint!(sum <= steps));
            }
        }
    }
    if let Some(most) = most_steps {
        let sum: Expression = steps.iter().sum();
        model = model.with(constraint!(sum <= most as f64));
    }
    model.solve().unwrap().eval(price)
}

#[test]
fn min_cost_is_never_below_its_bound_and_nearly_always_the_optimum() {
    let mut random = Random::new(41);
    let cases = if full_sweep() { 1_000 } else { 60 };
    let (mut optimal, mut proven) = (0, 0);
    for _ in 0..cases {
        let irregular = random.one_in(4);
        let (from, to): (Pattern, Pattern) = if irregular {
            // Contiguous parts of any size: few messages, of many lengths.
            let mut side = || {
                let parts: Vec<String> =
                    (0..random.within(2, 5)).map(|_| random.within(0, 9).to_string()).collect();
                (
                    parts.join(","),
                    parts.len(),
                    parts.iter().map(|part| part.parse::<u64>().unwrap()).sum::<u64>(),
                )
            };
            let (one, other) = (side(), side());
            // The shorter side gets a last part that fills it up.
            let text = |(parts, count, len): &(String, usize, u64), fill: u64| {
                format!("(gen_block({parts},{})) on {}", fill - len, count + 1).parse().unwrap()
            };
            let fill = one.2.max(other.2);
            (text(&one, fill), text(&other, fill))
        } else {
            let mut side = || format!("{}/{}", random.within(2, 6), random.within(1, 7)).parse().unwrap();
            (side(), side())
        };
        let shape = one_period(&from, &to).unwrap();
        let problem = Problem::new(from.over(&shape).unwrap(), to.over(&shape).unwrap()).unwrap();
        let messages: Vec<Message> = Traffic::new(&problem).table().unwrap().messages().collect();
        let (alpha, beta) = (random.within(0, 3), random.within(1, 3));
        let mut options =
            Options::default().with_strategy(Strategy::MinCost).with_alpha(alpha).with_beta(beta);
        if random.one_in(3) {
            options.most_steps =
                Some(Schedule::new(&problem, Strategy::Optimal).unwrap().num_steps() + random.within(0, 1));
        }
        let schedule = Schedule::with(&problem, &options).unwrap();
        schedule.check(&problem).unwrap();
        let price = schedule.price() as f64;
        let relaxed = exact(&messages, alpha, beta, options.most_steps, false).ceil_nearly();
        // Where the relaxed programme is reached nothing can be better; elsewhere messages must be whole.
        let least = if price <= relaxed {
            relaxed
        } else {
            exact(&messages, alpha, beta, options.most_steps, true).ceil_nearly()
        };
        assert!(price >= least, "{from} to {to}: {price} is less than the optimum {least}");
        assert!(
            schedule.bound_price() as f64 <= least,
            "{from} to {to}: the bound {} is wrong",
            schedule.bound_price()
        );
        assert!(options.most_steps.is_none_or(|most| schedule.num_steps() <= most));
        optimal += u64::from(price == least);
        proven += u64::from(schedule.price() == schedule.bound_price());
        if price > least {
            println!("{from} to {to} {options:?}: {price}, optimum {least}");
        }
    }
    println!("{optimal} of {cases} optimal, {proven} proven so");
    assert!(optimal * 100 >= cases * 95, "{optimal} of {cases}");
}

/// Rounds up what a floating-point solver means.
trait CeilNearly {
    fn ceil_nearly(self) -> f64;
}

impl CeilNearly for f64 {
    fn ceil_nearly(self) -> f64 {
        (self - 1e-6).ceil()
    }
}
