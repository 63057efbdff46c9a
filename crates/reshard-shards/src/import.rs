//! Sets without a manifest: files that some program wrote, of which the user says how they are named and distributed. What `.npy` headers
//! say is taken from them, and everything that is said twice must agree.

use crate::access::Modes;
use crate::array::{Array, Part};
use crate::confined::Directory;
use crate::element::same_in_npy;
use crate::import_tensors::{shape_of, tensors_of};
use crate::layouts::Layouts;
use crate::load::of_one;
use crate::names::NamePattern;
use crate::npy::Npy;
use crate::set::{Shard, ShardSet, common_words, in_file, read_npy, read_tensors, stamped};
use reshard::distribution::Pattern;
use reshard::grid::{Grid, MAX_DIMS};
use reshard::notation::print_shape;
use reshard::{ElementType, Error, ErrorKind, Layout, MemoryOrder, Result};
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// More files are not listed.
const MAX_FILES: u64 = 1 << 20;

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
    layouts: Layouts,
    order: Option<MemoryOrder>,
    shape: Option<Vec<u64>>,
    element: Option<ElementType>,
}

impl Import {
    /// How the array, or every one, is distributed over the files. A single file needs none.
    #[must_use]
    pub fn with_layout(self, layout: Pattern) -> Self {
        self.with_layouts(Layouts::all(layout, None))
    }

    /// How the tensors of safetensors files are distributed over them, by their names.
    #[must_use]
    pub fn with_layouts(self, layouts: Layouts) -> Self {
        Self { layouts, ..self }
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
struct Opened<'s> {
    shard: &'s Shard,
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
        let is_tensors = name.as_encoded_bytes().ends_with(b".safetensors");
        let only = if is_tensors { None } else { import.layouts.only()? };
        let grid = match only {
            Some((layout, _)) => layout.grid().clone(),
            None if is_tensors && !import.layouts.is_empty() => all_ranks(&import.layouts)?,
            None if pattern.has_fields() => {
                return Err(wrong(
                    ErrorKind::Mismatch,
                    "the layout of the files is not known; say it, as in --from 4x4/64x64".into(),
                ));
            }
            None => Grid::new(&[1])?,
        };
        let (mut shards, mut npys, mut headers) = (Vec::new(), Vec::new(), Vec::new());
        // Refused before the ranks are listed, if they are too many.
        let names = pattern.names(&grid)?;
        for (rank, name) in grid.sorted_ranks().into_iter().zip(names) {
            let (file, bytes) = directory.open_file(&name)?;
            let mut header_bytes = 0;
            let failed = |error: Error| in_file(parent, &name, &error);
            if is_tensors {
                let (header, _) = read_tensors(&file, bytes).map_err(failed)?;
                header_bytes = header.data_start();
                headers.push(header);
            } else {
                let npy =
                    name.ends_with(".npy").then(|| read_npy(&file, bytes).map_err(failed)).transpose()?;
                let npy = npy.map(|(npy, _)| npy);
                header_bytes = npy.as_ref().map_or(header_bytes, Npy::data_start);
                npys.push(npy);
            }
            shards.push(Shard { rank, name, file, header_bytes, bytes, sums: None });
        }
        let arrays = if is_tensors {
            if import.shape.is_some() || import.element.is_some() || import.order.is_some() {
                return Err(wrong(
                    ErrorKind::Mismatch,
                    "a shape, a type or an order was given, and the files say those of each tensor; leave it out".into(),
                ));
            }
            tensors_of(parent, &shards, &headers, &import.layouts)?
        } else {
            let opened: Vec<Opened<'_>> =
                shards.iter().zip(npys).map(|(shard, npy)| Opened { shard, npy }).collect();
            let found = Found { parent, opened: &opened };
            let element = found.element(import.element)?;
            let layout = found.layout(import, only)?;
            found.check(&layout, element)?;
            let mut array = Array::new(layout, element);
            let part =
                |(file, shard): (usize, &Shard)| Part { rank: shard.rank, file, start: shard.header_bytes };
            array.parts = shards.iter().enumerate().map(part).collect();
            vec![array]
        };
        // A shape that was given says how much there is.
        if is_tensors || import.shape.is_none() {
            check_no_others(&directory, parent, &pattern, &shards)?;
        }
        let identity = stamped(parent, &shards)?;
        let words = common_words(&headers);
        let modes = Modes::of(parent, &directory, shards.iter().map(|shard| &shard.file))?;
        Ok(Self {
            path: parent.into(),
            arrays,
            shards,
            words,
            identity,
            owns_directory: false,
            modes,
            whole_blocks: false,
        })
    }
}

