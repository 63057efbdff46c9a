//! The experiment of Prylli and Tourancheau's paper (section 6): do three kernels of ScaLAPACK gain from being run in the layout
//! that suits them best, if the matrices have to be moved there and back?
//!
//! `mpirun --oversubscribe -n 4 target/release/kernels --sizes 512,1024 --blocks 4,64,256`
//!
//! For each size one line of JSON. ScaLAPACK is loaded at run time and must be installed; docs/kernels.md says what came out.

mod matrix;
mod measure;
mod scalapack;

use matrix::{Deal, Known, Matrix, deals};
use measure::{Here, Setting, There, Times};
use reshard::{Error, ErrorKind, Result};
use reshard_mpi::{Comm, Mpi};
use scalapack::Scalapack;
use serde::Serialize;

/// What the experiment says of one size; seconds of multiply, LU and solve for each layout.
#[derive(Serialize)]
struct Answer<'a> {
    mpi: &'a str,
    blas: &'a str,
    ranks: usize,
    size: usize,
    right_hand_sides: usize,
    layouts: Vec<String>,
    /// The number of the layout that is best for each kernel.
    best: Option<[usize; 3]>,
    moved: Option<WithAndWithout>,
    redistributions: Option<Redistributions>,
}

/// Kernels in each layout, and moved from there to the best layout and back, in turns.
#[derive(Default, Serialize)]
struct WithAndWithout {
    stay: [Vec<f64>; 3],
    moved: [Vec<f64>; 3],
    /// The three kernels with six redistributions, from each layout; and with the two that are left if all begins and ends well.
    chain: Vec<f64>,
    optimised_chain: f64,
}

/// From each layout to each.
#[derive(Serialize)]
struct Redistributions {
    square: Vec<Vec<Times>>,
    sides: Vec<Vec<Times>>,
}

fn main() -> Result<()> {
    let options = Options::read(std::env::args().skip(1))?;
    let session = Mpi::load(None)?.init()?;
    let comm = session.world();
    let scalapack = Scalapack::load(comm)?;
    let deals = deals(comm, &scalapack, &options.blocks);
    if options.best.iter().flatten().any(|&at| at >= deals.len()) {
        return Err(wrong(format!("--best takes three numbers of layouts below {}", deals.len())));
    }
    for &size in &options.sizes {
        let setting = Setting { comm, scalapack: &scalapack, known: Known::new(comm, size)? };
        let answer = experiment(&setting, &deals, &options)?;
        if comm.rank() == 0 {
            let line = serde_json::to_string(&answer).map_err(|error| wrong(error.to_string()))?;
            println!("{line}");
        }
    }
    Ok(())
}

fn experiment<'a>(setting: &Setting<'a>, deals: &[Deal], options: &Options) -> Result<Answer<'a>> {
    let size = setting.known.size;
    let does = |part: &str| options.parts.iter().any(|wanted| wanted == part);
    let mut best = options.best;
    if does("best") {
        say(setting.comm, size, "kernels in every layout");
        best = Some(best_layouts(setting, deals, options.repeat)?);
    }
    let mut moved = None;
    if does("moved") {
        say(setting.comm, size, "kernels in every layout, and moved to the best and back");
        let best =
            best.ok_or_else(|| wrong("without the part best, --best must say which are".to_string()))?;
        moved = Some(with_and_without(setting, deals, best, options.repeat)?);
    }
    let mut redistributions = None;
    if does("redistributions") {
        say(setting.comm, size, "redistributions from every layout to every other");
        let square = pairs(setting, deals, setting.square(), |deal| setting.a(deal))?;
        let sides = pairs(setting, deals, setting.sides(), |deal| setting.c(deal))?;
        redistributions = Some(Redistributions { square, sides });
    }
    Ok(Answer {
        mpi: setting.comm.mpi().version(),
        blas: &setting.scalapack.blas,
        ranks: setting.comm.size(),
        size,
        right_hand_sides: setting.sides()[1],
        layouts: deals.iter().map(Deal::to_string).collect(),
        best,
        moved,
        redistributions,
    })
}

