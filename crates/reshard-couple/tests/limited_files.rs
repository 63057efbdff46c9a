//! A process whose files may not be long (`ulimit -f`). Alone in its program: a limit holds for all of it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{layout, meeting, options, value};
use reshard_couple::{ElementType, Job, Publisher, Subscriber};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Memory that both could share is longer than a file may be: steps come as frames, whatever is in them.
#[test]
fn steps_come_as_frames_where_memory_cannot_be_shared() {
    let longest = Rlimit { current: Some(16 << 10), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, longest).unwrap();
    let (meeting, [from, to]) = (meeting(), ["4x1/16x64 of 64x64", "1x2/64x32 of 64x64"].map(layout));
    let part = |layout: &reshard::Layout, step| layout.parts(|index| value(index, step)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut publisher = Publisher::new(Job::hosting_all(), options());
            let id = publisher.publish("t", &from, ElementType::of::<u64>()).unwrap();
            publisher.open(&meeting).unwrap();
            publisher.wait_for(1).unwrap();
            for step in 0..5 {
                publisher.put(id, step, b"", &part(&from, step)).unwrap();
            }
            assert_eq!(publisher.finish().unwrap(), 1);
        });
        let mut subscriber = Subscriber::new(Job::hosting_all(), options());
        let id = subscriber.subscribe("t", &to, ElementType::of::<u64>()).unwrap();
        subscriber.connect(&meeting).unwrap();
        for step in 0..5 {
            let mut parts = to.parts(|_| 0_u64).unwrap();
            assert_eq!(subscriber.get(id, &mut parts).unwrap().unwrap().number, step);
            assert!(parts == part(&to, step), "step {step}");
        }
        assert_eq!(subscriber.get(id, &mut to.parts(|_| 0_u64).unwrap()), Ok(None));
        subscriber.leave();
    });
}
