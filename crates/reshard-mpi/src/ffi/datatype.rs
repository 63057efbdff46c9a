//! Derived datatypes: MPI's description of where the bytes of a message lie.
//!
//! The movers pack by themselves. Datatypes are for a baseline of the measurements: redistribution by `MPI_Alltoallw`.

use super::calls::{Handle, call, each, name, none_negative};
use super::library::Mpi;
use crate::abi::Raw;
use reshard_plan::{Error, ErrorKind, MemoryOrder, Result};
use std::ffi::c_int;

/// A datatype of MPI. Freed when dropped; others made from it stay valid.
#[derive(Debug)]
pub struct Datatype {
    mpi: &'static Mpi,
    pub(super) raw: Raw,
    /// Made here: freed when dropped.
    ours: bool,
}

/// The block-cyclic distribution of one axis of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dealt {
    /// Length of the axis in elements of the whole array.
    pub extent: i32,
    /// Elements of a block, distributed cyclically; none if the axis is not distributed.
    pub block: Option<i32>,
    /// Number of processes along the axis.
    pub processes: i32,
}

impl Datatype {
    /// One byte.
    pub fn bytes(mpi: &'static Mpi) -> Self {
        Self { mpi, raw: mpi.abi.handles.byte, ours: false }
    }

    /// `count` elements, one after the other.
    pub fn contiguous(&self, count: i32) -> Result<Self> {
        none_negative(name::type_contiguous, &[count])?;
        // SAFETY: the handle is valid.
        self.made(unsafe { call!(self.mpi, type_contiguous(count, Handle::of(self.raw)) -> handle) })
    }

    /// `count` blocks of `block` elements, whose beginnings are `stride` elements apart.
    pub fn vector(&self, count: i32, block: i32, stride: i32) -> Result<Self> {
        none_negative(name::type_vector, &[count, block])?;
        // SAFETY: the handle is valid.
        self.made(unsafe {
            call!(self.mpi, type_vector(count, block, stride, Handle::of(self.raw)) -> handle)
        })
    }

    /// `count` blocks of `block` elements, whose beginnings are `stride_bytes` bytes apart.
    pub fn hvector(&self, count: i32, block: i32, stride_bytes: isize) -> Result<Self> {
        none_negative(name::type_hvector, &[count, block])?;
        // SAFETY: the handle is valid.
        self.made(unsafe {
            call!(self.mpi, type_hvector(count, block, stride_bytes, Handle::of(self.raw)) -> handle)
        })
    }

    /// Blocks of these lengths in elements, at these offsets in bytes.
    pub fn hindexed(&self, blocks: &[i32], at_bytes: &[isize]) -> Result<Self> {
        none_negative(name::type_hindexed, blocks)?;
        let count = equal_len(blocks.len(), at_bytes.len())?;
        let (blocks, at) = (blocks.as_ptr(), at_bytes.as_ptr());
        // SAFETY: the handle is valid; both lists have `count` entries.
        self.made(unsafe {
            call!(self.mpi, type_hindexed(count, blocks, at, Handle::of(self.raw)) -> handle)
        })
    }

    /// A structure; each member is a count, an offset in bytes, and a datatype.
    pub fn structure(mpi: &'static Mpi, members: &[(i32, isize, &Datatype)]) -> Result<Self> {
        let count = equal_len(members.len(), members.len())?;
        let blocks: Vec<c_int> = members.iter().map(|member| member.0).collect();
        none_negative(name::type_struct, &blocks)?;
        let at: Vec<isize> = members.iter().map(|member| member.1).collect();
        let _guard = mpi.enter()?;
        let (code, raw) = each!(mpi, calls => {
            let types: Vec<_> = members.iter().map(|member| Handle::of(member.2.raw)).collect();
            let mut made = Handle::of(0);
            // SAFETY: handles are valid; all lists have `count` entries.
            let code = unsafe { (calls.type_struct)(count, blocks.as_ptr(), at.as_ptr(), types.as_ptr(), &raw mut made) };
            (code, Handle::raw(made))
        });
        mpi.check(name::type_struct, code)?;
        Ok(Self { mpi, raw, ours: true })
    }

