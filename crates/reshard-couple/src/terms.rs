//! What two jobs tell each other in words, and what must fit before anything moves: names, shapes, types of elements, byte order,
//! distributions. Texts are JSON, so that a person can read them.

use crate::bounds::check_copies;
use crate::element::ElementType;
use reshard::{Layout, Move, Result, Window};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The order of bytes in this machine's numbers.
pub const BYTE_ORDER: &str = if cfg!(target_endian = "little") { "little" } else { "big" };

/// The most bytes that a program may send along with a step.
pub const MAX_HEADER_BYTES: usize = 4096;

/// The most steps that are kept for a consumer.
const MAX_DEPTH: u32 = 1024;

/// The most steps that are kept for a consumer of many arrays.
pub const MAX_QUEUED: u64 = 1 << 15;

/// The most letters of a reason that one job tells the other.
pub const MAX_REASON: usize = 1000;

/// The most arrays of a coupling.
const MAX_ARRAYS: usize = 4096;

/// An array that a producer has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub name: String,
    pub element: ElementType,
    pub layout: Layout,
}

/// An array that was published, or subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayId(pub(crate) usize);

/// What becomes of steps that the consumer has not asked for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Steps that a producer keeps, at least 1.
    pub depth: u32,
    /// When there is one more: true if the oldest is dropped, false if the producer waits.
    pub drops: bool,
}

/// An array that a consumer wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub name: String,
    pub element: ElementType,
    pub layout: Layout,
    /// Which part of the producer's array, and where to; all of it, if there is none.
    pub window: Option<Part>,
    pub queue: Queue,
    /// Nothing is written until all of a step is there; the producer need not know.
    #[serde(skip)]
    pub whole: bool,
}

/// A window, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub shape: Vec<u64>,
    pub from: Vec<u64>,
    pub to: Vec<u64>,
    pub axes: Vec<usize>,
}

impl Wanted {
    /// True if no step of it has any elements: then nothing but the consumer's word says that it was taken.
    pub fn is_empty(&self) -> bool {
        match &self.window {
            Some(part) => part.shape.contains(&0),
            None => self.layout.distribution().shape().contains(&0),
        }
    }
}

impl Part {
    pub fn window(&self) -> Window {
        Window::of(&self.shape).from(&self.from).to(&self.to).permuted(&self.axes)
    }
}

/// A process of a job: where it listens, and the ranks it hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub address: String,
    /// A name by which processes of the same machine reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    pub ranks: Range<u64>,
}

/// The first text of a consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub byte_order: String,
    pub processes: Vec<Process>,
    pub arrays: Vec<Wanted>,
    /// It does not hold all its connections all the time.
    #[serde(default)]
    pub few_connections: bool,
}

/// The producer's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The number of this consumer.
    pub consumer: u64,
    pub processes: Vec<Process>,
    /// The layouts of the arrays that the consumer wants.
    pub layouts: Vec<Layout>,
}

/// A step of an array, without its elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    pub array: u32,
    pub sequence: u64,
    /// The producer's number of the step.
    pub number: u64,
    /// What the producer says of it.
    pub header: Vec<u8>,
}

/// What leaders say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Text {
    Hello(Hello),
    Welcome(Welcome),
    /// This cannot be coupled.
    Refused {
        why: String,
    },
    /// All connections of the consumer are there.
    Ready,
    /// The consumer waits for the next step of this array, where steps may be dropped; it has taken one, where steps have no elements.
    Next {
        array: u32,
    },
    Step(Announced),
    /// The consumer closes this connection, and will come again.
    Pause,
    /// There are no more steps of this array.
    End {
        array: u32,
    },
    /// The consumer wants no more; true if it has taken all there was.
    Leave {
        complete: bool,
    },
    /// This side ends the coupling, for this reason.
    Bye {
        why: String,
    },
}

impl Text {
    /// Goodbye, with the beginning of a reason: it may name things of any length.
    pub fn bye(why: &str) -> Self {
        Self::Bye { why: why.chars().take(MAX_REASON).collect() }
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts have no map with keys that are no text")
    }

    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("a text came that cannot be read: {error}"))
    }
}

/// The number of ranks of a job with these layouts.
pub fn ranks<'l>(layouts: impl Iterator<Item = &'l Layout>) -> u64 {
    layouts.filter_map(|layout| layout.distribution().grid().max_rank()).max().map_or(0, |rank| rank + 1)
}

