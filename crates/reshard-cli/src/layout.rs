//! `reshard layout`: explains a layout. Local sizes, the owner of an element, a small picture.

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::screen::{Screen, counted, index, write_drawing};
use reshard_plan::notation::{parse_index, parse_shape, print_shape};
use reshard_plan::{Distribution, Pattern};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// The most ranks that are listed one by one.
const MAX_RANKS: u64 = 1_000_000;

/// The most ranks that are listed on the screen; more are summed up.
const SHOWN_RANKS: u64 = 64;

/// The most blocks of a dimension in the picture.
const SHOWN_BLOCKS: usize = 24;

#[derive(Serialize)]
struct Explained {
    layout: String,
    shape: Vec<u64>,
    grid: Vec<u64>,
    elems: u64,
    ranks: Vec<RankShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<Element>,
}

#[derive(Serialize)]
struct RankShape {
    rank: u64,
    coords: Vec<u64>,
    shape: Vec<u64>,
    elems: u64,
}

#[derive(Serialize)]
struct Element {
    index: Vec<u64>,
    rank: u64,
    /// All ranks that have it, if these are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<Vec<u64>>,
    coords: Vec<u64>,
    local: Vec<u64>,
}

pub fn run(args: &args::Layout) -> Result<(), Failure> {
    // The shape may be part of the layout, as in the library's notation.
    let (pattern, shape) = if args.layout.split_whitespace().any(|word| word.eq_ignore_ascii_case("of")) {
        let whole: Distribution = args.layout.parse()?;
        (whole.pattern(), Some(whole.shape()))
    } else {
        (args.layout.parse()?, None)
    };
    let shape = match (&args.shape, shape) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage(
                "the layout says its shape after \"of\" and --shape is given, too; say it once",
            ));
        }
        (Some(text), None) => parse_shape(text).map_err(Failure::of_flag("--shape"))?,
        (None, Some(shape)) => shape,
        (None, None) => {
            pattern.one_round().map_err(Failure::hint("give the shape of the array", "--shape"))?
        }
    };
    let distribution = pattern.over(&shape)?;
    if let Some(path) = &args.svg {
        return draw(args, path, &distribution);
    }
    let explained = explain(args, &pattern, &distribution)?;
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &explained)?;
    } else {
        show(&mut screen, &distribution, &explained, args.rank.is_some())?;
    }
    Ok(screen.out.flush()?)
}

/// The most ranks in a drawing: more cannot be seen.
const MAX_DRAWN_RANKS: u64 = 512;

fn draw(args: &args::Layout, path: &Path, of: &Distribution) -> Result<(), Failure> {
    if args.json {
        return Err(Failure::usage("--svg draws and --json lists; give one of them"));
    }
    let ranks = of.grid().size();
    if ranks > MAX_DRAWN_RANKS {
        return Err(Failure::usage(&format!(
            "a layout of {ranks} ranks is too large to draw, at most {MAX_DRAWN_RANKS} can be; take a smaller grid"
        )));
    }
    let title = format!("{} of {}", of.pattern(), print_shape(&of.shape()));
    if write_drawing(path, &reshard_draw::layout(&title, of))? {
        let mut screen = Screen::new();
        writeln!(screen.out, "{title}: drawn to {}", path.display())?;
        screen.out.flush()?;
    }
    Ok(())
}

fn explain(
    args: &args::Layout,
    pattern: &Pattern,
    distribution: &Distribution,
) -> Result<Explained, Failure> {
    let grid = distribution.grid();
    let of_rank = |rank: u64| -> Result<RankShape, Failure> {
        let coords = distribution.coords(rank).map_err(Failure::of_flag("--rank"))?;
        let shape = distribution.local_shape(rank)?;
        Ok(RankShape { rank, coords, elems: distribution.local_elems(rank)?, shape })
    };
    let ranks = match args.rank {
        Some(rank) => vec![of_rank(rank)?],
        // The owner of an element can be found on a grid of any size.
        None if grid.size() > MAX_RANKS && args.element.is_some() => Vec::new(),
        None if grid.size() > MAX_RANKS => {
            return Err(Failure::usage(&format!(
                "the layout has {} ranks, more than the {MAX_RANKS} that are listed; ask for one with --rank",
                grid.size()
            )));
        }
        None => grid.ranks().map(of_rank).collect::<Result<_, _>>()?,
    };
    let element = match &args.element {
        None => None,
        Some(text) => {
            let index = parse_index(text).map_err(Failure::of_flag("--element"))?;
            if index.len() != distribution.dims() {
                return Err(Failure::usage(&format!(
                    "--element: {} given, but the array has {}; give one index for each",
                    if index.len() == 1 {
                        "1 index was".to_string()
                    } else {
                        format!("{} indices were", index.len())
                    },
                    counted(distribution.dims() as u64, "dimension")
                )));
            }
            let (rank, local) =
                distribution.local_from_global(&index).map_err(Failure::of_flag("--element"))?;
            let copies = distribution.is_replicated().then(|| distribution.owners(&index)).transpose()?;
            Some(Element { index, rank, copies, coords: distribution.coords(rank)?, local })
        }
    };
    Ok(Explained {
        layout: pattern.to_string(),
        shape: distribution.shape(),
        grid: grid.extents().to_vec(),
        elems: distribution.elems(),
        ranks,
        element,
    })
}

