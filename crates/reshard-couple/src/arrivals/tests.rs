use super::*;
use crate::slots::{Filled, SlotWriter};

const DATA: ConnectionId = 3;

/// A consumer that waits for a step of two messages through shared memory, and the producer's end of it.
fn arrivals() -> (Arrivals, SlotWriter) {
    let (memory, passed) = SlotMemory::new(2, 4096).unwrap();
    let writer = SlotWriter::new(Arc::new(SlotMemory::of(&passed, 2, 4096).unwrap()));
    let mut arrivals = Arrivals::default();
    let expected = [((0, 0), 8), ((1, 0), 4)].into_iter().collect();
    arrivals.arrays = vec![Arriving { expected, element: 4, ..Arriving::default() }];
    arrivals.outputs.insert(DATA, VecDeque::new());
    arrivals.share(DATA, Arc::new(memory));
    arrivals.want(0, 0);
    (arrivals, writer)
}

fn send(writer: &mut SlotWriter, from: u32, bytes: &[u8]) {
    let mut slot = writer.take(bytes.len()).unwrap().unwrap();
    slot.copy_from_slice(bytes);
    let (slot, bytes) = slot.filled();
    writer.send(Filled { sequence: 0, array: 0, from, to: 0, slot, bytes, unused: 0 });
}

#[test]
fn what_comes_through_shared_memory_is_handed_out_as_it_comes() {
    let (mut arrivals, mut writer) = arrivals();
    assert!(arrivals.coming(0, 0, false).is_none());
    send(&mut writer, 0, b"elements");
    let Some(Coming::Frames(frames)) = arrivals.coming(0, 0, false) else { panic!("it is there") };
    assert_eq!((frames.len(), frames[0].from, frames[0].bytes()), (1, 0, &b"elements"[..]));
    assert_eq!(writer.taken(), Ok(1));
    frames.into_iter().for_each(|frame| arrivals.give_back(frame));
    assert_eq!(writer.taken(), Ok(0));
    assert_eq!(arrivals.arrays[0].missing(0), Some((1, 0)));
    // What was sent before a producer is gone is there.
    send(&mut writer, 1, b"four");
    arrivals.closed(DATA, "the end");
    assert!(
        matches!(arrivals.coming(0, 0, false), Some(Coming::Frames(frames)) if frames[0].bytes() == b"four")
    );
    assert!(matches!(arrivals.coming(0, 0, false), Some(Coming::Complete)));
}

#[test]
fn who_wants_whole_steps_gets_them_when_all_is_there() {
    let (mut arrivals, mut writer) = arrivals();
    send(&mut writer, 0, b"elements");
    assert!(arrivals.coming(0, 0, true).is_none());
    send(&mut writer, 1, b"four");
    assert!(matches!(arrivals.coming(0, 0, true), Some(Coming::Complete)));
    let frames = arrivals.take(0, 0);
    assert_eq!(frames.iter().map(ArrivedFrame::bytes).collect::<Vec<_>>(), [&b"elements"[..], b"four"]);
}

/// What was unpacked elsewhere is not to be taken for a part of the next attempt.
#[test]
fn of_a_step_that_was_torn_nothing_is_handed_out() {
    let (mut arrivals, mut writer) = arrivals();
    send(&mut writer, 0, b"elements");
    send(&mut writer, 1, b"four");
    arrivals.torn = Some("late".into());
    assert!(matches!(arrivals.coming(0, 0, false), Some(Coming::Over(why)) if why == "late"));
}

#[test]
fn what_was_not_asked_for_ends_the_coupling() {
    for (from, bytes) in [(0, &b"twelve bytes"[..]), (2, b"four"), (1, b"odd")] {
        let (mut arrivals, mut writer) = arrivals();
        send(&mut writer, from, bytes);
        assert!(
            matches!(arrivals.coming(0, 0, false), Some(Coming::Over(why)) if why.contains("not asked for"))
        );
    }
    // Nor does data come by the socket of who shares memory.
    let (mut arrivals, _) = arrivals();
    let head = Head::new(FrameKind::Data, 0, 0).with(b"elements");
    assert!(arrivals.room(DATA, &head).is_err());
    arrivals.shared.clear();
    assert_eq!(arrivals.room(DATA, &head), Ok(Vec::new()));
}

/// A producer that cannot see the memory says so: the consumer waits for no answer of it any more, and takes what comes by the socket.
#[test]
fn memory_that_the_producer_cannot_share_is_done_without() {
    let (mut arrivals, _) = arrivals();
    assert!(arrivals.shares(DATA, None).is_err(), "a step was asked for");
    arrivals.arrays[0].steps.clear();
    assert_eq!(arrivals.shares(DATA, None), Ok(()));
    assert_eq!(arrivals.shared_count(), 0);
    arrivals.want(0, 0);
    let head = Head::new(FrameKind::Data, 0, 0).with(b"elements");
    assert_eq!(arrivals.room(DATA, &head), Ok(Vec::new()));
    assert!(arrivals.shares(DATA, None).is_err(), "it has none");
}

/// Those of all arrays count together, and so does what is said of them.
#[test]
fn more_steps_than_the_queues_have_room_for_are_not_kept() {
    let say = |arrivals: &mut Arrivals, array: u32, header: usize| {
        let step = crate::terms::Announced { array, sequence: 0, number: 0, header: vec![0; header] };
        arrivals.text(Text::Step(step))
    };
    let arrays = |depths: [u32; 2]| Arrivals {
        arrays: depths.map(|depth| Arriving { depth, ..Arriving::default() }).into(),
        ..Arrivals::default()
    };
    let mut arrivals = arrays([1, 2]);
    for _ in 0..10 {
        assert_eq!(say(&mut arrivals, 1, MAX_HEADER_BYTES), Ok(()));
    }
    let said = say(&mut arrivals, 0, 0).err();
    assert!(said.as_ref().is_some_and(|why| why.contains("queues have room")), "{said:?}");
    arrivals.arrays[1].announced.pop_front();
    assert_eq!(say(&mut arrivals, 0, 0), Ok(()));
    assert!(say(&mut arrays([1, 1]), 0, MAX_HEADER_BYTES + 1).is_err());
}