/// What a consumer may not get, in one sentence; otherwise the places of its arrays among those of the producer.
pub fn check(
    published: &[Published],
    hello: &Hello,
    processes: &[Process],
) -> std::result::Result<Vec<usize>, String> {
    if hello.byte_order != BYTE_ORDER {
        return Err(format!(
            "the consumer's numbers are {} endian and the producer's {BYTE_ORDER} endian; bytes are not swapped on the way",
            hello.byte_order
        ));
    }
    if hello.arrays.is_empty() || hello.arrays.len() > MAX_ARRAYS {
        return Err(format!(
            "the consumer wants {} arrays; it can want 1 to {MAX_ARRAYS}",
            hello.arrays.len()
        ));
    }
    check_processes("consumer", &hello.processes, ranks(hello.arrays.iter().map(|wanted| &wanted.layout)))?;
    let producer_ranks = processes.iter().map(|process| process.ranks.end).max().unwrap_or(0);
    let place = |wanted: &Wanted| {
        let Some(place) = published.iter().position(|one| one.name == wanted.name) else {
            let names: Vec<String> = published.iter().map(|one| format!("'{}'", one.name)).collect();
            return Err(format!(
                "the consumer wants the array '{}', and the producer has {}",
                wanted.name,
                if names.is_empty() { "none".into() } else { names.join(", ") }
            ));
        };
        let one = &published[place];
        if one.element != wanted.element {
            return Err(format!(
                "the array '{}' has elements of type {} at the producer, and the consumer wants {}; nothing is converted on the way",
                one.name, one.element, wanted.element
            ));
        }
        if !(1..=MAX_DEPTH).contains(&wanted.queue.depth) {
            return Err(format!(
                "the consumer wants a queue of {} steps of the array '{}'; it has 1 to {MAX_DEPTH}",
                wanted.queue.depth, one.name
            ));
        }
        match moved(one, wanted, producer_ranks) {
            Ok(moved) => Ok((place, moved)),
            Err(error) => Err(format!("the array '{}' does not fit: {error}", one.name)),
        }
    };
    let found = hello.arrays.iter().map(place).collect::<std::result::Result<Vec<_>, _>>()?;
    let (places, moves): (Vec<usize>, Vec<Move>) = found.into_iter().unzip();
    let asked = hello.arrays.iter().zip(&moves);
    let asked = asked.map(|(wanted, moved)| (wanted.name.as_str(), moved, wanted.queue.depth));
    check_copies(asked, processes.len())?;
    let steps: u64 = hello.arrays.iter().map(|wanted| u64::from(wanted.queue.depth)).sum();
    match steps <= MAX_QUEUED {
        true => Ok(places),
        false => Err(format!(
            "the queues of the consumer's {} arrays have {steps} steps; together they may have {MAX_QUEUED}",
            hello.arrays.len()
        )),
    }
}

/// Fails unless every rank is hosted once.
pub fn check_processes(side: &str, processes: &[Process], ranks: u64) -> std::result::Result<(), String> {
    let mut end = 0;
    for process in processes {
        if process.ranks.start != end || process.ranks.end < end {
            return Err(format!("the processes of the {side} do not host its ranks one after the other"));
        }
        end = process.ranks.end;
    }
    match end >= ranks && processes.len() < u32::MAX as usize && end < u64::from(u32::MAX) {
        true => Ok(()),
        false => Err(format!("the {side} has {end} ranks, and its layouts have {ranks}")),
    }
}

/// The process that hosts a rank.
pub fn process_of(processes: &[Process], rank: u64) -> u32 {
    processes.partition_point(|process| process.ranks.end <= rank) as u32
}

/// The move of one array. The ranks of the consumer follow those of the producer.
pub fn moved(published: &Published, wanted: &Wanted, producer_ranks: u64) -> Result<Move> {
    let (from, to) = (published.layout.clone(), wanted.layout.clone().shifted(producer_ranks)?);
    let moved = match &wanted.window {
        None => Move::of::<u8>(from, to)?,
        Some(part) => Move::windowed::<u8>(from, to, part.window())?,
    };
    moved.of_bytes(wanted.element.bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn published() -> Vec<Published> {
        let of = |name: &str, layout: &str| Published {
            name: name.into(),
            element: ElementType::of::<f64>(),
            layout: layout.parse().unwrap(),
        };
        vec![of("p", "2/5 of 40"), of("t", "2x2/4x4 of 20x30")]
    }

    fn hello() -> Hello {
        Hello {
            byte_order: BYTE_ORDER.into(),
            processes: vec![Process { address: String::new(), local: None, ranks: 0..3 }],
            arrays: vec![Wanted {
                name: "t".into(),
                element: ElementType::of::<f64>(),
                layout: "3x1/5x5 of 20x30".parse().unwrap(),
                window: None,
                queue: Queue { depth: 1, drops: false },
                whole: false,
            }],
            few_connections: false,
        }
    }

    #[test]
    fn what_fits_is_found() {
        let hosts = [Process { address: String::new(), local: None, ranks: 0..4 }];
        assert_eq!(check(&published(), &hello(), &hosts), Ok(vec![1]));
        let text = Text::Hello(hello());
        assert_eq!(Text::decode(&text.encode()), Ok(text));
    }

    #[test]
    fn each_thing_that_does_not_fit_is_named() {
        let hosts = [Process { address: String::new(), local: None, ranks: 0..4 }];
        type Change = fn(&mut Hello);
        let changes: [(Change, &str); 11] = [
            (|hello| hello.byte_order = "big".into(), "big endian"),
            (|hello| hello.arrays.clear(), "0 arrays"),
            (|hello| hello.arrays[0].name = "u".into(), "'u', and the producer has 'p', 't'"),
            (
                |hello| hello.arrays[0].element = ElementType::of::<f32>(),
                "type f64 at the producer, and the consumer wants f32",
            ),
            (|hello| hello.arrays[0].layout = "3x1/5x5 of 20x31".parse().unwrap(), "20x31"),
            (|hello| hello.arrays[0].layout = "3/5 of 20".parse().unwrap(), "dimension"),
            (|hello| hello.arrays[0].queue.depth = 0, "queue of 0 steps"),
            (
                |hello| {
                    hello.arrays[0].queue.depth = MAX_DEPTH;
                    hello.arrays = vec![hello.arrays[0].clone(); 33];
                },
                "33 arrays have 33792 steps; together they may have 32768",
            ),
            (|hello| hello.processes[0].ranks = 0..2, "has 2 ranks, and its layouts have 3"),
            (|hello| hello.processes[0].ranks = 1..3, "one after the other"),
            (
                |hello| {
                    let of = |numbers: [u64; 2]| numbers.to_vec();
                    let part =
                        Part { shape: of([20, 30]), from: of([1, 0]), to: of([0, 0]), axes: vec![0, 1] };
                    hello.arrays[0].window = Some(part);
                },
                "does not fit",
            ),
        ];
        for (change, expected) in changes {
            let mut wrong = hello();
            change(&mut wrong);
            let said = check(&published(), &wrong, &hosts).unwrap_err();
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}
