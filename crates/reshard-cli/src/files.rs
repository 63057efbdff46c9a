//! `reshard make`, `verify` and `show`: sets of files, one for each rank; `convert` is in `convert.rs`.

pub mod convert;
mod table;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::layout::picture;
use crate::run::progress::Progress;
use crate::screen::{Screen, counted, index};
use crate::words::type_name;
use reshard::{ElementType, Layout, MemoryOrder};
use reshard_plan::notation::{parse_pattern, parse_shape};
use reshard_shards::collective::Ranks;
use reshard_shards::{Array, Format, Import, Layouts, ShardSet, make};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// The most files that are listed on the screen.
const SHOWN_FILES: usize = 64;

/// What is in a set.
#[derive(Serialize)]
struct SetAnswer {
    path: String,
    #[serde(flatten)]
    only: Option<ArrayAnswer>,
    bytes: u64,
    files: Vec<String>,
    made: bool,
    tensors: Vec<TensorAnswer>,
}

/// One array of a set.
#[derive(Serialize)]
struct ArrayAnswer {
    shape: Vec<u64>,
    layout: String,
    order: &'static str,
    #[serde(rename = "type")]
    element: String,
}

#[derive(Serialize)]
struct TensorAnswer {
    name: String,
    #[serde(flatten)]
    array: ArrayAnswer,
    bytes: u64,
}

impl ArrayAnswer {
    fn of(array: &Array) -> Self {
        let distribution = array.layout().distribution();
        Self {
            shape: distribution.shape(),
            layout: distribution.pattern().to_string(),
            order: if array.layout().order() == MemoryOrder::ColMajor { "col" } else { "row" },
            element: array.element().to_string(),
        }
    }
}

#[derive(Serialize)]
struct MakeAnswer {
    path: String,
    bytes: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct VerifyAnswer {
    path: String,
    files: u64,
    bytes: u64,
    elements: u64,
    replicated: u64,
    verified: bool,
    seconds: f64,
}

/// A bar that says how fast it goes and how long it takes.
fn bar<'p>(progress: &'p mut Progress, what: &'p str) -> impl FnMut(u64, u64) + 'p {
    let began = Instant::now();
    move |done, total| {
        let rate = done as f64 / began.elapsed().as_secs_f64().max(1e-9);
        let left = (total - done.min(total)) as f64 / rate.max(1.0);
        let share = done as f64 / total.max(1) as f64;
        progress.at(share, &format!("{what}, {:.2} GB/s, {left:.0} s left", rate * 1e-9));
    }
}

fn format_of(name: &str) -> Result<Format, Failure> {
    match name {
        "npy" => Ok(Format::Npy),
        "raw" => Ok(Format::Raw),
        "safetensors" => Ok(Format::Safetensors),
        other => {
            Err(Failure::usage(&format!("--format was given as {other}; there are npy, raw and safetensors")))
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 * 1e-6)
}

pub fn make_set(args: &args::MakeSet) -> Result<(), Failure> {
    let (pattern, order) = parse_pattern(&args.layout).map_err(Failure::of_flag("--layout"))?;
    let shape = parse_shape(&args.shape).map_err(Failure::of_flag("--shape"))?;
    let distribution = pattern.over(&shape).map_err(Failure::of_flag("--layout"))?;
    let element: ElementType = type_name(&args.element).parse().map_err(Failure::of_flag("--type"))?;
    let format = format_of(&args.format)?;
    // Tensors have one order.
    let usual = if format == Format::Safetensors { MemoryOrder::RowMajor } else { MemoryOrder::ColMajor };
    let layout = Layout::new(distribution, order.unwrap_or(usual));
    allow_many_files();
    let began = Instant::now();
    let mut progress =
        Progress::new(!args.json, layout.distribution().elems().saturating_mul(element.bytes()));
    let bytes = make(&args.directory, &layout, element, format, args.seed, bar(&mut progress, "making"))
        .map_err(|error| Failure::while_running(&error))?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &MakeAnswer { path: args.directory.clone(), bytes, seconds })?;
    } else {
        let files = counted(layout.distribution().grid().size(), "file");
        writeln!(
            screen.out,
            "{}: {} in {files}, {layout}, made in {seconds:.2} s",
            args.directory,
            megabytes(bytes)
        )?;
    }
    Ok(())
}

/// A set has a file for each rank, and all of them are open at once: as many are asked for as one may have, which is more than one has from
/// the start. That fewer are possible is said where one is opened.
fn allow_many_files() {
    let allowed = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: allowed.maximum, ..allowed });
}

/// True if arrays of a set have names.
fn has_tensors(set: &ShardSet) -> bool {
    set.arrays().iter().any(|array| !array.name().is_empty())
}

