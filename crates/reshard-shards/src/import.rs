//! Sets without a manifest: files that some program wrote, of which the user says how they are named and distributed. What `.npy` headers
//! say is taken from them, and everything that is said twice must agree.

use crate::confined::Directory;
use crate::element::same_in_npy;
use crate::load::of_one;
use crate::names::NamePattern;
use crate::npy::Npy;
use crate::set::{Shard, ShardSet, in_file, read_npy, stamped};
use reshard::axis::Deal;
use reshard::distribution::Pattern;
use reshard::grid::{Grid, MAX_DIMS};
use reshard::notation::print_shape;
use reshard::{ElementType, Error, ErrorKind, Layout, MemoryOrder, Result};
use std::fs::File;
use std::path::Path;

/// What is known of files without a manifest. What is not said is taken from the headers of `.npy` files.
///
/// ```
/// use reshard_shards::{Import, ShardSet};
/// # let folder = std::env::temp_dir().join(format!("reshard-import-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # for (p, q) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
/// #     std::fs::write(folder.join(format!("{p}_{q}.bin")), vec![0; 8 * 50 * 30]).unwrap();
/// # }
/// let import = Import::default()
///     .with_layout("2x2/50x30".parse()?)
///     .with_shape(&[100, 60])
///     .with_element("f64".parse()?);
/// let set = ShardSet::import(folder.join("{p}_{q}.bin"), &import)?; // four files of nothing but doubles
/// assert_eq!(set.layout().to_string(), "2x2/50x30 of 100x60");
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Import {
    layout: Option<Pattern>,
    order: Option<MemoryOrder>,
    shape: Option<Vec<u64>>,
    element: Option<ElementType>,
}

impl Import {
    /// How the array is distributed over the files. A single file needs none.
    #[must_use]
    pub fn with_layout(self, layout: Pattern) -> Self {
        Self { layout: Some(layout), ..self }
    }

    /// Which index runs fastest in the files. Without it: what headers say, else the first.
    #[must_use]
    pub fn with_order(self, order: MemoryOrder) -> Self {
        Self { order: Some(order), ..self }
    }

    /// The shape of the whole array. Files without headers need it.
    #[must_use]
    pub fn with_shape(self, shape: &[u64]) -> Self {
        Self { shape: Some(shape.to_vec()), ..self }
    }

    /// The type of the elements. Files without headers need it, and types for which NumPy has no name.
    #[must_use]
    pub fn with_element(self, element: ElementType) -> Self {
        Self { element: Some(element), ..self }
    }
}

/// A file that was opened, by ascending rank.
struct Opened {
    rank: u64,
    name: String,
    file: File,
    bytes: u64,
    npy: Option<Npy>,
}

impl ShardSet {
    /// Opens files without a manifest. `path` is a directory and a pattern of names, such as `out/rank_{rank:04}.npy` or `out/{p}_{q}.bin`, or
    /// one file with the whole array. Nothing is known of their bytes: there are no checksums to check.
    pub fn import(path: impl AsRef<Path>, import: &Import) -> Result<Self> {
        let path = path.as_ref();
        let wrong = |kind, why: String| Error::new(kind, format!("{}: {why}", path.display()));
        let (Some(name), parent) = (path.file_name(), path.parent()) else {
            return Err(wrong(ErrorKind::Mismatch, "names no file; give one, or a pattern of names".into()));
        };
        let parent = parent.filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let pattern: NamePattern = name
            .to_str()
            .ok_or_else(|| wrong(ErrorKind::Unsupported, "the name is not UTF-8".into()))?
            .parse()?;
        let directory = Directory::open(parent)?;
        let grid = match &import.layout {
            Some(layout) => layout.grid().clone(),
            None if pattern.has_fields() => {
                return Err(wrong(
                    ErrorKind::Mismatch,
                    "the layout of the files is not known; say it, as in --from 4x4/64x64".into(),
                ));
            }
            None => Grid::new(&[1])?,
        };
        let mut opened = Vec::new();
        // Refused before the ranks are listed, if they are too many.
        let names = pattern.names(&grid)?;
        for (rank, name) in grid.sorted_ranks().into_iter().zip(names) {
            let (file, bytes) = directory.open_file(&name)?;
            let npy = match name.ends_with(".npy") {
                true => Some(read_npy(&file, bytes).map_err(|error| in_file(parent, &name, &error))?),
                false => None,
            };
            opened.push(Opened { rank, name, file, bytes, npy });
        }
        let found = Found { parent, opened: &opened };
        let element = found.element(import.element)?;
        let layout = found.layout(import)?;
        found.check(&layout, element)?;
        let shards = opened.into_iter().map(|one| Shard {
            rank: one.rank,
            data_start: one.npy.as_ref().map_or(0, Npy::data_start),
            name: one.name,
            file: one.file,
            bytes: one.bytes,
            sums: None,
        });
        let shards: Vec<Shard> = shards.collect();
        let identity = stamped(parent, &shards)?;
        Ok(Self { path: parent.into(), layout, element, shards, made: None, identity, owns_directory: false })
    }
}

/// Files of which everything must fit together.
struct Found<'a> {
    parent: &'a Path,
    opened: &'a [Opened],
}

