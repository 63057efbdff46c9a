//! The command line. Values stay text here; commands parse them, so that every error names its flag.

use crate::words;
use clap::{Args as Flags, ColorChoice, Parser, Subcommand};

/// Move distributed arrays from any layout to any other.
#[derive(Parser, Debug)]
#[command(
    name = "reshard",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("RESHARD_COMMIT"), ")"),
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 120,
    after_long_help = ENVIRONMENT
)]
pub struct Args {
    /// Colour: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto", hide_default_value = true)]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Move an array here and now, verify every element, and compare with a plain copy
    Run(Run),
    /// Compare reshard with MPI_Alltoallv, MPI_Alltoallw and ScaLAPACK (under mpirun)
    Bench(Bench),
    /// How many elements each rank sends to each other: the communication grid of a redistribution
    Plan(Plan),
    /// The step of each message, and the lower bounds of any schedule
    Schedule(Schedule),
    /// Explain a layout: local sizes, who owns an element, a small picture
    Layout(Layout),
    /// Renumber the destination's ranks so that as much data as possible stays in place
    Relabel(Relabel),
    /// Run a redistribution in virtual time: when each message leaves and arrives, on a network of your choice
    Simulate(Simulate),
    /// Hand a distributed array from one job to another, step after step, and verify every element
    Couple(Couple),
    /// Balance loads along a ring of processes: who sends how many items to which neighbour, in the least time
    Ring(Ring),
    /// Predict from two timed runs whether it pays to move arrays to a layout in which a computation is faster
    Advise(Advise),
    /// Make a set of files, one for each rank, whose elements are a function of their index
    Make(MakeSet),
    /// Write a set of files anew under another layout, in little memory
    Convert(ConvertSet),
    /// Check all bytes of a set of files, and every element if it was made by `make`
    Verify(VerifySet),
    /// Show what is in a set of files
    Show(ShowSet),
    /// Draw a redistribution: its communication grid coloured by step, and the timeline of its simulation
    Explain(Explain),
    /// Show the page of `explain --html` with the planner behind it, for a browser on this machine
    Serve(Serve),
    /// What this machine has of all that reshard can use, and whether every engine works on it
    Doctor(Doctor),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print a page of the manual, or write all of them into a directory
    Man(Man),
}

impl Command {
    /// True if the ranks of a job run the command together.
    pub fn is_parallel(&self) -> bool {
        match self {
            Self::Run(_) | Self::Bench(_) | Self::Couple(_) | Self::Convert(_) => true,
            Self::Ring(ring) => ring.run,
            _ => false,
        }
    }

    /// The activity of the command, as it follows "while" in a sentence.
    pub fn activity(&self) -> &'static str {
        match self {
            Self::Run(_) => "running a redistribution",
            Self::Bench(_) => "measuring a redistribution",
            Self::Plan(_) => "planning a redistribution",
            Self::Schedule(_) => "scheduling a redistribution",
            Self::Layout(_) => "explaining a layout",
            Self::Relabel(_) => "relabelling the ranks of a redistribution",
            Self::Simulate(_) => "simulating a redistribution",
            Self::Couple(_) => "coupling two jobs",
            Self::Ring(_) => "balancing the loads of a ring",
            Self::Advise(_) => "comparing two layouts",
            Self::Make(_) => "making a set of files",
            Self::Convert(_) => "converting a set of files",
            Self::Verify(_) => "verifying a set of files",
            Self::Show(_) => "looking at a set of files",
            Self::Explain(_) => "drawing a redistribution",
            Self::Serve(_) => "serving the page of a redistribution",
            Self::Doctor(_) => "looking at this machine",
            Self::Completions(_) => "printing completions",
            Self::Man(_) => "printing the manual",
        }
    }
}

const ENVIRONMENT: &str = "\
Environment: RESHARD_MPI (which MPI: openmpi, mpich, abi, or the path of its library), RESHARD_LEVEL (instruction set:
portable, avx2, avx512 or avx512vbmi), RESHARD_SECRET (couple --at), NO_COLOR.

Exit codes: 0 done, 1 failed, 2 wrong usage. Results go to standard output, everything else to standard error.

