//! Matches every send with its receive before anything runs, so that a missing end is found and named at once.

use super::{Fault, Op, Program};
use crate::error::Error;
use crate::memory;
use crate::traffic::Message;

/// The most messages that are simulated one by one.
const MAX_MESSAGES: usize = 4_000_000;

/// Programs whose sends are matched with their receives.
pub(super) struct Matched {
    pub messages: Vec<Message>,
    /// For each message, the programs that send and receive it.
    pub ends: Vec<(usize, usize)>,
    /// For each program, its operations: the number of a message, or `None` for a barrier.
    pub operations: Vec<Vec<Option<usize>>>,
}

impl Matched {
    pub fn new(programs: &[Program]) -> Result<Self, Fault> {
        // (from, to, program, index in it) and the length: sorted, the n-th send of a pair meets its n-th receive.
        const WHAT: &str = "the messages of all programs";
        let ops = || programs.iter().flat_map(|program| &program.ops);
        let sent = ops().filter(|op| matches!(op, Op::Send { .. })).count();
        let received = ops().filter(|op| matches!(op, Op::Receive { .. })).count();
        if sent > MAX_MESSAGES {
            return Err(Fault::Refused(Error::too_large(format!(
                "there are {sent} messages, and at most {MAX_MESSAGES} are simulated one by one; larger runs are \
                 streamed where the schedule is optimal, the network flat, and one dimension moves in whole periods"
            ))));
        }
        let mut sends = memory::with_room(sent, WHAT)?;
        let mut receives = memory::with_room(received, WHAT)?;
        let mut barriers = memory::with_room(programs.len(), WHAT)?;
        for (number, program) in programs.iter().enumerate() {
            let mut count = 0_u64;
            for (index, op) in program.ops.iter().enumerate() {
                match *op {
                    Op::Send { to, elems } => sends.push((program.rank, to, number, index, elems)),
                    Op::Receive { from, elems } => receives.push((from, program.rank, number, index, elems)),
                    Op::Barrier => count += 1,
                }
            }
            barriers.push((count, program.rank));
        }
        sends.sort_unstable();
        receives.sort_unstable();
        let message = |&(from, to, _, _, elems): &(u64, u64, usize, usize, u64)| Message { from, to, elems };
        let pair = |end: &(u64, u64, usize, usize, u64)| (end.0, end.1);
        for at in 0..sends.len().max(receives.len()) {
            match (sends.get(at), receives.get(at)) {
                (Some(send), Some(receive)) if pair(send) == pair(receive) => {
                    if send.4 != receive.4 {
                        return Err(Fault::Length { sent: message(send), expected: receive.4 });
                    }
                }
                (Some(send), receive) if receive.is_none_or(|receive| pair(send) < pair(receive)) => {
                    return Err(Fault::NeverReceived(message(send)));
                }
                (_, Some(receive)) => return Err(Fault::NeverSent(message(receive))),
                (_, None) => break,
            }
        }
        if let (Some(fewest), Some(most)) = (barriers.iter().min(), barriers.iter().max())
            && fewest.0 != most.0
        {
            return Err(Fault::Barriers { fewest: (fewest.1, fewest.0), most: (most.1, most.0) });
        }
        memory::check(ops().count() as u128 * 16 + programs.len() as u128 * 16, WHAT)?;
        let mut operations: Vec<Vec<Option<usize>>> = memory::with_room(programs.len(), WHAT)?;
        for program in programs {
            operations.push(memory::filled(None, program.ops.len(), WHAT)?);
        }
        for ends in [&sends, &receives] {
            for (number, &(_, _, program, index, _)) in ends.iter().enumerate() {
                operations[program][index] = Some(number);
            }
        }
        let ends = sends.iter().zip(&receives).map(|(send, receive)| (send.2, receive.2));
        let ends = memory::listed(ends, WHAT)?;
        Ok(Self { messages: memory::listed(sends.iter().map(message), WHAT)?, ends, operations })
    }
}
