//! The machine as Linux describes it; what it does not say is unknown.

use crate::run::request::available;
use serde::Serialize;
use std::fs::read_to_string;

/// Processor and memory.
#[derive(Serialize)]
pub struct Machine {
    pub processor: Option<String>,
    pub cores: usize,
    /// In bytes.
    pub memory_available: Option<u64>,
    /// In bytes.
    pub shared_memory_free: Option<u64>,
    /// When memory comes in huge pages: always, madvise or never.
    pub huge_pages: Option<String>,
    pub kernel: Option<String>,
}

impl Machine {
    pub fn look() -> Self {
        let text = |path: &str| read_to_string(path).ok().map(|text| text.trim().to_string());
        let processor = text("/proc/cpuinfo").and_then(|text| {
            let value = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(name))?;
                Some(line.split_once(':')?.1.trim().to_string())
            };
            let model = value("model\t").map_or(String::new(), |model| format!(" (model {model})"));
            Some(value("model name")? + &model)
        });
        let shared_memory_free =
            rustix::fs::statvfs("/dev/shm").ok().and_then(|shm| shm.f_bavail.checked_mul(shm.f_frsize));
        let huge_pages = text("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_string()));
        Self {
            processor,
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_available: available(),
            shared_memory_free,
            huge_pages,
            kernel: text("/proc/sys/kernel/osrelease"),
        }
    }
}