Examples:
  reshard run 4x4/64x64 2x8/50x30 --shape 8192x8192        move an array, verify it, compare with memcpy
  reshard explain 16/3 16/5 --svg picture.svg              a picture of grid, steps and time
  reshard simulate 16/3 16/5 --compare                     the time of all strategies
  reshard convert ckpt new --to 3x3/100x100                16 files become 9
  mpirun -n 16 reshard bench --case i                      against MPI_Alltoallw and ScaLAPACK
  reshard doctor                                           what this machine has";

/// The end of the short help.
const MORE: &str = "--help says more: how layouts are written, and examples.";

/// How layouts are written, and examples: the end of a command's long help.
macro_rules! with_examples {
    ($examples:literal) => {
        concat!(
            "Layouts: GRID/BLOCK as in 16/3 or 4x4/64x64, or HPF words as in '(cyclic(64), block) on 4x4' and \
             '(gen_block(10,20,30), *) on 3x1'. Options: first=1x0 (process of the first block), rank-order=col (ranks \
             numbered column by column), ranks=8..24 or ranks=3,1,2,0.\n\nExamples:\n",
            $examples
        )
    };
}

/// The move: two layouts, and a window if not everything moves.
#[derive(Flags, Debug, Clone)]
pub struct Move {
    /// Layouts of the source and of the destination, such as 16/3 16/5, instead of --from and --to
    #[arg(value_name = "LAYOUT", num_args = 0..=2)]
    pub layouts: Vec<String>,
    /// Layout of the source, such as 16/3 or 4x4/64x64
    #[arg(long, value_name = "LAYOUT", allow_hyphen_values = true, conflicts_with = "layouts")]
    pub from: Option<String>,
    /// Layout of the destination
    #[arg(long, value_name = "LAYOUT", allow_hyphen_values = true, conflicts_with = "layouts")]
    pub to: Option<String>,
    /// Shape of the array, such as 240 or 8192x8192; without it, one period of the two layouts (`run` needs it)
    #[arg(long, allow_hyphen_values = true)]
    pub shape: Option<String>,
    /// Shape of the destination, if it is not that of the source
    #[arg(long, value_name = "SHAPE", allow_hyphen_values = true)]
    pub to_shape: Option<String>,
    /// Move only a window of this shape (in the source's order of axes)
    #[arg(long, value_name = "SHAPE", allow_hyphen_values = true)]
    pub window: Option<String>,
    /// Where the window begins in the source, such as 10,0
    #[arg(long, value_name = "INDEX", allow_hyphen_values = true)]
    pub from_at: Option<String>,
    /// Where the window begins in the destination
    #[arg(long, value_name = "INDEX", allow_hyphen_values = true)]
    pub to_at: Option<String>,
    /// Reverse the order of the axes
    #[arg(long, conflicts_with = "permute")]
    pub transpose: bool,
    /// Destination axis j takes source axis `AXES[j]`, such as 2,0,1
    #[arg(long, value_name = "AXES", allow_hyphen_values = true)]
    pub permute: Option<String>,
}

/// The elements of an array, and their order in memory.
#[derive(Flags, Debug)]
pub struct Elements {
    /// Type of the elements: i8, u8, i16, u16, f16, i32, u32, f32, i64, u64, f64, c64 (two f32), c128 (two f64), or a
    /// number of bytes
    #[arg(long = "type", value_name = "TYPE", default_value = "f64")]
    pub kind: String,
    /// Order of elements in a rank's memory: col (the first index runs fastest, as in ScaLAPACK) or row; the layouts may say
    /// it each for itself, as in '4x4/64x64 memory=row'
    #[arg(long)]
    pub order: Option<String>,
    /// Order of elements in the memory of the destination, if it is not that of the source
    #[arg(long, value_name = "ORDER")]
    pub to_order: Option<String>,
}

/// Flags of `reshard run`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard run 4x4/64x64 2x8/50x30 --shape 8192x8192
  reshard run 2/100 3/70 --shape 1_000_000 --type float --engine messages
  mpirun -n 4 --oversubscribe reshard run 2x2/64x64 4x1/50x50 --shape 4096x4096"))]
