//! Two jobs in one process, each hosting all its ranks, right and wrong.

use super::*;

fn meeting() -> CString {
    let name = format!("reshard-capi-{}-{:?}.meet", std::process::id(), std::thread::current().id());
    CString::new(std::env::temp_dir().join(name).to_str().unwrap()).unwrap()
}

fn publisher(options: &CStr) -> Owned<reshard_publisher> {
    let mut made = null_mut();
    // SAFETY: a text and a place.
    done(unsafe { reshard_publisher_new(options.as_ptr(), &raw mut made) });
    Owned(made, reshard_publisher_free)
}

fn subscriber(options: &CStr) -> Owned<reshard_subscriber> {
    let mut made = null_mut();
    // SAFETY: a text and a place.
    done(unsafe { reshard_subscriber_new(options.as_ptr(), &raw mut made) });
    Owned(made, reshard_subscriber_free)
}

/// Elements 4 to 9 of twelve: what the consumer has at the places 1 to 6 of eight.
#[test]
fn steps_of_a_window_come_by_value() {
    let meeting = meeting();
    let there = meeting.clone();
    let producer = std::thread::spawn(move || {
        let (mut array, mut complete) = (7, 0);
        // SAFETY: objects that live, texts, and parts as long as they are said to be.
        unsafe {
            let publisher = publisher(c"deadline=20 consumers=2");
            done(reshard_publish(
                publisher.0,
                c"t".as_ptr(),
                layout("2/3 of 12").0,
                c"i32".as_ptr(),
                &raw mut array,
            ));
            done(reshard_publisher_open(publisher.0, there.as_ptr()));
            done(reshard_publisher_wait_for(publisher.0, 1));
            for step in 0..3_i32 {
                let parts = [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]
                    .map(|part| part.map(|at: i32| 100 * step + at));
                let list =
                    parts.each_ref().map(|part| reshard_source { address: part.as_ptr().cast(), bytes: 24 });
                let header = [step as u8; 2];
                done(reshard_put(
                    publisher.0,
                    array,
                    step as u64,
                    header.as_ptr().cast(),
                    2,
                    list.as_ptr(),
                    2,
                ));
            }
            done(reshard_publisher_finish(publisher.0, &raw mut complete));
            refused(
                reshard_publisher_finish(publisher.0, null_mut()),
                RESHARD_ERROR_ARGUMENT,
                "has been finished",
            );
        }
        (array, complete)
    });
    let (mut array, mut there) = (7, 7);
    let (shape, from, to) = ([6_u64], [4_u64], [1_u64]);
    let window = reshard_window {
        dims: 1,
        shape: shape.as_ptr(),
        from: from.as_ptr(),
        to: to.as_ptr(),
        axes: null(),
        triangle: RESHARD_ALL,
        diagonal: 0,
    };
    let mut step = reshard_step { number: 0, dropped: 0, header: null(), header_bytes: 0 };
    // SAFETY: as above.
    unsafe {
        let subscriber = subscriber(c"deadline=20 tcp");
        let wanted = (c"t".as_ptr(), layout("1/8 of 8"), c"i32".as_ptr(), c"depth=1 whole".as_ptr());
        done(reshard_subscribe(
            subscriber.0,
            wanted.0,
            wanted.1.0,
            wanted.2,
            &raw const window,
            wanted.3,
            &raw mut array,
        ));
        done(reshard_subscriber_connect(subscriber.0, meeting.as_ptr()));
        let mut part = [-1_i32; 8];
        for number in 0..4_i32 {
            let target = reshard_target { address: part.as_mut_ptr().cast(), bytes: 32 };
            done(reshard_get(subscriber.0, array, &raw const target, 1, &raw mut step, &raw mut there));
            if number == 3 {
                assert_eq!(there, 0);
                break;
            }
            assert_eq!((there, step.number, step.dropped), (1, number as u64, 0));
            assert_eq!(std::slice::from_raw_parts(step.header, step.header_bytes), [number as u8; 2]);
            let values: Vec<i32> = (4..10).map(|at| 100 * number + at).collect();
            assert_eq!((part[0], &part[1..7], part[7]), (-1, &values[..], -1));
        }
        done(reshard_subscriber_leave(subscriber.0));
        refused(reshard_subscriber_leave(subscriber.0), RESHARD_ERROR_ARGUMENT, "has left");
    }
    assert_eq!((array, producer.join().unwrap()), (0, (0, 1)));
}

