use super::*;
use crate::frame::FrameKind;
use crate::greeting::Channel;
use crate::service::Service;
use crate::terms::Text;
use crate::terms::Wanted;

const CONTROL: ConnectionId = 2;
const DATA: ConnectionId = 3;

/// A producer of one array with one consumer.
fn state(queue: Queue) -> State {
    let (mut state, hello) = coming(queue, ["3/2 of 12", "2/3 of 12"]);
    state.text(CONTROL, Text::Ready).unwrap();
    state.admit(1, &Arc::new(hello));
    state
}

/// A process of a producer that does not lead: no consumer tells it which steps it takes.
fn follower(queue: Queue) -> State {
    let (_, hello) = coming(queue, ["3/2 of 12", "2/3 of 12"]);
    let published =
        Published { name: "t".into(), element: "u32".parse().unwrap(), layout: "3/2 of 12".parse().unwrap() };
    let process = Process { address: "127.0.0.1:1".into(), local: None, ranks: 0..3 };
    let mut state = State::new(vec![published], vec![process], 1, false);
    state.admit(1, &Arc::new(hello));
    state.greeted(DATA, Channel::Data { consumer: 1, process: 0 }).unwrap();
    state
}

/// A producer with a consumer that was welcomed.
fn coming(queue: Queue, [from, to]: [&str; 2]) -> (State, Hello) {
    let process = |ranks| Process { address: "127.0.0.1:1".into(), local: None, ranks };
    let published =
        Published { name: "t".into(), element: "u32".parse().unwrap(), layout: from.parse().unwrap() };
    let wanted = Wanted {
        name: "t".into(),
        element: published.element,
        layout: to.parse().unwrap(),
        window: None,
        queue,
        whole: false,
    };
    let byte_order = crate::terms::BYTE_ORDER.into();
    let hello =
        Hello { byte_order, processes: vec![process(0..2)], arrays: vec![wanted], few_connections: false };
    let mut state = State::new(vec![published], vec![process(0..3)], 1, true);
    state.greeted(CONTROL, Channel::Control).unwrap();
    state.text(CONTROL, Text::Hello(hello.clone())).unwrap();
    state.greeted(DATA, Channel::Data { consumer: 1, process: 0 }).unwrap();
    (state, hello)
}

/// What the leader said.
fn said(state: &mut State) -> Vec<Text> {
    let frames = std::iter::from_fn(|| state.next(CONTROL));
    frames.map(|(_, body)| Text::decode(&body).unwrap()).collect()
}

fn want(state: &mut State, sequence: u64) {
    let head = Head::new(FrameKind::Want, 0, sequence);
    state.received(DATA, &head, Vec::new()).unwrap();
}

fn put(state: &mut State, number: u64, frames: usize) {
    let sequence = state.begin_step(1, 0, number, b"").unwrap();
    for _ in 0..frames {
        state.add_frame(1, 0, Head::new(FrameKind::Data, 0, sequence), Buffer::Own(vec![7; 8]));
    }
    state.end_step(1, 0, sequence);
}

/// Sends all there is to send; returns the steps of the data.
fn send_all(state: &mut State) -> Vec<u64> {
    let mut sent = Vec::new();
    for id in [CONTROL, DATA] {
        while let Some((head, body)) = state.next(id) {
            state.sent(id, &head, body);
            sent.extend((head.kind == FrameKind::Data).then_some(head.sequence));
        }
    }
    sent
}

#[test]
fn a_step_is_sent_when_it_is_wanted_before_or_after_it_is_put() {
    let mut state = state(Queue { depth: 2, drops: false });
    want(&mut state, 0);
    put(&mut state, 0, 2);
    put(&mut state, 1, 2);
    assert_eq!(send_all(&mut state), [0, 0]);
    assert_eq!(state.without_room(0), None);
    put(&mut state, 2, 1);
    assert_eq!(state.without_room(0), Some(1));
    want(&mut state, 1);
    assert_eq!(send_all(&mut state), [1, 1]);
    assert_eq!(state.without_room(0), None);
}

#[test]
fn nothing_is_kept_of_steps_of_which_this_process_sends_nothing() {
    for drops in [false, true] {
        let mut state = state(Queue { depth: 2, drops });
        for number in 0..1000 {
            if drops {
                state.text(CONTROL, Text::Next { array: 0 }).unwrap();
            }
            put(&mut state, number, 0);
            // As late as a consumer's are.
            want(&mut state, number);
            send_all(&mut state);
        }
        assert_eq!(
            (state.connections[&DATA].wanted.len(), state.consumers[&1].arrays[0].waiting.len()),
            (0, 0)
        );
    }
}

