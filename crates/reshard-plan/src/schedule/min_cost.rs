//! Fewest steps and least cost are two objectives; this strategy minimises `alpha * steps + beta * cost`.
//!
//! Steps come in blocks of equal cost. Peel blocks off, costliest first: to a block belong all messages longer than the
//! next shorter length, and as many more as fit, the heaviest first, such that what is left can still be sent in the
//! steps that remain. Which ones is a flow ([`flow`](super::flow)); how many steps a block needs is its greatest degree;
//! and the messages of a block are put into its steps by edge colouring. Trying a few numbers of steps, and blocks that
//! skip a length or two, and keeping the best is optimal in nearly all cases; [`certificate`](super::certificate) proves
//! how near it is.
//!
//! A block-cyclic redistribution over whole periods is solved on its quotient, whose size does not depend on the number
//! of processes but on what they have in common, and lifted.

use super::certificate::{self, MessageKind, MessageKinds};
use super::flow::{Range, heaviest_within};
use super::graph::{Edge, Graph, MESSAGES};
use super::{Options, STEPS, colouring};
use crate::classes::Classes;
use crate::error::{Error, Result};
use crate::memory;
use crate::problem::Problem;
use crate::quotient::Quotient;

/// The most messages: each block is a flow through all of them, and more takes too long.
const MAX_EDGES: usize = 8_000;

/// The most steps beyond the fewest that are tried.
const MAX_EXTRA_STEPS: u64 = 8;

/// The most blocks tried times messages squared, which is about the work of a flow: seconds.
const MAX_FLOW_WORK: usize = 50_000_000;

/// The most cells of simplex tableaux computed for all bounds together: about a second.
const MAX_TABLEAU_CELLS: u64 = 1_000_000_000;

/// The most lengths tried for the next block.
const MAX_BRANCHES: usize = 4;

/// The step of each message, and the lower bounds.
pub(super) struct MinCost {
    pub steps: Vec<u64>,
    pub bound_cost: u128,
    pub bound_price: u128,
}

pub(super) fn solve(problem: &Problem, graph: &Graph, options: &Options) -> Result<MinCost> {
    let (instance, kinds, lifted) = instance(problem, graph, options)?;
    let fewest = instance.max_degree()?;
    let most = match options.most_steps {
        Some(most) if most < fewest => {
            return Err(Error::out_of_range(format!(
                "at most {most} steps were asked for, but a process has {fewest} messages; at least {fewest} are needed"
            )));
        }
        Some(most) => most.min(fewest + MAX_EXTRA_STEPS),
        None => fewest + MAX_EXTRA_STEPS,
    };
    let mut search = BlockSearch {
        graph: &instance,
        options,
        allowed: 0,
        best: None,
        budget: (MAX_FLOW_WORK / (1 + instance.edges.len().pow(2))).clamp(4, 800),
    };
    for steps in fewest..=most {
        search.allowed = steps;
        // Every number of steps gets an equal part of the remaining budget.
        let reserve = search.budget - search.budget / (most - steps + 1) as usize;
        search.budget -= reserve;
        let all = memory::listed(0..instance.edges.len(), MESSAGES)?;
        search.peel(&mut memory::filled(u64::MAX, instance.edges.len(), STEPS)?, &all, 0, 0)?;
        search.budget += reserve;
    }
    let (_, steps) = search.best.ok_or_else(|| {
        Error::mismatch(
            "no order of the messages was found; please report these layouts as a fault of reshard",
        )
    })?;
    // The bound of the cost first, with which every schedule is compared; then the bound of the price, as far as the budget goes.
    let mut effort = MAX_TABLEAU_CELLS;
    let bound_cost = cost_bound(&kinds, options.most_steps, &mut effort)?;
    Ok(MinCost {
        steps: memory::listed(lifted.into_iter().map(|edge| steps[edge]), STEPS)?,
        bound_cost,
        bound_price: bound_price(&kinds, options, fewest, most, &mut effort)?,
    })
}

fn cost_bound(kinds: &MessageKinds, most_steps: Option<u64>, effort: &mut u64) -> Result<u128> {
    Ok(certificate::bound(kinds, 0, 1, most_steps, effort)?.unwrap_or(0))
}

