//! `reshard make`, `convert`, `verify` and `show`: sets of files, one for each rank.

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::layout::picture;
use crate::run::progress::Progress;
use crate::run::request::amount;
use crate::screen::{Screen, counted, index};
use crate::words::type_name;
use reshard::{ElementType, Layout, MemoryOrder};
use reshard_mpi::Mpi;
use reshard_mpi::mpi::launched;
use reshard_plan::notation::{parse_pattern, parse_shape};
use reshard_shards::collective::Ranks;
use reshard_shards::{ConvertOptions, Converted, Format, Import, ShardSet, convert, make, outlook};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the ranks of a job wait for each other: one may have far more to read. Launchers end a job of which a rank has died.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The most files that are listed on the screen.
const SHOWN_FILES: usize = 64;

/// What is in a set.
#[derive(Serialize)]
struct SetAnswer {
    path: String,
    shape: Vec<u64>,
    layout: String,
    order: &'static str,
    #[serde(rename = "type")]
    element: String,
    bytes: u64,
    files: Vec<String>,
    made: bool,
}

#[derive(Serialize)]
struct MakeAnswer {
    path: String,
    bytes: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct ConvertAnswer {
    source: String,
    destination: String,
    from: String,
    to: String,
    bytes: u64,
    boxes: u64,
    resumed_boxes: u64,
    reads: u64,
    writes: u64,
    reread_bytes: u64,
    seconds: f64,
    read_seconds: f64,
    move_seconds: f64,
    write_seconds: f64,
    sync_seconds: f64,
    done: bool,
}

#[derive(Serialize)]
struct VerifyAnswer {
    path: String,
    files: u64,
    bytes: u64,
    elements: u64,
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
        other => Err(Failure::usage(&format!("--format was given as {other}; there are npy and raw"))),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 * 1e-6)
}

