//! Several hosts on one machine: network namespaces, each with one link to a common switch.
//!
//! Processes in different namespaces reach each other over TCP only, and a link can be made as slow as one likes, both ways:
//! the one-port model of the scheduling papers, made real. It takes root, `ip` and `tc`; a machine that does not allow it
//! says so, and whoever asked goes without.
//!
//! Everything lives in namespaces named after this process, the switch included, and goes when [`Hosts`] goes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Long frames: few packets, so that two processors can serve sixteen hosts.
const MTU: u32 = 9000;

/// Namespaces that are hosts, numbered from 0.
#[derive(Debug)]
pub struct Hosts {
    name: String,
    count: usize,
    folder: PathBuf,
}

/// What a link lets through, each way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// In a second.
    pub megabits: u32,
}

impl Rate {
    /// Bytes a second that arrive, without the headers of Ethernet, IP and TCP.
    pub fn payload(self) -> f64 {
        let (headers, frame) = (40.0 + 12.0, 14.0);
        f64::from(self.megabits) * 1e6 / 8.0 * (f64::from(MTU) - headers) / (f64::from(MTU) + frame)
    }
}

impl Hosts {
    /// Makes `count` hosts; without a rate their links are as fast as the machine. On failure, says in words what is missing.
    pub fn up(count: usize, rate: Option<Rate>) -> Result<Self, String> {
        let name = format!("reshard{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        let hosts = Self { name, count, folder };
        // From here on, what was made is taken down again.
        std::fs::create_dir_all(&hosts.folder).map_err(|error| error.to_string())?;
        let switch = hosts.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        let mtu = MTU.to_string();
        ip(&["-n", &switch, "link", "set", "bridge", "mtu", &mtu, "up"])?;
        for host in 0..count {
            hosts.add(host, rate)?;
        }
        hosts.write_agent()?;
        Ok(hosts)
    }

    fn add(&self, host: usize, rate: Option<Rate>) -> Result<(), String> {
        let (switch, space) = (self.switch(), self.space(host));
        let (port, mtu) = (format!("port{host}"), MTU.to_string());
        ip(&["netns", "add", &space])?;
        let link = ["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space];
        ip(&[&["-n", &switch], &link[..]].concat())?;
        ip(&["-n", &space, "link", "set", "lo", "up"])?;
        ip(&["-n", &space, "address", "add", &format!("{}/24", self.address(host)), "dev", "eth0"])?;
        ip(&["-n", &switch, "link", "set", &port, "master", "bridge"])?;
        for (space, device) in [(&space, "eth0"), (&switch, port.as_str())] {
            // Packets as long as frames: a bucket of a few of them is enough.
            ip(&["-n", space, "link", "set", device, "mtu", &mtu, "gso_max_size", &mtu, "up"])?;
            if let Some(Rate { megabits }) = rate {
                let speed = format!("{megabits}mbit");
                let bucket = ["tbf", "rate", &speed, "burst", "18000", "limit", "8000000"];
                run("tc", &[&["-n", space, "qdisc", "add", "dev", device, "root"], &bucket[..]].concat())?;
            }
        }
        if rate.is_some() {
            // What a socket holds waits in the queue of a slow link, and answers wait behind it: little, as in real switches.
            let short = "echo 4096 65536 131072 > /proc/sys/net/ipv4/tcp_wmem";
            ip(&["netns", "exec", &space, "sh", "-c", short])?;
        }
        Ok(())
    }

    /// What launchers call instead of `ssh`: options, an address, a command.
    fn write_agent(&self) -> Result<(), String> {
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$((${{1##*.}} - 1)); shift\n\
             exec ip netns exec {name}-$host unshare --uts sh -c \"hostname host$host; $*\"\n",
            name = self.name
        );
        std::fs::write(self.agent(), script).map_err(|error| error.to_string())?;
        run("chmod", &["+x", &self.agent().to_string_lossy()])
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The program that starts another on a host, as `ssh` would.
    pub fn agent(&self) -> PathBuf {
        self.folder.join("agent")
    }

    /// Where a host is reached.
    pub fn address(&self, host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// All addresses of the hosts.
    pub fn network(&self) -> &'static str {
        "10.77.0.0/24"
    }

    /// Starts a program on a host.
    pub fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new(self.agent());
        command.arg(self.address(host)).arg(program);
        command
    }

    /// A launch of MPI, from the first host: `ranks[h]` processes on host `h`. `family` is "Open MPI" or "MPICH".
    pub fn launch(&self, launcher: &Path, family: &str, ranks: &[usize]) -> Command {
        let places: Vec<String> =
            ranks.iter().enumerate().map(|(host, ranks)| format!("{}:{ranks}", self.address(host))).collect();
        let (places, all) = (places.join(","), ranks.iter().sum::<usize>().to_string());
        let agent = self.agent().to_string_lossy().into_owned();
        let mut command = self.command(0, launcher);
        match family {
            "Open MPI" => {
                command.args(["--allow-run-as-root", "--mca", "plm_rsh_agent", &agent]);
                for name in ["btl_tcp_if_include", "oob_tcp_if_include"] {
                    command.args(["--mca", name, self.network()]);
                }
                // All hosts are one machine, which may well have fewer processors than there are ranks.
                command.args(["--bind-to", "none"]);
                command.args(["--mca", "mpi_yield_when_idle", "1", "--host", &places]);
            }
            _ => {
                command.args(["-launcher", "rsh", "-launcher-exec", &agent, "-hosts", &places]);
            }
        }
        command.args(["-n", &all]);
        command
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn space(&self, host: usize) -> String {
        format!("{}-{host}", self.name)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for space in (0..self.count).map(|host| self.space(host)).chain([self.switch()]) {
            // Some may not have been made.
            let _ = ip(&["netns", "delete", &space]);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.megabits)
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let what = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", what()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", what(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
