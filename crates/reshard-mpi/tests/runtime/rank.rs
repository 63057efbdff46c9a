//! What a launched process does: each part uses the calls and compares every byte with a formula.

use libloading::os::unix::Library;
use reshard_mpi::{
    Blocks, Comm, Datatype, Dealt, LARGEST_TAG, LONGEST_MESSAGE, Mpi, Order, RawComm, Reduce, Request,
    launched, wait,
};
use reshard_plan::{ErrorKind, Result};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Option<Duration> = Some(Duration::from_secs(20));

pub fn play(part: &str) {
    if part == "host" {
        return host();
    }
    let mpi = match Mpi::load(None) {
        Ok(mpi) => mpi,
        Err(error) => refuse(&error),
    };
    let session = match mpi.init() {
        Ok(session) => session,
        Err(error) => refuse(&error),
    };
    let world = session.world();
    let launcher = launched().unwrap();
    assert_eq!((launcher.rank as usize, launcher.size as usize), (world.rank(), world.size()));
    match part {
        "values" => {
            println!("  {}", mpi.version());
            messages(&world.private().unwrap()).unwrap();
            collectives(world).unwrap();
            splits(world).unwrap();
            datatypes(world).unwrap();
            handles(world).unwrap();
        }
        "many" => many(world).unwrap(),
        "errors" => errors(world).unwrap(),
        "panic" if world.rank() + 1 == world.size() => panic!("on purpose"),
        "abort" if world.rank() == 0 => session.abort(3),
        "panic" | "abort" => world.barrier().unwrap(),
        other => panic!("no part {other}"),
    }
    let line = format!("[{}/{} done]", world.rank(), world.size());
    let second = mpi.init().unwrap();
    drop(session);
    second.world().barrier().unwrap();
    let private = Arc::downgrade(&second.world().private().unwrap());
    drop(second);
    assert!(private.upgrade().is_none(), "the private duplicate is freed when MPI ends");
    assert!(mpi.init().unwrap_err().to_string().contains("has ended"));
    println!("{line}");
}

fn refuse(error: &reshard_plan::Error) -> ! {
    eprintln!("{error}");
    std::process::exit(2);
}

/// The byte at a place of a message.
fn byte(from: usize, to: usize, tag: u32, at: usize) -> u8 {
    (from * 89 + to * 37 + tag as usize * 11 + at * 7 + at / 251) as u8
}

/// Messages of odd sizes from each to each, also to itself, found by a probe or simply received.
fn messages(comm: &Comm) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    for (tag, bytes) in [(0, 0), (1, 1), (7, 13), (LARGEST_TAG, 4099), (9, 1_048_577)] {
        let out: Vec<Vec<u8>> =
            (0..size).map(|to| (0..bytes).map(|at| byte(me, to, tag, at)).collect()).collect();
        // Room for more than comes.
        let mut into = vec![vec![0xa5u8; bytes + 3]; size];
        let mut requests = Vec::new();
        for (from, place) in into.iter_mut().enumerate() {
            // SAFETY: the memory lives until all requests are done.
            requests.push(unsafe { comm.irecv(place.as_mut_ptr(), place.len(), from, tag)? });
        }
        for (to, message) in out.iter().enumerate() {
            // SAFETY: as above.
            requests.push(unsafe { comm.isend(message.as_ptr(), bytes, to, tag)? });
        }
        wait(&mut requests, SOON)?;
        for (from, place) in into.iter().enumerate() {
            assert_eq!(requests[from].received(), Some(bytes));
            assert_eq!(requests[from].test()?, Some(bytes), "may be asked again");
            assert!(place[..bytes].iter().enumerate().all(|(at, &got)| got == byte(from, me, tag, at)));
            assert_eq!(place[bytes..], [0xa5; 3], "nothing is written behind the message");
        }
        assert!(requests[size..].iter().all(|request| request.received() == Some(0)));
        comm.barrier_within(SOON)?;
    }
    // A ring, with the message found by a probe.
    let (next, before, bytes) = ((me + 1) % size, (me + size - 1) % size, 101 + me);
    let message: Vec<u8> = (0..bytes).map(|at| byte(me, next, 5, at)).collect();
    // SAFETY: waited for below.
    let mut sent = [unsafe { comm.isend(message.as_ptr(), bytes, next, 5)? }];
    let begin = Instant::now();
    let (source, length) = loop {
        assert!(begin.elapsed() < SOON.unwrap());
        assert_eq!(comm.iprobe(None, 6)?, None, "no such tag was sent");
        if let Some(found) = comm.iprobe(None, 5)? {
            break found;
        }
    };
    assert_eq!((source, length), (before, 101 + before));
    assert_eq!(comm.iprobe(Some(before), 5)?, Some((source, length)));
    let mut place = vec![0; length];
    // SAFETY: waited for at once.
    wait(&mut [unsafe { comm.irecv(place.as_mut_ptr(), length, source, 5)? }], SOON)?;
    assert!(place.iter().enumerate().all(|(at, &got)| got == byte(before, me, 5, at)));
    wait(&mut sent, SOON)
}

