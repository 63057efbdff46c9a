//! The instruction set level as an option of engines: every level of this processor gives the same result, others are refused.

use super::arrays::plan_of;
use super::sizes::pairs;
use reshard::engine::{Engine, Level, Messages, MessagesOptions, Threads, ThreadsOptions};
use reshard::rank::{messages, own_tasks, shared_tasks, staged_copy};
use reshard::{ErrorKind, Redistribution};
use reshard_testkit::conformance::Case;
use std::sync::Arc;

const NAMES: [&str; 4] = ["portable", "avx2", "avx512", "avx512vbmi"];

fn all() -> Vec<Level> {
    NAMES.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn every_level_moves_the_same() {
    for (number, moving) in pairs().into_iter().enumerate() {
        for level in Level::available() {
            for elem in [1, 2, 4, 8, 16] {
                let moving = moving.clone().of_bytes(elem).unwrap();
                let case = Case { moving, skew: [number, 3], salt: number as u64, equal_copies: false };
                let plan = plan_of(&case.moving);
                let threads = ThreadsOptions::default().with_threads(2).with_level(level);
                let sent = MessagesOptions::default().with_level(level);
                let engines: [Box<dyn Engine>; 2] = [
                    Box::new(Threads::with_options(Arc::clone(&plan), threads).unwrap()),
                    Box::new(Messages::new(plan, sent).unwrap()),
                ];
                for engine in engines {
                    case.judge(|_, from, to| {
                        Redistribution::with_boxed(engine).run_bytes(from, to).unwrap();
                    });
                }
            }
        }
    }
}

#[test]
fn levels_have_names_and_one_is_the_best() {
    let available = Level::available();
    assert_eq!(all().iter().map(Level::to_string).collect::<Vec<_>>(), NAMES);
    assert_eq!((available.first(), available.last()), (Some(&Level::Portable), Some(&Level::best())));
    assert!(all().into_iter().all(|level| level.is_supported() == available.contains(&level)));
    for wrong in ["", "AVX2", "avx", "neon"] {
        let error = wrong.parse::<Level>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Notation);
        assert_eq!(
            error.to_string(),
            format!(
                "there is no instruction set level `{wrong}`; choose one of portable, avx2, avx512, avx512vbmi"
            )
        );
    }
}

/// Nothing panics: whoever is given a level that the processor lacks says so.
#[test]
fn a_level_that_the_processor_lacks_is_refused() {
    let plan = plan_of(&pairs()[0]);
    for level in all() {
        let sent = MessagesOptions::default().with_level(level);
        let outcomes = [
            Threads::with_options(Arc::clone(&plan), ThreadsOptions::default().with_level(level)).map(|_| ()),
            Messages::new(Arc::clone(&plan), sent).map(|_| ()),
            messages(&plan, 0, &sent, 1000).map(|_| ()),
            staged_copy(&plan, 0, 1000, Some(level)).map(|_| ()),
            own_tasks(&plan, 0, Some(level)).map(|_| ()),
            shared_tasks(&plan, 2, None, Some(level)).map(|_| ()),
        ];
        for outcome in outcomes {
            let lacks = format!(
                "the instruction set level `{level}` was given, and this processor does not have it; choose one of "
            );
            match outcome {
                Ok(()) => assert!(level.is_supported()),
                Err(error) => {
                    assert!(!level.is_supported() && error.kind() == ErrorKind::Unsupported);
                    assert!(error.to_string().starts_with(&lacks), "{error}");
                }
            }
        }
    }
}
