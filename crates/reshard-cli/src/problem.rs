//! Parses layouts, shapes, windows and axes into a problem. Every command that moves an array uses it, so that all have equal
//! flags and equal errors.

use crate::args;
use crate::failure::Failure;
use crate::screen::counted;
use reshard_plan::notation::{parse_index, parse_pattern, parse_shape};
use reshard_plan::{Error, MemoryOrder, Pattern, Problem, Window, one_period};
use serde::Serialize;

/// The redistribution that the arguments describe.
pub struct MoveRequest {
    pub from: Pattern,
    pub to: Pattern,
    pub problem: Problem,
}

/// The request as results in JSON repeat it: one file may hold many results.
#[derive(Serialize)]
pub struct Echo {
    from: String,
    to: String,
    /// The shape of the window that moves, in the source's order of axes.
    shape: Vec<u64>,
}

impl MoveRequest {
    pub fn echo(&self) -> Echo {
        let shape = self.problem.shape().to_vec();
        Echo { from: self.from.to_string(), to: self.to.to_string(), shape }
    }

    /// Reads the arguments of commands that need no addresses: layouts with `memory=` are refused.
    pub fn read(args: &args::Move) -> Result<Self, Failure> {
        let [(from_word, from), (to_word, to)] = layouts(args)?;
        let from: Pattern = from.parse().map_err(layout_error(from_word, from))?;
        let to: Pattern = to.parse().map_err(layout_error(to_word, to))?;
        Self::between(args, from, to)
    }

    /// Reads the arguments of commands that move data: also returns the memory order that each layout gives, as in
    /// `4x4/64x64 memory=row`.
    pub fn read_with_memory(args: &args::Move) -> Result<(Self, [Option<MemoryOrder>; 2]), Failure> {
        let [(from_word, from), (to_word, to)] = layouts(args)?;
        let (from, source) = parse_pattern(from).map_err(layout_error(from_word, from))?;
        let (to, destination) = parse_pattern(to).map_err(layout_error(to_word, to))?;
        Ok((Self::between(args, from, to)?, [source, destination]))
    }

    fn between(args: &args::Move, from: Pattern, to: Pattern) -> Result<Self, Failure> {
        let dims = from.grid().dims();
        if dims != to.grid().dims() {
            return Err(Failure::usage(&format!(
                "the source has {} and the destination {}; give both layouts as many as the array has",
                counted(dims, "dimension"),
                to.grid().dims()
            )));
        }
        let shape_flag = |flag, text| numbers(flag, text, dims, parse_shape);
        let index_flag = |flag, text| numbers(flag, text, dims, parse_index);
        let axes = axes(args, dims)?;
        let shape = match shape_flag("--shape", &args.shape)? {
            Some(shape) => shape,
            None if args.transpose || args.permute.is_some() || args.to_shape.is_some() => {
                return Err(Failure::usage(
                    "give the shape of the array with --shape; only an array moved as it is has one period",
                ));
            }
            None => {
                one_period(&from, &to).map_err(Failure::hint("give the shape of the array", "--shape"))?
            }
        };
        let to_shape = shape_flag("--to-shape", &args.to_shape)?
            .unwrap_or_else(|| axes.iter().map(|&axis| shape[axis]).collect());
        let (source, destination) = (from.over(&shape)?, to.over(&to_shape)?);
        let from_at = index_flag("--from-at", &args.from_at)?.unwrap_or_else(|| vec![0; dims]);
        let to_at = index_flag("--to-at", &args.to_at)?.unwrap_or_else(|| vec![0; dims]);
        // Without a window, everything from the offsets of the source on.
        let window = match shape_flag("--window", &args.window)? {
            Some(window) => window,
            None => {
                let rest: Vec<u64> =
                    shape.iter().zip(&from_at).map(|(len, at)| len.saturating_sub(*at)).collect();
                let lacks = |dim: &usize| to_at[*dim].saturating_add(rest[axes[*dim]]) > to_shape[*dim];
                if let Some(dim) = (0..dims).find(lacks) {
                    return Err(Failure::usage(&format!(
                        "{} elements of dimension {} move to index {} of dimension {dim} of the destination, which has {}; \
                         say with --window what moves, or make the destination larger",
                        rest[axes[dim]], axes[dim], to_at[dim], to_shape[dim]
                    )));
                }
                rest
            }
        };
        let window = Window::of(&window).from(&from_at).to(&to_at).permuted(&axes);
        let problem = Problem::windowed(source, destination, window)?;
        Ok(Self { from, to, problem })
    }

    /// True if the whole array moves as it is.
    pub fn is_plain(&self) -> bool {
        let (from, to, shape) =
            (self.problem.from().shape(), self.problem.to().shape(), self.problem.shape());
        from == shape && to == shape && self.problem.axes().is_sorted()
    }
}

/// The two layouts, each with what errors call it.
fn layouts(args: &args::Move) -> Result<[(&'static str, &str); 2], Failure> {
    match (&args.layouts[..], &args.from, &args.to) {
        ([from, to], None, None) => Ok([("the source", from), ("the destination", to)]),
        ([], Some(from), Some(to)) => Ok([("--from", from), ("--to", to)]),
        ([one], ..) => Err(Failure::usage(&format!(
            "one layout was given, {one:?}; give that of the source and that of the destination, such as 16/3 16/5"
        ))),
        (_, None, None) => {
            Err(Failure::usage("no layouts were given; give two, such as 16/3 16/5, or --from and --to"))
        }
        (_, from, _) => {
            let missing = if from.is_none() { "--from" } else { "--to" };
            Err(Failure::usage(&format!("{missing} is missing; give the layouts of both sides")))
        }
    }
}

/// The error of a layout. In the library's notation a layout includes its shape; here the shape has a flag.
fn layout_error(flag: &'static str, text: &str) -> impl Fn(Error) -> Failure {
    move |error| match text.split_whitespace().any(|word| word.eq_ignore_ascii_case("of")) {
        true => Failure::usage_of(
            &error,
            format!("{flag}: unexpected \"of\" in {text:?}; give the shape with --shape"),
        ),
        false => Failure::of_flag(flag)(error),
    }
}

/// The numbers of a flag, one for each dimension; `None` if it was not given.
fn numbers(
    flag: &'static str,
    text: &Option<String>,
    dims: usize,
    parse: fn(&str) -> reshard_plan::Result<Vec<u64>>,
) -> Result<Option<Vec<u64>>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let numbers = parse(text).map_err(Failure::of_flag(flag))?;
    if numbers.len() != dims {
        return Err(Failure::usage(&format!(
            "{flag}: {text:?} has {}, but the layouts have {dims}; give one number for each",
            counted(numbers.len(), "dimension")
        )));
    }
    Ok(Some(numbers))
}

/// The permutation of the axes.
fn axes(args: &args::Move, dims: usize) -> Result<Vec<usize>, Failure> {
    let Some(axes) = numbers("--permute", &args.permute, dims, parse_index)? else {
        return Ok(if args.transpose { (0..dims).rev().collect() } else { (0..dims).collect() });
    };
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..dims as u64) {
        return Err(Failure::usage(&format!(
            "--permute: {axes:?} is not a permutation of the axes; name each from 0 to {} once",
            dims - 1
        )));
    }
    Ok(axes.into_iter().map(|axis| axis as usize).collect())
}
