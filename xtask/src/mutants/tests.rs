#![allow(clippy::unwrap_used)]

use super::Tried;
use super::stages::failing;

#[test]
fn lines_of_results_are_read_as_they_were_written() {
    let [name, hash, round] = ["some-bug", "00ff", ""].map(String::from);
    let tried = Tried { name, hash, round, verdict: "caught".into(), by: "a::test".into(), seconds: 7 };
    let line = tried.line();
    let again = Tried::of(line.trim_end_matches('\n')).unwrap();
    assert_eq!((again.line(), again.seconds), (line, 7));
    assert!(Tried::of("some-bug\t00ff").is_none());
}

#[test]
fn the_first_test_that_fails_is_named() {
    assert_eq!(failing("test a ... ok\ntest b::c ... FAILED\ntest d ... FAILED\nerror: test failed"), "b::c");
    assert_eq!(
        failing("..F\nFAILED python/tests/test_x.py::test_y - assert"),
        "FAILED python/tests/test_x.py::test_y - assert"
    );
    assert_eq!(
        failing("x\nerror: test failed, to rerun pass `-p a`"),
        "error: test failed, to rerun pass `-p a`"
    );
    assert_eq!(failing(""), "its exit");
}
