//! Sets that the ranks of a communicator read and write together: every rank calls, and all get the same answer. Files are durable on all ranks
//! before the set gets its name, which one of them gives it.

use crate::convert::convert_by;
use crate::manifest::Format;
use crate::options::{ConvertOptions, Converted};
use crate::processes::Processes;
use crate::save::{check_type, save_by};
use crate::set::ShardSet;
use crate::{Import, Loaded};
use reshard::{ElementType, Layout, Result, bytemuck};
use reshard_mpi::communicator::ToCommunicator;
use std::path::Path;
use std::time::Duration;

/// The ranks of a communicator that work on sets of files together.
///
/// ```no_run
/// use reshard_shards::{Format, collective::Ranks};
/// # let layout: reshard::Layout = "4x4/64x64 of 4000x3000".parse()?;
/// # let later: reshard::Layout = "3x3/100x100 of 4000x3000".parse()?;
/// let session = reshard_mpi::Mpi::load(None)?.init()?;
/// let ranks = Ranks::of(session.world(), std::time::Duration::from_secs(600))?;
/// let part = layout.allocate::<f64>(session.world().rank() as u64)?;
/// ranks.save("step_1000", &layout, "f64".parse()?, &part, Format::Npy)?; // 16 ranks write
/// // ... and 9 ranks, in another job, read:
/// let mut part = later.allocate::<f64>(session.world().rank() as u64)?;
/// ranks.load_as("step_1000", &later, &mut part)?;
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone)]
pub struct Ranks(Processes);

impl Ranks {
    /// The ranks of a communicator. `deadline` is how long they wait for each other: as long as the slowest may take to read or to write its
    /// share. Collective.
    pub fn of(comm: &impl ToCommunicator, deadline: Duration) -> Result<Self> {
        Ok(Self(Processes::Ranks(comm.to_communicator(Some(deadline))?, deadline)))
    }

    /// Gives all ranks the same answer: if one comes with an error, all get that. For what a rank prepares alone before it calls. Collective.
    pub fn agree(&self, mine: Result<()>) -> Result<()> {
        self.0.agree(mine)
    }

    /// Writes the parts of all ranks as a set at `destination`, which must not exist. `part` is that of this rank, of `layout.span(rank)`
    /// elements; ranks that have none under the layout give an empty one. Collective.
    pub fn save<T: bytemuck::Pod>(
        &self,
        destination: impl AsRef<Path>,
        layout: &Layout,
        element: ElementType,
        part: &[T],
        format: Format,
    ) -> Result<()> {
        self.0.agree(check_type::<T>(element))?;
        self.save_bytes(destination, layout, element, bytemuck::cast_slice(part), format)
    }

    /// Writes the parts of all ranks as [`save`](Self::save), that of this rank given as bytes. Collective.
    pub fn save_bytes(
        &self,
        destination: impl AsRef<Path>,
        layout: &Layout,
        element: ElementType,
        part: &[u8],
        format: Format,
    ) -> Result<()> {
        let rank = self.0.mine() as u64;
        self.0.agree(self.check(layout))?;
        let mine = layout.distribution().grid().contains(rank).then_some((rank, part));
        let parts: Vec<(u64, &[u8])> = mine.into_iter().collect();
        save_by(&self.0, destination.as_ref(), layout, element, &parts, format)
    }

    /// Reads the part that this rank has under the layout `to` from a set that was written under any. Collective.
    pub fn load_as<T: bytemuck::Pod>(
        &self,
        path: impl AsRef<Path>,
        to: &Layout,
        part: &mut [T],
    ) -> Result<Loaded> {
        let rank = self.0.mine() as u64;
        self.0.agree(self.check(to))?;
        let loaded = match to.distribution().grid().contains(rank) {
            true => ShardSet::open(path).and_then(|set| set.load_as(to, rank, part)),
            false => Ok(Loaded::default()),
        };
        self.0.agree(loaded)
    }

    /// Reads the part of this rank as [`load_as`](Self::load_as) from a set that every rank has opened, in whole blocks if it says so
    /// ([`ShardSet::with_whole_blocks`]). Collective.
    pub fn load_of<T: bytemuck::Pod>(&self, set: &ShardSet, to: &Layout, part: &mut [T]) -> Result<Loaded> {
        let rank = self.0.mine() as u64;
        self.0.agree(self.check(to))?;
        self.0.agree(match to.distribution().grid().contains(rank) {
            true => set.load_as(to, rank, part),
            false => Ok(Loaded::default()),
        })
    }

    /// Opens a set on every rank. Collective.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<ShardSet> {
        self.0.agree(ShardSet::open(path))
    }

    /// Opens files without a manifest on every rank. Collective.
    pub fn import(&self, path: impl AsRef<Path>, import: &Import) -> Result<ShardSet> {
        self.0.agree(ShardSet::import(path, import))
    }

    /// Converts a set: the ranks share the work, each in as much memory as the options say. Collective.
    pub fn convert(
        &self,
        source: &ShardSet,
        destination: impl AsRef<Path>,
        to: &Layout,
        options: &ConvertOptions,
        progress: impl FnMut(u64, u64),
    ) -> Result<Converted> {
        self.0.agree(source.only().map(|_| ()))?;
        self.convert_arrays(source, destination, std::slice::from_ref(to), options, progress)
    }

    /// Converts a set of any number of arrays as [`convert`](Self::convert) does; `to` has a layout for each. Collective.
    pub fn convert_arrays(
        &self,
        source: &ShardSet,
        destination: impl AsRef<Path>,
        to: &[Layout],
        options: &ConvertOptions,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Converted> {
        convert_by(&self.0, source, destination.as_ref(), to, options, &mut progress)
    }

    /// Fails if a layout has ranks that the communicator has not.
    fn check(&self, layout: &Layout) -> Result<()> {
        match layout.distribution().grid().max_rank() {
            Some(most) if most >= self.0.count() as u64 => Err(reshard::Error::new(
                reshard::ErrorKind::Mismatch,
                format!(
                    "the layout {layout} has rank {most}, and the communicator {} ranks; give as many",
                    self.0.count()
                ),
            )),
            _ => Ok(()),
        }
    }
}