/// A lower bound of the price: by the prices themselves, or by the least cost for each number of steps, whichever is larger.
fn bound_price(
    kinds: &MessageKinds,
    options: &Options,
    fewest: u64,
    most: u64,
    effort: &mut u64,
) -> Result<u128> {
    let (alpha, beta) = (u128::from(options.alpha), u128::from(options.beta));
    let direct =
        certificate::bound(kinds, options.alpha, options.beta, options.most_steps, effort)?.unwrap_or(0);
    if options.alpha == 0 {
        return Ok(direct);
    }
    let mut at = |steps: u64, most: Option<u64>| -> Result<u128> {
        let cost = beta.saturating_mul(cost_bound(kinds, most, effort)?);
        Ok((alpha * u128::from(steps)).saturating_add(cost))
    };
    let beyond = at(most + 1, None)?;
    let mut by_steps = None;
    for steps in fewest..=most {
        let price = at(steps, Some(steps))?;
        by_steps = Some(by_steps.map_or(price, |least: u128| least.min(price)));
    }
    let by_steps = by_steps.unwrap_or(beyond);
    let by_steps = if options.most_steps == Some(most) { by_steps } else { by_steps.min(beyond) };
    Ok(direct.max(by_steps))
}

/// The graph to solve, its messages by kind, and for each message of the problem the edge that stands for it.
fn instance(
    problem: &Problem,
    graph: &Graph,
    options: &Options,
) -> Result<(Graph, MessageKinds, Vec<usize>)> {
    if let Some(small) = quotient_instance(problem, graph, options)? {
        return Ok(small);
    }
    if graph.edges.len() > MAX_EDGES {
        return Err(Error::too_large(format!(
            "min-cost was asked for {} different messages, and takes at most {MAX_EDGES}; use optimal or stepwise",
            graph.edges.len()
        )));
    }
    let kind = |edge: &Edge| MessageKind { elems: edge.elems, row: edge.sender, column: edge.receiver };
    let kinds = MessageKinds {
        kinds: memory::listed(graph.edges.iter().map(kind), MESSAGES)?,
        rows: graph.senders.len(),
        columns: graph.receivers.len(),
        per_row: 1,
        per_column: 1,
    };
    let all = memory::listed(0..graph.edges.len(), MESSAGES)?;
    Ok((part_of(graph, &all)?, kinds, all))
}

fn quotient_instance(
    problem: &Problem,
    graph: &Graph,
    options: &Options,
) -> Result<Option<(Graph, MessageKinds, Vec<usize>)>> {
    if problem.from().dims() != 1 || options.shared_ranks {
        return Ok(None);
    }
    let sides = problem.sides(0);
    let (Some(classes), Some(quotient)) = (Classes::new(&sides), Quotient::new(&sides)?) else {
        return Ok(None);
    };
    let extent = u128::from(sides.extent());
    if extent == 0 || !extent.is_multiple_of(classes.period()) {
        return Ok(None);
    }
    let periods = extent / classes.period();
    let (rows, columns) = (quotient.row_copies(), quotient.column_copies());
    let size = |types: u64, copies: u64| usize::try_from(types * copies).unwrap_or(usize::MAX);
    let (row_count, column_count) =
        (size(quotient.row_types(), rows), size(quotient.column_types(), columns));
    let edge_count = u128::from(quotient.classes()) * u128::from(rows) * u128::from(columns);
    if edge_count > MAX_EDGES as u128 {
        return Ok(None);
    }
    let mut edges = Vec::with_capacity(edge_count as usize);
    let mut kinds = Vec::new();
    for class in 0..quotient.classes() {
        // Both number classes alike: from the smallest difference that has messages.
        let elems = u64::try_from(classes.volume(class.into()) * periods).unwrap_or(u64::MAX);
        let (row_type, column_type) = (class % quotient.row_types(), class % quotient.column_types());
        kinds.push(MessageKind { elems, row: row_type as usize, column: column_type as usize });
        for alpha in 0..rows {
            for beta in 0..columns {
                let sender = (row_type * rows + alpha) as usize;
                edges.push(Edge { sender, receiver: (column_type * columns + beta) as usize, elems });
            }
        }
    }
    let coordinate = |grid: &crate::grid::Grid, rank: u64| grid.coords(rank).map_or(0, |coords| coords[0]);
    let lifted = graph.edges.iter().map(|edge| {
        let sender = coordinate(problem.from().grid(), graph.senders[edge.sender]);
        let receiver = coordinate(problem.to().grid(), graph.receivers[edge.receiver]);
        let link = quotient.link(sender, receiver).expect("every message has a class");
        ((link.class * rows + link.row_copy) * columns + link.column_copy) as usize
    });
    let lifted = memory::listed(lifted, MESSAGES)?;
    let small = Graph {
        senders: memory::listed((0..row_count).map(|row| row as u64), MESSAGES)?,
        receivers: memory::listed((0..column_count).map(|column| column as u64), MESSAGES)?,
        edges,
    };
    let kinds = MessageKinds {
        kinds,
        rows: quotient.row_types() as usize,
        columns: quotient.column_types() as usize,
        per_row: columns,
        per_column: rows,
    };
    Ok(Some((small, kinds, lifted)))
}

