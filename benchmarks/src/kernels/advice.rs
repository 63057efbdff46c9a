//! Was the advisor right? It is asked about every kernel and every pair of layouts, from trials at sizes that were measured, about a
//! larger size that was measured, too.

use super::Answer;
use crate::machine::Failure;
use reshard_plan::advise::{Advisor, Trial, Verdict};

/// How advice from some trials did at one size, over all kernels and pairs of layouts.
#[derive(Default)]
pub struct Record {
    pub trials: Vec<usize>,
    pub size: usize,
    /// How often it said so.
    pub moves: usize,
    pub stays: usize,
    pub close: usize,
    /// How many of the moves and stays were right.
    pub right: usize,
    /// Time over that of the better choice, summed up, as a part of it: with the advice (`close` means to stay), always staying, always moving.
    pub advised: f64,
    pub always_stay: f64,
    pub always_move: f64,
    /// The worst single advice: time over the better choice, as a part of it.
    pub worst: f64,
}

/// All that can be asked: from one smaller size, and from two.
pub fn records(answers: &[Answer]) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    for (at, target) in answers.iter().enumerate() {
        let smaller = &answers[..at];
        for trial in smaller {
            records.push(record(&[trial], target)?);
        }
        for pair in smaller.windows(2) {
            records.push(record(&[&pair[0], &pair[1]], target)?);
        }
    }
    Ok(records)
}

fn record(trials: &[&Answer], target: &Answer) -> Result<Record, Failure> {
    let mut record = Record {
        trials: trials.iter().map(|answer| answer.size).collect(),
        size: target.size,
        ..Record::default()
    };
    let [mut better, mut advised, mut stayed, mut moved] = [0.0; 4];
    for kernel in 0..3 {
        for here in 0..target.layouts.len() {
            for there in (0..target.layouts.len()).filter(|&there| there != here) {
                let moving =
                    |answer: &Answer| answer.redistribution(kernel, here, there, |times| times.again);
                let timed = |answer: &&Answer| {
                    let (stay, redistribution) = (answer.stay(kernel), moving(answer));
                    Trial::new(answer.size as f64, stay[here], stay[there], redistribution)
                };
                let trials = trials.iter().map(timed).collect::<Result<Vec<_>, _>>()?;
                let verdict = Advisor::new(&trials)?.advise(target.size as f64, 1)?.verdict;
                let stay = target.stay(kernel)[here];
                let go = target.stay(kernel)[there] + moving(target);
                let chosen = if verdict == Verdict::Move { go } else { stay };
                match verdict {
                    Verdict::Move => record.moves += 1,
                    Verdict::Stay => record.stays += 1,
                    Verdict::Close => record.close += 1,
                }
                record.right += usize::from(verdict != Verdict::Close && chosen <= stay.min(go));
                // Relative to the better choice, so that large matrices and slow kernels do not decide alone.
                let least = stay.min(go);
                record.worst = record.worst.max(chosen / least - 1.0);
                better += 1.0;
                advised += chosen / least - 1.0;
                stayed += stay / least - 1.0;
                moved += go / least - 1.0;
            }
        }
    }
    (record.advised, record.always_stay, record.always_move) =
        (advised / better, stayed / better, moved / better);
    Ok(record)
}
