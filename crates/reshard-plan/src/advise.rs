//! Says whether it pays to move arrays to a layout in which a computation is faster, and back.
//!
//! Nobody knows beforehand which layout suits a kernel: it depends on its algorithm, on the BLAS, on the network. But two runs tell:
//! one where the arrays are, one where they could be, with the redistribution timed as well. That is a [`Trial`], best taken at a size
//! that costs little. An [`Advisor`] extends it to other sizes, as the work of the kernel grows (n^3 for matrices) and as its data
//! do (n^2), and compares. The larger a matrix, the less a redistribution weighs: [`Advice::pays_from_size`] says from where on.
//!
//! What small sizes show of large ones is only so much, and the nearer a trial is to the size in question, the better. Trials of two
//! sizes show how times grow, if both are accurate: measured on a noisy machine (docs/kernels.md), the larger one alone was right more
//! often. The advice is [`Verdict::Close`] where the two ways differ by less than a margin.

use crate::error::{Error, Result};

/// The largest size: lengths of axes end there.
const MAX_SIZE: f64 = 4.7e18;

/// The largest time in seconds: thirty years.
const MAX_SECONDS: f64 = 1e9;

/// Two timed runs of a kernel at one size: in the present layout and in the other one.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Trial {
    /// Length of an axis: n for matrices of n x n.
    pub size: f64,
    /// Seconds of the kernel in the present layout.
    pub here: f64,
    /// Seconds of the kernel in the other layout.
    pub there: f64,
    /// Seconds of all redistributions: there and, if something must come back, back.
    pub redistribution: f64,
}

impl Trial {
    /// Two timed runs at one size, and the time of the redistributions in the second one.
    pub fn new(size: f64, here: f64, there: f64, redistribution: f64) -> Result<Self> {
        if !(1.0..=MAX_SIZE).contains(&size) {
            return Err(Error::out_of_range(format!(
                "a trial was given size {size}; it must be from 1 to 2^62, the length of an axis"
            )));
        }
        for (what, seconds) in [
            ("in the present layout", here),
            ("in the other layout", there),
            ("of redistribution", redistribution),
        ] {
            if !(0.0..=MAX_SECONDS).contains(&seconds) {
                return Err(Error::out_of_range(format!(
                    "a trial was given {seconds} seconds {what}; it must be from 0 to 1e9 seconds"
                )));
            }
        }
        Ok(Self { size, here, there, redistribution })
    }
}

/// Predicts both ways, at any size, from trials.
///
/// ```
/// use reshard_plan::advise::{Advisor, Trial, Verdict};
/// // LU of 512 x 512: 24 ms in the present layout, 6 ms in the other one, 1 ms to move the matrix there and back.
/// let advisor = Advisor::new(&[Trial::new(512.0, 0.024, 0.006, 0.001)?])?;
/// let advice = advisor.advise(4096.0, 1)?;
/// assert_eq!(advice.verdict, Verdict::Move);
/// assert!((advice.stay - 0.024 * 512.0).abs() < 1e-9); // eight times the size, 512 times the work,
/// assert!((advice.redistribution - 0.064).abs() < 1e-9); // and 64 times the data
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Advisor {
    here: Growth,
    there: Growth,
    /// Seconds of the redistributions divided by size^data.
    redistribution: f64,
    work: f64,
    data: f64,
    margin: f64,
}

/// Seconds of a kernel: `work_seconds * size^work + data_seconds * size^data`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Growth {
    work_seconds: f64,
    data_seconds: f64,
}

/// What an [`Advisor`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Redistributing is faster.
    Move,
    /// Staying is faster.
    Stay,
    /// The two differ by less than the margin.
    Close,
}

impl Verdict {
    /// The name of the verdict in JSON: short, lower case, and stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Stay => "stay",
            Self::Close => "close",
        }
    }
}