/// The best layout of each kernel. All layouts have their turn in each round, so that none has only the bad minutes of a machine.
fn best_layouts(setting: &Setting<'_>, deals: &[Deal], rounds: usize) -> Result<[usize; 3]> {
    let mut times = [(); 3].map(|()| vec![Vec::new(); deals.len()]);
    for _ in 0..rounds {
        for (at, &deal) in deals.iter().enumerate() {
            let stay = Here::new(setting, deal)?.stay()?;
            times.iter_mut().zip(stay).for_each(|(times, time)| times[at].push(time));
        }
    }
    Ok(times.map(|times| {
        let medians = times.into_iter().map(median).enumerate();
        medians.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
    }))
}

fn with_and_without(
    setting: &Setting<'_>,
    deals: &[Deal],
    best: [usize; 3],
    repeat: usize,
) -> Result<WithAndWithout> {
    let best = best.map(|at| deals[at]);
    let mut answer = WithAndWithout::default();
    let mut optimised = Vec::new();
    for &deal in deals {
        let (mut here, mut there) = (Here::new(setting, deal)?, There::new(setting, deal, best)?);
        let [mut stay, mut moved] = [(); 2].map(|()| [(); 3].map(|()| Vec::new()));
        let mut chain = Vec::new();
        for _ in 0..repeat {
            stay.iter_mut().zip(here.stay()?).for_each(|(times, time)| times.push(time));
            moved.iter_mut().zip(there.moved(&here)?).for_each(|(times, time)| times.push(time));
            chain.push(there.chain(&here)?);
            if deal == best[0] {
                optimised.push(there.optimised_chain(&here)?);
            }
        }
        answer.stay.iter_mut().zip(stay).for_each(|(all, times)| all.push(median(times)));
        answer.moved.iter_mut().zip(moved).for_each(|(all, times)| all.push(median(times)));
        answer.chain.push(median(chain));
    }
    answer.optimised_chain = median(optimised);
    Ok(answer)
}

/// Redistributions of one matrix from every layout to every other.
fn pairs(
    setting: &Setting<'_>,
    deals: &[Deal],
    shape: [usize; 2],
    matrix: impl Fn(Deal) -> Result<Matrix>,
) -> Result<Vec<Vec<Times>>> {
    let matrices: Vec<(Deal, Matrix)> =
        deals.iter().map(|&deal| Ok((deal, matrix(deal)?))).collect::<Result<_>>()?;
    let times = |from: &(Deal, Matrix), to: &(Deal, Matrix)| {
        setting.redistribution((from.0, &from.1), (to.0, &to.1), shape)
    };
    matrices.iter().map(|from| matrices.iter().map(|to| times(from, to)).collect()).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn say(comm: &Comm, size: usize, what: &str) {
    if comm.rank() == 0 {
        eprintln!("{size} x {size}: {what}");
    }
}

struct Options {
    sizes: Vec<usize>,
    blocks: Vec<usize>,
    repeat: usize,
    parts: Vec<String>,
    best: Option<[usize; 3]>,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            sizes: vec![512, 1024, 2048, 4096],
            blocks: (2..=8).map(|power| 1 << power).collect(),
            repeat: 3,
            parts: ["best", "moved", "redistributions"].map(String::from).to_vec(),
            best: None,
        };
        while let Some(flag) = arguments.next() {
            let value = arguments.next().unwrap_or_default();
            let numbers = || -> Result<Vec<usize>> {
                let expected = || {
                    wrong(format!(
                        "{flag} was given \"{value}\"; it takes whole numbers, such as 64 or 4,8,16"
                    ))
                };
                value.split(',').map(|text| text.parse().map_err(|_| expected())).collect()
            };
            let positive = || -> Result<Vec<usize>> {
                let numbers = numbers()?;
                match numbers.contains(&0) {
                    true => Err(wrong(format!("{flag} was given 0; it takes numbers from 1"))),
                    false => Ok(numbers),
                }
            };
            match flag.as_str() {
                "--sizes" => options.sizes = positive()?,
                "--blocks" => options.blocks = positive()?,
                "--repeat" => options.repeat = positive()?[0],
                "--parts" => options.parts = value.split(',').map(String::from).collect(),
                "--best" => {
                    let three =
                        || wrong(format!("--best was given \"{value}\"; it takes three numbers of layouts"));
                    options.best = Some(numbers()?.try_into().map_err(|_| three())?);
                }
                _ => {
                    return Err(wrong(format!(
                        "{flag} was given; there are --sizes N,.. --blocks N,.. --repeat N --best N,N,N and \
                         --parts best,moved,redistributions"
                    )));
                }
            }
        }
        Ok(options)
    }
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::OutOfRange, message)
}
