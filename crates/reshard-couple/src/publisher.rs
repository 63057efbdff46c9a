//! The producer's side of couplings.

use crate::element::{ElementType, check_element};
use crate::io::Shared;
use crate::job::Job;
use crate::meeting::Meeting;
use crate::options::Options;
use crate::serving::{Serving, TURN};
use crate::state::{Consumer, ConsumerId, Stage, State};
use crate::terms::{ArrayId, MAX_HEADER_BYTES, Published};
use bytemuck::Pod;
use reshard::{Error, ErrorKind, Layout, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Gives arrays to other jobs, step after step.
///
/// ```
/// use reshard_couple::{ElementType, Job, Meeting, Options, Publisher, Subscriber};
/// let folder = std::env::temp_dir().join(format!("reshard-publisher-{}", std::process::id()));
/// std::fs::create_dir_all(&folder).unwrap();
/// let meeting = Meeting::file(folder.join("run.meet"));
/// let there = meeting.clone();
/// // Another job, here a thread, which knows another layout.
/// let viewer = std::thread::spawn(move || -> reshard::Result<f64> {
///     let layout: reshard::Layout = "3x1/5x5 of 20x30".parse()?;
///     let mut viewer = Subscriber::new(Job::hosting_all(), Options::default());
///     let t = viewer.subscribe("t", &layout, ElementType::of::<f64>())?;
///     viewer.connect(&there)?;
///     let (mut parts, mut last) = (layout.parts(|_| 0.0)?, 0.0);
///     while viewer.get(t, &mut parts)?.is_some() {
///         last = *layout.get(&parts, &[19, 29])?;
///     }
///     viewer.leave();
///     Ok(last)
/// });
/// let layout: reshard::Layout = "2x2/4x4 of 20x30".parse()?;
/// let mut simulation = Publisher::new(Job::hosting_all(), Options::default());
/// let t = simulation.publish("t", &layout, ElementType::of::<f64>())?;
/// simulation.open(&meeting)?;
/// simulation.wait_for(1)?;
/// for step in 0..3 {
///     let parts = layout.parts(|index| (100 * step + index[0] + index[1]) as f64)?;
///     simulation.put(t, step, b"", &parts)?;
/// }
/// assert_eq!(simulation.finish()?, 1); // one consumer has taken all
/// assert_eq!(viewer.join().unwrap()?, 248.0);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), reshard::Error>(())
/// ```
///
/// Everything but [`publish`](Self::publish) is collective: all processes of the job call it, with the same arguments but for the
/// parts.
pub struct Publisher {
    job: Job,
    options: Options,
    arrays: Vec<Published>,
    open: Option<Serving>,
}

impl Publisher {
    /// A producer with no arrays yet.
    pub fn new(job: Job, options: Options) -> Self {
        Self { job, options, arrays: Vec::new(), open: None }
    }

    /// Offers an array under a name. Its ranks are those of this job.
    pub fn publish(&mut self, name: &str, layout: &Layout, element: ElementType) -> Result<ArrayId> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Mismatch, message));
        if self.open.is_some() {
            return wrong(format!(
                "the array '{name}' was published after open(); publish all arrays before"
            ));
        }
        if name.is_empty() || name.len() > 256 {
            return wrong(format!(
                "the name of an array was given with {} bytes; it has 1 to 256",
                name.len()
            ));
        }
        if self.arrays.iter().any(|array| array.name == name) {
            return wrong(format!("the array '{name}' was published twice; give each a name of its own"));
        }
        self.arrays.push(Published { name: name.into(), element, layout: layout.clone() });
        Ok(ArrayId(self.arrays.len() - 1))
    }

    /// Lets consumers come: listens, and writes the meeting file. It is removed when the publisher ends.
    pub fn open(&mut self, meeting: &Meeting) -> Result<()> {
        let Self { job, options, arrays, .. } = self;
        let opened = Serving::new(job, options, arrays, meeting);
        self.open = Some(job.agree(opened, options.deadline)?);
        Ok(())
    }

    /// The address at which this process listens.
    pub fn address(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.address.as_str())
    }

    /// Waits until there are this many consumers, which get the next step.
    pub fn wait_for(&mut self, consumers: usize) -> Result<()> {
        let (job, deadline) = (&self.job, self.options.deadline);
        let open = self.open.as_mut().ok_or_else(not_open)?;
        let end = Instant::now() + deadline;
        let there = |state: &mut State| {
            let comes = |stage: &Stage| matches!(stage, Stage::Ready | Stage::Admitted);
            let count = state.consumers.values().filter(|one| comes(&one.stage)).count();
            (count >= consumers).then_some(())
        };
        let shared = Arc::clone(open.io.shared());
        // In turns, so that all processes move frames meanwhile.
        loop {
            let turn = if job.processes() == 1 { end } else { (Instant::now() + TURN).min(end) };
            let came = match job.leads() {
                true => shared.wait(turn, there).is_some(),
                false => shared.wait(turn, |_| None::<()>).is_some(),
            };
            let verdict = match (came, Instant::now() >= end) {
                (true, _) => CAME,
                (false, true) => LATE,
                (false, false) => WAITS,
            };
            match job.broadcast(vec![verdict], deadline)?.first() {
                Some(&WAITS) => {}
                Some(&CAME) => {
                    open.decide(job, Ok(()), deadline, None)?;
                    // One that is gone again does not count.
                    let admitted = |one: &&Consumer| one.stage == Stage::Admitted;
                    let count = shared.lock().consumers.values().filter(admitted).count();
                    let enough = job.broadcast(vec![u8::from(count >= consumers)], deadline)?;
                    if enough.first() == Some(&1) {
                        return Ok(());
                    }
                }
                _ => {
                    let late = if job.leads() { Err(late(&shared, consumers, deadline)) } else { Ok(()) };
                    job.agree(late, deadline)?;
                    return Err(Error::new(ErrorKind::Failed, "the leader cannot be understood"));
                }
            }
        }
    }

    /// The number of consumers that get the next step.
    pub fn consumers(&self) -> usize {
        let Some(open) = &self.open else { return 0 };
        open.io.shared().lock().consumers.values().filter(|one| one.stage == Stage::Admitted).count()
    }

    /// True if this process sends something through shared memory, as consumers on the same machine let it.
    pub fn shares_memory(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.io.shared().lock().shares_memory())
    }

    /// Gives a step of an array to all consumers, with a number and a few bytes of the program's own. The parts are those of the ranks
    /// that this process hosts, in the order of ranks. When it returns they may be changed: what has not been sent is kept.
    ///
    /// Waits for consumers whose queue is full, unless they drop steps. An error of kind [`Partner`](ErrorKind::Partner) says that a
    /// consumer is gone, or took no step within the deadline; all others get this step, and the next ones.
    pub fn put<T: Pod>(
        &mut self,
        array: ArrayId,
        number: u64,
        header: &[u8],
        parts: &[impl AsRef<[T]>],
    ) -> Result<()> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| bytemuck::cast_slice(part.as_ref())).collect();
        let fits = self.array(array).and_then(|one| check_element::<T>(one.element, &one.name));
        self.put_checked(array, number, header, fits, &parts)
    }

    /// As [`put`](Self::put), with parts given as bytes.
    pub fn put_bytes(&mut self, array: ArrayId, number: u64, header: &[u8], parts: &[&[u8]]) -> Result<()> {
        self.put_checked(array, number, header, Ok(()), parts)
    }

    /// Takes part in a [`put`](Self::put) of all processes that this one cannot make, as it was called wrongly: all get an error that says why,
    /// and nothing is put. Before [`open`](Self::open), in that.
    pub fn refuse(&mut self, why: Error) -> Result<()> {
        let (job, deadline) = (&self.job, self.options.deadline);
        match &mut self.open {
            Some(open) => open.decide(job, Err(why), deadline, None),
            // All agree twice: on being reached, and on all of it.
            None => job.agree(job.agree(Err(why), deadline), deadline),
        }
    }

    fn put_checked(
        &mut self,
        array: ArrayId,
        number: u64,
        header: &[u8],
        fits: Result<()>,
        parts: &[&[u8]],
    ) -> Result<()> {
        let checked = fits.and_then(|()| self.check(array, header, parts));
        let (job, deadline) = (&self.job, self.options.deadline);
        let open = self.open.as_mut().ok_or_else(not_open)?;
        let decided = open.decide(job, checked, deadline, Some(array.0));
        if decided.as_ref().is_err_and(|error| error.kind() != ErrorKind::Partner) {
            return decided;
        }
        open.wait_for_room(array.0, deadline);
        open.pack(array.0, number, header, parts, deadline)?;
        open.hand_over(deadline);
        if job.processes() > 1 {
            // What this process noticed meanwhile, all say at the next call.
            return decided;
        }
        match (decided, open.lost()) {
            (Err(one), Err(other)) => Err(Error::new(ErrorKind::Partner, format!("{one}; {other}"))),
            (one, other) => one.and(other),
        }
    }

    /// Says that there are no more steps, and waits until consumers have taken those that wait, and left. Returns how many consumers have
    /// taken the last step of each of their arrays.
    pub fn finish(mut self) -> Result<usize> {
        let (job, deadline) = (&self.job, self.options.deadline);
        let open = self.open.as_mut().ok_or_else(not_open)?;
        let decided = open.decide(job, Ok(()), deadline, None);
        let shared = Arc::clone(open.io.shared());
        shared.lock().end_all();
        shared.wake();
        if !open.wait_until_left(job, deadline)? {
            let mut state = shared.lock();
            let admitted =
                |(id, one): (&ConsumerId, &Consumer)| (one.stage == Stage::Admitted).then_some(*id);
            let late: Vec<ConsumerId> = state.consumers.iter().filter_map(admitted).collect();
            for id in late {
                let why = format!(
                    "consumer {id} has not left within {} s after the last step",
                    deadline.as_secs_f64()
                );
                state.end(id, Stage::Lost(why));
            }
        }
        let lost = open.decide(job, Ok(()), deadline, None);
        decided.and(lost)?;
        let complete = shared.lock().complete as u64;
        let complete = job.broadcast(complete.to_le_bytes().to_vec(), deadline)?;
        Ok(complete.try_into().map_or(0, |bytes| u64::from_le_bytes(bytes) as usize))
    }

    fn array(&self, array: ArrayId) -> Result<&Published> {
        self.arrays.get(array.0).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfRange,
                format!("array {} was given; {} are published", array.0, self.arrays.len()),
            )
        })
    }

    fn check(&self, array: ArrayId, header: &[u8], parts: &[&[u8]]) -> Result<()> {
        let Published { layout, element, .. } = self.array(array)?;
        let wrong = |message: String| Err(Error::new(ErrorKind::Mismatch, message));
        if header.len() > MAX_HEADER_BYTES {
            return wrong(format!(
                "a header of {} bytes was given; it has at most {MAX_HEADER_BYTES}",
                header.len()
            ));
        }
        let ranks = self.open.as_ref().map_or(0, |open| open.ranks);
        let grid = layout.distribution().grid();
        let hosted: Vec<u64> =
            self.job.hosted(self.job.process(), ranks).filter(|&rank| grid.contains(rank)).collect();
        if parts.len() != hosted.len() {
            return wrong(format!(
                "{} parts were given; this process hosts {} ranks of the array: give the part of each, in the order of ranks",
                parts.len(),
                hosted.len()
            ));
        }
        for (&rank, part) in hosted.iter().zip(parts) {
            let needed = layout.span(rank)? * element.bytes();
            if (part.len() as u64) < needed {
                return wrong(format!(
                    "the part of rank {rank} has {} bytes; its layout needs {needed}",
                    part.len()
                ));
            }
        }
        Ok(())
    }
}

/// What the leader says while all wait for consumers.
const WAITS: u8 = 0;
const CAME: u8 = 1;
const LATE: u8 = 2;

/// The error of too few consumers.
fn late(shared: &Shared<State>, consumers: usize, deadline: Duration) -> Error {
    let refusal = shared.lock().last_refusal.clone();
    let refusal = refusal.map_or(String::new(), |why| format!("; the last that came was refused: {why}"));
    let many = match consumers {
        1 => "no consumer".into(),
        _ => format!("fewer than {consumers} consumers"),
    };
    Error::new(ErrorKind::Partner, format!("{many} came within {} s{refusal}", deadline.as_secs_f64()))
}

fn not_open() -> Error {
    Error::new(ErrorKind::Mismatch, "the publisher was used before open(); publish all arrays, then open it")
}
