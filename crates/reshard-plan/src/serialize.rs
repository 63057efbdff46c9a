//! The feature `serde`: patterns, distributions and layouts are their notation, moves and plans what they were made of, schedules
//! their steps.
//!
//! What is read is checked as if it were made anew: a text that says nonsense is an error, and a plan is worked out again, which
//! takes less time than reading one would.

use crate::distribution::{Distribution, Pattern};
use crate::error::Result;
use crate::layout::Layout;
use crate::plan::{Move, Plan};
use crate::problem::Window;
use crate::schedule::{Schedule, Step};
use crate::traffic::Message;
use crate::triangle::Triangle;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// As text, in the notation.
macro_rules! as_text {
    ($($name:ident)+) => {
        $(impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        })+
    };
}

as_text! { Pattern Distribution }

/// A layout: its notation, and the strides that single ranks have for themselves.
#[derive(Serialize, Deserialize)]
struct LayoutForm {
    layout: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    strides_of: BTreeMap<u64, Vec<u64>>,
}

impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        LayoutForm { layout: self.to_string(), strides_of: self.strides_of_ranks().clone() }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Layout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let LayoutForm { layout, strides_of } = LayoutForm::deserialize(deserializer)?;
        let layout: Result<Self> = layout.parse();
        let with = |layout: Self, (rank, strides): (u64, Vec<u64>)| layout.with_strides_of(rank, &strides);
        layout.and_then(|layout| strides_of.into_iter().try_fold(layout, with)).map_err(D::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct TriangleForm {
    upper: bool,
    diagonal: i64,
}

/// A move: layouts, window and size of an element.
#[derive(Serialize, Deserialize)]
struct MoveForm {
    from: Layout,
    to: Layout,
    shape: Vec<u64>,
    from_at: Vec<u64>,
    to_at: Vec<u64>,
    axes: Vec<usize>,
    elem_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    triangle: Option<TriangleForm>,
}

impl Serialize for Move {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let problem = self.problem();
        let form = |part: Triangle| TriangleForm { upper: part.is_upper(), diagonal: part.diagonal() };
        let form = MoveForm {
            from: self.from().clone(),
            to: self.to().clone(),
            shape: problem.shape().to_vec(),
            from_at: problem.from_offset().to_vec(),
            to_at: problem.to_offset().to_vec(),
            axes: problem.axes().to_vec(),
            elem_bytes: self.elem_bytes(),
            triangle: self.triangle().map(form),
        };
        form.serialize(serializer)
    }
}

impl MoveForm {
    fn made(self) -> Result<Move> {
        let window = Window::of(&self.shape).from(&self.from_at).to(&self.to_at).permuted(&self.axes);
        let moving = Move::windowed::<u8>(self.from, self.to, window)?.of_bytes(self.elem_bytes)?;
        match self.triangle {
            None => Ok(moving),
            Some(TriangleForm { upper: true, diagonal }) => moving.only(Triangle::upper(diagonal)),
            Some(TriangleForm { upper: false, diagonal }) => moving.only(Triangle::lower(diagonal)),
        }
    }
}

impl<'de> Deserialize<'de> for Move {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        MoveForm::deserialize(deserializer)?.made().map_err(D::Error::custom)
    }
}

/// A plan: its moves and its hosted ranks, `None` for all.
#[derive(Serialize, Deserialize)]
struct PlanForm {
    moves: Vec<Move>,
    hosted: Option<Vec<u64>>,
    with_peers: bool,
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let form = PlanForm {
            moves: self.arrays().iter().map(|array| array.wanted().clone()).collect(),
            hosted: self.hosted().map(<[u64]>::to_vec),
            with_peers: self.lists_peers(),
        };
        form.serialize(serializer)
    }
}

impl PlanForm {
    fn made(self) -> Result<Plan> {
        match self.hosted {
            None => Plan::new(self.moves),
            Some(hosted) if self.with_peers => Plan::for_ranks(self.moves, &hosted)?.with_peers(),
            Some(hosted) => Plan::for_ranks(self.moves, &hosted),
        }
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        PlanForm::deserialize(deserializer)?.made().map_err(D::Error::custom)
    }
}

#[derive(Serialize)]
struct StepForm<'a> {
    cost: u64,
    messages: Vec<MessageForm<'a>>,
}

#[derive(Serialize)]
struct MessageForm<'a> {
    from: &'a u64,
    to: &'a u64,
    elems: &'a u64,
}

impl<'a> From<&'a Message> for MessageForm<'a> {
    fn from(Message { from, to, elems }: &'a Message) -> Self {
        Self { from, to, elems }
    }
}

impl<'a> From<&'a Step> for StepForm<'a> {
    fn from(Step { cost, messages, .. }: &'a Step) -> Self {
        Self { cost: *cost, messages: messages.iter().map(MessageForm::from).collect() }
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        MessageForm::from(self).serialize(serializer)
    }
}

/// A schedule, with the keys the program prints.
#[derive(Serialize)]
struct ScheduleForm<'a> {
    strategy: &'static str,
    num_steps: u64,
    total_cost: u128,
    bound_steps: u64,
    bound_cost: u128,
    optimal_steps: Option<bool>,
    optimal_cost: Option<bool>,
    steps: Vec<StepForm<'a>>,
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let form = ScheduleForm {
            strategy: self.options().strategy.name(),
            num_steps: self.num_steps(),
            total_cost: self.total_cost(),
            bound_steps: self.bound_steps(),
            bound_cost: self.bound_cost(),
            optimal_steps: self.optimal_steps(),
            optimal_cost: self.optimal_cost(),
            steps: self.steps().iter().map(StepForm::from).collect(),
        };
        form.serialize(serializer)
    }
}
