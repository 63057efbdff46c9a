//! `reshard advise`: whether it pays to move arrays to a layout in which a computation is faster, from timed runs.

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::screen::{Screen, counted};
use reshard_draw::time;
use reshard_plan::advise::{Advice, Advisor, Trial, Verdict};
use serde::Serialize;
use std::io::Write;

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Advised {
    trials: Vec<TrialObject>,
    size: f64,
    runs: u64,
    margin: f64,
    verdict: &'static str,
    stay_seconds: f64,
    move_seconds: f64,
    redistribution_seconds: f64,
    gain_percent: f64,
    pays_from_runs: Option<u64>,
    pays_from_size: Option<u64>,
}

#[derive(Serialize)]
struct TrialObject {
    size: f64,
    here: f64,
    there: f64,
    redistribution: f64,
}

pub fn run(args: &args::Advise) -> Result<(), Failure> {
    let trials = args.trials.iter().map(|text| read(text)).collect::<Result<Vec<_>, _>>()?;
    let largest = trials.iter().map(|trial| trial.size).fold(0.0, f64::max);
    let size = args.size.unwrap_or(largest);
    let advisor = Advisor::with_growth(&trials, args.work, args.data)?.with_margin(args.margin)?;
    let advice = advisor.advise(size, args.runs)?;
    let mut screen = Screen::new();
    if args.json {
        let object = |&Trial { size, here, there, redistribution, .. }: &Trial| TrialObject {
            size,
            here,
            there,
            redistribution,
        };
        let advised = Advised {
            trials: trials.iter().map(object).collect(),
            size,
            runs: args.runs,
            margin: args.margin,
            verdict: advice.verdict.name(),
            stay_seconds: advice.stay,
            move_seconds: advice.move_there,
            redistribution_seconds: advice.redistribution,
            gain_percent: advice.gain_percent(),
            pays_from_runs: advice.pays_from_runs,
            pays_from_size: advice.pays_from_size,
        };
        json::write(&mut screen, &advised)?;
    } else {
        show(&mut screen, args, size, &advice)?;
    }
    Ok(screen.out.flush()?)
}

/// Reads `SIZE:HERE,THERE,REDISTRIBUTION`.
fn read(text: &str) -> Result<Trial, Failure> {
    let numbers = text.split_once(':').and_then(|(size, seconds)| {
        let seconds =
            seconds.split(',').map(|number| number.trim().parse().ok()).collect::<Option<Vec<f64>>>()?;
        Some((size.trim().parse().ok()?, <[f64; 3]>::try_from(seconds).ok()?))
    });
    let Some((size, [here, there, redistribution])) = numbers else {
        return Err(Failure::usage(&format!(
            "--trial: \"{text}\" was given; it takes a size and three times in seconds, SIZE:HERE,THERE,REDISTRIBUTION, \
             such as 512:0.024,0.006,0.001"
        )));
    };
    Trial::new(size, here, there, redistribution).map_err(Failure::of_flag("--trial"))
}

fn show(screen: &mut Screen, args: &args::Advise, size: f64, advice: &Advice) -> Result<(), Failure> {
    writeln!(
        screen.out,
        "Size {size}, {}, predicted from {}",
        counted(args.runs, "run"),
        counted(args.trials.len(), "trial")
    )?;
    writeln!(screen.out, "stay: {}", time(advice.stay))?;
    writeln!(
        screen.out,
        "move: {}, of these {} of redistribution",
        time(advice.move_there),
        time(advice.redistribution)
    )?;
    let gain = advice.gain_percent();
    let saved = match gain < 0.0 {
        true => format!("redistributing takes {:.0} % longer", -gain),
        false => format!("redistributing saves {gain:.0} %"),
    };
    match advice.verdict {
        Verdict::Move => writeln!(screen.out, "Move: {saved}")?,
        Verdict::Stay => writeln!(screen.out, "Stay: {saved}")?,
        Verdict::Close => writeln!(screen.out, "Too close to tell: {saved}, less than the margin")?,
    }
    match advice.pays_from_runs {
        Some(runs) => writeln!(screen.out, "At this size it pays from {} on", counted(runs, "run"))?,
        None => writeln!(screen.out, "At this size it never pays: the computation is not faster there")?,
    }
    match advice.pays_from_size {
        Some(from) => writeln!(screen.out, "For {} it pays from size {from} on", counted(args.runs, "run"))?,
        None => writeln!(screen.out, "For {} it pays at no large size", counted(args.runs, "run"))?,
    }
    Ok(())
}
