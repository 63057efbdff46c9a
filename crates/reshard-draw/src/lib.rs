//! Pictures of redistributions, as SVG text: an array coloured by the rank that owns each element ([`layout`]), a redistribution with its
//! communication grid, steps and timeline ([`redistribution`]), strategies beside each other ([`comparison`]), and loads that are balanced
//! along a ring ([`ring`]).
//!
//! Everything is measured before it is drawn: a label that has no room is shortened or left to the tooltip, so that no two lie on each
//! other. Colours are told apart by the colour-blind, too; where there are more things than colours, they are hatched. Nothing here reads or
//! writes a file.
//!
//! ```
//! let pattern: reshard_plan::Pattern = "2x3/4x4".parse()?;
//! let svg = reshard_draw::layout("2x3/4x4 of 18x20", &pattern.over(&[18, 20])?);
//! assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
//! # Ok::<(), reshard_plan::Error>(())
//! ```

#![forbid(unsafe_code)]

mod array;
mod bars;
mod canvas;
mod comparison;
mod message_grid;
mod palette;
mod parts;
mod pictures;
mod ring;
mod scale;
mod words;

pub use array::{caption, corners};
pub use canvas::width_of;
pub use comparison::{Strategy, comparison};
pub use palette::{contrast, ink_on};
pub use pictures::{layout, redistribution};
pub use ring::{RingWords, ring};
pub use scale::{shortened, time};
pub use words::step_name;
