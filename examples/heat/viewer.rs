//! The consumer's job: has the plate by rows, keeps the highest temperature that each cell ever had, and draws pictures.

use crate::options::{Options, wrong};
use crate::picture;
use crate::ranks::{DEADLINE, Rank};
use reshard::{Error, ErrorKind, Layout, Move, Plan, Result};
use reshard_couple::{ElementType, Job, Subscriber};
use reshard_mpi::{MpiEngine, MpiOptions, Own};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the viewer says in the end.
#[derive(Serialize, Deserialize)]
pub struct Viewed {
    pub steps: u64,
    pub couplings: usize,
    /// The highest temperature of all cells and steps.
    pub hottest: f64,
    pub pictures: Vec<PathBuf>,
    pub verified: bool,
}

/// What one rank of the viewer has.
struct View<'v> {
    rank: &'v Rank,
    options: &'v Options,
    rows: Layout,
    /// Brings all rows to rank 0.
    gather: MpiEngine,
    pictures: Vec<PathBuf>,
}

/// Runs the viewer on one rank.
pub fn view(rank: &Rank, options: &Options) -> Result<Viewed> {
    let (size, own) = (options.plate.size, rank.comm.rank() as u64);
    let rows: Layout = format!("(block, *) on {}x1 of {size}x{size} memory=row", rank.comm.size()).parse()?;
    let whole: Layout = format!("1x1/{size}x{size} of {size}x{size} memory=row").parse()?;
    let plan = Plan::new(vec![Move::of::<f64>(rows.clone(), whole)?])?;
    let gather = MpiEngine::new(plan.into(), &rank.comm, MpiOptions::default().with_deadline(DEADLINE))?;
    let mut view = View { rank, options, rows, gather, pictures: Vec::new() };
    let mut part = [view.rows.allocate::<f64>(own)?];
    let mut highest = part[0].clone();
    let (mut steps, mut couplings, mut about) = (0, 0, About { steps: u64::MAX, columns: Vec::new() });
    // The coupling ends whenever the producer changes its layout; another one follows until all steps came.
    while steps < about.steps {
        let mut subscriber = Subscriber::new(Job::of(&rank.comm, DEADLINE)?, options.coupling());
        let temperature = subscriber.subscribe("temperature", &view.rows, ElementType::of::<f64>())?;
        subscriber.connect(&options.meeting(couplings)?)?;
        couplings += 1;
        while let Some(step) = subscriber.get(temperature, &mut part)? {
            if step.number != steps {
                let what = format!("step {} came in the place of step {steps}", step.number);
                return Err(Error::new(ErrorKind::Failed, what));
            }
            steps += 1;
            about = About::of(&step.header)?;
            highest.iter_mut().zip(&part[0]).for_each(|(highest, now)| *highest = now.max(*highest));
            if steps % options.every == 0 || steps == about.steps {
                view.draw(&format!("heat-{steps:04}.png"), &part[0], &about)?;
            }
        }
        subscriber.leave();
    }
    view.draw("maximum.png", &highest, &about)?;
    if options.verify {
        view.verify(&part[0], &highest)?;
    }
    let hottest = highest.iter().copied().fold(0.0, f64::max);
    let all = rank.comm.gather_numbers(hottest.to_bits(), Some(DEADLINE))?;
    let hottest = all.into_iter().map(f64::from_bits).fold(0.0, f64::max);
    Ok(Viewed { steps, couplings, hottest, pictures: view.pictures, verified: options.verify })
}

/// What the producer says of a step.
struct About {
    /// The number of all steps.
    steps: u64,
    /// The columns of each of its ranks.
    columns: Vec<u64>,
}

impl About {
    fn of(header: &[u8]) -> Result<Self> {
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let numbers: Vec<u64> = header.chunks_exact(8).map(number).collect();
        match numbers.split_first() {
            Some((&steps, columns)) => Ok(Self { steps, columns: columns.to_vec() }),
            None => Err(wrong("the producer said nothing of a step".into())),
        }
    }
}

impl View<'_> {
    /// Draws what all ranks have, if pictures are wanted. Collective.
    fn draw(&mut self, name: &str, mine: &[f64], about: &About) -> Result<()> {
        let Some(folder) = &self.options.pictures else { return Ok(()) };
        let mut whole = vec![0.0; self.gather.target_len(0)];
        self.gather.run(Own::new(mine, &mut whole))?;
        if self.rank.comm.rank() == 0 {
            let path = folder.join(name);
            picture::write(&path, self.options.plate.size, &whole, &about.columns)?;
            self.pictures.push(path);
        }
        Ok(())
    }

    /// Fails unless every bit of the last step and of the highest temperatures is as if one process had computed it all.
    fn verify(&self, last: &[f64], highest: &[f64]) -> Result<()> {
        let (size, (serial_last, serial_highest)) =
            (self.options.plate.size as u64, self.options.plate.serial());
        for (what, found, serial) in [("last", last, serial_last), ("highest", highest, serial_highest)] {
            let expected = self.rows.filled(self.rank.comm.rank() as u64, |index| {
                serial[(index[1] * size + index[0]) as usize]
            })?;
            let differ = |(found, wanted): (&f64, &f64)| found.to_bits() != wanted.to_bits();
            let wrong = found.iter().zip(&expected).filter(|&pair| differ(pair)).count();
            if wrong > 0 {
                let what = format!("{wrong} of the {what} temperatures are not what one process computes");
                return Err(Error::new(ErrorKind::Failed, what));
            }
        }
        Ok(())
    }
}