fn collectives(comm: &Comm) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    comm.barrier()?;
    for root in 0..size {
        let mut bytes: Vec<u8> = (0..1001).map(|at| byte(me, 0, 0, at)).collect();
        comm.broadcast(root, &mut bytes)?;
        assert!(bytes.iter().enumerate().all(|(at, &got)| got == byte(root, 0, 0, at)));
    }
    let mine: Vec<u8> = (0..17).map(|at| byte(me, 0, 1, at)).collect();
    let mut all = vec![0; 17 * size];
    comm.all_gather(&mine, &mut all)?;
    assert!(all.iter().enumerate().all(|(at, &got)| got == byte(at / 17, 0, 1, at % 17)));
    let ranks = || 0..size as u64;
    let big = |rank: u64| (1 << 63) + 5 * rank;
    let expected = [
        (Reduce::Max, [ranks().max().unwrap(), big(size as u64 - 1), 1 << (size - 1)]),
        (Reduce::Min, [0, big(0), 1]),
        (
            Reduce::Sum,
            [ranks().sum(), ranks().fold(0, |sum, rank| sum.wrapping_add(big(rank))), (1 << size) - 1],
        ),
        (
            Reduce::Or,
            [
                ranks().fold(0, |all, rank| all | rank),
                ranks().fold(0, |all, rank| all | big(rank)),
                (1 << size) - 1,
            ],
        ),
    ];
    for (how, expected) in expected {
        let mine = [me as u64, big(me as u64), 1 << me];
        let (mut numbers, mut again) = (mine, mine);
        comm.all_reduce(&mut numbers, how)?;
        comm.all_reduce_within(&mut again, how, SOON)?;
        assert_eq!((numbers, again), (expected, expected), "{how:?}");
    }
    // From each to each a length that only the two know, with gaps between.
    let length = |from: usize, to: usize| (3 * from + 5 * to) % 11;
    let lengths =
        |out: bool| (0..size).map(move |peer| if out { length(me, peer) } else { length(peer, me) } as i32);
    let at: Vec<i32> = (0..size as i32).map(|peer| 13 * peer + 1).collect();
    let (out_counts, into_counts): (Vec<i32>, Vec<i32>) = (lengths(true).collect(), lengths(false).collect());
    let mut out = vec![0; 13 * size];
    for to in 0..size {
        (0..length(me, to)).for_each(|i| out[13 * to + 1 + i] = byte(me, to, 2, i));
    }
    let mut into = vec![0xee; 13 * size];
    // SAFETY: stretches of at most 10 bytes, 13 bytes apart, lie inside.
    unsafe { comm.all_to_all_v(out.as_ptr(), &out_counts, &at, into.as_mut_ptr(), &into_counts, &at)? };
    for (place, &got) in into.iter().enumerate() {
        let (from, i) = (place / 13, (place % 13).wrapping_sub(1));
        assert_eq!(got, if i < length(from, me) { byte(from, me, 2, i) } else { 0xee });
    }
    wait(&mut [comm.ibarrier()?], SOON)
}

fn splits(world: &Comm) -> Result<()> {
    let (me, size) = (world.rank(), world.size());
    // Odd and even, in reverse order; the last stays away.
    let color = (me + 1 < size || size == 1).then_some(me as u32 % 2);
    let part = world.split(color, (size - me) as u32)?;
    assert_eq!(part.is_some(), color.is_some());
    if let Some(part) = part {
        let members: Vec<usize> =
            (0..size).rev().filter(|&rank| (rank + 1 < size || size == 1) && rank % 2 == me % 2).collect();
        assert_eq!((part.size(), members[part.rank()]), (members.len(), me));
        let mut sum = [me as u64];
        part.private()?.all_reduce(&mut sum, Reduce::Sum)?;
        assert_eq!(sum[0] as usize, members.iter().sum::<usize>());
    }
    let node = world.split_shared()?;
    assert_eq!((node.rank(), node.size()), (me, size), "all test ranks share a node");
    Ok(())
}