/// Fails if there are more files of the pattern than the layout has ranks: what they have would be left out without a word.
fn check_no_others(
    directory: &Directory,
    parent: &Path,
    pattern: &NamePattern,
    shards: &[Shard],
) -> Result<()> {
    if !pattern.has_fields() {
        return Ok(());
    }
    let known: HashSet<&str> = shards.iter().map(|shard| &shard.name[..]).collect();
    let names = directory.names()?.into_iter();
    let others = names.filter(|name| !known.contains(&name[..]) && pattern.could_give(name));
    let Some(other) = others.min_by(|one, other| (one.len(), one).cmp(&(other.len(), other))) else {
        return Ok(());
    };
    let ranks = match shards {
        [one] => format!("rank {}", one.rank),
        [one, other] => format!("ranks {} and {}", one.rank, other.rank),
        [first, .., last] if last.rank - first.rank + 1 == shards.len() as u64 => {
            format!("ranks {} to {}", first.rank, last.rank)
        }
        _ => format!("{} other ranks", shards.len()),
    };
    Err(Error::new(
        ErrorKind::Mismatch,
        format!(
            "{} is there, too, and the layout has {ranks} only; give the layout of all files",
            parent.join(other).display()
        ),
    ))
}

/// The ranks of all layouts.
fn all_ranks(layouts: &Layouts) -> Result<Grid> {
    let mut ranks = BTreeSet::new();
    for pattern in layouts.patterns() {
        let size = pattern.grid().size();
        if size > MAX_FILES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{size} files were to be read; at most {MAX_FILES} are possible"),
            ));
        }
        ranks.extend(pattern.grid().sorted_ranks());
    }
    let ranks: Vec<u64> = ranks.into_iter().collect();
    Grid::new(&[ranks.len() as u64])?.with_ranks(&ranks)
}

/// Files of which everything must fit together.
struct Found<'a> {
    parent: &'a Path,
    opened: &'a [Opened<'a>],
}

impl Found<'_> {
    fn wrong(&self, one: &Opened<'_>, why: &str) -> Error {
        Error::new(ErrorKind::Mismatch, format!("{} {why}", self.parent.join(&one.shard.name).display()))
    }

    /// Fails for files without headers if something was not said.
    fn unsaid(&self, what: &str, flag: &str) -> Error {
        let name = self.opened.first().map_or("", |one| &one.shard.name[..]);
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

    fn layout(&self, import: &Import, only: Option<(&Pattern, Option<MemoryOrder>)>) -> Result<Layout> {
        let order = self.order(only.and_then(|(_, order)| order).or(import.order))?;
        let distribution = match only {
            Some((pattern, _)) => {
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
        let mut parts = Vec::new();
        for one in self.opened {
            let Some(npy) = &one.npy else { return Err(self.unsaid("shape", "--shape 4000x3000")) };
            if npy.shape().len() != pattern.grid().dims() {
                return Err(self.wrong(
                    one,
                    &format!(
                        "has the shape {}, and the layout {pattern} has {} dimensions",
                        print_shape(npy.shape()),
                        pattern.grid().dims()
                    ),
                ));
            }
            parts.push((one.shard.rank, npy.shape()));
        }
        shape_of(pattern, &parts)
    }

    /// Fails unless every file has the shape and the length that its part has.
    fn check(&self, layout: &Layout, element: ElementType) -> Result<()> {
        for one in self.opened {
            let shape = layout.distribution().local_shape(one.shard.rank)?;
            if let Some(npy) = &one.npy {
                if npy.shape() != shape {
                    return Err(self.wrong(
                        one,
                        &format!(
                            "has the shape {}, and the part of rank {} under {layout} has {}; give the layout the files were written under",
                            print_shape(npy.shape()),
                            one.shard.rank,
                            print_shape(&shape)
                        ),
                    ));
                }
                continue;
            }
            let bytes = layout.distribution().local_elems(one.shard.rank)?.checked_mul(element.bytes());
            if bytes != Some(one.shard.bytes) {
                return Err(self.wrong(
                    one,
                    &format!(
                        "has {} bytes, and the part of rank {} under {layout}, {} elements of type {element}, has another length; \
                         give the layout, shape and type the files were written with",
                        one.shard.bytes,
                        one.shard.rank,
                        print_shape(&shape)
                    ),
                ));
            }
        }
        Ok(())
    }
}
