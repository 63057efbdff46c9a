//! Arrays that are scaled on their way between processes, by value: `alpha * op(A) + beta * B`.

use crate::world::World;
use reshard::{Number, Plan};
use reshard_mpi::{Mover, MpiEngine, MpiOptions, Own, Shared};
use reshard_testkit::Random;
use reshard_testkit::conformance::{C64, C128, Element, Kinds, Scaled};
use std::sync::Arc;
use std::time::Duration;

/// A number of cases of each of the four types, with every mover that scales.
pub fn any(world: &dyn World, seed: u64, cases: u64) {
    let mut random = Random::new(seed);
    for _ in 0..cases {
        one::<f32>(world, &mut random);
        one::<f64>(world, &mut random);
        one::<C64>(world, &mut random);
        one::<C128>(world, &mut random);
    }
}

fn one<T: Element + Number>(world: &dyn World, random: &mut Random) {
    let rank = world.rank() as u64;
    let kinds = Kinds { elems: 600, own_strides: true, ranks: Some(world.size() as u64), ..Kinds::default() };
    let scaled = Scaled::<T>::random(random, &kinds);
    let plan = Arc::new(Plan::new(vec![scaled.case.seen_by(rank)]).unwrap());
    for mover in
        [Mover::Private, Mover::Messages, Mover::Mixed, Mover::Lockstep, Mover::Shared, Mover::SharedSource]
    {
        let options = MpiOptions::default().with_mover(mover).with_deadline(Some(Duration::from_secs(1200)));
        let mut engine = MpiEngine::in_tasks(Arc::clone(&plan), world, options, 300).unwrap();
        // Twice: what one run leaves behind must not disturb the next.
        for _ in 0..2 {
            let mut parts = scaled.parts();
            let place = |ranks: Vec<u64>| ranks.iter().position(|&other| other == rank);
            let source = place(scaled.case.moving.from().distribution().grid().sorted_ranks());
            let target = place(scaled.case.moving.to().distribution().grid().sorted_ranks());
            let (from, to) = scaled.slices(&mut parts);
            let from = source.map_or(&[][..], |source| from[source]);
            let to = target.and_then(|target| to.into_iter().nth(target)).unwrap_or_default();
            let share = |part: &[T]| {
                let mut shared = Shared::zeroed(world, part.len()).unwrap();
                shared.copy_from_slice(part);
                shared
            };
            let with = |own: Own<'_, T>, engine: &mut MpiEngine| {
                let own = own.scaled(scaled.alpha, scaled.beta);
                let own = if scaled.conjugated { own.conjugated() } else { own };
                engine.run(own).map(drop)
            };
            let outcome = match mover {
                Mover::Shared => {
                    let (from, mut shared) = (share(from), share(to));
                    let outcome = with(Own::shared(&from, &mut shared), &mut engine);
                    to.copy_from_slice(&shared);
                    outcome
                }
                Mover::SharedSource => with(Own::shared_source(&share(from), to), &mut engine),
                _ => with(Own::new(from, to), &mut engine),
            };
            outcome.unwrap_or_else(|error| panic!("{error}: {mover}: {scaled:?}"));
            scaled.check_rank(&parts, rank);
        }
    }
}