/// A matrix of 3-byte elements is redistributed from blocks of rows to blocks of columns.
fn datatypes(world: &Comm) -> Result<()> {
    let (me, size, mpi) = (world.rank(), world.size(), world.mpi());
    let (rows, columns) = (2, 3);
    let (height, width) = (rows * size, columns * size);
    let value = |row: usize, column: usize, part: usize| (row * 31 + column * 7 + part * 101) as u8;
    let element = Datatype::bytes(mpi).contiguous(3)?;
    assert_eq!(element.size_bytes()?, 3);
    let out: Vec<u8> =
        (0..rows * width * 3).map(|at| value(me * rows + at / 3 / width, at / 3 % width, at % 3)).collect();
    // The same stretch of columns, said in six ways.
    let whole = [rows as i32, width as i32];
    let part = [rows as i32, columns as i32];
    let (row, block) = (3 * width as isize, 3 * columns as i32);
    let ways = |to: usize| -> Result<Vec<(Datatype, i32)>> {
        let column = (to * columns) as i32;
        let at = 3 * column;
        let bytes = Datatype::bytes(mpi);
        let starts: Vec<isize> = (0..rows as isize).map(|r| r * row).collect();
        let line = bytes.contiguous(block)?;
        let axes = [
            Dealt { extent: rows as i32, block: None, processes: 1 },
            Dealt { extent: width as i32, block: Some(columns as i32), processes: size as i32 },
        ];
        Ok(vec![
            (element.vector(rows as i32, columns as i32, width as i32)?, at),
            (element.hvector(rows as i32, columns as i32, row)?, at),
            (bytes.hindexed(&vec![block; rows], &starts)?, at),
            (Datatype::structure(mpi, &[(1, 0, &line), (1, row, &line)])?, at),
            (element.subarray(&whole, &part, &[0, column], Order::RowMajor)?, 0),
            (
                element.subarray(
                    &[whole[1], whole[0]],
                    &[part[1], part[0]],
                    &[column, 0],
                    Order::ColumnMajor,
                )?,
                0,
            ),
            (element.darray(to as i32, &axes, Order::RowMajor)?, 0),
            (bytes.contiguous(block)?.resized(0, row)?.contiguous(rows as i32)?, at),
        ])
    };
    for way in 0..ways(0)?.len() {
        let mut types = Vec::new();
        for to in 0..size {
            let (kind, at) = ways(to)?.swap_remove(way);
            types.push((kind.commit()?, at));
            assert_eq!(types[to].0.size_bytes()?, rows * columns * 3);
        }
        let out_at: Vec<i32> = types.iter().map(|(_, at)| *at).collect();
        let out_types: Vec<&Datatype> = types.iter().map(|(kind, _)| kind).collect();
        let ones = vec![1; size];
        let received = element.contiguous((rows * columns) as i32)?.commit()?;
        let into_at: Vec<i32> = (0..size).map(|from| (from * rows * columns * 3) as i32).collect();
        let mut into = vec![0u8; height * columns * 3];
        let sends = Blocks { counts: &ones, at: &out_at, types: &out_types };
        let receives = Blocks { counts: &ones, at: &into_at, types: &vec![&received; size] };
        // SAFETY: the types pick elements of the matrices, each its own.
        unsafe { world.all_to_all_w(out.as_ptr(), sends, into.as_mut_ptr(), receives)? };
        for (at, &got) in into.iter().enumerate() {
            let (row, column) = (at / 3 / columns, me * columns + at / 3 % columns);
            assert_eq!(got, value(row, column, at % 3), "way {way}, byte {at}");
        }
    }
    Ok(())
}