/// Searches for the best blocks of at most `allowed` steps in all.
struct BlockSearch<'a> {
    graph: &'a Graph,
    options: &'a Options,
    allowed: u64,
    /// The least price, and a step for each edge.
    best: Option<(u128, Vec<u64>)>,
    /// Blocks that may still be tried; the first branch is always followed to its end.
    budget: usize,
}

impl BlockSearch<'_> {
    /// Removes a block from the edges `left`, in each of the ways that are tried, and goes on with the rest.
    fn peel(&mut self, steps: &mut Vec<u64>, left: &[usize], used: u64, cost: u128) -> Result<()> {
        if left.is_empty() {
            let price = super::price(self.options, used, cost);
            if self.best.as_ref().is_none_or(|(least, _)| price < *least) {
                self.best = Some((price, memory::listed(steps.iter().copied(), STEPS)?));
            }
            return Ok(());
        }
        let rest = part_of(self.graph, left)?;
        let hope = super::price(self.options, used + rest.max_degree()?, cost + rest.cost_bound()?);
        if self.best.as_ref().is_some_and(|(least, _)| hope >= *least) {
            return Ok(());
        }
        let mut lengths: Vec<u64> = rest.edges.iter().map(|edge| edge.elems).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let longest = lengths.pop().unwrap_or(0);
        // The next block may be of any shorter length; longer messages must go now.
        for next in lengths.into_iter().rev().take(MAX_BRANCHES - 1).chain([0]) {
            if self.best.is_some() && self.budget == 0 {
                return Ok(());
            }
            self.budget = self.budget.saturating_sub(1);
            let (must, may): (Vec<usize>, Vec<usize>) =
                left.iter().partition(|&&edge| self.graph.edges[edge].elems > next);
            let Some(chosen) = choose(self.graph, &must, &may, self.allowed - used)? else { continue };
            let block = part_of(self.graph, &chosen)?;
            for (&edge, step) in chosen.iter().zip(colouring::colour(&block)?) {
                steps[edge] = used + step;
            }
            let more_steps = block.max_degree()?;
            let more_cost = u128::from(more_steps) * u128::from(longest);
            let left: Vec<usize> = left.iter().copied().filter(|&edge| steps[edge] == u64::MAX).collect();
            self.peel(steps, &left, used + more_steps, cost + more_cost)?;
            chosen.iter().for_each(|&edge| steps[edge] = u64::MAX);
        }
        Ok(())
    }
}

/// Some edges of a graph, and all its processes.
fn part_of(graph: &Graph, edges: &[usize]) -> Result<Graph> {
    Ok(Graph {
        senders: memory::listed(graph.senders.iter().copied(), "the ranks of both grids")?,
        receivers: memory::listed(graph.receivers.iter().copied(), "the ranks of both grids")?,
        edges: memory::listed(edges.iter().map(|&edge| graph.edges[edge]), MESSAGES)?,
    })
}

/// The edges of a block: all of `must`, the heaviest of `may`, so that the rest fits into the steps left over. The block
/// gets as few steps as that allows.
fn choose(graph: &Graph, must: &[usize], may: &[usize], steps_left: u64) -> Result<Option<Vec<usize>>> {
    let count = |edges: &[usize]| -> Result<_> {
        let (mut sent, mut received) = graph.of_each(0_u64)?;
        for &edge in edges {
            sent[graph.edges[edge].sender] += 1;
            received[graph.edges[edge].receiver] += 1;
        }
        Ok((sent, received))
    };
    let (must_sent, must_received) = count(must)?;
    let (may_sent, may_received) = count(may)?;
    let candidates: Vec<(usize, usize, u64)> = may
        .iter()
        .map(|&edge| &graph.edges[edge])
        .map(|edge| (edge.sender, edge.receiver, edge.elems))
        .collect();
    let fewest = must_sent.iter().chain(&must_received).copied().max().unwrap_or(0);
    for steps in fewest..=steps_left {
        // After this block every vertex must have no more edges left than there are steps.
        let range = |(&must, &may): (&u64, &u64)| Range {
            least: may.saturating_sub(steps_left - steps),
            most: (steps - must).min(may),
        };
        const WHAT: &str = "what each rank may still send and receive";
        let senders = memory::listed(must_sent.iter().zip(&may_sent).map(range), WHAT)?;
        let receivers = memory::listed(must_received.iter().zip(&may_received).map(range), WHAT)?;
        if let Some(taken) = heaviest_within(&senders, &receivers, &candidates)? {
            let more = may.iter().zip(taken).filter(|(_, taken)| *taken).map(|(&edge, _)| edge);
            return memory::listed(must.iter().copied().chain(more), MESSAGES).map(Some);
        }
    }
    Ok(None)
}
