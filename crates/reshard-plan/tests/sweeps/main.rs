//! The sweeps of the planner, in one program: the compiler links it once.

mod axes;
mod classes;
mod copies;
mod layouts;
mod min_cost;
mod notation;
mod overlaps;
mod plans;
mod products;
mod relabel;
mod schedules;
mod serialized;
mod simulate;
mod tracks;