#[test]
fn the_oldest_step_that_was_not_announced_is_dropped() {
    let mut state = state(Queue { depth: 2, drops: true });
    put(&mut state, 0, 1);
    put(&mut state, 1, 1);
    assert_eq!(state.full(0), [(1, 0, 0)]);
    state.text(CONTROL, Text::Next { array: 0 }).unwrap();
    // Step 0 was announced: it stays, and there is room.
    assert_eq!(state.full(0), []);
    put(&mut state, 2, 1);
    assert_eq!(state.full(0), [(1, 0, 1)]);
    state.drop_step(1, 0, 1);
    want(&mut state, 0);
    assert_eq!(send_all(&mut state), [0]);
    state.text(CONTROL, Text::Next { array: 0 }).unwrap();
    want(&mut state, 2);
    assert_eq!(send_all(&mut state), [2]);
    assert_eq!(state.consumers[&1].arrays[0].waiting.len(), 0);
}

#[test]
fn a_process_that_does_not_lead_forgets_steps_of_which_it_sends_nothing() {
    let mut state = follower(Queue { depth: 2, drops: true });
    for number in 0..10 {
        put(&mut state, number, 0);
    }
    assert_eq!(state.consumers[&1].arrays[0].waiting.len(), 0);
}

#[test]
fn another_consumer_is_refused_while_there_is_one_and_after_the_end() {
    let mut state = state(Queue { depth: 1, drops: false });
    let hello = Hello::clone(state.consumers[&1].hello.as_ref().unwrap());
    let said = state.welcome(9, hello.clone()).unwrap_err();
    assert!(said.contains("a consumer already"), "{said}");
    state.text(CONTROL, Text::Leave { complete: false }).unwrap();
    assert_eq!(state.welcome(9, hello.clone()).unwrap().consumer, 2);
    state.end(2, Stage::Left);
    state.end_all();
    let said = state.welcome(9, hello).unwrap_err();
    assert!(said.contains("last step"), "{said}");
    assert_eq!(state.complete, 0);
}

#[test]
fn slots_come_back_when_they_are_read_or_their_step_is_dropped() {
    let mut state = state(Queue { depth: 1, drops: true });
    let memory = Arc::new(crate::slots::SlotMemory::new(2, 4096).unwrap().0);
    let mut reader = crate::slots::SlotReader::new(Arc::clone(&memory));
    state.shares(DATA, Some(Arc::clone(&memory))).unwrap();
    assert!(state.shares(DATA, Some(memory)).is_err(), "once is enough");
    let put_one = |state: &mut State, number: u64| {
        let sequence = state.begin_step(1, 0, number, b"").unwrap();
        let buffer = state.memory(1, 0, 4096, Patience::None);
        let there = buffer.is_some();
        if let Some(buffer) = buffer {
            assert!(matches!(buffer, Buffer::Slot(_)));
            let queued = state.add_frame(1, 0, Head::new(FrameKind::Data, 0, sequence), buffer);
            assert!(!queued, "nothing goes over the connection");
        }
        state.end_step(1, 0, sequence);
        there
    };
    assert!(put_one(&mut state, 0) && put_one(&mut state, 1));
    assert!(!put_one(&mut state, 2), "there are two slots");
    state.drop_step(1, 0, 0);
    assert!(put_one(&mut state, 3), "the slot of the step that was dropped");
    // The second step is sent, and read.
    assert!(reader.next().unwrap().is_none());
    want(&mut state, 1);
    let (filled, slot) = reader.next().unwrap().unwrap();
    assert_eq!((filled.sequence, filled.bytes), (1, 4096));
    assert!(state.memory(1, 0, 1, Patience::None).is_none());
    reader.free(&slot);
    assert!(put_one(&mut state, 4));
    // A consumer that frees what it does not have is given up.
    reader.free(&slot);
    reader.free(&slot);
    assert!(matches!(state.memory(1, 0, 1, Patience::None), Some(Buffer::Own(_))));
    assert!(matches!(&state.consumers[&1].stage, Stage::Lost(why) if why.contains("did not have")));
}

