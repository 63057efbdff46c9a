//! `reshard explain`: a redistribution as a drawing, its grid by step and its timeline, in one file.

use crate::args;
use crate::failure::Failure;
use crate::screen::{Screen, counted, write_drawing};
use crate::simulate::SimulationRequest;
use std::io::Write;

/// The most ranks of a side in a drawing: more cannot be seen.
const MAX_RANKS: u64 = 512;
/// The most messages in a drawing.
const MAX_MESSAGES: usize = 300_000;

pub fn run(args: &args::Explain) -> Result<(), Failure> {
    let request = SimulationRequest::read(&args.timed, false)?;
    let problem = &request.move_request.problem;
    let most = problem.from().grid().size().max(problem.to().grid().size());
    if most > MAX_RANKS {
        return Err(Failure::usage(&format!(
            "a grid with {most} ranks a side is too large to draw, at most {MAX_RANKS} can be; take smaller grids"
        )));
    }
    let (schedule, timeline) = request.run()?;
    if timeline.messages().len() > MAX_MESSAGES {
        return Err(Failure::usage(&format!(
            "{} messages are too many to draw, at most {MAX_MESSAGES} can be; take smaller grids",
            timeline.messages().len()
        )));
    }
    let drawing =
        reshard_draw::redistribution(&request.layouts(), &request.about(), problem, &schedule, &timeline);
    if !write_drawing(&args.svg, &drawing)? {
        return Ok(());
    }
    let mut screen = Screen::new();
    let (messages, steps) =
        (counted(timeline.messages().len() as u128, "message"), counted(schedule.num_steps(), "step"));
    writeln!(screen.out, "{}: {messages} in {steps}, drawn to {}", request.title(), args.svg.display())?;
    Ok(screen.out.flush()?)
}