/// The world as C and Fortran hand it over, and its private duplicate, which is always the same one.
fn handles(world: &Comm) -> Result<()> {
    let mpi = world.mpi();
    let name = mpi.version();
    let debug = format!("{mpi:?}");
    // As the headers have them.
    let (c, fortran) = match () {
        () if debug.contains("OpenMpi") => (None, 0),
        () if debug.contains("Standard") => (Some(RawComm::Pointer(0x101 as *mut c_void)), 0x101),
        () => (Some(RawComm::Integer(0x4400_0000)), 0x4400_0000),
    };
    let private = world.private()?;
    assert!(!private.is(world), "{name}");
    assert!(world.private()?.is(&private));
    for handle in c.into_iter().chain([RawComm::Fortran(fortran)]) {
        // SAFETY: the world is there to the end.
        let same = unsafe { Comm::from_raw(mpi, handle)? };
        assert!(same.is(world) && same.size() == world.size() && same.rank() == world.rank());
        assert!(same.private()?.is(&private), "the duplicate is kept on the communicator, not on the value");
    }
    // A duplicate of the parent has a private duplicate of its own.
    assert!(!private.private()?.is(&private));
    let wrong = match c {
        Some(RawComm::Integer(_)) => RawComm::Pointer(0x101 as *mut c_void),
        _ => RawComm::Integer(0x4400_0000),
    };
    // SAFETY: refused before it is used.
    let error = unsafe { Comm::from_raw(mpi, wrong) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains(name), "{error}");
    Mpi::load(Some("/another/libmpi.so")).unwrap_err();
    Ok(())
}

/// More communicators than there are numbers for, in one library or another: none is leaked.
fn many(world: &Comm) -> Result<()> {
    for _ in 0..2500 {
        let part = world.split(Some(0), 0)?.unwrap();
        part.private()?;
    }
    Ok(())
}

