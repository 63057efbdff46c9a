//! Partners that are busy, late, absent, killed, or two threads.

use crate::host::{Host, last_error};
use crate::rank::Simple;
use std::time::{Duration, Instant};

/// A rank waits in a call while another needs MPI to go on with what this one sent it.
pub fn progress(host: &Host) {
    const TAG: u32 = 9;
    let rank = host.world().rank();
    for _ in 0..3 {
        let mut simple = Simple::new(host);
        // Long enough that MPI sends it only when both sides are ready.
        let mut message = vec![rank as u8 + 1; 32 << 20];
        // SAFETY: the message stays until its request is complete.
        let mut request = match rank {
            0 => Some(unsafe { host.world().isend(message.as_ptr(), message.len(), 1, TAG) }.unwrap()),
            1 => Some(unsafe { host.world().irecv(message.as_mut_ptr(), message.len(), 0, TAG) }.unwrap()),
            _ => None,
        };
        if rank == 1 {
            let request = std::slice::from_mut(request.as_mut().unwrap());
            reshard_mpi::mpi::wait(request, Some(Duration::from_secs(1200))).unwrap();
            assert!(message.iter().all(|&byte| byte == 1));
        }
        let descriptor = simple.descriptor;
        let call = simple.call([&descriptor; 2]);
        host.call(true, "pdgemr2d_", &call);
        assert_eq!((last_error(), &simple.a), (None, &simple.b));
        if rank == 0 {
            let request = std::slice::from_mut(request.as_mut().unwrap());
            reshard_mpi::mpi::wait(request, Some(Duration::from_secs(1200))).unwrap();
        }
        host.destroy(simple.context);
    }
}

/// One rank gives up before the others come: they give the same call up, and the next ones are right.
pub fn late(host: &Host) {
    let rank = host.world().rank();
    let mut simple = Simple::new(host);
    let descriptor = simple.descriptor;
    for round in 0..2 {
        for turn in 0..3 {
            simple.a.iter_mut().for_each(|value| *value += 1.0);
            simple.b.fill(-2.0);
            if round == 1 && turn == 0 && rank != 0 {
                std::thread::sleep(Duration::from_millis(1_500 + 100 * rank as u64));
            }
            let call = simple.call([&descriptor; 2]);
            host.call(true, "pdgemr2d_", &call);
            match (round, turn) {
                (1, 0) => {
                    let said = last_error().unwrap_or_default();
                    let expected = if rank == 0 { " s for rank 1" } else { "rank 0 gave the call up" };
                    assert!(said.contains(expected) && said.ends_with("B is as it was"), "{said}");
                    assert!(simple.b.iter().all(|&value| value == -2.0));
                    host.world().barrier().unwrap();
                }
                _ => assert_eq!((last_error(), &simple.a), (None, &simple.b), "{round} {turn}"),
            }
        }
    }
}

/// A rank does not come: the others say so after the deadline, and B is as it was.
pub fn absent(host: &Host) {
    let rank = host.world().rank();
    let mut simple = Simple::new(host);
    let descriptor = simple.descriptor;
    let call = simple.call([&descriptor; 2]);
    host.call(true, "pdgemr2d_", &call);
    assert_eq!(last_error(), None);
    let began = Instant::now();
    if rank != 2 {
        simple.b.fill(-2.0);
        let call = simple.call([&descriptor; 2]);
        host.call(true, "pdgemr2d_", &call);
        let said = last_error().unwrap_or_default();
        assert!(
            said.contains(&format!("pdgemr2d: rank {rank}: waited 1.")) && said.contains(" s for rank 2"),
            "{said}"
        );
        assert!(said.ends_with("B is as it was") && simple.b.iter().all(|&value| value == -2.0), "{said}");
    }
    assert!(began.elapsed() < Duration::from_secs(300));
    host.world().barrier().unwrap();
}

/// A rank is killed: the others say whom they waited for, and B is as it was. They cannot end MPI, which would wait for it.
pub fn killed(host: &Host) {
    let rank = host.world().rank();
    let mut simple = Simple::new(host);
    let descriptor = simple.descriptor;
    for turn in 0..3 {
        simple.b.fill(-2.0);
        if turn == 2 && rank == 2 {
            std::thread::sleep(Duration::from_millis(300));
            // SAFETY: ends this process, as if from outside.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        let call = simple.call([&descriptor; 2]);
        host.call(true, "pdgemr2d_", &call);
        if turn < 2 {
            assert_eq!((last_error(), &simple.a), (None, &simple.b));
        }
    }
    let said = last_error().unwrap_or_default();
    assert!(said.contains(" s for rank 2") && said.ends_with("B is as it was"), "{said}");
    assert!(simple.b.iter().all(|&value| value == -2.0), "{said}");
    println!("[{rank}/2 done]");
    std::process::exit(0);
}

/// A second thread calls while the first is in a call: it is told so, the first is right, and so are the next calls.
pub fn two_threads(host: &Host) {
    let rank = host.world().rank();
    for _ in 0..3 {
        let mut simple = Simple::new(host);
        let mut other = Simple { a: simple.a.clone(), b: vec![-3.0; 30], ..simple };
        let descriptor = simple.descriptor;
        if rank == 1 {
            // So long the other rank is in its call.
            std::thread::sleep(Duration::from_millis(400));
        }
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                if rank == 0 {
                    std::thread::sleep(Duration::from_millis(200));
                    let call = other.call([&descriptor; 2]);
                    host.call(true, "pdgemr2d_", &call);
                    let said = last_error().unwrap_or_default();
                    assert!(said.contains("called by two threads at once"), "{said}");
                }
            });
            let call = simple.call([&descriptor; 2]);
            host.call(true, "pdgemr2d_", &call);
            second.join().unwrap();
        });
        assert_eq!(simple.a, simple.b);
        assert!(other.b.iter().all(|&value| value == -3.0));
        host.destroy(simple.context);
    }
}
