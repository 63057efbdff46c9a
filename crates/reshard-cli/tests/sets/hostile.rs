//! Sets of strangers: hostile.txt has manifests whose checksums are right, for anybody can work one out. Each is refused with one sentence, in
//! bounded time and memory, and nothing outside of the directory is opened.

use crate::folder::{Folder, PROGRAM, tracer};
use reshard_shards::Digest;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

/// Memory that the program may ask for: more than the longest manifest, by far less than what is claimed.
const MEMORY_KIB: u64 = 700 << 10;

/// What a line of the data means, in bytes.
fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((count, after)) = rest.strip_prefix("<<").and_then(|rest| rest.split_once('*')) {
            let (repeated, after) = after.split_once(">>").unwrap();
            bytes.extend(bytes_of(repeated).repeat(count.parse().unwrap()));
            rest = after;
        } else if let Some(escaped) = rest.strip_prefix('\\') {
            let (byte, after) = match escaped.split_at(1) {
                ("n", after) => (b'\n', after),
                ("0", after) => (0, after),
                ("x", after) => (u8::from_str_radix(&after[..2], 16).unwrap(), &after[2..]),
                ("\\", after) => (b'\\', after),
                _ => panic!("{text}"),
            };
            bytes.push(byte);
            rest = after;
        } else {
            bytes.extend(first.to_string().bytes());
            rest = &rest[first.len_utf8()..];
        }
    }
    bytes
}

fn position(text: &[u8], part: &[u8]) -> usize {
    text.windows(part.len())
        .position(|window| window == part)
        .unwrap_or_else(|| panic!("no {}", String::from_utf8_lossy(part)))
}

/// A manifest with another text in the place of one, and its right checksum.
fn changed(good: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = position(good, from);
    let text = [&good[..at], to, &good[at + from.len()..]].concat();
    sealed(&text)
}

/// A manifest with its right checksum.
fn sealed(text: &[u8]) -> Vec<u8> {
    const CHECKSUM: &[u8] = b"\n  \"checksum\": \"";
    let end = position(text, CHECKSUM) + CHECKSUM.len();
    [&text[..end], Digest::of(&text[..end]).to_string().as_bytes(), b"\"\n}\n"].concat()
}

/// A good set with all that may stand in the place of a shard.
fn set() -> (Folder, Vec<u8>, UnixListener) {
    let folder = Folder::new(&format!("hostile-{:?}", std::thread::current().id()));
    folder.good("make set --shape 6 --layout 2/3 --seed 7");
    std::fs::copy(folder.path("set/rank_0001.npy"), folder.path("secret.npy")).unwrap();
    std::fs::create_dir(folder.path("set/inner")).unwrap();
    std::fs::copy(folder.path("secret.npy"), folder.path("set/inner/rank_0001.npy")).unwrap();
    for (name, to) in [
        ("link.npy", "../secret.npy"),
        ("link-to-directory", "inner"),
        ("link-to-nothing", "nothing"),
        ("link-to-zero", "/dev/zero"),
    ] {
        symlink(to, folder.path("set").join(name)).unwrap();
    }
    let run = |program: &str, words: &[&str]| {
        Command::new(program).args(words).current_dir(folder.path("set")).status().unwrap().success()
    };
    assert!(run("mkfifo", &["pipe.npy"]));
    if !run("mknod", &["device.npy", "c", "1", "5"]) {
        println!("no device can be made here: a link stands in its place");
        symlink("/dev/zero", folder.path("set/device.npy")).unwrap();
    }
    let socket = UnixListener::bind(folder.path("set/socket.npy")).unwrap();
    let good = std::fs::read(folder.path("set/reshard.json")).unwrap();
    (folder, good, socket)
}

#[test]
fn hostile_manifests_are_refused() {
    let (folder, good, _socket) = set();
    folder.good("verify set");
    // The shell sets the limit, which the program inherits.
    let limit = format!("ulimit -v {MEMORY_KIB}; exec timeout 1200 \"$0\" \"$@\"");
    let (mut refused, mut wrong) = (0, Vec::new());
    for line in include_str!("hostile.txt").lines().filter(|line| !line.starts_with('#')) {
        let [expected, from, to] = line.split(" | ").collect::<Vec<_>>().try_into().unwrap();
        let (from, to) = (bytes_of(from), bytes_of(to));
        std::fs::write(folder.path("set/reshard.json"), changed(&good, &from, &to)).unwrap();
        let outcome = folder.run_by(&["sh", "-c", &limit, PROGRAM], "show set");
        let device = expected == "is a device" && outcome.is_refused(1, "is a symbolic link");
        if !device && !outcome.is_refused(1, expected) {
            wrong.push(format!("{line:.100}: {outcome}"));
        }
        refused += 1;
    }
    assert!(refused >= 100 && wrong.is_empty(), "{wrong:#?}");
    println!("{refused} hostile manifests were refused");
}

