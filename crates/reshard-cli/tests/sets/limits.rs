//! Limits that the system sets a process: on its threads and on the length of its files.

use crate::folder::{Folder, Outcome, PROGRAM};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A user who has no other processes, so that a limit on all of a user's threads is one on those of the program.
const NOBODY: u32 = 65534;

/// Runs the program as a user who may have so many threads in all; none where this process may not become that user.
fn with_threads(folder: &Folder, threads: u32, command: &str) -> Option<Outcome> {
    let user = NOBODY.to_string();
    let limit = format!("--nproc={threads}");
    let by = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "prlimit", &limit];
    let may = Command::new(by[0]).args(&by[1..]).arg("/bin/true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("this process cannot become another user, so a limit on threads is not tested");
        return None;
    }
    let mut all = vec!["timeout", "1200"];
    all.extend(by);
    all.push(PROGRAM);
    Some(folder.run_by(&all, command))
}

/// Where no thread can be made, the one that is there does all of it.
#[test]
fn sets_are_written_where_no_threads_can_be_made() {
    let folder = Folder::new("limits-threads");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    for (number, command) in [
        "make made --shape 800x700 --layout 4x4/64x64",
        "verify made",
        "convert made new --to 3x3/50x50 --threads 8",
        "convert made turned --to 3x3/50x50|memory=row --threads 8",
        "verify turned",
        "convert made many --to 5x5/50x50 --transpose --threads 8 --box-bytes 1000000",
        "verify many",
    ]
    .iter()
    .enumerate()
    {
        // One is the program; of a second one more than the first box may be left.
        for threads in [1, 2] {
            let Some(outcome) = with_threads(&folder, threads, command) else { return };
            assert_eq!(outcome.code, 0, "{number} with {threads}: {outcome}");
            let new = command.split(' ').nth(if command.starts_with("convert") { 2 } else { 1 }).unwrap();
            if threads == 1 && !command.starts_with("verify") {
                folder.remove(new);
            }
        }
    }
}

/// Engines need the threads that were asked for, and say so.
#[test]
fn threads_that_cannot_be_made_are_named() {
    let folder = Folder::new("limits-engines");
    for command in [
        "run --from 2x2/8x8 --to 4x1/8x8 --shape 600x600 --engine threads --threads 8",
        "run --from 2x2/8x8 --to 4x1/8x8 --shape 600x600 --engine messages",
    ] {
        let Some(outcome) = with_threads(&folder, 1, command) else { return };
        outcome.refused(1, "could not be started: Resource temporarily unavailable");
    }
}

/// The signal that ends programs at the limit is ignored: the call says no, and a sentence what to do.
#[test]
fn files_that_may_not_be_so_long_are_named() {
    let folder = Folder::new("limits-length");
    folder.good("make source --shape 400x300 --layout 2x2/8x8");
    let convert = "convert source new --to 3x1/7x9";
    let make = "make made --shape 400x300 --layout 2x2/8x8";
    for command in [convert, make] {
        let outcome = folder.run_by(&["prlimit", "--fsize=100000", "timeout", "1200", PROGRAM], command);
        outcome.refused(1, "allow more with `ulimit -f`");
    }
    folder.good(&format!("{convert} --resume"));
    folder.good("verify new");
    folder.good(make);
    assert!(folder.partial().is_empty());
}
