//! `reshard relabel`: the ranks of the destination that keep most elements where they are.

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::problem::MoveRequest;
use crate::screen::{Screen, counted};
use reshard_plan::notation::print_shape;
use reshard_plan::{Among, Pattern, Relabel};
use serde::Serialize;
use std::io::Write;

/// The most ranks that are listed on the screen.
const SHOWN_RANKS: usize = 64;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Relabelled {
    shape: Vec<u64>,
    from: String,
    to: String,
    /// The destination with its new ranks, to be given to `--to` elsewhere.
    relabelled: String,
    /// The new ranks in the grid's order.
    ranks: Vec<u64>,
    kept_before: u128,
    kept_after: u128,
    moved_before: u128,
    moved_after: u128,
    total_elems: u64,
}

pub fn run(args: &args::Relabel) -> Result<(), Failure> {
    let MoveRequest { from, to, problem } = MoveRequest::read(&args.moved)?;
    let among: Among = args.among.parse().map_err(Failure::of_flag("--among"))?;
    let found = Relabel::new(&problem).among(among).find()?;
    let unchanged = found.is_unchanged();
    let pattern = Pattern::new(found.grid().clone(), to.deals().to_vec(), to.first().to_vec())?;
    let relabelled = Relabelled {
        shape: problem.shape().to_vec(),
        from: from.to_string(),
        to: to.to_string(),
        relabelled: pattern.to_string(),
        ranks: found.grid().ranks().collect(),
        kept_before: found.before().kept_elems,
        kept_after: found.after().kept_elems,
        moved_before: found.before().moved_elems,
        moved_after: found.after().moved_elems,
        total_elems: problem.elems(),
    };
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &relabelled)?;
    } else {
        show(&mut screen, &relabelled, unchanged)?;
    }
    Ok(screen.out.flush()?)
}

fn show(screen: &mut Screen, found: &Relabelled, unchanged: bool) -> Result<(), Failure> {
    let total = counted(found.total_elems, "element");
    writeln!(
        screen.out,
        "Relabelling from {} to {} of {}, {total}",
        found.from,
        found.to,
        print_shape(&found.shape)
    )?;
    if unchanged {
        writeln!(
            screen.out,
            "No other ranks keep more: {} stay, {} move",
            found.kept_after, found.moved_after
        )?;
        return Ok(());
    }
    if found.ranks.len() <= SHOWN_RANKS {
        let ranks: Vec<_> = found.ranks.iter().map(u64::to_string).collect();
        writeln!(screen.out, "New ranks in the grid's order: {}", ranks.join(" "))?;
        writeln!(screen.out, "As a layout: {}", found.relabelled)?;
    } else {
        writeln!(screen.out, "{} new ranks; --json lists them", found.ranks.len())?;
    }
    for (when, kept, moved) in
        [("Before", found.kept_before, found.moved_before), ("After", found.kept_after, found.moved_after)]
    {
        writeln!(screen.out, "{when}: {kept} stay, {moved} move")?;
    }
    Ok(())
}
