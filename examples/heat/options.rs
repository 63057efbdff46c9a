//! What was typed, and what both jobs make of it.

use crate::plate::Plate;
use crate::ranks::DEADLINE;
use reshard::{Error, ErrorKind, Result};
use reshard_couple::Meeting;
use reshard_ring::Policy;
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "there are --size N --steps N --producers N --consumers N --pictures FOLDER --every N --slow RANK,.. --factor N \
     --work MICROSECONDS --balance never|N|pays --meet FILE --verify --json, after nothing, produce or consume";

/// What a column takes on each rank if one of them is to be slow and nothing else is said.
const WORK: Duration = Duration::from_micros(40);

/// The options of both jobs.
pub struct Options {
    pub plate: Plate,
    pub producers: usize,
    pub consumers: usize,
    /// Where pictures go, if any are wanted.
    pub pictures: Option<PathBuf>,
    /// Steps from one picture to the next.
    pub every: u64,
    /// The slow rank; if several are given, each is for its share of the steps.
    slow: Vec<usize>,
    factor: u32,
    work: Option<Duration>,
    /// When columns move.
    pub policy: Policy,
    meet: Option<PathBuf>,
    /// Compare all with what one process computes.
    pub verify: bool,
    pub json: bool,
}

impl Options {
    pub fn read(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            plate: Plate { size: 256, steps: 200 },
            producers: 4,
            consumers: 2,
            pictures: None,
            every: 25,
            slow: Vec::new(),
            factor: 4,
            work: None,
            policy: Policy::WhenItPays,
            meet: None,
            verify: false,
            json: false,
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .map(String::as_str)
                    .ok_or_else(|| wrong(format!("{flag} was given without a value")))
            };
            match flag.as_str() {
                "--size" => options.plate.size = positive(flag, value()?)? as usize,
                "--steps" => options.plate.steps = positive(flag, value()?)?,
                "--producers" => options.producers = positive(flag, value()?)? as usize,
                "--consumers" => options.consumers = positive(flag, value()?)? as usize,
                "--pictures" => options.pictures = Some(value()?.into()),
                "--every" => options.every = positive(flag, value()?)?,
                "--slow" => {
                    let ranks = value()?.split(',').map(|rank| Ok(number(flag, rank)? as usize));
                    options.slow = ranks.collect::<Result<_>>()?;
                }
                "--factor" => options.factor = positive(flag, value()?)?.min(1000) as u32,
                "--work" => options.work = Some(Duration::from_micros(number(flag, value()?)?)),
                "--balance" => {
                    options.policy = match value()? {
                        "never" => Policy::Never,
                        "pays" => Policy::WhenItPays,
                        steps => Policy::Every(positive(flag, steps)?),
                    }
                }
                "--meet" => options.meet = Some(value()?.into()),
                "--verify" => options.verify = true,
                "--json" => options.json = true,
                _ => return Err(wrong(format!("{flag} was given; {USAGE}"))),
            }
        }
        options.check(options.producers)?;
        Ok(options)
    }

    /// Fails if the plate cannot be computed by so many ranks.
    pub fn check(&self, producers: usize) -> Result<()> {
        let size = self.plate.size;
        if !(3..=4096).contains(&size) || size < producers.max(self.consumers) {
            return Err(wrong(format!(
                "a plate of {size} x {size} cells was asked for; it has 3 to 4096 a side, and at least one for each rank"
            )));
        }
        match self.slow.iter().find(|&&rank| rank >= producers) {
            Some(rank) => Err(wrong(format!("rank {rank} was to be slow; there are {producers}, from 0 on"))),
            None => Ok(()),
        }
    }

    /// Where the two jobs meet for a coupling: a file for each, so that nobody comes to one that is over.
    pub fn meeting(&self, coupling: usize) -> Result<Meeting> {
        let file =
            self.meet.as_ref().ok_or_else(|| wrong("--meet FILE must say where the two jobs meet".into()))?;
        let mut name = file.clone().into_os_string();
        name.push(format!(".{coupling}"));
        Ok(Meeting::file(name))
    }

    /// Both jobs meet here, unless something else was said.
    pub fn meet_at(&mut self, file: PathBuf) {
        self.meet.get_or_insert(file);
    }

    /// Makes the folder of the pictures.
    pub fn make_folder(&self) -> Result<()> {
        let Some(folder) = &self.pictures else { return Ok(()) };
        std::fs::create_dir_all(folder)
            .map_err(|error| wrong(format!("the folder {} cannot be made: {error}", folder.display())))
    }

    pub fn coupling(&self) -> reshard_couple::Options {
        reshard_couple::Options::default().with_deadline(DEADLINE)
    }

    /// As many columns for each rank, as nearly as it goes.
    pub fn equal_columns(&self, ranks: usize) -> Vec<u64> {
        let (size, ranks) = (self.plate.size as u64, ranks as u64);
        (0..ranks).map(|rank| (rank + 1) * size / ranks - rank * size / ranks).collect()
    }

    /// What a rank waits for each of its columns in a step, as if each took so much longer.
    pub fn wait(&self, rank: usize, step: u64) -> Duration {
        let phase = step as u128 * self.slow.len() as u128 / u128::from(self.plate.steps);
        let is_slow = self.slow.get(phase as usize) == Some(&rank);
        let work = self.work.unwrap_or(if self.slow.is_empty() { Duration::ZERO } else { WORK });
        if is_slow { work * self.factor } else { work }
    }
}

fn number(flag: &str, text: &str) -> Result<u64> {
    text.parse()
        .map_err(|_| wrong(format!("{flag} was given \"{text}\"; it takes a whole number, such as 64")))
}

fn positive(flag: &str, text: &str) -> Result<u64> {
    match number(flag, text)? {
        0 => Err(wrong(format!("{flag} was given 0; it takes numbers from 1"))),
        number => Ok(number),
    }
}

pub fn wrong(message: String) -> Error {
    Error::new(ErrorKind::OutOfRange, message)
}
