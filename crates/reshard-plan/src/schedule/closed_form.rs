//! `optimal` without a graph: the step of every message of a block-cyclic redistribution in any number of
//! dimensions, each rank alone.
//!
//! The communication graph of n dimensions is the product of those of its axes. Axes come in three kinds. *Full* axes
//! join every sender with every receiver: they only multiply the copies of the others. *Simple* axes (one row type, one
//! column type) give a digit, their class, and copies. *Irregular* axes need a [`Core`] each. All copies, of whatever
//! axis, are merged into one core, or into `(alpha + beta) mod max` where there is none; with several irregular axes
//! the axes' copies are handed out so that the product of the cores' steps is least. With at most one irregular axis
//! the number of steps is the greatest number of messages of any process, which no schedule can beat; with more it is
//! so nearly always, and [`ClosedForm::is_optimal`] says when.

use super::core::Core;
use crate::error::Result;
use crate::problem::Problem;
use crate::quotient::{ClassMessage, Quotient};
use crate::traffic::{Message, Traffic};

/// The step of any message, by formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedForm {
    axes: Vec<AxisForm>,
    cores: Vec<Core>,
    steps: u64,
    bound: u64,
    /// Source axis `d` goes to destination axis `lands[d]`.
    lands: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AxisForm {
    quotient: Quotient,
    kind: AxisRule,
    /// Index of the core that takes this axis's copies; not used if there is no core.
    copies_to: usize,
    /// Copies of rows and columns this axis contributes.
    row_copies: u64,
    column_copies: u64,
}

