//! What the tests of sets share: a folder that is removed with its test, and layouts drawn by a seed.

use reshard::Layout;
use reshard_testkit::Random;
use std::path::PathBuf;

/// A folder of one test, which is removed with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        // In memory, if possible: making files durable takes a disk longer than all the rest.
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = base.join(format!("reshard-shards-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Any grid of up to three processes in each dimension, any blocks, either order; some dimensions replicated.
pub fn random_layout(random: &mut Random, shape: &[u64]) -> Layout {
    let by_x = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    let grid: Vec<u64> = shape.iter().map(|_| random.within(1, 3)).collect();
    let deal = |_| match random.within(0, 5) {
        0 => "*".to_string(),
        _ => format!("cyclic({})", random.within(1, 7)),
    };
    let deals: Vec<String> = shape.iter().map(deal).collect();
    let order = ["row", "col"][random.within(0, 1) as usize];
    let text = format!("({}) on {} of {} memory={order}", deals.join(", "), by_x(&grid), by_x(shape));
    text.parse().unwrap()
}
