//! What is asked for cannot be done: one sentence each, the right exit code, and nothing left behind.

use crate::folder::{Folder, PROGRAM};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

#[test]
fn destinations_that_cannot_be() {
    let folder = Folder::new("destinations");
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    std::fs::write(folder.path("file"), b"precious").unwrap();
    std::fs::create_dir(folder.path("folder")).unwrap();
    symlink("nowhere", folder.path("dangling")).unwrap();
    symlink("source", folder.path("link")).unwrap();
    let long = "n".repeat(250);
    let before = folder.path("").read_dir().unwrap().count();
    let cases = [
        ("file", "exists already"),
        ("folder", "exists already"),
        ("folder/", "exists already"),
        ("dangling", "exists already"),
        ("link", "exists already"),
        ("source", "lies in the source"),
        ("./source", "lies in the source"),
        ("source/new", "lies in the source"),
        ("link/new", "lies in the source"),
        ("folder/../source/new", "lies in the source"),
        ("file/new", "make it first"),
        ("no/such/new", "make it first"),
        ("dangling/new", "make it first"),
        ("..", "give a name that does not exist yet"),
        ("folder/..", "give a name that does not exist yet"),
        ("/", "give a name that does not exist yet"),
        (&long, "File name too long"),
        ("/proc/new", "nothing can be written beside it"),
    ];
    for resume in ["", " --resume"] {
        for (destination, expected) in cases {
            let command = format!("convert source {destination} --to 3x1/7x9{resume}");
            folder.run(&command).refused(1, expected);
            assert_eq!(folder.path("").read_dir().unwrap().count(), before, "{command}");
        }
    }
    // A run is not continued in a directory that is no run's.
    std::fs::write(folder.path("folder/.journal"), b"00000000 x\n").unwrap();
    folder.run("convert source folder --to 3x1/7x9 --resume").refused(1, "exists already");
    assert_eq!(std::fs::read(folder.path("folder/.journal")).unwrap(), b"00000000 x\n");
    assert_eq!(std::fs::read(folder.path("file")).unwrap(), b"precious");
    folder.good("verify source");
}

#[test]
fn sources_that_cannot_be() {
    let folder = Folder::new("sources");
    folder.good("make good --shape 40x30 --layout 2x2/8x8");
    std::fs::write(folder.path("file"), b"").unwrap();
    std::fs::create_dir(folder.path("empty")).unwrap();
    let damaged = |name: &str, damage: &dyn Fn(PathBuf)| {
        std::fs::create_dir(folder.path(name)).unwrap();
        for (file, bytes) in folder.files("good").unwrap() {
            std::fs::write(folder.path(name).join(file), bytes).unwrap();
        }
        damage(folder.path(name).join("rank_0002.npy"));
    };
    let bytes = folder.files("good").unwrap()["rank_0002.npy"].clone();
    let replaced = |from: &str, to: &str| {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
    };
    damaged("missing", &|file| std::fs::remove_file(file).unwrap());
    damaged("cut", &|file| std::fs::write(file, &bytes[..bytes.len() - 1]).unwrap());
    damaged("longer", &|file| std::fs::write(file, [&bytes[..], b"x"].concat()).unwrap());
    damaged("type", &|file| std::fs::write(file, replaced("<f8", "<i8")).unwrap());
    damaged("order", &|file| std::fs::write(file, replaced("True,", "False")).unwrap());
    damaged("shape", &|file| std::fs::write(file, replaced("(16, 16)", "( 8, 32)")).unwrap());
    damaged("folder", &|file| {
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(file).unwrap();
    });
    damaged("link", &|file| {
        std::fs::remove_file(&file).unwrap();
        symlink("../good/rank_0002.npy", file).unwrap();
    });
    damaged("pipe", &|file| {
        std::fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
    });
    damaged("no-manifest", &|file| std::fs::remove_file(file.with_file_name("reshard.json")).unwrap());
    damaged("pipe-manifest", &|file| {
        let manifest = file.with_file_name("reshard.json");
        std::fs::remove_file(&manifest).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&manifest).status().unwrap().success());
    });
    damaged("nothing-manifest", &|file| {
        std::fs::write(file.with_file_name("reshard.json"), b"").unwrap();
    });
    for (source, expected) in [
        ("missing", "rank_0002.npy"),
        ("cut", "it was cut off or changed"),
        ("longer", "it was cut off or changed"),
        ("type", "has the type i64, but its manifest says f64"),
        ("order", "rank_0002.npy"),
        ("shape", "has the shape 8x32, but its manifest says 16x16"),
        ("folder", "is a directory"),
        ("link", "is a symbolic link"),
        ("pipe", "is a pipe"),
        ("no-manifest", "is no set of shards"),
        ("pipe-manifest", "is a pipe"),
        ("nothing-manifest", "does not begin as one does"),
        ("empty", "is no set of shards"),
        ("absent", "cannot be opened"),
        ("absent.npy", "there is no absent.npy"),
    ] {
        for command in ["verify SOURCE", "show SOURCE", "convert SOURCE new --to 3x1/7x9"] {
            folder.run(&command.replace("SOURCE", source)).refused(1, expected);
            assert!(!folder.path("new").exists() && folder.partial().is_empty(), "{source}");
        }
    }
    for command in ["verify file", "show file", "convert file new --to 3x1/7x9"] {
        folder.run(command).refused(1, "./file has no header that says the type");
    }
    folder.run("convert good new --to 3x1x1/7x9x2").refused(2, "--to");
}