impl AxisForm {
    /// The step of a message where this is the only axis and needs no core.
    #[inline]
    fn plain_step(&self, sender: u64, receiver: u64, link: ClassMessage) -> u64 {
        let most = self.row_copies.max(self.column_copies);
        match self.kind {
            AxisRule::Full => (sender + receiver) % most,
            _ => link.class * most + (link.row_copy + link.column_copy) % most,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AxisRule {
    Full,
    Simple,
    /// An axis with several row or column types, and the index of its core.
    Irregular(usize),
}

impl ClosedForm {
    /// The closed form of a problem; `None` where there is none: an irregular axis, or a window shorter than the
    /// period, whose messages are only some of the pattern's.
    pub fn new(problem: &Problem) -> Result<Option<Self>> {
        let covered = (0..problem.from().dims()).all(|dim| problem.sides(dim).covers_a_period());
        if covered { Self::of_pattern(problem) } else { Ok(None) }
    }

    /// The closed form of the whole pattern of which the problem has a window. A short window has only some of its messages:
    /// they still have steps of at most one message for each port, but perhaps more steps than necessary.
    pub fn of_pattern(problem: &Problem) -> Result<Option<Self>> {
        let mut quotients = Vec::new();
        for dim in 0..problem.from().dims() {
            let Some(quotient) = Quotient::new(&problem.sides(dim))? else { return Ok(None) };
            quotients.push(quotient);
        }
        let product = |degree: fn(&Quotient) -> u64| {
            quotients.iter().try_fold(1_u64, |product, quotient| product.checked_mul(degree(quotient)))
        };
        let (Some(rows), Some(columns)) = (product(Quotient::row_degree), product(Quotient::column_degree))
        else {
            return Ok(None);
        };
        let (axes, cores) = arrange(&quotients);
        let digits =
            axes.iter().filter(|axis| axis.kind == AxisRule::Simple).map(|axis| axis.quotient.classes());
        let base = if cores.is_empty() {
            let copies = |of: fn(&AxisForm) -> u64| axes.iter().map(of).product::<u64>();
            copies(|axis| axis.row_copies).max(copies(|axis| axis.column_copies))
        } else {
            cores.iter().map(Core::steps).product()
        };
        let steps = digits.product::<u64>() * base;
        let lands = problem.lands().to_vec();
        Ok(Some(Self { axes, cores, steps, bound: rows.max(columns), lands }))
    }

    /// The messages that one rank sends and receives, with the step of each, earliest first.
    pub fn of_rank(&self, problem: &Problem, rank: u64) -> Result<Vec<(u64, Message)>> {
        let (from, to) = (problem.from().grid(), problem.to().grid());
        let traffic = Traffic::new(problem);
        let mut messages = traffic.sent_by(rank)?;
        messages.extend(traffic.received_by(rank)?.into_iter().filter(|message| message.from != rank));
        let step = |message: &Message| self.step(&from.coords(message.from)?, &to.coords(message.to)?);
        let mut steps: Vec<(u64, Message)> =
            messages.into_iter().filter_map(|message| Some((step(&message)?, message))).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The greatest number of messages of any process: no schedule has fewer steps.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// True if no schedule has fewer steps.
    pub fn is_optimal(&self) -> bool {
        self.steps == self.bound
    }

    /// True if every step holds messages of one class only: then the total cost is least, too.
    pub fn is_by_classes(&self) -> bool {
        self.axes.iter().all(|axis| axis.kind == AxisRule::Simple)
    }

    /// The step of the message between two processes, given by their grid coordinates; `None` if there is none.
    pub fn step(&self, sender: &[u64], receiver: &[u64]) -> Option<u64> {
        let mut mixed = MixedRadix::new(self.cores.len());
        for (dim, axis) in self.axes.iter().enumerate() {
            let link = axis.quotient.link(*sender.get(dim)?, *receiver.get(self.lands[dim])?)?;
            mixed.add(axis, sender[dim], receiver[self.lands[dim]], link);
        }
        Some(self.step_at(&mixed))
    }

    /// Calls `visit(receiver, step)` for each message of a sender on a one-dimensional grid, without visiting
    /// other ranks. Does nothing in more dimensions.
    pub fn sends(&self, sender: u64, mut visit: impl FnMut(u64, u64)) {
        self.sends_by_class(sender, |receiver, step, _| visit(receiver, step));
    }

    /// Calls `visit(receiver, step, class)` for each message of a sender on a one-dimensional grid. The class, numbered as in
    /// [`Classes`](crate::Classes), gives the length.
    pub(crate) fn sends_by_class(&self, sender: u64, mut visit: impl FnMut(u64, u64, u64)) {
        let [axis] = self.axes.as_slice() else { return };
        if let AxisRule::Irregular(core) = axis.kind {
            let mut line = None;
            axis.quotient.receivers_of(sender, |receiver, link| {
                let line = line.get_or_insert_with(|| self.cores[core].line(link.row_copy, true));
                visit(receiver, line.step(link.class, link.column_copy), link.class);
            });
        } else {
            axis.quotient.receivers_of(sender, |receiver, link| {
                visit(receiver, axis.plain_step(sender, receiver, link), link.class);
            });
        }
    }

    /// Calls `visit(sender, step)` for each message of a receiver on a one-dimensional grid.
    pub fn receives(&self, receiver: u64, mut visit: impl FnMut(u64, u64)) {
        let [axis] = self.axes.as_slice() else { return };
        if let AxisRule::Irregular(core) = axis.kind {
            let mut line = None;
            axis.quotient.senders_of(receiver, |sender, link| {
                let line = line.get_or_insert_with(|| self.cores[core].line(link.column_copy, false));
                visit(sender, line.step(link.class, link.row_copy));
            });
        } else {
            axis.quotient
                .senders_of(receiver, |sender, link| visit(sender, axis.plain_step(sender, receiver, link)));
        }
    }

    fn step_at(&self, mixed: &MixedRadix) -> u64 {
        if self.cores.is_empty() {
            let (rows, columns) = mixed.sizes[0];
            let (alpha, beta) = mixed.copies[0];
            let most = rows.max(columns);
            return mixed.digits * most + (alpha + beta) % most;
        }
        self.cores.iter().enumerate().fold(mixed.digits, |step, (index, core)| {
            let (alpha, beta) = mixed.copies[index];
            step * core.steps() + core.step(mixed.classes[index], alpha, beta)
        })
    }
}

/// One message in mixed radix: the digits of simple axes, and for each core its class and copies.
struct MixedRadix {
    digits: u64,
    classes: Vec<u64>,
    copies: Vec<(u64, u64)>,
    sizes: Vec<(u64, u64)>,
}

impl MixedRadix {
    fn new(cores: usize) -> Self {
        let slots = cores.max(1);
        Self { digits: 0, classes: vec![0; slots], copies: vec![(0, 0); slots], sizes: vec![(1, 1); slots] }
    }

    fn add(&mut self, axis: &AxisForm, sender: u64, receiver: u64, link: ClassMessage) {
        let (row_copy, column_copy) = match axis.kind {
            AxisRule::Full => (sender, receiver),
            AxisRule::Simple => {
                self.digits = self.digits * axis.quotient.classes() + link.class;
                (link.row_copy, link.column_copy)
            }
            AxisRule::Irregular(core) => {
                self.classes[core] = link.class;
                (link.row_copy, link.column_copy)
            }
        };
        let (alpha, beta) = &mut self.copies[axis.copies_to];
        *alpha = *alpha * axis.row_copies + row_copy;
        *beta = *beta * axis.column_copies + column_copy;
        let (rows, columns) = &mut self.sizes[axis.copies_to];
        *rows *= axis.row_copies;
        *columns *= axis.column_copies;
    }
}

/// Sorts the axes into kinds and assigns their copies to the cores.
fn arrange(quotients: &[Quotient]) -> (Vec<AxisForm>, Vec<Core>) {
    let mut irregular = Vec::new();
    let mut axes: Vec<AxisForm> = quotients
        .iter()
        .map(|&quotient| {
            let mut axis = AxisForm {
                quotient,
                kind: AxisRule::Simple,
                copies_to: 0,
                row_copies: quotient.row_copies(),
                column_copies: quotient.column_copies(),
            };
            // One row type and one column type: simple, complete or not.
            if quotient.row_types() > 1 || quotient.column_types() > 1 {
                if quotient.is_complete() {
                    axis.kind = AxisRule::Full;
                    axis.row_copies = quotient.column_degree();
                    axis.column_copies = quotient.row_degree();
                } else {
                    axis.kind = AxisRule::Irregular(irregular.len());
                    irregular.push(quotient);
                }
            }
            axis
        })
        .collect();
    if irregular.is_empty() {
        return (axes, Vec::new());
    }
    // Tries every assignment of the axes' copies to cores, if there are not too many; else each irregular axis keeps its own
    // copies and the first takes the rest.
    let ways = (irregular.len() as u64).checked_pow(axes.len() as u32).filter(|&ways| ways <= 1 << 14);
    let cores_of = |axes: &[AxisForm]| -> Vec<(u64, u64)> {
        let mut copies = vec![(1_u64, 1_u64); irregular.len()];
        for axis in axes {
            let (rows, columns) = &mut copies[axis.copies_to];
            (*rows, *columns) =
                (rows.saturating_mul(axis.row_copies), columns.saturating_mul(axis.column_copies));
        }
        copies
    };
    let steps_of = |copies: &[(u64, u64)]| -> u128 {
        let of_core = |(quotient, &(rows, columns)): (&Quotient, &(u64, u64))| {
            let row_degree = u128::from(quotient.classes().div_ceil(quotient.row_types()));
            let column_degree = u128::from(quotient.classes().div_ceil(quotient.column_types()));
            (u128::from(columns) * row_degree).max(u128::from(rows) * column_degree)
        };
        irregular.iter().zip(copies).map(of_core).fold(1, u128::saturating_mul)
    };
    let set = |axes: &mut [AxisForm], way: u64| {
        let mut way = way;
        for axis in axes.iter_mut() {
            axis.copies_to = (way % irregular.len() as u64) as usize;
            way /= irregular.len() as u64;
        }
    };
    match ways {
        Some(ways) => {
            let best = (0..ways).min_by_key(|&way| {
                set(&mut axes, way);
                steps_of(&cores_of(&axes))
            });
            set(&mut axes, best.unwrap_or(0));
        }
        None => {
            for axis in &mut axes {
                axis.copies_to = if let AxisRule::Irregular(core) = axis.kind { core } else { 0 };
            }
        }
    }
    let cores = irregular
        .iter()
        .zip(cores_of(&axes))
        .map(|(quotient, (rows, columns))| {
            Core::new(quotient.classes(), quotient.row_types(), quotient.column_types(), rows, columns)
        })
        .collect();
    (axes, cores)
}
