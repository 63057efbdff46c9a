//! Programs that begin and end MPI by themselves, as C programs do: we find the library in the process. And threads of which
//! only some may call MPI, or only one at a time.

use super::faults::from_nowhere;
use super::handles::Host;
use super::rank::{SOON, engine, plan};
use super::values::messages;
use reshard::ErrorKind;
use reshard_mpi::{Mover, Mpi, MpiEngine, MpiOptions, Own};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// For how many threads a host begins it.
#[derive(Clone, Copy)]
enum Level {
    Funneled,
    Serialized,
}

impl Host {
    fn init_thread(&self, level: Level) {
        let standard = format!("{:?}", self.mpi).contains("Standard");
        let wanted = match level {
            Level::Funneled => [1, 1024],
            Level::Serialized => [2, 2048],
        }[usize::from(standard)];
        let (null, mut given) = (std::ptr::null_mut(), 0);
        // SAFETY: the function has this type.
        unsafe {
            type Init = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
            let init = self.library.get::<Init>(b"MPI_Init_thread").unwrap();
            assert_eq!(init(null, null.cast(), wanted, &raw mut given), 0);
        }
        assert_eq!(given, wanted, "otherwise nothing is tested");
    }
}

/// The host's MPI goes on when our session ends, and takes everything with it when the host ends it.
pub fn goes_on() {
    let host = Host::new();
    host.init();
    let session = host.mpi.init().unwrap();
    let world = session.world();
    messages(&world.private().unwrap()).unwrap();
    let mut engines = [Mover::Messages, Mover::Private].map(|mover| engine(world, mover));
    // An error would end the host on its own communicator; on the private one it is returned.
    from_nowhere(&world.private().unwrap());
    let line = format!("[{}/{} done]", world.rank(), world.size());
    let private = Arc::downgrade(&world.private().unwrap());
    drop(session);
    assert!(private.upgrade().is_some(), "MPI is the host's: it goes on, and the duplicate is kept");
    let again = host.mpi.init().unwrap();
    assert!(again.world().private().unwrap().is(&private.upgrade().unwrap()));
    drop(again);
    host.finalize();
    // Nothing is called any more: MPI would end the process.
    for engine in &mut engines {
        let (from, mut to) = (vec![1.0; engine.source_len(0)], vec![0.0; engine.target_len(0)]);
        let said = engine.run(Own::new(&from, &mut to)).unwrap_err().to_string();
        assert!(said.contains("MPI has ended"), "{said}");
    }
    drop(engines);
    assert!(private.upgrade().is_none(), "the end of MPI takes the duplicate with it");
    let said = host.mpi.init().unwrap_err().to_string();
    assert!(said.contains("has ended"), "{said}");
    println!("{line}");
}

/// MPI lets one thread in at a time: four threads with engines of their own take turns.
pub fn takes_turns() {
    let host = Host::new();
    host.init_thread(Level::Serialized);
    let session = host.mpi.init().unwrap();
    let world = session.world();
    let comms: Vec<_> = (0..4).map(|_| world.split(Some(0), world.rank() as u32).unwrap().unwrap()).collect();
    // The calls that make a communicator are MPI's own, and wait for the others in turn.
    comms.iter().for_each(|comm| drop(comm.private().unwrap()));
    thread::scope(|scope| {
        for (number, comm) in comms.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..60 {
                    let mover = [Mover::Messages, Mover::Private][(number + round) % 2];
                    drop(engine(comm, mover));
                }
            });
        }
    });
    drop(comms);
    let line = format!("[{}/{} done]", world.rank(), world.size());
    drop(session);
    host.finalize();
    println!("{line}");
}

