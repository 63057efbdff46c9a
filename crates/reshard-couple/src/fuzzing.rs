//! What fuzzers may say to both sides: whatever it is, nothing panics, nothing is believed without a proof, and no more is kept than was
//! asked for. Not part of the interface.

use crate::arrivals::{Arrivals, Arriving};
use crate::frame::{FrameKind, HEAD_BYTES, Head};
use crate::greeting::{ANSWER_BYTES, Channel, Greeter, Then, VERDICT_BYTES, Visitor};
#[cfg(feature = "mpi")]
use crate::launches::{self, Knock, PortFile, check_same};
use crate::meeting;
use crate::private_file::short_text;
use crate::secret::Secret;
use crate::service::Service;
use crate::state::{Patience, Stage, State};
use crate::terms::{Hello, Process, Published, Queue, Text, Wanted};
use std::sync::Arc;

/// Any bytes as a greeting, to the side that is called and to the side that calls.
///
/// # Panics
/// If somebody is believed.
pub fn greeting(bytes: &[u8]) {
    let secret = Secret::new("the secret of the fuzzer").expect("it is long enough");
    let mut greeter = Greeter::new(&secret, [7; 16]);
    let mut rest = bytes;
    while rest.len() >= greeter.wants() {
        let (message, after) = rest.split_at(greeter.wants());
        rest = after;
        match greeter.take(message).expect("there are random numbers").then {
            Then::Waits => {}
            Then::Greeted(channel) => panic!("{channel:?} was believed without a proof"),
            Then::Refused(why) => {
                assert!(!why.is_empty());
                break;
            }
        }
    }
    let mut visitor = Visitor::new(&secret, Channel::Control).expect("there are random numbers");
    if let Some((answer, rest)) = bytes.split_first_chunk::<ANSWER_BYTES>()
        && let Ok((session, _)) = visitor.prove(answer, None)
        && let Some((verdict, _)) = rest.split_first_chunk::<VERDICT_BYTES>()
    {
        assert!(visitor.believe(&session, verdict).is_err(), "a stranger was believed");
    }
}

