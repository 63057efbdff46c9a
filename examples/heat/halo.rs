//! The halo exchange: before each step a rank sends its first column to the rank on its left and its last one to the rank on its right, and
//! gets theirs. Nothing of this is the library's: a simulation has its own, and keeps it.

use crate::ranks::{DEADLINE, Rank};
use reshard::{Error, ErrorKind, Result, bytemuck};
use reshard_mpi::transport::MessageBuffer;
use std::time::{Duration, Instant};

/// Tags of columns to the left and to the right.
const TAGS: [u32; 2] = [1, 2];

/// Polls before a rank that waits gives its processor away for longer: there may be more ranks than processors.
const POLLS: u32 = 200;

/// What a rank sees of its neighbours' columns.
pub struct Halo {
    /// To the left and to the right; none beyond the first and the last rank.
    links: [Option<Link>; 2],
    /// The last column of the left neighbour and the first one of the right; beyond the plate it is cold.
    columns: [Vec<f64>; 2],
}

/// The way to a neighbour and back.
struct Link {
    peer: usize,
    /// Of what is sent, of what is received.
    tags: [u32; 2],
    outgoing: Box<dyn MessageBuffer>,
    incoming: Box<dyn MessageBuffer>,
}

impl Halo {
    /// Links to the neighbours of a rank, for columns of `rows` cells.
    pub fn new(rank: &Rank, rows: usize) -> Result<Self> {
        let (own, last) = (rank.comm.rank(), rank.comm.size() - 1);
        let link = |peer: usize, tags: [u32; 2]| -> Result<Link> {
            let [outgoing, incoming] = [rank.transport.buffer(8 * rows)?, rank.transport.buffer(8 * rows)?];
            Ok(Link { peer, tags, outgoing, incoming })
        };
        let left = (own > 0).then(|| link(own - 1, TAGS)).transpose()?;
        let right = (own < last).then(|| link(own + 1, [TAGS[1], TAGS[0]])).transpose()?;
        Ok(Self { links: [left, right], columns: [vec![0.0; rows], vec![0.0; rows]] })
    }

    /// Sends the first and the last of this rank's columns, and returns the neighbours': left, right.
    pub fn exchange(&mut self, first: &[f64], last: &[f64]) -> Result<[&[f64]; 2]> {
        for (link, column) in self.links.iter_mut().zip([first, last]) {
            link.as_mut().map_or(Ok(()), |link| link.begin(column))?;
        }
        for (link, column) in self.links.iter_mut().zip(&mut self.columns) {
            link.as_mut().map_or(Ok(()), |link| link.end(column))?;
        }
        Ok([&self.columns[0], &self.columns[1]])
    }

    /// What a column takes over a link: the fastest of a few exchanges.
    pub fn measure(&mut self) -> Result<Duration> {
        let column = vec![0.0; self.columns[0].len()];
        let mut fastest = Duration::MAX;
        for _ in 0..20 {
            let begin = Instant::now();
            self.exchange(&column, &column)?;
            fastest = fastest.min(begin.elapsed());
        }
        self.columns.iter_mut().for_each(|column| column.fill(0.0));
        Ok(fastest)
    }
}

impl Link {
    fn begin(&mut self, column: &[f64]) -> Result<()> {
        self.incoming.receive(self.peer, self.tags[1])?;
        self.outgoing.bytes().copy_from_slice(bytemuck::cast_slice(column));
        self.outgoing.send(0..8 * column.len(), self.peer, self.tags[0], false)
    }

    fn end(&mut self, column: &mut [f64]) -> Result<()> {
        let (begin, mut polls) = (Instant::now(), 0);
        while self.incoming.test()?.is_none() || self.outgoing.test()?.is_none() {
            if begin.elapsed() > DEADLINE {
                let what = format!("rank {} sent no column within {} s", self.peer, DEADLINE.as_secs());
                return Err(Error::new(ErrorKind::External, what));
            }
            polls += 1;
            if polls < POLLS {
                std::thread::yield_now()
            } else {
                std::thread::sleep(Duration::from_micros(20))
            }
        }
        bytemuck::cast_slice_mut(column).copy_from_slice(self.incoming.bytes());
        Ok(())
    }
}