pub struct Run {
    #[command(flatten)]
    pub moved: Move,
    #[command(flatten)]
    pub elements: Elements,
    /// threads (each byte is copied once), messages (packed, sent and unpacked, a thread for each rank) or mpi (a process
    /// for each rank); without it, mpi under mpirun and threads elsewhere
    #[arg(long)]
    pub engine: Option<String>,
    /// For mpi: auto, shared (the array in memory all ranks share: one copy, by whichever has time), shared-source (only the
    /// source is), private (two copies through small staging buffers), cma (one copy, by the system), messages, mixed, lockstep, alltoallv or alltoallw
    #[arg(long)]
    pub mover: Option<String>,
    /// Which MPI: openmpi, mpich, abi, or the path of its library; without it, the one that fits the launcher
    #[arg(long)]
    pub mpi: Option<String>,
    /// For messages: optimal, classes, stepwise, greedy, min-cost, split, async, caterpillar, walker-otto or eager
    #[arg(long)]
    pub strategy: Option<String>,
    /// Upper limit on memory besides the array: bytes, or a number with B, KB, KiB, MB, MiB, GB or GiB
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Number of timed runs; without it, as many as fit in about a second
    #[arg(long, value_name = "N", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub repeat: Option<u64>,
    /// For threads: how many; without it, one on each core
    #[arg(long, value_name = "N", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub threads: Option<u64>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard couple`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard couple produce --meet /tmp/place --shape 1000x1000 --layout 2x2/64x64 --steps 10 &
  reshard couple consume --meet /tmp/place --shape 1000x1000 --layout 3x1/50x50 --steps 10"))]
pub struct Couple {
    #[command(subcommand)]
    pub role: CoupleRole,
}

#[derive(Subcommand, Debug)]
pub enum CoupleRole {
    /// Put an array, step after step, for a consumer
    Produce(CoupleJob),
    /// Get an array that a producer puts, in a layout of one's own
    Consume(CoupleJob),
}

/// Flags of both sides of a coupling.
#[derive(Flags, Debug)]
pub struct CoupleJob {
    /// Name of the array, the same on both sides
    #[arg(long, default_value = "array")]
    pub name: String,
    /// Shape of the array
    #[arg(long)]
    pub shape: String,
    /// Layout of the array in this job
    #[arg(long, value_name = "LAYOUT", allow_hyphen_values = true)]
    pub layout: String,
    /// Number of steps
    #[arg(long, value_name = "N", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub steps: u64,
    /// Type of the elements: i8, u8, i16, u16, f16, i32, u32, f32, i64, u64, f64, c64, c128 or bytes(N)
    #[arg(long = "type", value_name = "TYPE", default_value = "f64")]
    pub kind: String,
    /// What carries the data: tcp, mpi (both sides in one launch of mpirun, or each in its own with --meet), or auto: mpi
    /// without a place to meet, else shared memory on one machine and tcp between machines
    #[arg(long, default_value = "auto")]
    pub via: String,
    /// File that the producer writes and the consumer waits for
    #[arg(long, value_name = "FILE")]
    pub meet: Option<String>,
    /// Address at which the producer listens; both jobs have the same RESHARD_SECRET
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "meet")]
    pub at: Option<String>,
    /// How long anything waits for the other job: a number with ms, s or m
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub deadline: String,
    /// For producers: the address at which every process listens, if not the loopback; port 0 stands for any
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub bind: Option<String>,
    /// For consumers: steps that the producer keeps before it waits for this job
    #[arg(long, value_name = "N", value_parser = words::count::<u32>, allow_hyphen_values = true)]
    pub depth: Option<u32>,
    /// For consumers: connections for data that a process holds at a time, if not all it needs
    #[arg(long, value_name = "N", value_parser = words::count::<usize>, allow_hyphen_values = true)]
    pub connections: Option<usize>,
    /// For consumers: the producer never waits, and drops the oldest step instead
    #[arg(long)]
    pub drop_oldest: bool,
    /// For producers: how many consumers must come before the first step, and how many may come at a time
    #[arg(long, value_name = "N", value_parser = words::count::<usize>, allow_hyphen_values = true)]
    pub consumers: Option<usize>,
    /// Which MPI, under a launcher: openmpi, mpich, abi, or the path of its library
    #[arg(long)]
    pub mpi: Option<String>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard bench`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  mpirun -n 16 --oversubscribe reshard bench --case i
  mpirun -n 4 reshard bench --from 2x2/64x64 --to 4x1/50x50 --shape 4096x4096 --only reshard-private,alltoallw"))]
pub struct Bench {
    /// A well-known case: i to viii; with --shape of another size
    #[arg(long)]
    pub case: Option<String>,
    /// Layout of the source, instead of a case
    #[arg(long, value_name = "LAYOUT", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Layout of the destination
    #[arg(long, value_name = "LAYOUT", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Shape of the array, such as 8192x8192
    #[arg(long, allow_hyphen_values = true)]
    pub shape: Option<String>,
    /// Destination axis j takes source axis `AXES[j]`, such as 2,0,1
    #[arg(long, value_name = "AXES", allow_hyphen_values = true)]
    pub permute: Option<String>,
    #[command(flatten)]
    pub elements: Elements,
    /// Number of timed runs
    #[arg(long, value_name = "N", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub repeat: Option<u64>,
    /// Untimed runs of the same method before each timed one, which then finds its data in the caches
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub warm: u64,
    /// Put the arrays of all methods on huge pages
    #[arg(long)]
    pub huge: bool,
    /// Only these methods, besides memcpy, such as reshard-private,alltoallw; each takes memory for twice the array
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Which MPI: openmpi, mpich, abi, or the path of its library; without it, the one that fits the launcher
    #[arg(long)]
    pub mpi: Option<String>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard plan`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard plan 16/3 16/5
  reshard plan 4x4/64x64 2x8/50x30 --shape 8192x8192 --rank 3
  reshard plan 2x2/3x3 2x2/4x4 --shape 20x30 --transpose --json"))]