/// Any bytes as a meeting file, to a consumer that meets over TCP and to both sides of jobs that MPI joins.
///
/// # Panics
/// If something else is read from what was read, printed again, or a sentence is not one line.
pub fn meeting(bytes: &[u8]) {
    let Ok(text) = short_text(bytes) else { return };
    match meeting::parse(&text) {
        Err(why) => is_one_line(&why),
        Ok(invitation) => {
            // What a secret is, in other words. Keys that nobody reads may have numbers that nobody can hold.
            if let Ok(json) = serde_json::from_str::<serde_json::Value>(&text) {
                let digits = json["secret"].as_str().unwrap_or_default();
                assert!(digits.len() >= 32 && digits.len() % 2 == 0, "{digits}");
                assert!(digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{digits}");
                assert_eq!(json["reshard"], meeting::FILE_VERSION);
                assert!(json["port"].is_null());
            }
            let printed = meeting::print(&invitation.address, &[7; 16], &invitation.secret);
            let again = meeting::parse(&printed).expect("it is as a producer writes it");
            assert_eq!((again.address, again.secret), (invitation.address, invitation.secret));
        }
    }
    #[cfg(feature = "mpi")]
    {
        match PortFile::parse(&text) {
            Err(why) => is_one_line(&why),
            Ok(found) => {
                assert_eq!(PortFile::parse(&launches::text(&found)).as_ref(), Ok(&found));
                if let Err(error) = check_same(&found, "MPICH 4.2.0", Some("tcp://10.0.0.2:45481")) {
                    is_one_line(&error.to_string());
                }
            }
        }
        if let Some(knock) = Knock::parse(&text) {
            assert_eq!(Knock::parse(&launches::text(&knock)), Some(knock));
        }
    }
}

/// # Panics
/// If a sentence has control characters, or is much longer than a file.
fn is_one_line(why: &str) {
    assert!(!why.is_empty() && why.len() < 50_000 && !why.contains(char::is_control), "{why:?}");
}

/// Any bytes as what follows a greeting, to a producer and to a consumer: as they are, and as frames with right checksums.
///
/// # Panics
/// If more is kept than was asked for.
pub fn frames(bytes: &[u8]) {
    if let Some((head, body)) = bytes.split_first_chunk::<HEAD_BYTES>()
        && let Ok(head) = Head::decode(head)
    {
        assert_eq!(Head::decode(&head.encode()), Ok(head));
        let _ = head.check(body);
    }
    if let Ok(text) = Text::decode(bytes) {
        assert_eq!(Text::decode(&text.encode()).as_ref(), Ok(&text));
    }
    let [producer, consumer] = [&mut producer() as &mut dyn Service, &mut consumer()];
    converse(producer, bytes);
    converse(consumer, bytes);
}

/// The connections that a fuzzer speaks on: of the leaders, and for data.
const CONTROL: usize = 2;
const DATA: usize = 3;

/// Reads the bytes as decisions: which frame comes on which connection.
fn converse(service: &mut dyn Service, bytes: &[u8]) {
    let mut rest = bytes;
    let mut closed = [false; 2];
    while let Some((decision, after)) = rest.split_first_chunk::<6>() {
        const KINDS: [FrameKind; 4] = [FrameKind::Data, FrameKind::Want, FrameKind::Text, FrameKind::Wake];
        let kind = KINDS[decision[0] as usize % KINDS.len()];
        let id = if decision[1] & 1 == 0 { CONTROL } else { DATA };
        let length = match kind {
            FrameKind::Want | FrameKind::Wake => 0,
            _ => (decision[5] as usize * 4).min(after.len()),
        };
        let (body, after) = after.split_at(length);
        rest = after;
        if closed[id - CONTROL] {
            continue;
        }
        let head = Head {
            from: u32::from(decision[3] & 3),
            to: u32::from(decision[3] >> 2 & 3),
            ..Head::new(kind, u32::from(decision[2] & 3), u64::from(decision[4]))
        };
        let head = head.with(body);
        let taken = service.room(id, &head).and_then(|_| service.received(id, &head, body.to_vec()));
        if let Err(why) = taken {
            assert!(!why.is_empty());
            closed[id - CONTROL] = true;
            service.closed(id, &why);
        }
        // What is answered is sent at once.
        for id in [CONTROL, DATA] {
            for _ in 0..8 {
                let Some((head, body)) = service.next(id) else { break };
                service.sent(id, &head, body);
            }
        }
    }
    service.closed(CONTROL, "the end");
    service.closed(DATA, "the end");
}

fn wanted() -> Wanted {
    Wanted {
        name: "t".into(),
        element: "u32".parse().expect("a name"),
        layout: "2/3 of 12".parse().expect("a layout"),
        window: None,
        queue: Queue { depth: 2, drops: true },
        whole: false,
    }
}

/// A producer of one array with a consumer, and steps of which that was not told yet.
fn producer() -> State {
    let Wanted { name, element, .. } = wanted();
    let layout = "3/2 of 12".parse().expect("a layout");
    let process = |ranks| Process { address: "127.0.0.1:1".into(), local: None, ranks };
    let mut state = State::new(vec![Published { name, element, layout }], vec![process(0..3)], 2, true);
    let hello = Hello {
        byte_order: crate::terms::BYTE_ORDER.into(),
        processes: vec![process(0..2)],
        arrays: vec![wanted()],
        few_connections: false,
    };
    state.greeted(CONTROL, Channel::Control).expect("the leader is called");
    let text = Text::Hello(hello.clone()).encode();
    let head = Head::new(FrameKind::Text, 0, 0).with(&text);
    state.received(CONTROL, &head, text).expect("it fits");
    state.greeted(DATA, Channel::Data { consumer: 1, process: 0 }).expect("it is new");
    state.admit(1, &Arc::new(hello));
    assert_eq!(state.consumers[&1].stage, Stage::Admitted);
    for number in 0..2 {
        let sequence = state.begin_step(1, 0, number, b"header").expect("it is there");
        for (from, to) in [(0, 0), (1, 0), (2, 1)] {
            let memory = state.memory(1, 0, 8, Patience::Always).expect("none is shared");
            state.add_frame(1, 0, Head { from, to, ..Head::new(FrameKind::Data, 0, sequence) }, memory);
        }
        state.end_step(1, 0, sequence);
    }
    state
}

/// A consumer of one array that asked for two steps.
fn consumer() -> Arrivals {
    let mut arrivals = Arrivals::default();
    let expected = [((0, 0), 8), ((1, 0), 16), ((2, 1), 4)].into_iter().collect();
    arrivals.arrays = vec![Arriving { expected, element: 4, ..Arriving::default() }];
    arrivals.want(0, 0);
    arrivals.want(0, 1);
    arrivals
}