#[test]
fn long_and_empty_manifests_are_refused() {
    let (folder, good, _socket) = set();
    let limit = format!("ulimit -v {MEMORY_KIB}; exec timeout 1200 \"$0\" \"$@\"");
    let show = || folder.run_by(&["sh", "-c", &limit, PROGRAM], "show set");
    let path = folder.path("set/reshard.json");
    for (length, expected) in
        [(100 << 20, "at most 67108864"), (1 << 45, "at most 67108864"), (0, "does not begin")]
    {
        std::fs::File::create(&path).unwrap().set_len(length).unwrap();
        show().refused(1, expected);
    }
    // The longest that is read: spaces before the list of files.
    let most = 64 << 20;
    for (length, expected) in [(most, None), (most + 1, Some("at most 67108864"))] {
        let spaces = vec![b' '; length - good.len()];
        let at = position(&good, b"\"files\"");
        let long = sealed(&[&good[..at], &spaces, &good[at..]].concat());
        assert_eq!(long.len(), length);
        std::fs::write(&path, long).unwrap();
        match expected {
            Some(expected) => show().refused(1, expected),
            None => assert_eq!(show().code, 0, "{}", show()),
        }
    }
    // Any other file, and any part of a good one.
    for bytes in [&b"\xff\xfe"[..], b"null", b"{}", b"\x93NUMPY", &good[..good.len() / 2], &good[1..]] {
        std::fs::write(&path, bytes).unwrap();
        show().refused(1, "the manifest");
    }
}

/// Every flip of a single bit of a manifest, and of the header of a file, is noticed by whoever opens the set or reads it.
#[test]
fn flips_of_single_bits_are_noticed() {
    let (folder, good, _socket) = set();
    let path = folder.path("set");
    let verified = || reshard_shards::ShardSet::open(&path).and_then(|set| set.verify(|_, _| {}));
    assert!(verified().is_ok());
    for (name, bytes) in [("reshard.json", good), ("rank_0000.npy", folder.bytes_of("set/rank_0000.npy"))] {
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(path.join(name), &flipped).unwrap();
            assert!(verified().is_err(), "bit {bit} of {name}");
        }
        std::fs::write(path.join(name), &bytes).unwrap();
    }
    assert!(verified().is_ok());
}

/// What is opened after the directory of a set is opened in it, by a name of one component; before it, nothing of the user's is opened.
#[test]
fn nothing_outside_of_the_directory_is_opened() {
    let Some(tracer) = tracer() else { return };
    let (folder, good, _socket) = set();
    let to = |name: &str| changed(&good, b"rank_0001.npy", name.as_bytes());
    let names = [
        "../secret.npy",
        "/etc/passwd",
        "inner/rank_0001.npy",
        "link.npy",
        "link-to-zero",
        "pipe.npy",
        "device.npy",
        "rank_0001.npy",
    ];
    for name in names {
        std::fs::write(folder.path("set/reshard.json"), to(name)).unwrap();
        for command in ["show set", "verify set", "convert set new --to 1/6"] {
            let calls = folder.calls(tracer, "open,openat,openat2", command);
            let mut set_is_open = false;
            for call in &calls {
                let (_, place) = call.split_once(' ').unwrap();
                match place {
                    "here set" => set_is_open = true,
                    // The directory of the destination.
                    "here ." => {
                        assert!(command.starts_with("convert") && name == "rank_0001.npy", "{calls:?}");
                    }
                    place => {
                        let inside = place.strip_prefix("inside ").unwrap_or("/");
                        let plain = !inside.contains('/') && inside != "..";
                        assert!(set_is_open && plain, "{call} of {command}, {name}");
                        let refused = inside == name && name != "rank_0001.npy";
                        assert!(!refused, "{call} of {command}");
                    }
                }
            }
            assert!(set_is_open, "{calls:?}");
            let complete = name == "rank_0001.npy" && command.starts_with("convert");
            assert_eq!(folder.path("new").exists(), complete, "{name}");
        }
    }
}
