//! Any text: the parser accepts or refuses it, never panics, and what it accepts prints and parses back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reshard_plan::notation::{parse_index, parse_shape};
use reshard_plan::{Distribution, Pattern};

fuzz_target!(|text: &str| {
    match text.parse::<Pattern>() {
        Ok(pattern) => assert_eq!(pattern.to_string().parse::<Pattern>().as_ref(), Ok(&pattern)),
        Err(error) => assert!(error.position().is_some_and(|at| at <= text.chars().count())),
    }
    if let Ok(distribution) = text.parse::<Distribution>() {
        assert_eq!(distribution.to_string().parse::<Distribution>().as_ref(), Ok(&distribution));
        // A few questions to whatever was described.
        if let Some(rank) = distribution.grid().rank_at(distribution.grid().size() - 1) {
            let elems = distribution.local_elems(rank);
            assert!(elems.is_ok_and(|elems| elems <= distribution.elems()));
        }
    }
    let _ = (parse_shape(text), parse_index(text));
});
