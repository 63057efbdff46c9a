//! Files as parts: whatever is a slice of bytes can be moved, so a memory-mapped file can, too.

use reshard::{Layout, Move, Redistribution};
use std::fs::File;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("reshard-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (from, to): (Layout, Layout) = ("2/3 of 1000".parse()?, "3/50 of 1000".parse()?);
    let name = |side: &str, rank: usize| folder.join(format!("{side}{rank}.bin"));
    for (rank, part) in from.parts(|index| index[0])?.iter().enumerate() {
        let bytes: Vec<u8> = part.iter().flat_map(|x| x.to_ne_bytes()).collect();
        std::fs::write(name("old", rank), bytes)?;
    }
    let map = |rank| open(&name("old", rank), 0);
    let sources = (0..2).map(map).collect::<Result<Vec<_>, _>>()?;
    let target = |rank| open(&name("new", rank), 8 * to.span(rank as u64).unwrap_or(0));
    let mut targets = (0..3).map(target).collect::<Result<Vec<_>, _>>()?;
    Redistribution::new(Move::of::<u64>(from, to.clone())?)?.run_bytes(&sources, &mut targets)?;
    let (rank, at) = to.locate(&[777])?;
    let bytes = &targets[rank as usize][at as usize * 8..][..8];
    assert_eq!(u64::from_ne_bytes(bytes.try_into()?), 777);
    Ok(std::fs::remove_dir_all(&folder)?)
}

/// Maps a file, made as long as `bytes` if it is shorter.
#[allow(unsafe_code)]
fn open(path: &std::path::Path, bytes: u64) -> std::io::Result<memmap2::MmapMut> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.set_len(bytes.max(file.metadata()?.len()))?;
    // SAFETY: nobody else changes these files while they are mapped.
    unsafe { memmap2::MmapMut::map_mut(&file) }
}