/// A set has more files than a process may have open from the start: the program asks for more, and says so where there are none.
#[test]
fn many_files() {
    let folder = Folder::new("many-files");
    let limited = |limit: &str, command: &str| {
        let script = format!("ulimit {limit} 100; exec timeout 60 \"$0\" \"$@\"");
        folder.run_by(&["sh", "-c", &script, PROGRAM], command)
    };
    let commands = [
        "make many --shape 600 --layout 200/2",
        "verify many",
        "show many",
        "convert many new --to 150/3",
        "convert many new --to 150/3 --resume",
    ];
    for command in commands {
        if command.starts_with("make") {
            limited("-n", command).refused(1, "allow more with `ulimit -n`, then begin again");
            assert_eq!(limited("-S -n", command).code, 0, "{}", limited("-S -n", command));
        } else {
            limited("-n", command).refused(1, "allow more with `ulimit -n`");
        }
    }
    let one = "convert many one --to 1/600";
    assert_eq!(limited("-S -n", one).code, 0, "{}", limited("-S -n", one));
    limited("-n", "convert one new --to 150/3")
        .refused(1, "allow more with `ulimit -n`, then continue with --resume");
    folder.good("convert one new --to 150/3 --resume");
    folder.good("verify new");
}

/// Nobody may read one shard, nor write beside a destination. Root may do everything, so the program runs as somebody else.
#[test]
fn what_is_not_permitted() {
    let folder = Folder::new("permitted");
    let program = folder.path("reshard");
    std::fs::copy(PROGRAM, &program).unwrap();
    let program = program.to_str().unwrap().to_string();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "timeout", "1200", &program];
    let plain = ["timeout", "1200", &program[..]];
    let is_root = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let by = if is_root.unwrap() { &nobody[..] } else { &plain[..] };
    let tried = folder.run_by(by, "--version");
    if tried.code != 0 {
        println!(
            "no other user can run the program here, so permissions are not tested: {}",
            tried.said.trim_end()
        );
        return;
    }
    let allow = |name: &str, mode| {
        std::fs::set_permissions(folder.path(name), Permissions::from_mode(mode)).unwrap();
    };
    folder.good("make source --shape 40x30 --layout 2x2/8x8");
    std::fs::create_dir(folder.path("closed")).unwrap();
    std::fs::create_dir(folder.path("open")).unwrap();
    allow("closed", 0o555);
    allow("open", 0o777);
    let convert = "convert source DESTINATION --to 3x1/7x9";
    let into = |destination: &str| convert.replace("DESTINATION", destination);
    folder.run_by(by, &into("closed/new")).refused(1, "nothing can be written beside it: Permission denied");
    folder.run_by(by, "make closed/new --shape 9 --layout 2/3").refused(1, "Permission denied");
    assert_eq!(folder.path("closed").read_dir().unwrap().count(), 0);
    // As it should be.
    let done = folder.run_by(by, &into("open/new"));
    assert_eq!(done.code, 0, "{done}");
    let verified = folder.run_by(by, "verify open/new");
    assert_eq!(verified.code, 0, "{verified}");
    allow("source/rank_0001.npy", 0o000);
    for command in [into("open/other"), "verify source".into(), "show source".into()] {
        folder.run_by(by, &command).refused(1, "rank_0001.npy");
        folder.run_by(by, &command).refused(1, "Permission denied");
    }
    allow("source/rank_0001.npy", 0o644);
    allow("source", 0o000);
    folder.run_by(by, "verify source").refused(1, "Permission denied");
    allow("source", 0o755);
    allow("closed", 0o755);
}