#[test]
fn what_is_wrong_is_said() {
    let (mut made, mut array, mut there) = (null_mut(), 0, 0);
    // SAFETY: objects that live, texts, places, or null.
    unsafe {
        for (options, says) in [
            (c"consumer=1", "deadline=, consumers="),
            (c"deadline=none", "a number of seconds"),
            (c"bind=here", "an address and a port"),
            (c"program=a", "belong together"),
        ] {
            refused(reshard_publisher_new(options.as_ptr(), &raw mut made), RESHARD_ERROR_NOTATION, says);
            assert!(made.is_null());
        }
        refused(reshard_publisher_new(null(), null_mut()), RESHARD_ERROR_ARGUMENT, "`publisher`");
        let publisher = publisher(c"deadline=0.2");
        let here = layout("2/3 of 12");
        let publish = |name: &CStr, element: &CStr, array: *mut usize| {
            reshard_publish(publisher.0, name.as_ptr(), here.0, element.as_ptr(), array)
        };
        refused(publish(c"t", c"double", &raw mut array), RESHARD_ERROR_OUT_OF_RANGE, "'double'");
        refused(publish(c"t", c"f64", null_mut()), RESHARD_ERROR_ARGUMENT, "`array`");
        refused(
            reshard_put(publisher.0, 0, 0, null(), 0, null(), 0),
            RESHARD_ERROR_ARGUMENT,
            "0 are published",
        );
        refused(reshard_publisher_wait_for(publisher.0, 1), RESHARD_ERROR_MISMATCH, "open()");
        refused(reshard_publisher_open(publisher.0, null()), RESHARD_ERROR_ARGUMENT, "the path of a file");
        done(publish(c"t", c"f64", &raw mut array));
        done(reshard_publisher_open(publisher.0, meeting().as_ptr()));
        refused(
            reshard_publisher_wait_for(publisher.0, 1),
            RESHARD_ERROR_PARTNER,
            "no consumer came within 0.2 s",
        );
        refused(
            reshard_put(publisher.0, 0, 0, null(), 0, null(), 0),
            RESHARD_ERROR_MISMATCH,
            "0 parts were given",
        );

        let subscriber = subscriber(c"deadline=0.2");
        let subscribe = |options: &CStr, window: *const reshard_window| {
            let (name, element) = (c"t".as_ptr(), c"f64".as_ptr());
            let mut array = 0;
            reshard_subscribe(subscriber.0, name, here.0, element, window, options.as_ptr(), &raw mut array)
        };
        refused(subscribe(c"deep", null()), RESHARD_ERROR_NOTATION, "depth=, drop-oldest, whole");
        for options in [c"depth=0", c"depth=1025", c"depth=two"] {
            refused(
                subscribe(options, null()),
                RESHARD_ERROR_NOTATION,
                "depth is a number of steps, 1 to 1024",
            );
        }
        let window = |dims: usize, triangle: c_int, shape: &[u64]| {
            let shape = if shape.is_empty() { null() } else { shape.as_ptr() };
            reshard_window { dims, shape, from: null(), to: null(), axes: null(), triangle, diagonal: 0 }
        };
        let shape = [3, 4];
        refused(subscribe(c"", &window(0, RESHARD_UPPER, &[])), RESHARD_ERROR_ARGUMENT, "triangle");
        refused(subscribe(c"", &window(2, RESHARD_ALL, &shape)), RESHARD_ERROR_MISMATCH, "window");
        done(subscribe(c"drop-oldest", null()));
        refused(
            reshard_get(subscriber.0, 1, null(), 0, null_mut(), &raw mut there),
            RESHARD_ERROR_ARGUMENT,
            "1 were subscribed to",
        );
        refused(
            reshard_subscriber_connect(subscriber.0, c"/nowhere/at/all".as_ptr()),
            RESHARD_ERROR_PARTNER,
            "no producer wrote the meeting file",
        );
    }
}
