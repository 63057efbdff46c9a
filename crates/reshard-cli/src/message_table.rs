//! The communication table as the papers print it: a row for each sender, a column for each receiver; and messages in JSON.

use crate::failure::Failure;
use crate::screen::Screen;
use reshard_plan::{Message, Problem, error};
use serde::Serialize;
use std::io::Write;

/// The most ranks of a side in a table.
const MAX_RANKS: u64 = 64;

/// A message, with the keys scripts depend on.
#[derive(Serialize)]
pub struct Listed {
    pub from: u64,
    pub to: u64,
    pub elems: u64,
}

impl From<&Message> for Listed {
    fn from(&Message { from, to, elems }: &Message) -> Self {
        Self { from, to, elems }
    }
}

/// True if both grids are small enough to be drawn.
pub fn fits(problem: &Problem) -> bool {
    problem.from().grid().size().max(problem.to().grid().size()) <= MAX_RANKS
}

/// Draws the text of `cell` for each sender and receiver; a dash where it is `None`. With `counted`, the edges show the number
/// of cells with text.
pub fn draw(
    screen: &mut Screen,
    problem: &Problem,
    cell: impl Fn(u64, u64) -> Option<String>,
    counted: bool,
) -> Result<(), Failure> {
    let senders = problem.from().grid().sorted_ranks();
    let receivers = problem.to().grid().sorted_ranks();
    let cells: Vec<Vec<Option<String>>> = senders
        .iter()
        .map(|&sender| receivers.iter().map(|&receiver| cell(sender, receiver)).collect())
        .collect();
    let widest = cells.iter().flatten().flatten().map(String::len).max().unwrap_or(0);
    let digits = |ranks: &[u64]| ranks.last().map_or(0, |rank| rank.to_string().len());
    let (label, width) = (digits(&senders).max(12), digits(&receivers).max(widest).max(2));
    let shown = screen.room(receivers.len(), width + 1, label + if counted { 13 } else { 0 });
    let hidden = receivers.len() - shown;
    let receivers = &receivers[..shown];
    let empty = screen.faint(&format!("{:>width$}", "-"));
    let mut line = |name: &str, cells: Vec<String>, count: String| {
        let count = if counted { format!("  {count}") } else { String::new() };
        let text = format!("{name:<label$} {}{count}", cells.join(" "));
        writeln!(screen.out, "{}", text.trim_end())
    };
    line(
        "Sender/Recv.",
        receivers.iter().map(|rank| format!("{rank:>width$}")).collect(),
        "Nbr of msg.".to_string(),
    )?;
    for (sender, row) in senders.iter().zip(&cells) {
        let count = row.iter().flatten().count().to_string();
        let row = row[..shown]
            .iter()
            .map(|cell| cell.as_ref().map_or(empty.clone(), |cell| format!("{cell:>width$}")))
            .collect();
        line(&sender.to_string(), row, count)?;
    }
    if counted {
        let count = |column: usize| cells.iter().filter(|row| row[column].is_some()).count();
        line(
            "Nbr of msg.",
            (0..receivers.len()).map(|column| format!("{:>width$}", count(column))).collect(),
            String::new(),
        )?;
    }
    if hidden > 0 {
        let more = error::counted(hidden, "more receiver");
        writeln!(screen.out, "... and {more}: see --rank, --json")?;
    }
    Ok(())
}