/// MPI lets one thread in only: others are told.
pub fn has_one_thread() {
    let host = Host::new();
    host.init_thread(Level::Funneled);
    let session = host.mpi.init().unwrap();
    let world = session.world();
    let mut mine = engine(world, Mover::Messages);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (from, mut to) = (vec![1.0; mine.source_len(0)], vec![0.0; mine.target_len(0)]);
            let said = [
                mine.run(Own::new(&from, &mut to)).unwrap_err(),
                world.barrier_within(SOON).unwrap_err(),
                host.mpi.init().unwrap_err(),
            ];
            for error in said {
                assert!(error.to_string().contains("thread"), "{error}");
            }
        });
        other.join().unwrap();
    });
    // The thread that may goes on; the engine was asked for a run by one that may not, before anything was begun.
    let (from, mut to) = (vec![2.0; mine.source_len(0)], vec![0.0; mine.target_len(0)]);
    mine.run(Own::new(&from, &mut to)).unwrap();
    assert!(to.iter().all(|&value| value == 2.0));
    let line = format!("[{}/{} done]", world.rank(), world.size());
    drop((mine, session));
    host.finalize();
    println!("{line}");
}

/// MPI lets one thread in only, and a finalizer of another looks after runs of rank 0. One that it tests stays in flight, and ends as if
/// nothing had been. One that it drops, and the engine with it, has failed: rank 1, who waits for it, is told by the next call of the
/// thread that may, and not by its deadline.
pub fn is_called_by_a_second_thread() {
    let host = Host::new();
    host.init_thread(Level::Funneled);
    let session = host.mpi.init().unwrap();
    let world = session.world();
    for mover in [Mover::Messages, Mover::Private, Mover::Cma] {
        let begin = |engine: MpiEngine| {
            let (from, to) = (vec![2.0; engine.source_len(0)].leak(), vec![0.0; engine.target_len(0)].leak());
            engine.start_owned(Own::new(from, to)).map_err(|(_, error)| error).unwrap()
        };
        let options = MpiOptions::default().with_mover(mover);
        let mut run = match MpiEngine::new(plan(world), world, options) {
            // The system may forbid it: then no rank has it.
            Err(error) if mover == Mover::Cma && error.kind() == ErrorKind::Unsupported => continue,
            made => begin(made.unwrap()),
        };
        if world.rank() == 0 {
            let said = thread::scope(|scope| {
                let second = || [run.test().map(drop), run.wait_for(Duration::ZERO).map(drop)];
                scope.spawn(second).join().unwrap()
            });
            for outcome in said {
                let error = outcome.unwrap_err();
                assert!(error.to_string().contains("second thread"), "{mover}: {error}");
            }
        }
        let (mut engine, outcome) = run.wait();
        outcome.unwrap();
        let (from, mut to) = (vec![3.0; engine.source_len(0)], vec![0.0; engine.target_len(0)]);
        engine.run(Own::new(&from, &mut to)).unwrap();
        assert!(to.iter().all(|&value| value == 3.0));
        // Rank 1 cannot end without rank 0.
        let run = begin(engine);
        if world.rank() == 0 {
            thread::scope(|scope| scope.spawn(|| drop(run)).join().unwrap());
        } else {
            let error = run.wait().1.unwrap_err().to_string();
            assert!(
                error.contains("rank 0 cannot go on") && error.contains("second thread"),
                "{mover}: {error}"
            );
        }
        drop(super::rank::engine(world, Mover::Messages));
    }
    let line = format!("[{}/{} done]", world.rank(), world.size());
    drop(session);
    host.finalize();
    println!("{line}");
}

/// Two threads begin MPI at once: it is begun once, by one of them, and the other is told that it may not call.
pub fn two_threads_begin() {
    let mpi = Mpi::load(None).unwrap();
    let (both, over) = (Barrier::new(2), Barrier::new(2));
    let begin = || {
        both.wait();
        let session = match mpi.init() {
            Ok(session) => session,
            Err(error) => {
                assert!(error.to_string().contains("thread"), "{error}");
                over.wait();
                return None;
            }
        };
        over.wait();
        drop(engine(session.world(), Mover::Messages));
        Some(format!("[{}/{} done]", session.world().rank(), session.world().size()))
    };
    let lines =
        thread::scope(|scope| [0; 2].map(|_| scope.spawn(begin)).map(|thread| thread.join().unwrap()));
    let [line] = &lines.iter().flatten().collect::<Vec<_>>()[..] else { panic!("one of two: {lines:?}") };
    println!("{line}");
}
