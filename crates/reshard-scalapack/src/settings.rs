//! What the environment says: `RESHARD_SCALAPACK`, `RESHARD_ERRORS`, `RESHARD_DEADLINE`, `RESHARD_LEVEL`.

use reshard::engine::Level;
use std::sync::OnceLock;
use std::time::Duration;

/// Settings for the life of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Everything is forwarded to the library that this one stands in front of.
    pub off: bool,
    /// Every call is reported, and totals at the end.
    pub report: bool,
    /// What the reference accepts silently is an error.
    pub strict: bool,
    /// Errors are kept, and the call returns; otherwise they end the job.
    pub errors_return: bool,
    /// How long a process waits for the others; none: as long as it takes, as in the reference.
    pub deadline: Option<Duration>,
    pub level: Option<Level>,
    /// For tests: the way that calls take, whatever their size.
    pub only: Option<Only>,
}

/// A way to move small matrices, if it is not a gather in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// One collective of MPI, as between nodes.
    Collective,
    /// The engine, as large ones.
    Engine,
}

impl Settings {
    /// The settings of this process. What is not understood is said once, and left out.
    pub fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let (settings, wrong) = Self::of(|name| std::env::var(name).ok());
            for text in wrong {
                crate::errors::say(&text);
            }
            settings
        })
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut settings = Self::default();
        let mut wrong = Vec::new();
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        for word in given("RESHARD_SCALAPACK").unwrap_or_default().split(',').map(str::trim) {
            match word {
                "" => {}
                "off" => settings.off = true,
                "report" => settings.report = true,
                "strict" => settings.strict = true,
                _ => wrong.push(format!(
                    "RESHARD_SCALAPACK has the word `{word}`; it is a list of off, report and strict"
                )),
            }
        }
        match given("RESHARD_ERRORS").as_deref() {
            None | Some("abort") => {}
            Some("return") => settings.errors_return = true,
            Some(other) => wrong.push(format!("RESHARD_ERRORS is `{other}`; it is abort or return")),
        }
        if let Some(text) = given("RESHARD_DEADLINE") {
            match text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                Some(time) if !time.is_zero() => settings.deadline = Some(time),
                _ => wrong.push(format!("RESHARD_DEADLINE is `{text}`; it is a number of seconds")),
            }
        }
        settings.only = match given("RESHARD_SCALAPACK_ONLY").as_deref() {
            Some("collective") => Some(Only::Collective),
            Some("engine") => Some(Only::Engine),
            _ => None,
        };
        if let Some(text) = given("RESHARD_LEVEL") {
            match text.parse::<Level>().and_then(|level| level.check().map(|()| level)) {
                Ok(level) => settings.level = Some(level),
                Err(error) => wrong.push(format!("RESHARD_LEVEL: {error}")),
            }
        }
        (settings, wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        Settings::of(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn settings_are_read() {
        assert_eq!(of(&[]), (Settings::default(), vec![]));
        let (settings, wrong) = of(&[
            ("RESHARD_SCALAPACK", "report, strict"),
            ("RESHARD_ERRORS", "return"),
            ("RESHARD_DEADLINE", "2.5"),
        ]);
        assert!(
            wrong.is_empty() && settings.report && settings.strict && settings.errors_return && !settings.off
        );
        assert_eq!(settings.deadline, Some(Duration::from_millis(2500)));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let (settings, wrong) = of(&[
            ("RESHARD_SCALAPACK", "off,quiet"),
            ("RESHARD_ERRORS", "maybe"),
            ("RESHARD_DEADLINE", "-1"),
            ("RESHARD_LEVEL", "sse9"),
        ]);
        assert_eq!((settings.off, wrong.len()), (true, 4), "{wrong:?}");
        assert!(
            wrong[0].contains("`quiet`") && wrong[1].contains("`maybe`") && wrong[2].contains("`-1`"),
            "{wrong:?}"
        );
    }
}
