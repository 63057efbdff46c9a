//! `reshard convert`: what was typed becomes options of a conversion, which one process does or all ranks of a job share.

use super::table::{TensorRow, draw, rows};
use super::{bar, format_of, has_tensors, is_pattern, megabytes, opened};
use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::run::progress::Progress;
use crate::run::request::amount;
use crate::screen::{Screen, counted};
use reshard::Layout;
use reshard_mpi::Mpi;
use reshard_mpi::mpi::launched;
use reshard_shards::collective::Ranks;
use reshard_shards::{ConvertOptions, Converted, Expected, Format, Layouts, convert_arrays, outlook};
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// How long the ranks of a job wait for each other: one may have far more to read. Launchers end a job of which a rank has died.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

#[derive(Serialize)]
struct ConvertAnswer {
    source: String,
    destination: String,
    /// Of the only array; of several none is said.
    from: Option<String>,
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<usize>,
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
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<Vec<TensorRow>>,
}

/// The format that a name says; files of other names may be anything.
fn format_by_name(name: &str) -> Option<Format> {
    let endings = [(".npy", Format::Npy), (".bin", Format::Raw), (".safetensors", Format::Safetensors)];
    endings.into_iter().find_map(|(ending, format)| name.ends_with(ending).then_some(format))
}

/// True if a destination is one file, by its ending.
fn is_file_name(path: &str) -> bool {
    [".npy", ".bin", ".safetensors"].iter().any(|ending| path.ends_with(ending))
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
        if args.mpi.is_some() {
            return Err(Failure::usage(
                "--mpi is for ranks that share a conversion; start it under mpirun, or leave --mpi out",
            ));
        }
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
    let layouts = Layouts::new(&args.to).map_err(Failure::of_flag("--to"))?;
    let (destination, names) = destination_of(args)?;
    let called = names.as_deref().unwrap_or(&destination);
    let said = format_by_name(called).or(names.is_some().then_some(Format::Raw));
    let format = args.format.as_deref().map(format_of).transpose()?;
    if let (Some(format), Some(other)) = (format, format_by_name(called))
        && format != other
    {
        return Err(Failure::usage(&format!(
            "files of the format {} were to be called {called}; npy files end in .npy, safetensors files in .safetensors, raw ones in .bin or \
             otherwise",
            format.name()
        )));
    }
    let mut options = ConvertOptions::default().resuming(args.resume);
    if let Some(memory) = &args.memory {
        options = options.with_memory(amount(memory)?);
    }
    if let Some(threads) = args.threads {
        options = options.with_threads((threads.max(1)) as usize);
    }
    if is_file_name(&args.destination) && !is_pattern(&args.destination) {
        let mut all = args.to.iter().zip(layouts.patterns());
        if let Some((text, pattern)) = all.find(|(_, pattern)| pattern.grid().size() != 1) {
            return Err(Failure::usage(&format!(
                "the destination {destination} is one file, and --to {text} has {} ranks; give a directory, or a layout of one rank",
                pattern.grid().size()
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
    if args.no_checksums {
        options = options.without_checksums();
    }
    if let Some(names) = names {
        options = options.with_names(names);
    }
    let failed = |error: reshard::Error| Failure::while_running(&error);
    let source = opened(&args.source, &args.described, ranks)?;
    if let Some(expect) = &args.expect {
        // The file may be another one on each node.
        let checked = Expected::read(expect).and_then(|expected| expected.check(&source));
        ranks.map_or_else(|| checked.clone(), |ranks| ranks.agree(checked.clone())).map_err(failed)?;
    }
    let usual = if has_tensors(&source) { Format::Safetensors } else { Format::Npy };
    options = options.with_format(format.or(said).unwrap_or(usual));
    if args.transpose {
        let arrays = source.arrays().len();
        if arrays > 1 {
            return Err(Failure::usage(&format!(
                "--transpose was given, and the source has {arrays} tensors; it is for sets of one array"
            )));
        }
        let axes: Vec<usize> = (0..source.layout().distribution().dims()).rev().collect();
        options = options.with_axes(&axes);
    }
    let to = options.layouts(&source, &layouts).map_err(Failure::of_flag("--to"))?;
    let from_rules = Layouts::new(&args.described.from).map_err(Failure::of_flag("--from"))?;
    let warnings = [from_rules.unused(&source), from_rules.doubts(&source), layouts.unused(&source)].concat();
    if leads {
        for warning in &warnings {
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
    }
    let mut screen = Screen::new();
    let converted = match args.dry_run {
        true => outlook(&source, &to, &options).map_err(failed)?,
        false => {
            let mut progress = Progress::new(leads && !args.json, source.bytes());
            let bar = bar(&mut progress, "converting");
            let converted = match ranks {
                None => convert_arrays(&source, &destination, &to, &options, bar),
                Some(ranks) => ranks.convert_arrays(&source, &destination, &to, &options, bar),
            };
            converted.map_err(failed)?
        }
    };
    if !leads {
        return Ok(());
    }
    let only = if let [only] = &to[..] { Some(only) } else { None };
    let what = match only {
        Some(to) => format!("from {} to {to}", source.layout()),
        None => format!("of {} to {}", counted(to.len(), "tensor"), args.to.join(", ")),
    };
    let table = args.dry_run.then(|| rows(&source, &to, &from_rules, &layouts));
    if args.json {
        let Converted { bytes, boxes, reads, writes, reread_bytes, .. } = converted;
        let answer = ConvertAnswer {
            source: args.source.clone(),
            destination,
            from: only.map(|_| source.layout().to_string()),
            to: only.map(Layout::to_string),
            tensors: has_tensors(&source).then_some(source.arrays().len()),
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
            warnings,
            table,
        };
        return Ok(json::write(&mut screen, &answer)?);
    }
    let boxes = if converted.boxes == 1 { "1 box".to_string() } else { format!("{} boxes", converted.boxes) };
    if let Some(table) = table {
        draw(&mut screen, &table)?;
        writeln!(screen.out, "{} would go {what} in {boxes}", megabytes(converted.bytes))?;
    } else {
        let Converted { seconds, read_seconds, move_seconds, write_seconds, sync_seconds, .. } = converted;
        let bytes = megabytes(converted.bytes);
        writeln!(screen.out, "{destination}: {bytes} {what} in {seconds:.2} s, {boxes}")?;
        let parts = format!(
            "reading {read_seconds:.2} s, moving {move_seconds:.2} s, writing {write_seconds:.2} s, making durable {sync_seconds:.2} s"
        );
        let parts = screen.faint(&parts);
        writeln!(screen.out, "{parts}")?;
    }
    Ok(())
}