    /// A rectangular part of an array of these elements.
    pub fn subarray(&self, array: &[i32], part: &[i32], first: &[i32], order: MemoryOrder) -> Result<Self> {
        let axes = equal_len(array.len(), part.len())?;
        equal_len(array.len(), first.len())?;
        let (array, part, first, order) = (array.as_ptr(), part.as_ptr(), first.as_ptr(), self.order(order));
        // SAFETY: the handle is valid; all lists have an entry for each axis.
        self.made(unsafe {
            call!(self.mpi, type_subarray(axes, array, part, first, order, Handle::of(self.raw)) -> handle)
        })
    }

    /// The part of one process of a block-cyclic array of these elements; processes are numbered row by row.
    pub fn darray(&self, rank: i32, axes: &[Dealt], order: MemoryOrder) -> Result<Self> {
        let numbers = &self.mpi.abi.numbers;
        let count = equal_len(axes.len(), axes.len())?;
        let mut processes: c_int = 1;
        for axis in axes {
            processes = processes
                .checked_mul(axis.processes)
                .ok_or_else(|| Error::new(ErrorKind::TooLarge, "too many processes for an array of MPI"))?;
        }
        let extents: Vec<c_int> = axes.iter().map(|axis| axis.extent).collect();
        let deals: Vec<c_int> = axes
            .iter()
            .map(
                |axis| if axis.block.is_some() { numbers.distribute_cyclic } else { numbers.distribute_none },
            )
            .collect();
        let blocks: Vec<c_int> =
            axes.iter().map(|axis| axis.block.unwrap_or(numbers.distribute_default)).collect();
        let grid: Vec<c_int> = axes.iter().map(|axis| axis.processes).collect();
        let (extents, deals, blocks, grid) =
            (extents.as_ptr(), deals.as_ptr(), blocks.as_ptr(), grid.as_ptr());
        let order = self.order(order);
        // SAFETY: the handle is valid; all lists have an entry for each axis.
        self.made(unsafe {
            call!(
                self.mpi,
                type_darray(processes, rank, count, extents, deals, blocks, grid, order, Handle::of(self.raw)) -> handle
            )
        })
    }

    /// This datatype with another lower bound and extent: `MPI_Type_create_resized`.
    pub fn resized(&self, begin_bytes: isize, extent_bytes: isize) -> Result<Self> {
        // SAFETY: the handle is valid.
        self.made(unsafe {
            call!(self.mpi, type_resized(Handle::of(self.raw), begin_bytes, extent_bytes) -> handle)
        })
    }

    /// Commits the datatype for use in messages; before that it can only be used to make others.
    pub fn commit(mut self) -> Result<Self> {
        if self.ours {
            // SAFETY: the handle is valid, and ours.
            unsafe { call!(self.mpi, &mut self.raw, type_commit())? };
        }
        Ok(self)
    }

    /// Bytes of data that the datatype selects.
    pub fn size_bytes(&self) -> Result<usize> {
        let mut size: c_int = 0;
        // SAFETY: the handle is valid.
        unsafe { call!(self.mpi, type_size(Handle::of(self.raw), &raw mut size))? };
        usize::try_from(size).map_err(|_| Error::new(ErrorKind::TooLarge, "the datatype has more than 2 GiB"))
    }

    fn made(&self, raw: Result<Raw>) -> Result<Self> {
        Ok(Self { mpi: self.mpi, raw: raw?, ours: true })
    }

    fn order(&self, order: MemoryOrder) -> c_int {
        match order {
            MemoryOrder::RowMajor => self.mpi.abi.numbers.order_c,
            MemoryOrder::ColMajor => self.mpi.abi.numbers.order_fortran,
        }
    }

    fn free(&mut self) -> Result<()> {
        if self.mpi.has_ended()? {
            return Ok(());
        }
        // SAFETY: made here, and freed once; MPI keeps it for operations in flight and for datatypes made from it.
        unsafe { call!(self.mpi, &mut self.raw, type_free()) }
    }
}

impl Drop for Datatype {
    fn drop(&mut self) {
        if self.ours {
            // A datatype that cannot be freed is leaked; there is nothing else to do.
            let _ = self.free();
        }
    }
}

/// The common length of two lists as a C integer.
fn equal_len(one: usize, other: usize) -> Result<c_int> {
    match c_int::try_from(one) {
        Ok(count) if one == other => Ok(count),
        _ => Err(Error::new(
            ErrorKind::Mismatch,
            format!("lists of {one} and {other} entries do not go together"),
        )),
    }
}
