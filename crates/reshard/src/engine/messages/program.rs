//! Schedules turned round: what each rank has to do, step by step.

use crate::kernel::cargo::Cargo;
use crate::kernel::hands::Parcel;
use crate::schedule::Schedule;
use std::ops::Range;

/// All that one rank sends and receives.
#[derive(Default)]
pub struct Program {
    pub steps: Vec<Step>,
    pub sends: Vec<Parcel>,
    pub receives: Vec<Parcel>,
    /// All ranks meet after each step.
    pub meets: bool,
}

/// One step of one rank.
pub struct Step {
    /// Its number in the whole run.
    pub number: u64,
    /// Which of the rank's parcels it sends.
    pub sends: Range<usize>,
    /// Which it receives.
    pub receives: Range<usize>,
}

/// The programs of all ranks: the schedules one after the other. Steps in which a rank has nothing to do are left out
/// unless all ranks meet after each.
pub fn of_ranks(cargo: &Cargo, schedules: &[Schedule], barriers: bool) -> Vec<Program> {
    let program = |_| Program { meets: barriers, ..Program::default() };
    let mut programs: Vec<Program> = cargo.ranks().iter().map(program).collect();
    // Messages may be cut: so many positions of each went in earlier steps.
    let mut gone = vec![0; cargo.messages().len()];
    let mut number = 0;
    for (group, schedule) in schedules.iter().enumerate() {
        for step in schedule.steps() {
            let before: Vec<(usize, usize)> =
                programs.iter().map(|program| (program.sends.len(), program.receives.len())).collect();
            for part in &step.messages {
                // Of a triangle some boxes hold nothing.
                let Some(message) = cargo.find(group, part.from, part.to) else { continue };
                let begin = gone[message];
                gone[message] += part.elems;
                let parcel = Parcel { message, positions: begin..gone[message] };
                let (from, to) = (cargo.messages()[message].from, cargo.messages()[message].to);
                programs[from].sends.push(parcel.clone());
                programs[to].receives.push(parcel);
            }
            for (program, (sends, receives)) in programs.iter_mut().zip(before) {
                let (sends, receives) = (sends..program.sends.len(), receives..program.receives.len());
                if barriers || !sends.is_empty() || !receives.is_empty() {
                    program.steps.push(Step { number, sends, receives });
                }
            }
            number += 1;
        }
    }
    programs
}
