//! Refuses plans whose parts no process can address, so that sizes in bytes do not overflow anywhere behind.

use reshard_plan::error::counted;
use reshard_plan::{Error, ErrorKind, Plan, Result};

/// Bytes of a part at most: a process maps no more on the 64-bit systems we know, as user space ends at address 2^47 (a few
/// can be configured otherwise). So sums of a few part sizes do not overflow.
const MAX_PART_BYTES: u128 = if usize::BITS < 64 { isize::MAX as u128 } else { 1 << 47 };

/// Fails if the part of a rank that the plan lists does not fit into the address space of a process. For all other plans,
/// sizes of parts in bytes do not overflow.
///
/// ```
/// use reshard_kernel::memory::check_reach;
/// use reshard_plan::{ErrorKind, Layout, Move, MemoryOrder, Plan};
/// let layout = Layout::new("2/1 of 4611686018427387904".parse()?, MemoryOrder::RowMajor); // 2^62
/// let plan = Plan::new(vec![Move::of::<f64>(layout.clone(), layout)?])?;
/// assert_eq!(check_reach(&plan).unwrap_err().kind(), ErrorKind::TooLarge);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
pub fn check_reach(plan: &Plan) -> Result<()> {
    for array in plan.arrays() {
        let sources = array.sources().iter().map(|source| ("source", source.rank, source.span));
        let targets = array.targets().iter().map(|target| ("destination", target.rank, target.span));
        for (side, rank, span) in sources.chain(targets) {
            let bytes = u128::from(span) * u128::from(array.wanted().elem_bytes());
            if bytes > MAX_PART_BYTES {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!(
                        "the {side} part of rank {rank} takes {bytes} bytes, and a process can have {MAX_PART_BYTES} at most; use \
                         more ranks or smaller strides"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Fails if a plan was worked out for some of its ranks only.
fn check_hosts_all(plan: &Plan) -> Result<()> {
    match plan.hosted() {
        None => Ok(()),
        Some(ranks) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "a plan for {} was given, and this engine runs plans for all ranks; make it with Plan::new",
                counted(ranks.len(), "hosted rank")
            ),
        )),
    }
}

/// Fails if a source part, or all destinations together, do not fit into the address space of one process: for engines in
/// which all ranks are in one process. Whether there is enough memory is left to the allocation.
pub fn check_reach_of_all(plan: &Plan) -> Result<()> {
    check_hosts_all(plan)?;
    let most = isize::MAX as u128;
    let mut written = 0;
    for array in plan.arrays() {
        let bytes = |span: u64| u128::from(span) * u128::from(array.wanted().elem_bytes());
        let read = array.sources().iter().map(|source| bytes(source.span)).max().unwrap_or(0);
        written += array.targets().iter().map(|target| bytes(target.span)).sum::<u128>();
        if read.max(written) > most {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the parts of the plan's arrays take {} bytes, more than this machine can address; move less at once",
                    read.max(written)
                ),
            ));
        }
    }
    Ok(())
}