pub struct Plan {
    #[command(flatten)]
    pub moved: Move,
    /// Only what this rank sends and receives, with every run of elements
    #[arg(long, value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub rank: Option<u64>,
    /// Method to find the overlaps: naive, classical, falls, scan or aspen; all have the same result
    #[arg(long, default_value = "aspen")]
    pub method: String,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard layout`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard layout 2x3/4x4 --shape 18x20 --element 9,11
  reshard layout '(cyclic(64), block) on 4x4' --shape 8192x8192 --svg layout.svg"))]
pub struct Layout {
    /// The layout, such as 4x4/64x64
    pub layout: String,
    /// Shape of the array; without it, one round of the layout
    #[arg(long, allow_hyphen_values = true)]
    pub shape: Option<String>,
    /// Show the owner of the element at this index, and its local index there: such as 100,37
    #[arg(long, value_name = "INDEX", allow_hyphen_values = true)]
    pub element: Option<String>,
    /// Only this rank
    #[arg(long, value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub rank: Option<u64>,
    /// Draw the array coloured by owner, and what each rank holds, to this file, - for standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["element", "rank"])]
    pub svg: Option<std::path::PathBuf>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard relabel`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard relabel 2x4/8x8 '2x4/8x8 rank-order=col' --shape 64x64"))]
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
#[command(after_help = MORE, after_long_help = with_examples!("  reshard schedule 16/3 16/5
  reshard schedule 16/3 16/5 --compare"))]
pub struct Schedule {
    #[command(flatten)]
    pub moved: Move,
    /// optimal, classes, stepwise, greedy, min-cost, split, async, caterpillar, walker-otto or eager
    #[arg(long, default_value = "optimal")]
    pub strategy: String,
    /// All strategies in one table
    #[arg(long, conflicts_with = "strategy")]
    pub compare: bool,
    /// Only what this rank sends and receives, by the strategy optimal: for block-cyclic grids of any size
    #[arg(long, conflicts_with_all = ["strategy", "compare", "shared_ranks"], value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub rank: Option<u64>,
    /// For min-cost: the most steps allowed
    #[arg(long, value_name = "K", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub steps: Option<u64>,
    /// For min-cost: the cost of a step, whatever it carries (a number); 1 if not given
    #[arg(long, allow_hyphen_values = true)]
    pub alpha: Option<String>,
    /// For min-cost: the cost of each element of a step's longest message (a number); 1 if not given
    #[arg(long, allow_hyphen_values = true)]
    pub beta: Option<String>,
    /// For eager: messages in flight from each sender; 8 if not given
    #[arg(long, value_name = "K", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub in_flight: Option<u64>,
    /// Rank k is the same process on both sides; data it keeps is copied locally and uses no step
    #[arg(long)]
    pub shared_ranks: bool,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// A schedule and the machine it runs on.
#[derive(Flags, Debug, Clone)]
pub struct Timed {
    #[command(flatten)]
    pub moved: Move,
    /// optimal, classes, stepwise, greedy, min-cost, split, async, caterpillar, walker-otto or eager
    #[arg(long, default_value = "optimal")]
    pub strategy: String,
    /// Rank k is the same process on both sides; data it keeps is copied locally and uses no step
    #[arg(long)]
    pub shared_ranks: bool,
    /// For min-cost: the most steps allowed
    #[arg(long, value_name = "K", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub steps: Option<u64>,
    /// For eager: messages in flight from each sender; 8 if not given
    #[arg(long, value_name = "K", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub in_flight: Option<u64>,
    /// Time to start a message, in seconds or with a unit, such as 2us; 2e-6 if not given
    #[arg(long, value_name = "TIME", value_parser = words::seconds, allow_hyphen_values = true)]
    pub alpha: Option<f64>,
    /// Time for each element; 8e-10 if not given (8 bytes at 10 gigabytes a second)
    #[arg(long, value_name = "TIME", value_parser = words::seconds, allow_hyphen_values = true)]
    pub beta: Option<f64>,
    /// Time to pack an element, and to unpack it
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = words::seconds, allow_hyphen_values = true)]
    pub pack: f64,
    /// Messages a process can send, and receive, at a time
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub ports: u64,
    /// A process cannot send while it receives
    #[arg(long)]
    pub half_duplex: bool,
    /// flat, ring, torus, torus:4x4, fat-tree or fat-tree:16:2 (nodes to a leaf, nodes to an uplink)
    #[arg(long, default_value = "flat")]
    pub network: String,
    /// A barrier after each step
    #[arg(long)]
    pub barriers: bool,
    /// With --barriers: time of each; 0 if not given
    #[arg(long, value_name = "TIME", value_parser = words::seconds, allow_hyphen_values = true)]
    pub barrier_cost: Option<f64>,
}

