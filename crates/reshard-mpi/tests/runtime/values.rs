//! What every call should do, compared byte by byte with a formula.

use super::rank::SOON;
use reshard_mpi::Comm;
use reshard_mpi::mpi::{Blocks, Datatype, Dealt, LARGEST_TAG, Port, Reduce, wait};
use reshard_plan::{MemoryOrder, Result};
use std::time::{Duration, Instant};

/// The byte at a place of a message.
fn byte(from: usize, to: usize, tag: u32, at: usize) -> u8 {
    (from * 89 + to * 37 + tag as usize * 11 + at * 7 + at / 251) as u8
}

/// Messages of odd sizes from each to each, also to itself, found by a probe or simply received.
pub fn messages(comm: &Comm) -> Result<()> {
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
    let mut sent = [unsafe { comm.issend(message.as_ptr(), bytes, next, 5)? }];
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
    // All have seen theirs, nobody has begun to receive it.
    comm.barrier_within(SOON)?;
    assert_eq!(sent[0].test()?, None, "not before it is received");
    comm.barrier_within(SOON)?;
    let mut place = vec![0; length];
    // SAFETY: waited for at once.
    wait(&mut [unsafe { comm.irecv(place.as_mut_ptr(), length, source, 5)? }], SOON)?;
    assert!(place.iter().enumerate().all(|(at, &got)| got == byte(before, me, 5, at)));
    wait(&mut sent, SOON)
}

/// Two halves of the world, joined again through a port: first those that accept.
pub fn joins(comm: &Comm) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let half = size / 2;
    let own = comm.split(Some(u32::from(me >= half)), me as u32)?.unwrap();
    let port = if me == 0 { some_port(comm) } else { None };
    let mut name = [0; 1024];
    if let Some(port) = &port {
        name[..port.name().len()].copy_from_slice(port.name().as_bytes());
    }
    comm.broadcast(0, &mut name)?;
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\0');
    if name.is_empty() {
        return Ok(());
    }
    let time = SOON.unwrap();
    let both = if me < half { own.accept(name, time)? } else { own.connect(name, time)? };
    assert_eq!((both.rank(), both.size()), (me, size));
    messages(&both)?;
    collectives(&both)?;
    let said = own.accept("a\0b", time).unwrap_err().to_string();
    assert!(said.contains("no zero"), "{said}");
    Ok(())
}

/// A port; none where the library opens none, and says so.
fn some_port(comm: &Comm) -> Option<Port> {
    match comm.mpi().open_port() {
        Ok(port) => Some(port),
        Err(error) => {
            assert!(error.to_string().contains("meet over TCP"), "{error}");
            None
        }
    }
}

/// Nobody connects: the call is given up in time, and with it MPI.
pub fn unjoined(comm: &Comm) -> Result<()> {
    let Some(port) = some_port(comm) else { return Ok(()) };
    let error = comm.accept(port.name(), Duration::from_millis(500)).unwrap_err().to_string();
    assert!(error.contains("MPI_Comm_accept has not returned within 0.5 s"), "{error}");
    assert_eq!(comm.barrier().unwrap_err().to_string(), error, "MPI is called no more");
    Ok(())
}

pub fn collectives(comm: &Comm) -> Result<()> {
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

pub fn splits(world: &Comm) -> Result<()> {
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
    assert!(world.private()?.communicator().is_one_node(SOON)?, "all test ranks share a node");
    Ok(())
}

/// A matrix of 3-byte elements is redistributed from blocks of rows to blocks of columns.
pub fn datatypes(world: &Comm) -> Result<()> {
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
            (element.subarray(&whole, &part, &[0, column], MemoryOrder::RowMajor)?, 0),
            (
                element.subarray(
                    &[whole[1], whole[0]],
                    &[part[1], part[0]],
                    &[column, 0],
                    MemoryOrder::ColMajor,
                )?,
                0,
            ),
            (element.darray(to as i32, &axes, MemoryOrder::RowMajor)?, 0),
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
