//! What `reshard serve` refuses, byte by byte as somebody could send it.

use super::PROGRAM;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The server, ended when it is dropped.
struct Served {
    child: Child,
    address: String,
    token: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn served(arguments: &[&str]) -> Served {
    let mut child = Command::new(PROGRAM)
        .arg("serve")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let (address, token) = url.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (address, token) = (address.to_string(), token.trim_end_matches('/').to_string());
    Served { child, address, token }
}

impl Served {
    /// The status of the answer to these bytes, and the whole answer; 0 if the connection was closed without one.
    fn sent(&self, bytes: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1200))).unwrap();
        // It may refuse before it has read all.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).to_string();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, answer)
    }

    fn got(&self, path: &str, headers: &str) -> (u16, String) {
        self.sent(
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n", self.address)
                .as_bytes(),
        )
    }
}

#[test]
fn the_page_and_plans_are_served() {
    let served = served(&["4x4/64x64", "2x8/50x30", "--shape", "512x480"]);
    let (status, page) = served.got(&format!("/{}/", served.token), "");
    assert!(status == 200 && page.contains("4x4/64x64") && page.contains("no-store"), "{page}");
    let plan = format!("/{}/plan", served.token);
    let (status, answer) = served.got(&format!("{plan}?from=4%2F3&to=2%2F5&shape=60"), "");
    assert!(status == 200 && answer.contains("\"layout\":\"4/3\""), "{answer}");
    let (status, answer) = served.got(&format!("{plan}?from=4x4%2F64&to=2%2F5"), "");
    assert!(
        status == 200 && answer.contains("\"field\":\"from\"") && answer.contains("another block size"),
        "{answer}"
    );
    // Its own page asks with an origin.
    assert_eq!(
        served
            .got(&format!("{plan}?from=4%2F3&to=2%2F5"), &format!("Origin: http://{}\r\n", served.address))
            .0,
        200
    );
}

#[test]
fn everything_else_is_refused() {
    let served = served(&[]);
    let home = format!("/{}/", served.token);
    let wrong = served.token.replace(|c: char| c.is_ascii_hexdigit(), "0");
    // Another token, none, a part of it; paths outside.
    let paths = [
        "/".to_string(),
        format!("/{wrong}/"),
        format!("/{}", &served.token[..8]),
        format!("{home}other"),
        format!("{home}../"),
        format!("{home}plan/x"),
        "/../../etc/passwd".to_string(),
    ];
    for path in paths {
        let (status, answer) = served.got(&path, "");
        assert!(status == 404, "{path}: {answer}");
        assert!(!answer.contains(&served.token), "{path} tells the token");
    }
    // Another page, or another name for this machine.
    assert_eq!(served.got(&home, "Origin: http://evil.example\r\n").0, 403);
    assert_eq!(served.got(&home, "Origin: null\r\n").0, 403);
    for host in ["evil.example", "127.0.0.1", "localhost:1", ""] {
        let (status, answer) = served
            .sent(format!("GET {home} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        assert!(status == 403 || status == 400, "{host}: {answer}");
    }
    let without = format!("GET {home} HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!([400, 403].contains(&served.sent(without.as_bytes()).0));
    // Bodies, other methods, headers without end, no HTTP at all.
    let head = |method: &str, more: &str| {
        format!("{method} {home} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{more}\r\n", served.address)
    };
    assert_eq!(served.sent((head("GET", "Content-Length: 5\r\n") + "hello").as_bytes()).0, 413);
    assert_eq!(
        served.sent((head("GET", "Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n").as_bytes()).0,
        413
    );
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        assert_eq!(served.sent(head(method, "").as_bytes()).0, 405, "{method}");
    }
    let long = head("GET", &format!("X-Long: {}\r\n", "a".repeat(1 << 20)));
    assert!([0, 431].contains(&served.sent(long.as_bytes()).0));
    let url =
        format!("GET {home}plan?from={} HTTP/1.1\r\nHost: {}\r\n\r\n", "1".repeat(1 << 20), served.address);
    assert!([0, 414, 431].contains(&served.sent(url.as_bytes()).0));
    assert!([0, 400].contains(&served.sent(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").0));
    // It is still there.
    assert_eq!(served.got(&home, "").0, 200);
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_out() {
    let served = served(&[]);
    // Far more than there is room for: the oldest makes room for each that comes, so the first were closed, and not for their age.
    let silent: Vec<TcpStream> = (0..96).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    assert_eq!(served.got(&format!("/{}/", served.token), "").0, 200);
    let is_open = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read = (&mut &**stream).read(&mut [0; 64]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let first = silent.iter().take(96 - 32).filter(is_open).count();
    assert_eq!(first, 0, "connections before the last 32 that are open");
    drop(silent);
}
