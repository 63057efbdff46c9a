//! Arrays distributed to parts and read back, element by element, and all engines that move them.

use bytemuck::Pod;
use reshard::engine::{Engine, Messages, MessagesOptions, Threads};
use reshard::{Layout, MemoryOrder, Move, Plan, Redistribution};
use reshard_plan::Distribution;
use reshard_testkit::taken_copies;
use std::sync::Arc;

/// A tight layout, in the notation of distributions.
pub fn layout(text: &str, order: MemoryOrder) -> Layout {
    Layout::new(text.parse::<Distribution>().unwrap(), order)
}

/// Every engine in every way it can be made.
pub fn every_engine(plan: &Arc<Plan>) -> Vec<Redistribution> {
    let ways = Threads::every_way(plan, 2).unwrap().into_iter();
    let mut engines: Vec<Box<dyn Engine>> = ways.map(|way| Box::new(way) as Box<dyn Engine>).collect();
    engines.push(Box::new(Threads::new(Arc::clone(plan), Some(1)).unwrap()));
    engines.push(Box::new(Messages::new(Arc::clone(plan), MessagesOptions::default()).unwrap()));
    engines.into_iter().map(Redistribution::with_boxed).collect()
}

/// A plan of one array.
pub fn plan_of(moving: &Move) -> Arc<Plan> {
    Arc::new(Plan::new(vec![moving.clone()]).unwrap())
}

/// Where the elements of an array lie: a part, by ascending rank, and an address in it.
pub struct Places {
    layout: Layout,
    /// For each dimension and global index the coordinate of the owner and the local index there.
    owners: Vec<Vec<(u64, u64)>>,
    ranks: Vec<u64>,
    strides: Vec<Vec<u64>>,
}

impl Places {
    pub fn of(layout: &Layout) -> Self {
        let of_axis = |axis: &reshard_plan::Axis| -> Vec<(u64, u64)> {
            (0..axis.len()).map(|global| axis.local_from_global(global).unwrap()).collect()
        };
        let owners = layout.distribution().axes().iter().map(of_axis).collect();
        let ranks = layout.distribution().grid().sorted_ranks();
        let strides = ranks.iter().map(|&rank| layout.strides(rank).unwrap()).collect();
        Self { layout: layout.clone(), owners, ranks, strides }
    }

    /// The part and the address of an element; along replicated dimensions of the copy at these coordinates.
    pub fn find(&self, global: &[u64], copy: &[Option<u64>]) -> (usize, usize) {
        let owned: Vec<(u64, u64)> =
            global.iter().zip(&self.owners).map(|(&index, owners)| owners[index as usize]).collect();
        let coords: Vec<u64> =
            owned.iter().zip(copy).map(|(&(coord, _), copy)| copy.unwrap_or(coord)).collect();
        let rank = self.layout.distribution().grid().rank(&coords).unwrap();
        let part = self.ranks.binary_search(&rank).unwrap();
        let address: u64 =
            owned.iter().zip(&self.strides[part]).map(|((_, local), stride)| local * stride).sum();
        (part, address as usize)
    }

    /// Parts of the right lengths, filled with whatever comes.
    pub fn parts<T: Pod>(&self, mut next: impl FnMut() -> T) -> Vec<Vec<T>> {
        let mut part = |&rank: &u64| (0..self.layout.span(rank).unwrap()).map(|_| next()).collect();
        self.ranks.iter().map(&mut part).collect()
    }
}

/// Calls `each((part, address) of the source, (part, address) of the destination)` for every element that moves, to every copy.
pub fn for_each_moved(moving: &Move, mut each: impl FnMut((usize, usize), (usize, usize))) {
    let problem = moving.problem();
    let (from, to) = (Places::of(moving.from()), Places::of(moving.to()));
    let shape = problem.shape();
    if shape.contains(&0) {
        return;
    }
    let (sender, receiver) = (from.layout.distribution(), to.layout.distribution());
    let taken = taken_copies(sender, receiver, problem.axes());
    let mut index = vec![0; shape.len()];
    loop {
        if moving.triangle().is_none_or(|part| part.contains(index[0], index[1])) {
            let source: Vec<u64> = index.iter().zip(problem.from_offset()).map(|(i, at)| i + at).collect();
            let axes = problem.axes().iter().zip(problem.to_offset());
            let place: Vec<u64> = axes.map(|(&dim, at)| index[dim] + at).collect();
            for rank in receiver.owners(&place).unwrap() {
                let copy: Vec<Option<u64>> = receiver.coords(rank).unwrap().into_iter().map(Some).collect();
                each(from.find(&source, &taken[&rank]), to.find(&place, &copy));
            }
        }
        let Some(dim) = (0..shape.len()).rev().find(|&dim| index[dim] + 1 < shape[dim]) else { return };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}

/// Equal to the last bit.
pub fn same_bits<T: Pod>(a: &[Vec<T>], b: &[Vec<T>]) -> bool {
    let bytes = |part: &Vec<T>| bytemuck::cast_slice::<T, u8>(part).to_vec();
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| bytes(a) == bytes(b))
}