fn errors(world: &Comm) -> Result<()> {
    let comm = world.private()?;
    let other = 1 - comm.rank();
    let mut place = [0u8; 64];
    let here = place.as_mut_ptr();
    // SAFETY: all are refused before anything is under way.
    let refused = unsafe {
        [
            (comm.isend(here, 1, 99, 0).map(drop), "MPI_Isend: rank 99"),
            (comm.irecv(here, 1, 2, 0).map(drop), "MPI_Irecv: rank 2"),
            (comm.isend(here, LONGEST_MESSAGE + 1, other, 0).map(drop), "at most 1073741824 bytes"),
            (comm.isend(here, 1, other, LARGEST_TAG + 1).map(drop), "tags end at 32767"),
            (comm.iprobe(Some(7), 0).map(drop), "MPI_Iprobe: rank 7"),
            (comm.broadcast(2, &mut [0]), "MPI_Bcast: rank 2"),
            (comm.all_gather(&[1, 2], &mut [0; 5]), "do not gather 5 bytes"),
            (comm.all_to_all_v(here, &[1], &[0, 0], here, &[0, 0], &[0, 0]), "1 entries for 2 ranks"),
            (comm.all_to_all_v(here, &[1, -1], &[0, 0], here, &[0, 0], &[0, 0]), "-1 is not"),
            (Datatype::bytes(comm.mpi()).contiguous(-5).map(drop), "MPI_Type_contiguous: -5 is not"),
            (Datatype::bytes(comm.mpi()).hindexed(&[1, 2], &[0]).map(drop), "2 and 1 entries"),
            (comm.split(Some(u32::MAX), 0).map(drop), "colours and keys"),
        ]
    };
    for (outcome, says) in refused {
        let error = outcome.expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    too_long(&comm)?;
    // A message that never comes.
    // SAFETY: cancelled and waited for below.
    let mut never = unsafe { comm.irecv(here, 16, other, 2)? };
    let begin = Instant::now();
    let error =
        wait(std::slice::from_mut(&mut never), Some(Duration::from_millis(200))).unwrap_err().to_string();
    assert!(error.contains("waited 0.2") && error.contains("1 of 1"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(never.received(), None);
    never.cancel()?;
    wait(std::slice::from_mut(&mut never), SOON)?;
    lonely(&comm)?;
    // Another thread.
    let error = std::thread::scope(|scope| scope.spawn(|| comm.barrier_within(SOON)).join().unwrap());
    if let Err(error) = &error {
        assert!(error.to_string().contains("second thread"), "{error}");
    }
    // All of it works as before.
    messages(&comm)
}

/// An error of MPI itself: a message is longer than its place. It is returned, and names the call.
fn too_long(comm: &Comm) -> Result<()> {
    if !returns_errors(comm) {
        return Ok(());
    }
    let (other, message, mut place) = (1 - comm.rank(), [comm.rank() as u8; 64], [0u8; 16]);
    // SAFETY: both are done before the memory goes.
    let (mut received, mut sent) = unsafe {
        (comm.irecv(place.as_mut_ptr(), 16, other, 1)?, [comm.isend(message.as_ptr(), 64, other, 1)?])
    };
    let error = wait(std::slice::from_mut(&mut received), SOON).unwrap_err();
    assert!(error.to_string().contains("MPI_Test failed") && error.kind() == ErrorKind::Mpi, "{error}");
    wait(&mut sent, SOON)
}

/// An error that MPI finds at once: a message that lies nowhere.
fn from_nowhere(comm: &Comm) {
    if returns_errors(comm) {
        // SAFETY: MPI refuses to begin.
        let error = unsafe { comm.isend(std::ptr::null(), 1, 1 - comm.rank(), 3) }.unwrap_err();
        assert!(error.to_string().contains("MPI_Isend failed"), "{error}");
    }
}

/// Intel's library for the standard ABI takes MPI_ERRORS_RETURN for MPI_ERRORS_ABORT, seen in 2021.19.
fn returns_errors(comm: &Comm) -> bool {
    let library = format!("{:?}", comm.mpi());
    !(library.contains("Intel") && library.contains("Standard"))
}

/// A reduction in which one does not take part ends for the other with an error.
fn lonely(comm: &Comm) -> Result<()> {
    let apart = comm.split(Some(0), comm.rank() as u32)?.unwrap();
    if comm.rank() == 0 {
        let error =
            apart.all_reduce_within(&mut [1], Reduce::Sum, Some(Duration::from_millis(100))).unwrap_err();
        assert!(error.to_string().contains("waited 0.1"), "{error}");
    }
    comm.barrier_within(SOON)?;
    if comm.rank() == 1 {
        // Comes too late, so that all ends in order.
        apart.all_reduce_within(&mut [1], Reduce::Sum, SOON)?;
    }
    comm.barrier_within(SOON)
}

/// A program that begins and ends MPI by itself, as C programs do; we find the library in the process.
fn host() {
    let asked = std::env::var("RESHARD_MPI").unwrap();
    let names = match asked.as_str() {
        "openmpi" => vec!["libmpi.so.40"],
        "mpich" => vec!["libmpi.so.12", "libmpich.so.12"],
        "" if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some() => vec!["libmpi.so.40"],
        "" => vec!["libmpi.so.12", "libmpich.so.12"],
        path => vec![path],
    };
    // SAFETY: the test runs alone in its process.
    unsafe { std::env::remove_var("RESHARD_MPI") };
    let (now, global) = (libc::RTLD_NOW, libc::RTLD_GLOBAL);
    // SAFETY: an MPI library; its functions have these types.
    let (library, finalize) = unsafe {
        let library = names.iter().find_map(|&name| Library::open(Some(name), now | global).ok()).unwrap();
        let init =
            *library.get::<unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int>(b"MPI_Init").unwrap();
        let finalize = *library.get::<unsafe extern "C" fn() -> c_int>(b"MPI_Finalize").unwrap();
        assert_eq!(init(std::ptr::null_mut(), std::ptr::null_mut()), 0);
        (library, finalize)
    };
    let mpi = Mpi::load(None).unwrap();
    let session = mpi.init().unwrap();
    let world = session.world();
    messages(&world.private().unwrap()).unwrap();
    // An error would end the host on its own communicator; on the private one it is returned.
    from_nowhere(&world.private().unwrap());
    let line = format!("[{}/{} done]", world.rank(), world.size());
    let private = Arc::downgrade(&world.private().unwrap());
    drop(session);
    assert!(private.upgrade().is_some(), "MPI is the host's: it goes on, and the duplicate is kept");
    let again = mpi.init().unwrap();
    assert!(again.world().private().unwrap().is(&private.upgrade().unwrap()));
    drop(again);
    // SAFETY: begun above.
    assert_eq!(unsafe { finalize() }, 0);
    assert!(private.upgrade().is_none(), "the end of MPI takes the duplicate with it");
    assert!(mpi.init().unwrap_err().to_string().contains("has ended"));
    drop(library);
    println!("{line}");
}

/// Requests and communicators may wander between threads.
const _: fn() = || {
    fn wanders<T: Send>() {}
    wanders::<Request>();
    wanders::<Comm>();
};