impl Found<'_> {
    fn wrong(&self, one: &Opened, why: &str) -> Error {
        Error::new(ErrorKind::Mismatch, format!("{} {why}", self.parent.join(&one.name).display()))
    }

    /// Fails for files without headers if something was not said.
    fn unsaid(&self, what: &str, flag: &str) -> Error {
        let name = self.opened.first().map_or("", |one| &one.name[..]);
        let shown = self.parent.join(name);
        Error::new(
            ErrorKind::Mismatch,
            format!("{} has no header that says the {what}; say it, as in {flag}", shown.display()),
        )
    }

    fn element(&self, said: Option<ElementType>) -> Result<ElementType> {
        let mut all = self.opened.iter().filter_map(|one| Some((one, one.npy.as_ref()?.element())));
        let first = self.opened.first().and_then(|one| Some(one.npy.as_ref()?.element()));
        let Some(element) = said.or(first) else { return Err(self.unsaid("type", "--type f64")) };
        match all.find(|&(_, found)| !same_in_npy(found, element)) {
            None => Ok(element),
            Some((one, found)) if said.is_some() => {
                Err(self.wrong(one, &format!("has elements of type {found}, and {element} was given")))
            }
            Some((one, found)) => Err(self.wrong(
                one,
                &format!("has elements of type {found}, and the file of the first rank has {element}; all must have the same"),
            )),
        }
    }

    fn order(&self, said: Option<MemoryOrder>) -> Result<MemoryOrder> {
        let mut order = said;
        for one in self.opened {
            let Some(npy) = &one.npy else { continue };
            let shape = npy.shape();
            // With one long dimension at most, both orders are the same, and NumPy then says C.
            if shape.contains(&0) || shape.iter().filter(|&&length| length > 1).count() < 2 {
                continue;
            }
            match order {
                Some(order) if order != npy.order() => {
                    let words = |order| if order == MemoryOrder::RowMajor { "C" } else { "Fortran" };
                    return Err(self.wrong(
                        one,
                        &format!(
                            "is in {} order, and {} order was given or is that of another file; all must have the same",
                            words(npy.order()),
                            words(order)
                        ),
                    ));
                }
                _ => order = Some(npy.order()),
            }
        }
        let first = self.opened.first().and_then(|one| one.npy.as_ref()).map(Npy::order);
        Ok(order.or(first).unwrap_or(MemoryOrder::ColMajor))
    }

    fn layout(&self, import: &Import) -> Result<Layout> {
        let order = self.order(import.order)?;
        let distribution = match &import.layout {
            Some(pattern) => {
                let shape = match &import.shape {
                    Some(shape) => shape.clone(),
                    None => self.shape(pattern)?,
                };
                pattern.over(&shape)?
            }
            None => {
                let header =
                    self.opened.first().and_then(|one| one.npy.as_ref()).map(|npy| npy.shape().to_vec());
                if let (Some(header), Some(one)) = (&header, self.opened.first())
                    && !(1..=MAX_DIMS).contains(&header.len())
                {
                    return Err(self.wrong(
                        one,
                        &format!(
                            "has {} dimensions, and arrays of 1 to {MAX_DIMS} are read; reshape it",
                            header.len()
                        ),
                    ));
                }
                let Some(shape) = import.shape.clone().or(header) else {
                    return Err(self.unsaid("shape", "--shape 4000x3000"));
                };
                return of_one(&shape, order);
            }
        };
        Ok(Layout::new(distribution, order))
    }

    /// The shape of the array, by the headers of all its parts.
    fn shape(&self, pattern: &Pattern) -> Result<Vec<u64>> {
        let grid = pattern.grid();
        let mut lengths: Vec<Vec<Option<u64>>> =
            grid.extents().iter().map(|&extent| vec![None; extent as usize]).collect();
        for one in self.opened {
            let Some(npy) = &one.npy else { return Err(self.unsaid("shape", "--shape 4000x3000")) };
            if npy.shape().len() != grid.dims() {
                return Err(self.wrong(
                    one,
                    &format!(
                        "has the shape {}, and the layout {pattern} has {} dimensions",
                        print_shape(npy.shape()),
                        grid.dims()
                    ),
                ));
            }
            let coords = grid.coords(one.rank).unwrap_or_default();
            for ((lengths, &coord), &length) in lengths.iter_mut().zip(&coords).zip(npy.shape()) {
                lengths[coord as usize].get_or_insert(length);
            }
        }
        let sum = |(lengths, deal): (&Vec<Option<u64>>, &Deal)| {
            // Every process has the whole of a dimension that is not distributed.
            let distinct = if *deal == Deal::Whole { 1 } else { lengths.len() };
            lengths.iter().take(distinct).flatten().try_fold(0_u64, |sum, &length| sum.checked_add(length))
        };
        let shape: Option<Vec<u64>> = lengths.iter().zip(pattern.deals()).map(sum).collect();
        shape.ok_or_else(|| {
            Error::new(ErrorKind::TooLarge, "the files claim an array longer than 2^64 elements")
        })
    }

    /// Fails unless every file has the shape and the length that its part has.
    fn check(&self, layout: &Layout, element: ElementType) -> Result<()> {
        for one in self.opened {
            let shape = layout.distribution().local_shape(one.rank)?;
            if let Some(npy) = &one.npy {
                if npy.shape() != shape {
                    return Err(self.wrong(
                        one,
                        &format!(
                            "has the shape {}, and the part of rank {} under {layout} has {}; give the layout the files were written under",
                            print_shape(npy.shape()),
                            one.rank,
                            print_shape(&shape)
                        ),
                    ));
                }
                continue;
            }
            let bytes = layout.distribution().local_elems(one.rank)?.checked_mul(element.bytes());
            if bytes != Some(one.bytes) {
                return Err(self.wrong(
                    one,
                    &format!(
                        "has {} bytes, and the part of rank {} under {layout}, {} elements of type {element}, has another length; \
                         give the layout, shape and type the files were written with",
                        one.bytes,
                        one.rank,
                        print_shape(&shape)
                    ),
                ));
            }
        }
        Ok(())
    }
}
