//! Instruction set levels: the vector instructions that the copying code of an engine uses.

use reshard_plan::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// An instruction set level. Engines use the best one of the processor; another one can be set to compare levels, or to
/// test what a smaller processor does.
///
/// A level decides how one rank copies bytes, never what ranks send each other or which rank copies what: ranks of
/// different levels can run one plan together.
///
/// ```
/// use reshard::engine::{Level, Threads, ThreadsOptions};
/// use reshard::{Move, Plan, Redistribution};
/// let plan = Plan::new(vec![Move::of::<u32>("2/1 of 4".parse()?, "1/4 of 4".parse()?)?])?;
/// let options = ThreadsOptions::default().with_level("portable".parse::<Level>()?);
/// let mut whole = [[0_u32; 4]];
/// Redistribution::with(Threads::with_options(plan.into(), options)?).run(&[[1_u32, 3], [2, 4]], &mut whole)?;
/// assert_eq!(whole, [[1, 2, 3, 4]]);
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// What every processor of its kind has.
    Portable,
    /// AVX2: vectors of 32 bytes.
    Avx2,
    /// AVX-512 (F, BW, VL, DQ): vectors of 64 bytes, and masks.
    Avx512,
    /// AVX-512 with VBMI: permutations of bytes, too.
    Avx512Vbmi,
}

impl Level {
    const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Vbmi];

    /// Returns the levels that this processor has; the last is the one that engines use.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|level| level.is_supported()).collect()
    }

    /// Returns the level that engines use if none is set.
    pub fn best() -> Self {
        let best = reshard_kernel::Level::best();
        Self::ALL.into_iter().find(|level| level.in_kernel() == best).unwrap_or(Self::Portable)
    }

    /// True if this processor has the level.
    pub fn is_supported(self) -> bool {
        self.in_kernel().is_supported()
    }

    /// Fails if this processor does not have the level.
    pub fn check(self) -> Result<()> {
        if self.is_supported() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the instruction set level `{self}` was given, and this processor does not have it; choose one of {}",
                names(&Self::available())
            ),
        ))
    }

    /// The name of the level on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Vbmi => "avx512vbmi",
        }
    }

    fn in_kernel(self) -> reshard_kernel::Level {
        match self {
            Self::Portable => reshard_kernel::Level::Portable,
            Self::Avx2 => reshard_kernel::Level::Avx2,
            Self::Avx512 => reshard_kernel::Level::Avx512,
            Self::Avx512Vbmi => reshard_kernel::Level::Avx512Vbmi,
        }
    }
}

/// Returns the kernel's level for one that was set or not; fails if this processor does not have it.
pub(crate) fn kernel_level(level: Option<Level>) -> Result<reshard_kernel::Level> {
    let Some(level) = level else { return Ok(reshard_kernel::Level::best()) };
    level.check().map(|()| level.in_kernel())
}

fn names(levels: &[Level]) -> String {
    let names: Vec<&str> = levels.iter().map(|level| level.name()).collect();
    names.join(", ")
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            Error::new(
                ErrorKind::Notation,
                format!("there is no instruction set level `{text}`; choose one of {}", names(&Self::ALL)),
            )
        })
    }
}
