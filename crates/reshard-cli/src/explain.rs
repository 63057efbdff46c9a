//! `reshard explain`: a redistribution as a drawing, or as a page to explore with a browser, each in one file.

use crate::args;
use crate::failure::Failure;
use crate::page;
use crate::screen::{Screen, counted, write_drawing};
use crate::simulate::SimulationRequest;
use std::io::Write;
use std::path::Path;

/// The most ranks of a side in a drawing: more cannot be seen.
const MAX_RANKS: u64 = page::data::MAX_RANKS;
/// The most messages in a drawing.
const MAX_MESSAGES: usize = 300_000;

pub fn run(args: &args::Explain) -> Result<(), Failure> {
    let request = SimulationRequest::read(&args.timed, false)?;
    let to_stdout =
        |path: &Option<std::path::PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if to_stdout(&args.svg) && to_stdout(&args.html) {
        return Err(Failure::usage("--svg - and --html - both go to standard output; write one to a file"));
    }
    if args.svg.is_some() && args.svg == args.html {
        return Err(Failure::usage("--svg and --html name the same file; give each its own"));
    }
    let mut drawn = Vec::new();
    if let Some(path) = &args.svg
        && write_drawing(path, &drawing(&request)?)?
    {
        drawn.push(path);
    }
    if let Some(path) = &args.html
        && write_drawing(path, &page::page(&request, None)?)?
    {
        drawn.push(path);
    }
    if to_stdout(&args.svg) || to_stdout(&args.html) {
        return Ok(());
    }
    let (schedule, timeline) = request.run()?;
    let mut screen = Screen::new();
    let (messages, steps) =
        (counted(timeline.messages().len() as u128, "message"), counted(schedule.num_steps(), "step"));
    let files: Vec<String> = drawn.iter().map(|path| Path::display(path).to_string()).collect();
    writeln!(screen.out, "{}: {messages} in {steps}, drawn to {}", request.title(), files.join(" and "))?;
    Ok(screen.out.flush()?)
}

fn drawing(request: &SimulationRequest) -> Result<String, Failure> {
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
    let (layouts, about) = (request.layouts(), request.about());
    Ok(reshard_draw::redistribution(&layouts, &about, problem, &schedule, &timeline))
}