/// Both ways at one size, in predicted seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// What to do.
    pub verdict: Verdict,
    /// Seconds of all runs of the kernel in the present layout.
    pub stay: f64,
    /// Seconds of the redistributions and of all runs in the other layout.
    pub move_there: f64,
    /// Seconds of the redistributions alone.
    pub redistribution: f64,
    /// The fewest runs of the kernel, between one redistribution there and one back, for which redistributing is faster at this size;
    /// none if the kernel is not faster there.
    pub pays_from_runs: Option<u64>,
    /// The smallest size from which on redistributing is faster for this many runs; none if it is not for large ones.
    pub pays_from_size: Option<u64>,
}

impl Advice {
    /// The part of the time that redistributing saves, in per cent; negative if it costs time.
    pub fn gain_percent(&self) -> f64 {
        if self.stay > 0.0 { 100.0 * (1.0 - self.move_there / self.stay) } else { 0.0 }
    }
}

impl Advisor {
    /// An advisor from one trial or from several of different sizes, for kernels whose work grows with size^3 and whose data grow
    /// with size^2, with a margin of a tenth.
    ///
    /// From one trial, all of a kernel's time is taken to grow as its work does. From several, the two largest decide how much of it
    /// grows only as its data do. The redistributions are extended from the largest.
    pub fn new(trials: &[Trial]) -> Result<Self> {
        Self::with_growth(trials, 3.0, 2.0)
    }

    /// A model from trials of kernels whose work grows with size^`work` and whose data grow with size^`data`.
    pub fn with_growth(trials: &[Trial], work: f64, data: f64) -> Result<Self> {
        if !(0.0 < data && data < work && work <= 16.0) {
            return Err(Error::out_of_range(format!(
                "work was given as size^{work} and data as size^{data}; data must grow, work faster, and neither beyond size^16"
            )));
        }
        let mut sorted = trials.to_vec();
        sorted.sort_by(|a, b| b.size.total_cmp(&a.size));
        let Some(largest) = sorted.first() else {
            return Err(Error::out_of_range(
                "no trial was given; at least one is needed: the kernel timed in both layouts, and the redistribution",
            ));
        };
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0].size == pair[1].size) {
            return Err(Error::mismatch(format!(
                "two trials of size {} were given; take the medians of both, or another size",
                twice[0].size
            )));
        }
        let growth = |seconds: fn(&Trial) -> f64| Growth::of(&sorted, seconds, work, data);
        Ok(Self {
            here: growth(|trial| trial.here),
            there: growth(|trial| trial.there),
            redistribution: largest.redistribution / largest.size.powf(data),
            work,
            data,
            margin: 0.1,
        })
    }

    /// Sets the margin: 0.1 if the two ways must differ by a tenth of the faster one.
    pub fn with_margin(self, margin: f64) -> Result<Self> {
        match (0.0..=100.0).contains(&margin) {
            true => Ok(Self { margin, ..self }),
            false => Err(Error::out_of_range(format!(
                "the margin was given as {margin}; it must be from 0 to 100, such as 0.1 for a tenth"
            ))),
        }
    }

    /// Compares staying with redistributing at a size, for so many runs of the kernel between one redistribution there and one back.
    pub fn advise(&self, size: f64, runs: u64) -> Result<Advice> {
        if !(1.0..=MAX_SIZE).contains(&size) || runs == 0 {
            return Err(Error::out_of_range(format!(
                "advice was asked for {runs} runs of size {size}; there must be at least 1 run, and a size from 1 to 2^62"
            )));
        }
        let times = runs as f64;
        let (here, there) = (self.seconds(self.here, size), self.seconds(self.there, size));
        let redistribution = self.redistribution * size.powf(self.data);
        let (stay, move_there) = (times * here, times * there + redistribution);
        let verdict = match (stay - move_there).abs() <= self.margin * stay.min(move_there) {
            true => Verdict::Close,
            false if move_there < stay => Verdict::Move,
            false => Verdict::Stay,
        };
        let gain = here - there;
        let pays_from_runs = (gain > 0.0).then(|| (redistribution / gain).floor() as u64 + 1);
        let pays_from_size = self.pays_from_size(times);
        Ok(Advice { verdict, stay, move_there, redistribution, pays_from_runs, pays_from_size })
    }

    fn seconds(&self, growth: Growth, size: f64) -> f64 {
        growth.work_seconds * size.powf(self.work) + growth.data_seconds * size.powf(self.data)
    }

    /// Redistributing is faster where, divided by size^data, `runs * (a size^(work - data) + b)` is more than the redistribution takes;
    /// a and b are what the other layout saves.
    fn pays_from_size(&self, runs: f64) -> Option<u64> {
        let a = self.here.work_seconds - self.there.work_seconds;
        let b = self.here.data_seconds - self.there.data_seconds;
        let needed = self.redistribution / runs - b;
        if a < 0.0 || (a == 0.0 && needed >= 0.0) {
            return None;
        }
        if needed < 0.0 {
            return Some(1);
        }
        let size = (needed / a).powf(1.0 / (self.work - self.data)).floor() + 1.0;
        (size <= MAX_SIZE).then_some(size as u64)
    }
}

