//! Which machine a result was taken on: a number without it says little. And what all benchmarks share.

use serde::Serialize;

/// Why a benchmark could not be run.
pub type Failure = Box<dyn std::error::Error>;

/// Shows a report, and keeps it in `docs` and its numbers in `benchmarks/results`.
pub fn keep(name: &str, results: &impl Serialize, text: &str) -> Result<(), Failure> {
    println!("{text}");
    let (numbers, report) = (format!("benchmarks/results/{name}.json"), format!("docs/{name}-speed.md"));
    std::fs::create_dir_all("benchmarks/results")?;
    std::fs::write(&numbers, serde_json::to_string_pretty(results)? + "\n")?;
    std::fs::write(&report, text)?;
    eprintln!("written: {numbers}, {report}");
    Ok(())
}

/// The middle one of some timings; `None` of none.
pub fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// What the operating system says of this machine.
#[derive(Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub os: &'static str,
    pub arch: &'static str,
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores, {} {}", self.cpu, self.cores, self.os, self.arch)
    }
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
