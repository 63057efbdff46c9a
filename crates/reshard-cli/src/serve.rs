//! `reshard serve`: the page of `explain --html` with the planner behind it, so that other layouts can be typed.
//!
//! It listens on the loopback unless asked otherwise. Its URL has a random token that no other page of the browser knows; requests that name
//! another host, come from another page, have a body, or ask for anything else are refused. HTTP is hyper's.

mod answers;
mod silent;

use crate::args;
use crate::failure::Failure;
use crate::json;
use crate::screen::Screen;
use answers::Site;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use silent::Silent;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The most connections at a time.
const CONNECTIONS: usize = 32;
/// The most bytes of a request, all headers together.
const REQUEST_BYTES: usize = 16 << 10;
/// How long a connection may last, planning included.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a request may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result, with the keys that scripts depend on.
#[derive(Serialize)]
struct Served {
    url: String,
}

pub fn run(args: &args::Serve) -> Result<(), Failure> {
    let mut token = [0; 16];
    getrandom::fill(&mut token)
        .map_err(|error| Failure::failed(format!("the system gives no random numbers: {error}")))?;
    let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let (listener, at) = listen(args)?;
    let url = format!("http://{at}/{token}/");
    // The first page is made at once, so that wrong layouts are said here.
    let site = Arc::new(Site::new(&args.timed, token, at, args.bind.is_unspecified())?);
    let mut screen = Screen::new();
    if args.json {
        json::write(&mut screen, &Served { url })?;
    } else {
        writeln!(screen.out, "{url}")?;
    }
    screen.out.flush()?;
    drop(screen);
    // Whoever reads it may be gone; the page is there all the same.
    let whose = if args.bind.is_loopback() { "on this machine" } else { "that reaches this address" };
    let _ = writeln!(std::io::stderr(), "open this page in a browser {whose}; Ctrl-C ends it");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(serve(listener, site))?)
}

fn listen(args: &args::Serve) -> Result<(TcpListener, SocketAddr), Failure> {
    let wanted = SocketAddr::new(args.bind, args.port);
    let listener = TcpListener::bind(wanted)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| {
            Failure::failed(format!("{wanted} cannot be listened at: {error}; give another --port or --bind"))
        })?;
    let at = listener.local_addr()?;
    // All addresses of the machine: the URL names one of them.
    let named = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    Ok((listener, SocketAddr::new(named, at.port())))
}

async fn serve(listener: TcpListener, site: Arc<Site>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let silent = Arc::new(Silent::default());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Too many files are open, or the other side was gone again: others may still come.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Connections that hold a place without a request give it up for new ones, which may be the browser's.
        if room.available_permits() == 0 {
            silent.end_oldest();
        }
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let (site, number) = (Arc::clone(&site), silent.next_number());
        let spoken = Arc::clone(&silent);
        let task = tokio::spawn(async move {
            let reached = stream.local_addr().ok();
            let heard = Arc::clone(&spoken);
            let answer = service_fn(move |request| {
                heard.remove(number);
                Arc::clone(&site).answer(request, reached)
            });
            let mut connection = http1::Builder::new();
            connection
                .max_buf_size(REQUEST_BYTES)
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false);
            // A connection that breaks is the browser's business; one that does not take its answer is ended.
            let served = connection.serve_connection(TokioIo::new(stream), answer);
            let _ = tokio::time::timeout(LONGEST, served).await;
            spoken.remove(number);
            drop(place);
        });
        silent.add(number, task.abort_handle());
    }
}