impl Growth {
    /// Of trials by falling size: through the two largest, with no negative part; of one, all of it is work.
    fn of(trials: &[Trial], seconds: fn(&Trial) -> f64, work: f64, data: f64) -> Self {
        let all_work =
            |trial: &Trial| Self { work_seconds: seconds(trial) / trial.size.powf(work), data_seconds: 0.0 };
        match trials {
            [] => Self { work_seconds: 0.0, data_seconds: 0.0 },
            [one] => all_work(one),
            [large, small, ..] => {
                // Divided by size^data it is a line in size^(work - data).
                let point =
                    |trial: &Trial| (trial.size.powf(work - data), seconds(trial) / trial.size.powf(data));
                let ((x, y), (x_small, y_small)) = (point(large), point(small));
                let slope = (y - y_small) / (x - x_small);
                if slope < 0.0 {
                    return Self { work_seconds: 0.0, data_seconds: y };
                }
                match y - slope * x {
                    rest if rest < 0.0 => all_work(large),
                    rest => Self { work_seconds: slope, data_seconds: rest },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(is: f64, should: f64) -> bool {
        (is - should).abs() <= 1e-9 * should.abs().max(1e-9)
    }

    fn trial(size: f64, here: f64, there: f64, redistribution: f64) -> Trial {
        Trial::new(size, here, there, redistribution).expect("a sound trial")
    }

    /// A machine whose times are exactly a n^3 + b n^2, and c n^2 to redistribute, in units without rounding.
    fn exact(size: f64) -> Trial {
        let (cube, square, unit) = (size.powi(3), size.powi(2), (-30_f64).exp2());
        let [here, there, redistribution] =
            [3.0 * cube + 200.0 * square, cube + 100.0 * square, 1000.0 * square].map(|units| units * unit);
        trial(size, here, there, redistribution)
    }

    #[test]
    fn two_trials_predict_an_exact_machine_at_every_size() {
        let advisor = Advisor::new(&[exact(100.0), exact(200.0)]).expect("two sizes");
        for size in [1.0, 50.0, 450.0, 451.0, 3000.0, 1e5] {
            for runs in [1, 7] {
                let (is, should) = (advisor.advise(size, runs).expect("a size"), exact(size));
                let times = runs as f64;
                assert!(near(is.stay, times * should.here), "{size} {runs}: {is:?}");
                assert!(near(is.redistribution, should.redistribution), "{size} {runs}: {is:?}");
                assert!(near(is.move_there, times * should.there + should.redistribution), "{size} {runs}");
            }
        }
    }

    #[test]
    fn break_even_is_where_the_two_ways_meet() {
        let advisor = Advisor::new(&[exact(100.0), exact(200.0)]).expect("two sizes");
        for runs in [1, 2, 5, 9] {
            let from = advisor.advise(1.0, runs).expect("a size").pays_from_size.expect("it pays");
            let gain = |size: u64| advisor.advise(size as f64, runs).expect("a size").gain_percent();
            assert!(gain(from) > 0.0, "{runs} runs, {from}");
            assert!(from == 1 || gain(from - 1) <= 1e-9, "{runs} runs, {from}");
        }
        assert_eq!(advisor.advise(1.0, 1).expect("a size").pays_from_size, Some(451));
        // 2 n + 100 units saved for each element, 1000 to be paid: four runs at size 100.
        assert_eq!(advisor.advise(100.0, 1).expect("a size").pays_from_runs, Some(4));
        assert_eq!(advisor.advise(100.0, 3).expect("a size").verdict, Verdict::Close);
        assert_eq!(advisor.advise(100.0, 4).expect("a size").verdict, Verdict::Move);
        assert_eq!(advisor.advise(100.0, 1).expect("a size").verdict, Verdict::Stay);
        assert_eq!(advisor.advise(100.0, 40).expect("a size").verdict, Verdict::Move);
    }

    #[test]
    fn one_trial_grows_as_its_work_and_its_data_do() {
        let advisor = Advisor::new(&[trial(10.0, 2.0, 1.0, 4.0)]).expect("one trial");
        let advice = advisor.advise(20.0, 1).expect("a size");
        assert!(near(advice.stay, 16.0) && near(advice.move_there, 8.0 + 16.0), "{advice:?}");
        assert_eq!((advice.verdict, advice.pays_from_runs), (Verdict::Stay, Some(3)));
        assert_eq!(advice.pays_from_size, Some(41));
        let vectors = Advisor::with_growth(&[trial(10.0, 2.0, 1.0, 4.0)], 2.0, 1.0).expect("growth");
        assert!(near(vectors.advise(20.0, 1).expect("a size").move_there, 4.0 + 8.0));
    }

    #[test]
    fn a_slower_layout_never_pays() {
        let advice =
            Advisor::new(&[trial(10.0, 1.0, 2.0, 0.0)]).expect("a trial").advise(1e6, 1000).expect("a size");
        assert_eq!(
            (advice.verdict, advice.pays_from_runs, advice.pays_from_size),
            (Verdict::Stay, None, None)
        );
        assert!(near(advice.gain_percent(), -100.0));
        // Equal kernels: every redistribution is lost.
        let advice =
            Advisor::new(&[trial(10.0, 1.0, 1.0, 1.0)]).expect("a trial").advise(10.0, 1).expect("a size");
        assert_eq!((advice.pays_from_runs, advice.pays_from_size), (None, None));
    }

    #[test]
    fn a_kernel_that_grows_otherwise_is_never_predicted_below_zero() {
        // More slowly than the data, and faster than the work.
        for (small, large, at, should) in [(4.0, 5.0, 20.0, 20.0), (1.0, 100.0, 20.0, 800.0)] {
            let trials = [trial(5.0, small, 0.0, 0.0), trial(10.0, large, 0.0, 0.0)];
            let advice = Advisor::new(&trials).expect("two sizes").advise(at, 1).expect("a size");
            assert!(near(advice.stay, should), "{advice:?}");
        }
    }

    #[test]
    fn mistakes_get_a_sentence() {
        let says = |result: Result<Advisor>, text: &str| {
            let message = result.expect_err("a mistake").to_string();
            assert!(message.contains(text), "{message}");
        };
        let good = trial(10.0, 2.0, 1.0, 4.0);
        says(Advisor::new(&[]), "no trial was given");
        says(Advisor::new(&[good, good]), "two trials of size 10");
        says(Advisor::with_growth(&[good], 2.0, 2.0), "size^2");
        says(Advisor::new(&[good]).and_then(|advisor| advisor.with_margin(-0.1)), "margin was given as -0.1");
        let said = Trial::new(0.0, 1.0, 1.0, 1.0).expect_err("size 0").to_string();
        assert!(said.contains("size 0"), "{said}");
        let said = Trial::new(1.0, f64::NAN, 1.0, 1.0).expect_err("NaN").to_string();
        assert!(said.contains("NaN seconds"), "{said}");
        let advisor = Advisor::new(&[good]).expect("a trial");
        let said = advisor.advise(10.0, 0).expect_err("no runs").to_string();
        assert!(said.contains("0 runs"), "{said}");
        assert!(advisor.advise(f64::INFINITY, 1).is_err());
    }
}