fn show(screen: &mut Screen, of: &Distribution, explained: &Explained, one: bool) -> Result<(), Failure> {
    let (ranks, elems) = (counted(of.grid().size(), "rank"), counted(explained.elems, "element"));
    writeln!(screen.out, "{} of {}: {ranks}, {elems}", explained.layout, print_shape(&explained.shape))?;
    if of.is_replicated() {
        writeln!(screen.out, "Each element is on {}", counted(of.copies(), "rank"))?;
    }
    if let Some(Element { index: global, rank, copies, coords, local }) = &explained.element {
        let (global, coords, local) = (index(global), index(coords), index(local));
        match copies {
            Some(ranks) => {
                let first: Vec<String> = ranks.iter().take(SHOWN_BLOCKS).map(u64::to_string).collect();
                let more = if first.len() < ranks.len() { " ..." } else { "" };
                let ranks = first.join(" ");
                writeln!(
                    screen.out,
                    "Element {global} is on the ranks {ranks}{more}, as their element {local}"
                )?;
            }
            None => {
                writeln!(
                    screen.out,
                    "Element {global} is on rank {rank} at {coords}, as its element {local}"
                )?;
            }
        }
    }
    if one || of.grid().size() <= SHOWN_RANKS {
        let dims = explained.shape.len();
        let width = (2 + dims * 4).max(11);
        writeln!(
            screen.out,
            "\n{:>8}  {:<width$}  {:<20}  {:>12}",
            "rank", "on the grid", "local shape", "elements"
        )?;
        for RankShape { rank, coords, shape, elems } in &explained.ranks {
            writeln!(
                screen.out,
                "{rank:>8}  {:<width$}  {:<20}  {elems:>12}",
                index(coords),
                print_shape(shape)
            )?;
        }
    } else if explained.ranks.is_empty() {
        writeln!(screen.out, "More ranks than can be listed; ask for one with --rank")?;
    } else {
        let (least, most) = explained
            .ranks
            .iter()
            .fold((u64::MAX, 0), |(least, most), rank| (least.min(rank.elems), most.max(rank.elems)));
        let held =
            if least == most { counted(most, "element") } else { format!("{least} to {most} elements") };
        writeln!(screen.out, "Each rank holds {held}; ask for one with --rank")?;
    }
    if !one {
        picture(screen, of)?;
    }
    Ok(())
}

/// Draws the owner of each block: a line in one dimension, a board in two, a line for each axis in more.
pub fn picture(screen: &mut Screen, of: &Distribution) -> Result<(), Failure> {
    let digits = of.grid().ranks().max().unwrap_or(0).to_string().len() + 1;
    let across = screen.room(SHOWN_BLOCKS, digits + 1, 4);
    let last_dim = of.dims() - 1;
    let stretches: Vec<Vec<(u64, u64)>> = (0..of.dims())
        .map(|dim| {
            let most = if dim == last_dim || of.dims() > 2 { across } else { SHOWN_BLOCKS };
            one_round(of, dim, most)
        })
        .collect();
    if stretches.iter().any(Vec::is_empty) {
        return Ok(());
    }
    let more = |dim: usize| {
        let shown = stretches[dim].last().map_or(0, |last| last.1);
        if shown < of.axes()[dim].len() { " ..." } else { "" }
    };
    if of.dims() > 2 {
        for (dim, blocks) in stretches.iter().enumerate() {
            let owners: Vec<_> =
                blocks.iter().map(|block| screen.of_rank(block.0, &format!(" {} ", block.0))).collect();
            let more = more(dim);
            writeln!(screen.out, "\nWho owns the blocks along dimension {dim}, as grid coordinates:")?;
            writeln!(screen.out, "{}{more}", owners.concat())?;
        }
        return Ok(());
    }
    let first = if of.is_replicated() { " (of several copies, the first)" } else { "" };
    writeln!(screen.out, "\nWho owns each block{first}:")?;
    let one_row = vec![(0, 1)];
    let (rows, columns) =
        if of.dims() == 1 { (&one_row, &stretches[0]) } else { (&stretches[0], &stretches[1]) };
    let width = digits;
    for row in rows {
        let mut line = String::new();
        for column in columns {
            let coords = if of.dims() == 1 { vec![column.0] } else { vec![row.0, column.0] };
            let rank = of.grid().rank(&coords).unwrap_or(0);
            line += &screen.of_rank(rank, &format!("{rank:>width$} "));
        }
        writeln!(screen.out, "{line}{}", more(last_dim))?;
    }
    if of.dims() == 2 && !more(0).is_empty() {
        writeln!(screen.out, "{:>width$}", "...")?;
    }
    let repeats = |dim: usize| is_round(of, dim, &stretches[dim]);
    if (0..of.dims()).any(|dim| !more(dim).is_empty() && repeats(dim)) {
        let lens: Vec<String> = stretches.iter().map(|blocks| blocks.len().to_string()).collect();
        writeln!(screen.out, "The pattern repeats every {} blocks", lens.join(" x "))?;
    }
    Ok(())
}

/// The first blocks of an axis, `most` at most, of all owners: (owner, end). If not all have room, one round if that has.
fn one_round(of: &Distribution, dim: usize, most: usize) -> Vec<(u64, u64)> {
    let axis = &of.axes()[dim];
    let from = |start: u64| axis.block_at(start);
    let blocks: Vec<(u64, u64)> =
        std::iter::successors(from(0), |&(_, end)| from(end)).take(most + 1).collect();
    if blocks.len() <= most {
        return blocks;
    }
    let round = (1..=most).find(|&len| is_round(of, dim, &blocks[..len]));
    blocks[..round.unwrap_or(most)].to_vec()
}

/// True if these blocks are a whole round of a dimension's pattern.
fn is_round(of: &Distribution, dim: usize, blocks: &[(u64, u64)]) -> bool {
    let round = of.pattern().round(dim);
    round.is_some_and(|round| blocks.last().is_some_and(|last| u128::from(last.1) == round))
}
