//! Consumers that ask for more than a producer should have to keep: refused when they come, with one sentence, and nothing is allocated for them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{layout, meeting, options};
use reshard::{ErrorKind, Layout};
use reshard_couple::{ElementType, Job, Publisher, Subscriber, Subscription};

/// What a consumer of these arrays is told by a producer of as many.
fn refused(from: &Layout, arrays: usize, wanted: impl Fn(&str) -> Subscription) -> String {
    let meeting = meeting();
    let name = |number: usize| format!("a{number}");
    let mut publisher = Publisher::new(Job::hosting_all(), options());
    for number in 0..arrays {
        publisher.publish(&name(number), from, ElementType::of::<u64>()).unwrap();
    }
    publisher.open(&meeting).unwrap();
    let mut subscriber = Subscriber::new(Job::hosting_all(), options());
    for number in 0..arrays {
        subscriber.subscribe_to(wanted(&name(number))).unwrap();
    }
    let error = subscriber.connect(&meeting).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Partner, "{error}");
    // It goes on.
    publisher.finish().unwrap();
    error.to_string()
}

#[test]
fn copies_on_four_billion_ranks_are_refused() {
    let (from, to) = (layout("4/100 of 100000"), layout("(*) on 4000000000 of 100000"));
    let said = refused(&from, 1, |name| Subscription::new(name, &to, ElementType::of::<u64>()));
    assert!(
        said.starts_with(
            "the producer refused: the consumer wants each element of the array 'a0' on 4000000000"
        ),
        "{said}"
    );
}

/// Many arrays with long queues: their steps are counted together.
#[test]
fn long_queues_of_many_arrays_are_refused() {
    let array = layout("2/3 of 12");
    let said = refused(&array, 65, |name| {
        Subscription::new(name, &array, ElementType::of::<u64>()).with_depth(1024)
    });
    assert!(said.contains("the queues of the consumer's 65 arrays have 66560 steps"), "{said}");
}