/// The set of a path: a directory with a manifest, or files without one as they are described.
fn opened(path: &str, described: &args::Described, ranks: Option<&Ranks>) -> Result<ShardSet, Failure> {
    allow_many_files();
    let args::Described { from, shape, element } = described;
    let given = [("--from", !from.is_empty()), ("--shape", shape.is_some()), ("--type", element.is_some())];
    let given = given.into_iter().find_map(|(flag, given)| given.then_some(flag));
    if !is_pattern(path) && !Path::new(path).is_file() {
        if let Some(flag) = given {
            return Err(Failure::usage(&format!(
                "{flag} was given for {path}, and describes files without a manifest; name them, as in '{path}/rank_{{rank:04}}.npy', or leave \
                 {flag} out"
            )));
        }
        let set = ranks.map_or_else(|| ShardSet::open(path), |ranks| ranks.open(path));
        return set.map_err(|error| Failure::while_running(&error));
    }
    let mut import = Import::default();
    import = import.with_layouts(Layouts::new(from).map_err(Failure::of_flag("--from"))?);
    if let Some(shape) = shape {
        import = import.with_shape(&parse_shape(shape).map_err(Failure::of_flag("--shape"))?);
    }
    if let Some(element) = element {
        import = import.with_element(type_name(element).parse().map_err(Failure::of_flag("--type"))?);
    }
    let set = ranks.map_or_else(|| ShardSet::import(path, &import), |ranks| ranks.import(path, &import));
    set.map_err(|error| Failure::while_running(&error))
}

/// True if the last part of a path is a pattern of names.
fn is_pattern(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.contains(['{', '}']))
}

pub fn verify_set(args: &args::VerifySet) -> Result<(), Failure> {
    let began = Instant::now();
    let set = opened(&args.source, &args.described, None)?;
    let mut progress = Progress::new(!args.json, set.bytes());
    let verified =
        set.verify(bar(&mut progress, "verifying")).map_err(|error| Failure::while_running(&error))?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let mut screen = Screen::new();
    if args.json {
        let answer = VerifyAnswer {
            path: args.source.clone(),
            files: verified.files,
            bytes: verified.bytes,
            elements: verified.elements,
            replicated: verified.replicated,
            verified: true,
            seconds,
        };
        return Ok(json::write(&mut screen, &answer)?);
    }
    let elements = match (verified.elements, set.made()) {
        (_, None) => "what its elements must be is not known".to_string(),
        (count, Some(_)) => format!("{count} elements are what they were made as"),
    };
    let files = counted(verified.files, "file");
    let checksums = match verified.files {
        0 => "the set has no checksums".to_string(),
        _ => format!("checksums of {files} are right"),
    };
    let copies = match verified.replicated {
        0 => String::new(),
        count => format!(", copies of {} are equal", counted(count, "replicated array")),
    };
    writeln!(screen.out, "{}: {checksums}{copies}, {elements} ({seconds:.2} s)", args.source)?;
    Ok(())
}

pub fn show_set(args: &args::ShowSet) -> Result<(), Failure> {
    let set = opened(&args.source, &args.described, None)?;
    let mut screen = Screen::new();
    let distribution = set.layout().distribution();
    if args.json {
        let tensors = set.arrays().iter().filter(|_| has_tensors(&set)).map(|array| TensorAnswer {
            name: array.name().into(),
            array: ArrayAnswer::of(array),
            bytes: array.bytes(),
        });
        let answer = SetAnswer {
            path: args.source.clone(),
            only: if let [array] = set.arrays() { Some(ArrayAnswer::of(array)) } else { None },
            bytes: set.bytes(),
            files: set.names().map(String::from).collect(),
            made: set.made().is_some(),
            tensors: tensors.collect(),
        };
        return Ok(json::write(&mut screen, &answer)?);
    }
    if has_tensors(&set) {
        return show_tensors(&args.source, &set, &mut screen);
    }
    let files = counted(distribution.grid().size(), "file");
    writeln!(
        screen.out,
        "{}: {} of type {}, {} in {files}",
        args.source,
        set.layout(),
        set.element(),
        megabytes(set.bytes())
    )?;
    for (rank, name) in distribution.grid().sorted_ranks().into_iter().zip(set.names()).take(SHOWN_FILES) {
        let shape = distribution.local_shape(rank).map_err(|error| Failure::while_running(&error))?;
        let rank = screen.of_rank(rank, &format!("rank {rank:>4}"));
        writeln!(screen.out, "  {rank} {name}  {}", index(&shape))?;
    }
    let more = set.names().count().saturating_sub(SHOWN_FILES);
    if more > 0 {
        writeln!(screen.out, "  and {more} more")?;
    }
    picture(&mut screen, distribution)
}

/// The tensors of a set, and its files.
fn show_tensors(path: &str, set: &ShardSet, screen: &mut Screen) -> Result<(), Failure> {
    let (tensors, files) = (counted(set.arrays().len(), "tensor"), counted(set.names().count(), "file"));
    writeln!(screen.out, "{path}: {tensors}, {} in {files}", megabytes(set.bytes()))?;
    for array in set.arrays() {
        let distribution = array.layout().distribution();
        let (element, shape, name) =
            (array.element().to_string(), index(&distribution.shape()), array.name());
        writeln!(
            screen.out,
            "  {element:<8} {shape:<16} {}  {}",
            distribution.pattern(),
            name.escape_debug()
        )?;
    }
    for (rank, name) in set.ranks().zip(set.names()).take(SHOWN_FILES) {
        let rank = screen.of_rank(rank, &format!("rank {rank:>4}"));
        writeln!(screen.out, "  {rank} {name}")?;
    }
    let more = set.names().count().saturating_sub(SHOWN_FILES);
    if more > 0 {
        writeln!(screen.out, "  and {more} more")?;
    }
    Ok(())
}
