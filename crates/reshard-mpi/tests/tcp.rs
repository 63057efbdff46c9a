//! A sketch of another transport: two processes that MPI cannot join, a TCP connection between them, and everything above it
//! unchanged: agreement, and messages in steps with barriers, element by element. One rank in each of two groups.
#![allow(clippy::unwrap_used, unsafe_code)]

use reshard::engine::MessagesOptions;
use reshard::{Layout, Move, Plan, Result};
use reshard_mpi::communicator::Communicator;
use reshard_mpi::transport::{Carrier, Mailbox, MailboxBuffer, MessageBuffer, Transport};
use reshard_mpi::{Mover, MpiEngine, MpiOptions, Own};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CALL: &str = "RESHARD_TCP_TEST_CALL";
const LIMIT: Duration = Duration::from_secs(1200);
const RECEIVED_TAG: u64 = u64::MAX;
#[derive(Clone)]
struct Tcp {
    rank: usize,
    number: u64,
    connection: Arc<Mutex<Connection>>,
}

struct Connection {
    stream: TcpStream,
    /// Bytes that came and are no whole message yet.
    input: Vec<u8>,
    mailbox: Mailbox<u64>,
}

impl Connection {
    /// Writes tag, number (0: nobody waits to be told), length and bytes of a message, and reads while it cannot, so that two ranks never block each other.
    /// What cannot be written in time is lost, and who waits for it names this rank.
    fn put(&mut self, tag: u64, number: u64, bytes: &[u8]) {
        let head = [tag, number, bytes.len() as u64].map(u64::to_le_bytes);
        let (message, begin, mut at) = ([head.as_flattened(), bytes].concat(), Instant::now(), 0);
        while (tag, number) != (RECEIVED_TAG, 0) && at < message.len() && begin.elapsed() < LIMIT {
            match self.stream.write(&message[at..]) {
                Ok(written) => at += written,
                Err(_) => self.read(),
            }
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 1 << 14];
        let count = self.stream.read(&mut bytes).unwrap_or(0);
        self.input.extend_from_slice(&bytes[..count]);
    }

    fn progress(&mut self, other: usize) {
        self.read();
        while let Some((head, rest)) = self.input.split_first_chunk::<24>() {
            let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
            let (tag, number, length) = (number(0), number(8), number(16) as usize);
            let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { break };
            self.input.drain(..24 + length);
            if tag == RECEIVED_TAG {
                self.mailbox.acknowledge(number);
            } else if let Some(number) = self.mailbox.deliver(other, tag as u32, message, number) {
                self.put(RECEIVED_TAG, number, &[]);
            }
        }
    }
}

impl Tcp {
    fn with<T>(&self, act: impl FnOnce(&mut Connection) -> T) -> Result<T> {
        let mut connection = self.connection.lock().unwrap();
        connection.progress(1 - self.rank);
        Ok(act(&mut connection))
    }
}

impl Carrier for Tcp {
    type Receipt = u64;
    fn with_mailbox<T>(&self, act: impl FnOnce(&mut Mailbox<u64>) -> T) -> Result<T> {
        self.with(|connection| act(&mut connection.mailbox))
    }
    fn carry(&self, bytes: &[u8], _: usize, tag: u32, number: Option<u64>) -> Result<()> {
        self.with(|connection| connection.put(u64::from(tag), number.unwrap_or(0), bytes))
    }
    fn acknowledge(&self, number: u64) -> Result<()> {
        self.with(|connection| connection.put(RECEIVED_TAG, number, &[]))
    }
}

// SAFETY: TCP delivers in order, to one peer; the mailbox gives every message out once; the number is random.
unsafe impl Transport for Tcp {
    fn rank(&self) -> usize {
        self.rank
    }
    fn groups(&self) -> [usize; 2] {
        [1, 1]
    }
    fn number(&self, _: Option<Duration>) -> Result<u64> {
        Ok(self.number)
    }
    fn identity(&self) -> u128 {
        u128::from(self.number) << 64 | self.rank as u128
    }
    fn buffer(&self, bytes: usize) -> Result<Box<dyn MessageBuffer>> {
        Ok(Box::new(MailboxBuffer::new(self.clone(), bytes)?))
    }
    fn probe(&self, tag: u32) -> Result<Option<(usize, usize)>> {
        self.with(|connection| connection.mailbox.probe(tag))
    }
}

fn play(rank: usize, number: u64, stream: TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let connection = Connection { stream, input: vec![], mailbox: Mailbox::default() };
    let communicator = Communicator::new(Tcp { rank, number, connection: Arc::new(connection.into()) });
    let [from, to] = ["2x1/3x5 of 200x300", "1x2/7x4 of 200x300"].map(|text| text.parse::<Layout>().unwrap());
    let plan = Arc::new(Plan::new(vec![Move::of::<u64>(from.clone(), to.clone()).unwrap()]).unwrap());
    let messages = MessagesOptions::default().with_barriers(true);
    let options = MpiOptions::default().with_mover(Mover::Messages).with_messages(messages);
    let mut engine = MpiEngine::new(plan, &communicator, options.with_deadline(LIMIT)).unwrap();
    for run in 0..3 {
        let value = |index: &[u64]| index[0] << 32 | index[1] << 8 | run;
        let [source, expected] = [&from, &to].map(|layout| layout.filled(rank as u64, value).unwrap());
        let mut target = to.allocate(rank as u64).unwrap();
        engine.run(Own::new(&source, &mut target)).unwrap();
        assert!(target == expected, "rank {rank}, run {run}");
    }
}

#[test]
fn two_processes_over_tcp() {
    if let Ok(text) = std::env::var(CALL) {
        let (address, number) = text.split_once(' ').unwrap();
        return play(1, number.parse().unwrap(), TcpStream::connect(address).unwrap());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = RandomState::new().hash_one(0) >> 33 << 32;
    let call = format!("{} {number}", listener.local_addr().unwrap());
    let mut second = Command::new(std::env::current_exe().unwrap()).env(CALL, call).spawn().unwrap();
    listener.set_nonblocking(true).unwrap();
    let stream = loop {
        assert!(second.try_wait().unwrap().is_none(), "the other process has ended");
        if let Ok((stream, _)) = listener.accept() {
            break stream;
        }
    };
    play(0, number, stream);
    assert!(second.wait().unwrap().success());
}
