//! Addresses: of names, and by which others reach this process.

use crate::options::Options;
use reshard::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The addresses of a name.
pub fn resolve(address: &str) -> Result<Vec<SocketAddr>> {
    let wrong = |why: String| {
        Error::new(
            ErrorKind::OutOfRange,
            format!("the address was given as '{}'; give HOST:PORT: {why}", address.escape_debug()),
        )
    };
    let found: Vec<SocketAddr> =
        address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    if found.is_empty() { Err(wrong("it has no address".into())) } else { Ok(found) }
}

/// How other machines reach this process.
pub fn advertised(options: &Options, ip: IpAddr, port: u16) -> String {
    let host = match &options.advertise {
        Some(host) => host.clone(),
        None if ip.is_unspecified() => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            if name.trim().is_empty() { "localhost".into() } else { name.trim().to_string() }
        }
        None => ip.to_string(),
    };
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
