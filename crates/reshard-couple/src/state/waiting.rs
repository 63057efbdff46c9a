//! For whom the program waits: who has no room for another step, has not taken what it was sent, or has not left.

use super::{Consumer, ConsumerId, Stage, State, Steps};
use std::time::{Duration, Instant};

impl Steps {
    /// True if frames wait to be sent.
    fn has_unsent(&self) -> bool {
        self.waiting.iter().any(|step| step.unsent > 0)
    }
}

impl State {
    /// The oldest step of each consumer's queue that is full and may drop steps: they make room for the next step of the array.
    pub fn full(&self, place: usize) -> Vec<(ConsumerId, u32, u64)> {
        let mut found = Vec::new();
        for (id, consumer) in self.consumers.iter().filter(|(_, one)| one.stage == Stage::Admitted) {
            for (array, steps) in (0..).zip(&consumer.arrays) {
                let of_array = consumer.places.get(array as usize) == Some(&place);
                let mut free = steps.waiting.iter().filter(|step| !step.taken);
                let count = free.clone().count();
                if of_array
                    && steps.queue.drops
                    && count >= steps.queue.depth as usize
                    && let Some(oldest) = free.next()
                {
                    found.push((*id, array, oldest.announced.sequence));
                }
            }
        }
        found
    }

    /// A consumer for whose array there is no room, and which does not drop steps.
    pub fn without_room(&self, place: usize) -> Option<ConsumerId> {
        let full = |consumer: &Consumer| {
            let arrays = consumer.arrays.iter().zip(&consumer.places).filter(|(_, of)| **of == place);
            arrays
                .into_iter()
                .any(|(steps, _)| !steps.queue.drops && steps.waiting.len() >= steps.queue.depth as usize)
        };
        let mut admitted = self.consumers.iter().filter(|(_, one)| one.stage == Stage::Admitted);
        admitted.find(|(_, consumer)| full(consumer)).map(|(id, _)| *id)
    }

    /// True if all was sent but what consumers may still drop. What stays with one that was given up is nobody's concern.
    pub fn is_handed_over(&self) -> bool {
        !self.admitted().any(|(id, consumer)| self.holds_up(id, consumer))
    }

    /// Gives up those to whom nothing could be sent for so long, since this time.
    pub fn end_stalled(&mut self, since: Instant, deadline: Duration) {
        let late = |(id, consumer): &(ConsumerId, &Consumer)| {
            consumer.moved.max(since).elapsed() > deadline && self.holds_up(*id, consumer)
        };
        let late: Vec<ConsumerId> = self.admitted().filter(late).map(|(id, _)| id).collect();
        for id in late {
            self.end(id, Stage::Lost(took_no_step(id, deadline)));
        }
    }

    /// True if something for this consumer was not sent.
    fn holds_up(&self, id: ConsumerId, consumer: &Consumer) -> bool {
        let mut links = self.connections.values().filter(|link| link.consumer == Some(id));
        links.any(|link| !link.output.is_empty() || link.in_flight > 0)
            || consumer.arrays.iter().any(|steps| !steps.queue.drops && steps.has_unsent())
    }

    fn admitted(&self) -> impl Iterator<Item = (ConsumerId, &Consumer)> {
        let admitted = self.consumers.iter().filter(|(_, one)| one.stage == Stage::Admitted);
        admitted.map(|(id, one)| (*id, one))
    }

    /// True if nobody is left who gets steps from this process, or is about to.
    pub fn all_left(&self) -> bool {
        let coming =
            |one: &Consumer| matches!(one.stage, Stage::Comes | Stage::Ready) && one.control.is_some();
        if self.leads && self.consumers.values().any(coming) {
            return false;
        }
        let mut admitted = self.consumers.values().filter(|one| one.stage == Stage::Admitted);
        admitted.all(|consumer| {
            // Where connections come and go, one may still come for what was not sent.
            let waited = consumer.few_connections && consumer.arrays.iter().any(Steps::has_unsent);
            consumer.control.is_none() && consumer.data.is_empty() && !waited
        })
    }
}

/// Why a consumer is given up.
pub fn took_no_step(id: ConsumerId, deadline: Duration) -> String {
    format!("consumer {id} took no step within {} s", deadline.as_secs_f64())
}
