//! What instructions are counted of: planning, whole runs of the engine `threads`, packing and unpacking.
//!
//! Each does its work so many rounds and prints nothing. `cargo xtask bench count` runs it with few and with more rounds under
//! callgrind; what the rounds between take has nothing of the preparations in it. Arrays of 1 MiB, one thread; callgrind's
//! processor has AVX2 and nothing above, so the kernels are always those of one level.

use crate::machine::Failure;
use reshard::engine::{BufferTable, MessagesOptions, Threads};
use reshard::memory::Memory;
use reshard::rank;
use reshard::{Layout, MemoryOrder, Move, Plan, Redistribution};
use reshard_plan::Distribution;
use std::hint::black_box;
use std::sync::Arc;

/// A message is packed into pieces of so many bytes.
const PIECE: usize = 1 << 15;

const SHAPE: &str = "512x256";

/// Ten moves: blocks that grow and shrink, single elements, whole columns to whole rows, other memory orders, processes that
/// keep what they have.
const CASES: [(&str, MemoryOrder, &str, MemoryOrder); 10] = [
    ("2x2/64x64", MemoryOrder::ColMajor, "2x2/50x30", MemoryOrder::ColMajor),
    ("4x4/8x8", MemoryOrder::ColMajor, "2x8/5x3", MemoryOrder::ColMajor),
    ("1x4/512x64", MemoryOrder::ColMajor, "4x1/128x256", MemoryOrder::ColMajor),
    ("2x2/1x1", MemoryOrder::ColMajor, "2x2/16x16", MemoryOrder::ColMajor),
    ("4x1/1x256", MemoryOrder::ColMajor, "1x4/512x1", MemoryOrder::ColMajor),
    ("2x2/32x32", MemoryOrder::ColMajor, "2x2/32x32", MemoryOrder::RowMajor),
    ("1x1/512x256", MemoryOrder::RowMajor, "3x5/7x11", MemoryOrder::ColMajor),
    ("8x1/3x256", MemoryOrder::RowMajor, "8x1/5x256", MemoryOrder::RowMajor),
    ("2x3/16x16", MemoryOrder::ColMajor, "3x2/16x16", MemoryOrder::ColMajor),
    ("4x4/16x64", MemoryOrder::ColMajor, "1x1/512x256", MemoryOrder::ColMajor),
];

fn moves() -> Result<Vec<Move>, Failure> {
    let layout = |text: &str, order| -> Result<Layout, Failure> {
        Ok(Layout::new(format!("{text} of {SHAPE}").parse::<Distribution>()?, order))
    };
    CASES.iter().map(|&(from, a, to, b)| Ok(Move::of::<f64>(layout(from, a)?, layout(to, b)?)?)).collect()
}

/// Parts lie alike in all builds: how much is done before the first whole line depends on the address.
fn part(span: u64) -> reshard::Result<Memory<f64>> {
    Memory::zeroed(span as usize)
}

/// Refuses processors whose kernels are not those that are counted.
fn check_level() -> Result<(), Failure> {
    // Four for each level: portable and AVX2.
    match Threads::ways() {
        8 => Ok(()),
        _ => Err("instructions are counted with AVX2 and nothing above it, as valgrind has it; this processor has another level".into()),
    }
}

/// Whole runs of all cases.
pub fn threads(rounds: usize) -> Result<(), Failure> {
    check_level()?;
    for moving in moves()? {
        let plan = Arc::new(Plan::new(vec![moving])?);
        let parts = plan.arrays()[0].sources().iter().map(|source| part(source.span));
        let from = parts.collect::<Result<Vec<_>, _>>()?;
        let parts = plan.arrays()[0].targets().iter().map(|target| part(target.span));
        let mut to = parts.collect::<Result<Vec<_>, _>>()?;
        let mut run = Redistribution::with(Threads::new(plan, Some(1))?);
        for _ in 0..rounds {
            black_box(run.run(black_box(&from), &mut to)?);
        }
    }
    Ok(())
}

/// All messages that rank 0 sends (`pack`), or receives, in all cases.
pub fn messages(rounds: usize, packs: bool) -> Result<(), Failure> {
    check_level()?;
    for moving in moves()? {
        let plan = Arc::new(Plan::new(vec![moving])?);
        let (mut packer, program) = rank::messages(&plan, 0, &MessagesOptions::default(), PIECE)?;
        let (source, target) = (&plan.arrays()[0].sources()[0], &plan.arrays()[0].targets()[0]);
        assert_eq!((source.rank, target.rank), (0, 0), "rank 0 has something in every case");
        let (from, mut to) = (part(source.span)?, part(target.span)?);
        let mut table = BufferTable::new(Arc::clone(&plan));
        let mut piece = Memory::<u8>::zeroed(packer.fragment_bytes())?;
        for _ in 0..rounds {
            let mut data = table.fill();
            data.enter_own(0, 0, &from, &mut to, None)?;
            packer.begin(&data);
            for range in if packs { &program.sends } else { &program.receives } {
                let mut cursor = packer.open(&data, range);
                while !cursor.finished() {
                    black_box(match packs {
                        true => packer.pack(&data, range, &mut cursor, &mut piece),
                        false => packer.unpack(&mut data, range, &mut cursor, &piece),
                    });
                }
            }
        }
    }
    Ok(())
}