pub fn make_set(args: &args::MakeSet) -> Result<(), Failure> {
    let (pattern, order) = parse_pattern(&args.layout).map_err(Failure::of_flag("--layout"))?;
    let shape = parse_shape(&args.shape).map_err(Failure::of_flag("--shape"))?;
    let distribution = pattern.over(&shape).map_err(Failure::of_flag("--layout"))?;
    let layout = Layout::new(distribution, order.unwrap_or(MemoryOrder::ColMajor));
    let element: ElementType = type_name(&args.element).parse().map_err(Failure::of_flag("--type"))?;
    let format = format_of(&args.format)?;
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

/// The set of a path: a directory with a manifest, or files without one as they are described.
fn opened(path: &str, described: &args::Described, ranks: Option<&Ranks>) -> Result<ShardSet, Failure> {
    allow_many_files();
    let args::Described { from, shape, element } = described;
    let given = [("--from", from.is_some()), ("--shape", shape.is_some()), ("--type", element.is_some())];
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
    if let Some(from) = from {
        let (pattern, order) = parse_pattern(from).map_err(Failure::of_flag("--from"))?;
        import = import.with_layout(pattern);
        if let Some(order) = order {
            import = import.with_order(order);
        }
    }
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

/// True if a destination is one file, by its ending.
fn is_file_name(path: &str) -> bool {
    [".npy", ".bin"].iter().any(|ending| path.ends_with(ending))
}

/// The directory of a new set, and the names of its files if a pattern was given along with it.
fn destination_of(args: &args::ConvertSet) -> Result<(String, Option<String>), Failure> {
    if !is_pattern(&args.destination) {
        return Ok((args.destination.clone(), args.names.clone()));
    }
    match (args.destination.rsplit_once('/'), &args.names) {
        (Some(("", _)), _) => Err(Failure::usage(
            "the destination was given as names in /; give a directory that does not exist yet",
        )),
        (None, _) => Err(Failure::usage(&format!(
            "the destination was given as {}, names without a directory; give both, as in 'new/{}'",
            args.destination, args.destination
        ))),
        (Some(_), Some(names)) => Err(Failure::usage(&format!(
            "names were given twice, in the destination {} and as --names {names}; give one of them",
            args.destination
        ))),
        (Some((directory, names)), None) => Ok((directory.into(), Some(names.into()))),
    }
}

pub fn convert_set(args: &args::ConvertSet) -> Result<(), Failure> {
    if launched().is_none() {
        return convert_with(args, None);
    }
    let failed = |error: reshard::Error| Failure::while_running(&error);
    let session = Mpi::load(args.mpi.as_deref()).and_then(Mpi::init).map_err(failed)?;
    let ranks = Ranks::of(session.world(), PATIENCE).map_err(failed)?;
    let leads = session.world().rank() == 0;
    // All ranks were told what went wrong.
    convert_with(args, Some((&ranks, leads)))
        .map_err(|failure| if leads { failure.reported() } else { failure.silent() })
}

/// Converts, by this process or by all ranks of a job; one of them speaks for them.
fn convert_with(args: &args::ConvertSet, job: Option<(&Ranks, bool)>) -> Result<(), Failure> {
    let (ranks, leads) = job.map_or((None, true), |(ranks, leads)| (Some(ranks), leads));
    let (pattern, order) = parse_pattern(&args.to).map_err(Failure::of_flag("--to"))?;
    let (destination, names) = destination_of(args)?;
    let format = match (&args.format, &names) {
        (Some(format), _) => format_of(format)?,
        (None, Some(names)) if !names.ends_with(".npy") => Format::Raw,
        (None, None) if destination.ends_with(".bin") => Format::Raw,
        _ => Format::Npy,
    };
    let mut options = ConvertOptions::default().resuming(args.resume).with_format(format);
    if let Some(memory) = &args.memory {
        options = options.with_memory(amount(memory)?);
    }
    if let Some(threads) = args.threads {
        options = options.with_threads((threads.max(1)) as usize);
    }
    if is_file_name(&args.destination) && !is_pattern(&args.destination) {
        let ranks = pattern.grid().size();
        if ranks != 1 {
            return Err(Failure::usage(&format!(
                "the destination {destination} is one file, and --to {} has {ranks} ranks; give a directory, or a layout of one rank",
                args.to
            )));
        }
        if let Some(names) = &names {
            return Err(Failure::usage(&format!(
                "--names {names} was given, and the destination {destination} is one file, which has its own name; leave --names out"
            )));
        }
        options = options.as_one_file();
    }
    if let Some(bytes) = args.box_bytes {
        options = options.with_box_bytes(bytes);
    }
    let called = names.as_deref().unwrap_or(&destination);
    if (format == Format::Raw && called.ends_with(".npy"))
        || (format == Format::Npy && called.ends_with(".bin"))
    {
        return Err(Failure::usage(&format!(
            "files of the format {} were to be called {called}; npy files end in .npy, raw ones in .bin or otherwise",
            args.format.as_deref().unwrap_or("npy")
        )));
    }
    if args.no_checksums {
        options = options.without_checksums();
    }
    if let Some(names) = names {
        options = options.with_names(names);
    }
    let source = opened(&args.source, &args.described, ranks)?;
    let mut shape = source.layout().distribution().shape();
    if args.transpose {
        shape.reverse();
        let axes: Vec<usize> = (0..shape.len()).rev().collect();
        options = options.with_axes(&axes);
    }
    let distribution = pattern.over(&shape).map_err(Failure::of_flag("--to"))?;
    let to = Layout::new(distribution, order.unwrap_or(source.layout().order()));
    let mut screen = Screen::new();
    let failed = |error: reshard::Error| Failure::while_running(&error);
    let converted = match args.dry_run {
        true => outlook(&source, std::slice::from_ref(&to), &options).map_err(failed)?,
        false => {
            let mut progress = Progress::new(leads && !args.json, source.bytes());
            let bar = bar(&mut progress, "converting");
            let converted = match ranks {
                None => convert(&source, &destination, &to, &options, bar),
                Some(ranks) => ranks.convert(&source, &destination, &to, &options, bar),
            };
            converted.map_err(failed)?
        }
    };
    if !leads {
        return Ok(());
    }
    if args.json {
        let Converted { bytes, boxes, reads, writes, reread_bytes, .. } = converted;
        let answer = ConvertAnswer {
            source: args.source.clone(),
            destination,
            from: source.layout().to_string(),
            to: to.to_string(),
            bytes,
            boxes,
            resumed_boxes: converted.resumed,
            reads,
            writes,
            reread_bytes,
            seconds: converted.seconds,
            read_seconds: converted.read_seconds,
            move_seconds: converted.move_seconds,
            write_seconds: converted.write_seconds,
            sync_seconds: converted.sync_seconds,
            done: !args.dry_run,
        };
        return Ok(json::write(&mut screen, &answer)?);
    }
    let boxes = if converted.boxes == 1 { "1 box".to_string() } else { format!("{} boxes", converted.boxes) };
    if args.dry_run {
        writeln!(
            screen.out,
            "{} would go from {} to {to} in {boxes}",
            megabytes(converted.bytes),
            source.layout()
        )?;
    } else {
        let Converted { seconds, read_seconds, move_seconds, write_seconds, sync_seconds, .. } = converted;
        writeln!(
            screen.out,
            "{destination}: {} from {} to {to} in {seconds:.2} s, {boxes}",
            megabytes(converted.bytes),
            source.layout()
        )?;
        let parts = format!(
            "reading {read_seconds:.2} s, moving {move_seconds:.2} s, writing {write_seconds:.2} s, making durable {sync_seconds:.2} s"
        );
        let parts = screen.faint(&parts);
        writeln!(screen.out, "{parts}")?;
    }
    Ok(())
}

pub fn verify_set(args: &args::VerifySet) -> Result<(), Failure> {
    let began = Instant::now();
    allow_many_files();
    let set = ShardSet::open(&args.directory).map_err(|error| Failure::while_running(&error))?;
    let mut progress = Progress::new(!args.json, set.bytes());
    let verified =
        set.verify(bar(&mut progress, "verifying")).map_err(|error| Failure::while_running(&error))?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let mut screen = Screen::new();
    if args.json {
        let answer = VerifyAnswer {
            path: args.directory.clone(),
            files: verified.files,
            bytes: verified.bytes,
            elements: verified.elements,
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
    writeln!(screen.out, "{}: {checksums}, {elements} ({seconds:.2} s)", args.directory)?;
    Ok(())
}

pub fn show_set(args: &args::ShowSet) -> Result<(), Failure> {
    let set = opened(&args.source, &args.described, None)?;
    let mut screen = Screen::new();
    let distribution = set.layout().distribution();
    let order = if set.layout().order() == MemoryOrder::ColMajor { "col" } else { "row" };
    if args.json {
        let answer = SetAnswer {
            path: args.source.clone(),
            shape: distribution.shape(),
            layout: distribution.pattern().to_string(),
            order,
            element: set.element().to_string(),
            bytes: set.bytes(),
            files: set.names().map(String::from).collect(),
            made: set.made().is_some(),
        };
        return Ok(json::write(&mut screen, &answer)?);
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
