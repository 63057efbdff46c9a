//! Which machine a result was taken on: a number without it says little.

use serde::Serialize;

/// What the operating system says of this machine.
#[derive(Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub os: &'static str,
    pub arch: &'static str,
}

impl Machine {
    pub fn here() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let cpu = match (named("model name"), named("model\t")) {
            (Some(name), Some(model)) => format!("{name}, model {model}"),
            (Some(name), None) => name,
            _ => "unknown".to_string(),
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { cpu, cores, os: std::env::consts::OS, arch: std::env::consts::ARCH }
    }
}
