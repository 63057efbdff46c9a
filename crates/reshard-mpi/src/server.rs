//! The server that Open MPI 3 and 4 need to join jobs that were launched apart. `mpirun` names it to its processes; without one,
//! one job would fail and the other would wait for ten minutes, so it is looked for first.

use crate::launch::Family;
use reshard_plan::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The variable by which `mpirun --ompi-server` names it: its address, or `file:` and where that stands.
const VARIABLE: &str = "OMPI_MCA_pmix_server_uri";

/// How long an attempt to reach it may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// What to do without it.
const ADVICE: &str = "start `ompi-server --no-daemonize -r FILE` and give both launches `mpirun --ompi-server file:FILE`, or meet over TCP";

/// The server of this library under this launcher, if it is known to need one; an error if it needs one that is not there.
pub fn joining_server(version: &str, launcher: Option<Family>) -> Result<Option<String>> {
    let needed = ["Open MPI 3.", "Open MPI 4."].iter().any(|begin| version.starts_with(begin));
    if !needed || launcher == Some(Family::Pmi) {
        return Ok(None);
    }
    let Some(said) = std::env::var(VARIABLE).ok().filter(|said| !said.is_empty()) else {
        return Err(Error::new(
            ErrorKind::External,
            format!(
                "{version} joins jobs that were launched apart only through its server, and this one was launched without; {ADVICE}"
            ),
        ));
    };
    let address = match said.strip_prefix("file:") {
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => text.lines().next().unwrap_or_default().trim().to_string(),
            // `mpirun` has read it, perhaps on another machine.
            Err(_) => return Ok(None),
        },
        None => said,
    };
    let places = places(&address);
    let answers = |place: &SocketAddr| TcpStream::connect_timeout(place, ATTEMPT).is_ok();
    if !places.is_empty() && !places.iter().any(answers) {
        return Err(Error::new(
            ErrorKind::External,
            format!(
                "{version} joins jobs that were launched apart only through its server, and none answers at {address}; {ADVICE}"
            ),
        ));
    }
    Ok(Some(address))
}

/// The places in an address such as `604700672.0;tcp://10.0.0.2,10.1.0.2:45481;tcp6://[fd00::2]:41447`. Of what is not understood, none.
fn places(address: &str) -> Vec<SocketAddr> {
    let mut places = Vec::new();
    for part in address.split(';') {
        let Some((hosts, port)) = part
            .split_once("://")
            .and_then(|(kind, rest)| kind.starts_with("tcp").then_some(rest)?.rsplit_once(':'))
        else {
            continue;
        };
        for host in hosts.trim_matches(['[', ']']).split(',') {
            let Ok(port) = port.parse::<u16>() else { continue };
            places.extend((host, port).to_socket_addrs().into_iter().flatten());
        }
    }
    places
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers_are_read() {
        let all = places("604700672.0;tcp://10.0.0.2,10.1.0.2:45481;tcp6://[fd00::2]:41447");
        let expected = ["10.0.0.2:45481", "10.1.0.2:45481", "[fd00::2]:41447"];
        assert_eq!(all, expected.map(|place| place.parse().unwrap()));
        for none in ["", "604700672.0", "x://1:2", "tcp://1.2.3.4:many", "tcp://"] {
            assert_eq!(places(none), [], "{none}");
        }
    }

    #[test]
    fn only_some_need_one() {
        assert_eq!(joining_server("MPICH 4.0.2", Some(Family::Pmi)).unwrap(), None);
        assert_eq!(joining_server("Open MPI 5.0.8", Some(Family::OpenMpi)).unwrap(), None);
    }
}
