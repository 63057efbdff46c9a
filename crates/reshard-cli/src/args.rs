//! What may be typed. Values stay text here; commands give them meaning, so that every error names its flag.

use clap::{Args as Flags, Parser, Subcommand};

/// Move distributed arrays from any layout to any other.
#[derive(Parser, Debug)]
#[command(name = "reshard", version, subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Who sends how many elements to whom: the communication grid of a redistribution
    Plan(Plan),
    /// In which step each message goes, and what no schedule can beat
    Schedule(Schedule),
    /// Explain a layout: local sizes, who owns an element, a small picture
    Layout(Layout),
    /// Which rank should take which place of the destination, so that most stays where it is
    Relabel(Relabel),
}

const NOTATION: &str = "\
Layouts: GRID/BLOCK as in 16/3 or 4x4/64x64, or HPF words as in '(cyclic(64), block) on 4x4' and
'(gen_block(10,20,30), *) on 3x1'. Options: first=1x0 (process of the first block), order=col (rank order),
ranks=8..24 or ranks=3,1,2,0.";

/// What moves: two layouts, and a window if not everything.
#[derive(Flags, Debug)]
pub struct Move {
    /// Layout of the source, such as 16/3 or 4x4/64x64
    #[arg(long, value_name = "LAYOUT")]
    pub from: String,
    /// Layout of the destination
    #[arg(long, value_name = "LAYOUT")]
    pub to: String,
    /// Shape of the array, such as 240 or 8192x8192; without it, one period of the two layouts
    #[arg(long)]
    pub shape: Option<String>,
    /// Shape of the destination, if it is not that of the source
    #[arg(long, value_name = "SHAPE")]
    pub to_shape: Option<String>,
    /// Move only a window of this shape (in the source's order of axes)
    #[arg(long, value_name = "SHAPE")]
    pub window: Option<String>,
    /// Where the window begins in the source, such as 10,0
    #[arg(long, value_name = "INDEX")]
    pub from_at: Option<String>,
    /// Where the window begins in the destination
    #[arg(long, value_name = "INDEX")]
    pub to_at: Option<String>,
    /// Reverse the order of the axes
    #[arg(long, conflicts_with = "permute")]
    pub transpose: bool,
    /// Destination axis j takes source axis `AXES[j]`, such as 2,0,1
    #[arg(long, value_name = "AXES")]
    pub permute: Option<String>,
}

/// Flags of `reshard plan`.
#[derive(Flags, Debug)]
#[command(after_help = NOTATION)]
pub struct Plan {
    #[command(flatten)]
    pub moved: Move,
    /// Only what this rank sends and receives, with every run of elements
    #[arg(long)]
    pub rank: Option<u64>,
    /// How to find the overlaps: naive, classical, falls, scan or aspen; the answer is the same
    #[arg(long, default_value = "aspen")]
    pub method: String,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard layout`.
#[derive(Flags, Debug)]
#[command(after_help = NOTATION)]
pub struct Layout {
    /// The layout, such as 4x4/64x64
    pub layout: String,
    /// Shape of the array; without it, one round of the layout
    #[arg(long)]
    pub shape: Option<String>,
    /// Who owns this element, and where: such as 100,37
    #[arg(long, value_name = "INDEX")]
    pub element: Option<String>,
    /// Only this rank
    #[arg(long)]
    pub rank: Option<u64>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard relabel`.
#[derive(Flags, Debug)]
#[command(after_help = NOTATION)]
pub struct Relabel {
    #[command(flatten)]
    pub moved: Move,
    /// Which ranks may be chosen: destination, or both (source and destination)
    #[arg(long, value_name = "RANKS", default_value = "destination")]
    pub among: String,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard schedule`.
#[derive(Flags, Debug)]
#[command(after_help = NOTATION)]
pub struct Schedule {
    #[command(flatten)]
    pub moved: Move,
    /// optimal, classes, stepwise, greedy, min-cost, split, async, caterpillar, walker-otto or eager
    #[arg(long, default_value = "optimal")]
    pub strategy: String,
    /// All strategies in one table
    #[arg(long, conflicts_with = "strategy")]
    pub compare: bool,
    /// Only what this rank sends and receives, by the strategy optimal, for grids of any size
    #[arg(long, conflicts_with_all = ["strategy", "compare", "shared_ranks"])]
    pub rank: Option<u64>,
    /// For min-cost: at most so many steps
    #[arg(long, value_name = "K")]
    pub steps: Option<u64>,
    /// For min-cost: the cost of a step, whatever it carries (a decimal number)
    #[arg(long, default_value = "1", allow_hyphen_values = true)]
    pub alpha: String,
    /// For min-cost: the cost of each element of a step's longest message (a decimal number)
    #[arg(long, default_value = "1", allow_hyphen_values = true)]
    pub beta: String,
    /// For eager: messages in flight from each sender
    #[arg(long, value_name = "K", default_value_t = 8)]
    pub in_flight: u64,
    /// Rank k is one process on both sides: what it keeps is a copy and takes no step
    #[arg(long)]
    pub shared_ranks: bool,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}