/// Nothing is sent of them, so only the consumer can say that it has taken one.
#[test]
fn steps_without_elements_wait_until_they_are_taken() {
    let (mut state, hello) = coming(Queue { depth: 2, drops: false }, ["3/2 of 0", "2/3 of 0"]);
    state.text(CONTROL, Text::Ready).unwrap();
    state.admit(1, &Arc::new(hello));
    for number in 0..2 {
        assert_eq!(state.without_room(0), None);
        put(&mut state, number, 0);
    }
    assert_eq!(state.without_room(0), Some(1));
    assert!(send_all(&mut state).is_empty());
    assert!(state.is_handed_over(), "there is nothing to send");
    state.text(CONTROL, Text::Next { array: 0 }).unwrap();
    assert_eq!(state.without_room(0), None);
    put(&mut state, 2, 0);
    assert_eq!(state.without_room(0), Some(1));
}

#[test]
fn who_comes_while_the_producer_ends_is_told_that_there_are_no_more_steps() {
    let wait = Queue { depth: 2, drops: false };
    let (mut state, _) = coming(wait, ["3/2 of 12", "2/3 of 12"]);
    said(&mut state);
    state.end_all();
    assert!(!state.all_left(), "it is about to come");
    assert_eq!(said(&mut state), []);
    state.text(CONTROL, Text::Ready).unwrap();
    assert_eq!(said(&mut state), [Text::End { array: 0 }]);
    state.text(CONTROL, Text::Leave { complete: true }).unwrap();
    assert!(state.all_left());
    // One that came just before, and was not let in yet.
    let (mut state, _) = coming(wait, ["3/2 of 12", "2/3 of 12"]);
    state.text(CONTROL, Text::Ready).unwrap();
    said(&mut state);
    state.end_all();
    assert_eq!(said(&mut state), [Text::End { array: 0 }]);
    // One that drops steps asks for the next.
    let (mut state, _) = coming(Queue { depth: 2, drops: true }, ["3/2 of 12", "2/3 of 12"]);
    said(&mut state);
    state.end_all();
    state.text(CONTROL, Text::Ready).unwrap();
    assert_eq!(said(&mut state), []);
    state.text(CONTROL, Text::Next { array: 0 }).unwrap();
    assert_eq!(said(&mut state), [Text::End { array: 0 }]);
}

#[test]
fn a_consumer_whose_memory_cannot_be_shared_gets_frames() {
    let mut state = state(Queue { depth: 1, drops: false });
    send_all(&mut state);
    state.shares(DATA, None).unwrap();
    let (answer, body) = state.next(DATA).unwrap();
    assert_eq!((answer.kind, body.len()), (FrameKind::Memory, 0));
    state.sent(DATA, &answer, body);
    assert!(matches!(state.memory(1, 0, 8, Patience::None), Some(Buffer::Own(_))));
    want(&mut state, 0);
    put(&mut state, 0, 1);
    assert_eq!(send_all(&mut state), [0]);
}

#[test]
fn why_a_consumer_that_came_is_gone_is_known_to_who_waits_for_it() {
    let (mut state, _) = coming(Queue { depth: 1, drops: false }, ["3/2 of 12", "2/3 of 12"]);
    state.closed(DATA, "out of files");
    assert_eq!(state.last_refusal.as_deref(), Some("process 0 of consumer 1 is gone: out of files"));
}

/// What a peer says is bounded, and what it is told of that as well: a long text comes first or never, and no name of it comes back whole.
#[test]
fn long_texts_come_once_and_do_not_come_back() {
    let (mut state, mut hello) = coming(Queue { depth: 2, drops: false }, ["3/2 of 12", "2/3 of 12"]);
    let text = |bytes: u32| Head { bytes, ..Head::new(FrameKind::Text, 0, 0) };
    for link in [CONTROL, DATA] {
        assert!(state.room(link, &text(1 << 16)).is_ok());
        let said = state.room(link, &text(1 << 26)).unwrap_err();
        assert!(said.contains("67108864 bytes, and 65536 is the most"), "{said}");
    }
    state.text(CONTROL, Text::Leave { complete: false }).unwrap();
    state.closed(CONTROL, "left");
    let next = CONTROL + 100;
    state.greeted(next, Channel::Control).unwrap();
    assert!(state.room(next, &text(1 << 26)).is_ok());
    hello.arrays[0].name = "n".repeat(1 << 20);
    state.text(next, Text::Hello(hello)).unwrap();
    let frames: Vec<usize> = std::iter::from_fn(|| state.next(next)).map(|(_, body)| body.len()).collect();
    assert!(!frames.is_empty() && frames.iter().all(|&bytes| bytes < 5_000), "{frames:?}");
}