/// Flags of `reshard simulate`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard simulate 16/3 16/5 --strategy caterpillar --network torus:4x4
  reshard simulate 4x4/64x64 2x8/50x30 --shape 8192x8192 --compare --alpha 1us"))]
pub struct Simulate {
    #[command(flatten)]
    pub timed: Timed,
    /// All strategies in one table, with the time of each
    #[arg(long, conflicts_with = "strategy")]
    pub compare: bool,
    /// With --compare: draw the times to this file, - for standard output
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub svg: Option<std::path::PathBuf>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard explain`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard explain 16/3 16/5 --svg example1.svg
  reshard explain 4x4/64x64 2x8/50x30 --shape 8192x8192 --html page.html"))]
pub struct Explain {
    #[command(flatten)]
    pub timed: Timed,
    /// Draw to this file, - for standard output
    #[arg(long, value_name = "FILE", required_unless_present = "html")]
    pub svg: Option<std::path::PathBuf>,
    /// Write a page to explore with a browser to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
}

impl Timed {
    /// Layouts and flags as they are typed, without the machine and the strategy.
    pub fn command(&self) -> Vec<String> {
        let Move { layouts, from, to, shape, to_shape, window, from_at, to_at, transpose, permute } =
            &self.moved;
        let mut words: Vec<String> = layouts.iter().chain(from).chain(to).cloned().collect();
        for (flag, value) in [
            ("--shape", shape),
            ("--to-shape", to_shape),
            ("--window", window),
            ("--from-at", from_at),
            ("--to-at", to_at),
            ("--permute", permute),
        ] {
            if let Some(value) = value {
                words.extend([flag.to_string(), value.clone()]);
            }
        }
        if *transpose {
            words.push("--transpose".to_string());
        }
        if self.shared_ranks {
            words.push("--shared-ranks".to_string());
        }
        words
    }
}

/// Flags of `reshard serve`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard serve\n  reshard serve 4x4/64x64 2x8/50x30 --shape 8192x8192 --port 8080"))]
pub struct Serve {
    #[command(flatten)]
    pub timed: Timed,
    /// The port; without it, one that is free
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = words::count::<u16>, allow_hyphen_values = true)]
    pub port: u16,
    /// The address to listen at, if others shall reach the page: whoever knows its URL can use it, and what is sent is not encrypted
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind: std::net::IpAddr,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard doctor`.
#[derive(Flags, Debug)]
pub struct Doctor {
    /// What a process of its own looks for: mpi, mpi=NAME or scalapack
    #[arg(long, hide = true)]
    pub probe: Option<String>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard completions`.
#[derive(Flags, Debug)]
#[command(
    after_long_help = "For bash: reshard completions bash > ~/.local/share/bash-completion/completions/reshard"
)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Flags of `reshard man`.
#[derive(Flags, Debug)]
#[command(after_long_help = "To read a page: reshard man plan | man -l -")]
pub struct Man {
    /// The command; without it, the page of reshard
    pub command: Option<String>,
    /// Write all pages into this directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "command")]
    pub dir: Option<std::path::PathBuf>,
}

/// Flags of `reshard advise`.
#[derive(Flags, Debug)]
#[command(after_help = "\
A trial is two timed runs of your computation at one size: where the arrays are (HERE), and in the other layout (THERE), with
the time of all redistributions there and back. --trial 512:0.024,0.006,0.001 is 24 ms, 6 ms and 1 ms at size 512. The nearer
to the size in question, the better.")]
pub struct Advise {
    /// Two timed runs at one size, in seconds; may be given several times, with different sizes
    #[arg(
        long = "trial",
        value_name = "SIZE:HERE,THERE,REDISTRIBUTION",
        required = true,
        allow_hyphen_values = true
    )]
    pub trials: Vec<String>,
    /// The size to predict, such as 4096 for matrices of 4096 x 4096; without it, that of the largest trial
    #[arg(long, allow_negative_numbers = true)]
    pub size: Option<f64>,
    /// Runs of the computation between one redistribution there and one back
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub runs: u64,
    /// The part of the faster time by which the two must differ
    #[arg(long, value_name = "PART", default_value_t = 0.1, allow_negative_numbers = true)]
    pub margin: f64,
    /// The work grows with SIZE to this power
    #[arg(long, value_name = "POWER", default_value_t = 3.0, allow_negative_numbers = true)]
    pub work: f64,
    /// The data grow with SIZE to this power
    #[arg(long, value_name = "POWER", default_value_t = 2.0, allow_negative_numbers = true)]
    pub data: f64,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard make`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard make ckpt --shape 4096x4096 --layout 4x4/64x64 --type double"))]
pub struct MakeSet {
    /// The directory of the set; it must not exist yet
    #[arg(value_name = "DIRECTORY")]
    pub directory: String,
    /// Shape of the array, such as 8192x8192
    #[arg(long, allow_hyphen_values = true)]
    pub shape: String,
    /// Its layout, such as 4x4/64x64; memory=row for files whose last index runs fastest
    #[arg(long, allow_hyphen_values = true)]
    pub layout: String,
    /// Type of the elements, such as f64, c64 or u8
    #[arg(long = "type", value_name = "TYPE", default_value = "f64")]
    pub element: String,
    /// npy, raw or safetensors
    #[arg(long, default_value = "npy")]
    pub format: String,
    /// Another number gives other elements
    #[arg(long, default_value_t = 0, value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// What is said of files that have no manifest.
#[derive(Flags, Debug)]
pub struct Described {
    /// For files without a manifest: their layout, such as 4x4/64x64; memory=row if their last index runs fastest. For tensors by name:
    /// '*.up.weight=(block, *) on 2x1', given as often as needed; the first decides that fits a name (with * and ?) and its dimensions
    #[arg(long, value_name = "LAYOUT", allow_hyphen_values = true)]
    pub from: Vec<String>,
    /// For files without a manifest: shape of the whole array; .npy files say it themselves
    #[arg(long, allow_hyphen_values = true)]
    pub shape: Option<String>,
    /// For files without a manifest: type of the elements; .npy files say it themselves
    #[arg(long = "type", value_name = "TYPE")]
    pub element: Option<String>,
}

/// Flags of `reshard convert`.
#[derive(Flags, Debug)]
#[command(after_help = MORE, after_long_help = with_examples!("  reshard convert ckpt new --to 3x3/100x100
  reshard convert 'out/rank_{rank:04}.npy' new --from 4x4/64x64 --to 3x3/100x100
  reshard convert ckpt whole.npy --to 1x1/4096x4096"))]
pub struct ConvertSet {
    /// The directory of the set; or a pattern for files without a manifest, such as 'out/rank_{rank:04}.npy', 'out/{p}_{q}.bin' or
    /// 'out/tp{rank}.safetensors'; or one file
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// The directory of the new set, perhaps with a pattern for its files, such as 'new/part{rank}.npy'; or, for a layout of one rank,
    /// a file, such as whole.npy, whole.bin or whole.safetensors; it must not exist yet
    #[arg(value_name = "DESTINATION")]
    pub destination: String,
    /// The new layout, such as 3x3/100x100; memory=row or memory=col for another order of the files. For tensors by name as --from
    #[arg(long, value_name = "LAYOUT", allow_hyphen_values = true, required = true)]
    pub to: Vec<String>,
    #[command(flatten)]
    pub described: Described,
    /// Upper limit on memory for elements: bytes, or a number with B, KB, KiB, MB, MiB, GB or GiB; without it, 256 MiB
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Reverse the order of the axes
    #[arg(long)]
    pub transpose: bool,
    /// Number of threads; without it, one on each core
    #[arg(long, value_name = "N", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub threads: Option<u64>,
    /// npy, raw or safetensors; without it, what the names of the new files say, else npy, or safetensors for sets of tensors
    #[arg(long)]
    pub format: Option<String>,
    /// Names of the new files, such as 'part{rank}.npy' or '{p}_{q}.npy'
    #[arg(long, value_name = "PATTERN")]
    pub names: Option<String>,
    /// Under mpirun: which MPI, openmpi, mpich, abi, or the path of its library; without it, the one that fits the launcher
    #[arg(long, value_name = "MPI")]
    pub mpi: Option<String>,
    /// Neither check nor write checksums: faster, and what a disk or a network changes goes unnoticed
    #[arg(long)]
    pub no_checksums: bool,
    /// Continue a run that was killed
    #[arg(long)]
    pub resume: bool,
    /// Bytes of a box, for tests: many boxes of small arrays
    #[arg(long, hide = true)]
    pub box_bytes: Option<u64>,
    /// The tensors that the source must have, with whole shapes and types, checked before anything is written: a .safetensors file with all of
    /// each, or JSON, a list of {"name", "type", "shape"} or what show --json prints
    #[arg(long, value_name = "FILE")]
    pub expect: Option<String>,
    /// Say what would be done, tensor by tensor
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard verify`.
#[derive(Flags, Debug)]
pub struct VerifySet {
    /// The directory of the set; or a pattern for files without a manifest; or one file
    #[arg(value_name = "SOURCE")]
    pub source: String,
    #[command(flatten)]
    pub described: Described,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard show`.
#[derive(Flags, Debug)]
pub struct ShowSet {
    /// The directory of the set; or a pattern for files without a manifest; or one file
    #[arg(value_name = "SOURCE")]
    pub source: String,
    #[command(flatten)]
    pub described: Described,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}

/// Flags of `reshard ring`.
#[derive(Flags, Debug)]
#[command(after_help = "Lists are separated by commas, or @FILE for numbers in a file.")]
pub struct Ring {
    /// Items each process has, such as 1,2,3,1
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub loads: String,
    /// Items each process should have, as many in all
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub targets: String,
    /// Time of an item from each process to the next, such as 1,3/2,0.5,2; one number stands for all links
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub right: Option<String>,
    /// Time of an item from each process to the previous
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub left: Option<String>,
    /// uni (only to the next process) or bi (to both neighbours)
    #[arg(long, default_value = "bi")]
    pub direction: String,
    /// Items are in order, slice after slice, and stay so; nothing goes from the last process to the first
    #[arg(long)]
    pub ordered: bool,
    /// Move items for real, in place, and verify every one afterwards
    #[arg(long)]
    pub run: bool,
    /// With --run: threads (items go straight from one process's memory to its neighbour's), messages (between threads, one
    /// for each process) or mpi (each process a rank); without it, mpi under mpirun and threads elsewhere
    #[arg(long)]
    pub engine: Option<String>,
    /// With --run: bytes of an item; 8 if not given
    #[arg(long, value_name = "N", value_parser = words::count::<u64>, allow_hyphen_values = true)]
    pub item_bytes: Option<u64>,
    /// With --run: upper limit on memory for messages: bytes, or a number with B, KB, KiB, MB, MiB, GB or GiB
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// With --run: which MPI, openmpi, mpich, abi, or the path of its library; without it, the one that fits the launcher
    #[arg(long)]
    pub mpi: Option<String>,
    /// Draw the program to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<std::path::PathBuf>,
    /// Print JSON with stable keys
    #[arg(long)]
    pub json: bool,
}
