//! The notation: what prints parses back to an equal value, what is wrong is refused at the right character, and
//! no text whatsoever makes the parser panic.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use reshard_plan::notation::parse_shape;
use reshard_plan::{Deal, Distribution, ErrorKind, Grid, Pattern, Piece, RankOrder};

fn printed(text: &str) -> String {
    text.parse::<Pattern>().unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

#[test]
fn what_people_write_prints_in_its_shortest_form() {
    for (written, expected) in [
        ("16/3", "16/3"),
        ("4x4/64x64", "4x4/64x64"),
        (" 4 x 4 / 64 x 64 ", "4x4/64x64"),
        ("(cyclic(64), cyclic(64)) on 4x4", "4x4/64x64"),
        ("(CYCLIC(64), BLOCK) ON 4x4", "(cyclic(64), block) on 4x4"),
        ("(cyclic,block)on 4X4", "(cyclic, block) on 4x4"),
        ("(gen_block(10,20,30), *) on 3x1", "(gen_block(10,20,30), *) on 3x1"),
        ("(gen_block(10, 20, 30), *) on 3", "(gen_block(10,20,30), *) on 3x1"),
        ("(*, block) on 4", "(*, block) on 1x4"),
        ("(*, *) on 1", "(*, *) on 1x1"),
        ("(*) on 4", "(*) on 4"),
        ("(*, block) on 2x3", "(*, block) on 2x3"),
        ("(cyclic(3), *) on 2x2 first=1x0", "(cyclic(3), *) on 2x2 first=1x0"),
        ("(cuts(10@2,5@0,1@2)) on 3", "(cuts(10@2,5@0,1@2)) on 3"),
        ("4x4/64x64 first=1x2", "4x4/64x64 first=1x2"),
        ("4x4/64x64 first=0x0 order=row ranks=0..16", "4x4/64x64"),
        ("2x2/1x1 ranks=4..8 order=col", "2x2/1x1 rank-order=col ranks=4..8"),
        ("2x2/1x1 ranks=4,5,6,7", "2x2/1x1 ranks=4..8"),
        ("4x4/64x64 FIRST = 1x2 ORDER=COL", "4x4/64x64 first=1x2 rank-order=col"),
        ("2x2/1x1 ranks=3, 1, 2, 0", "2x2/1x1 ranks=3,1,2,0"),
    ] {
        assert_eq!(printed(written), expected, "{written}");
        assert_eq!(printed(expected), expected);
    }
}

#[test]
fn mistakes_are_named_at_their_character() {
    for (text, character, what) in [
        ("", 1, "expected a layout such as"),
        ("banana", 1, "expected a layout such as"),
        ("4x4", 4, "\"/\" and the block sizes"),
        ("4x4/", 5, "a block size"),
        ("4x4/64", 7, "another block size"),
        ("4x4/64y64", 7, "another block size"),
        ("4/64x64", 3, "2 block sizes were given"),
        ("0x4/1x1", 1, "at least 1"),
        ("4x4/64x0", 8, "at least 1"),
        ("99999999999999999999/1", 1, "64 bits"),
        ("(cyclic(64), blok) on 4x4", 14, "block, cyclic"),
        ("(cyclic(64, block) on 4x4", 11, "\")\""),
        ("(cyclic(64), block)", 20, "\"on\""),
        ("(cyclic(64), block) on 4x4x4", 24, "2 dimensions are described"),
        ("(block, block, block) on 4", 26, "3 dimensions are described"),
        ("(gen_block 3) on 4", 12, "\"(\""),
        ("(cuts(3)) on 4", 8, "\"@\""),
        ("(*) on 4 first=1", 16, "kept whole"),
        ("(*, *) on 4", 11, "2 dimensions are described"),
        ("4/2 first=4", 11, "between 0 and 3"),
        ("4/2 first=1x1", 5, "2 first processes were given for 1 dimension;"),
        ("4/2 order=up", 11, "row or col"),
        ("4/2 ranks=0..5", 5, "grid of 4 processes"),
        ("4/2 ranks=0,1,1,2", 5, "twice"),
        ("4/2 ranks=0,1", 5, "4 processes"),
        ("4/2 first=1 first=2", 13, "twice"),
        ("4/2 second=1", 5, "an option"),
        ("(gen_block(1,2,3)) on 4", 2, "3 sizes for 4 processes"),
        ("(block, cuts(3@4)) on 2x2", 9, "process 4"),
        ("4x4/64x9999999999999999999", 8, "at most 2^62"),
        ("4x4/64x64 first=1x7", 19, "between 0 and 3"),
        ("(gen_block(5,5)) on 2 first=1", 29, "listed one by one"),
        ("16/3 of 240", 6, "not part of the layout"),
        ("1x1x1x1x1x1x1x1x1/1x1x1x1x1x1x1x1x1", 1, "9 dimensions"),
        ("4611686018427387904x2/1x1", 1, "2^62"),
    ] {
        let error = text.parse::<Pattern>().unwrap_err();
        let found = error.position().unwrap() + 1;
        assert_eq!(found, character, "{text}: {error}");
        assert!(error.to_string().contains(what), "{text}: {error}");
        assert!(!error.to_string().contains('\n'));
    }
    assert_eq!("4/2".parse::<Distribution>().unwrap_err().position(), Some(3));
    assert_eq!("(block) on 2 of 3x3".parse::<Distribution>().unwrap_err().kind(), ErrorKind::Mismatch);
    assert_eq!(parse_shape("240").unwrap(), [240]);
    assert_eq!(parse_shape("3x0x5").unwrap(), [3, 0, 5]);
    assert_eq!(parse_shape("3x").unwrap_err().position(), Some(2));
}

#[test]
fn distributions_print_and_parse_back() {
    for (written, expected) in [
        ("4x4/64x64 of 100x7", "4x4/64x64 of 100x7"),
        ("(block) on 4 of 10", "4/3 of 10"),
        ("(*) on 1 of 0", "1/1 of 0"),
        ("(*) on 3 of 7", "(*) on 3 of 7"),
        ("(block, *) on 2x2 of 4x5", "(cyclic(2), *) on 2x2 of 4x5"),
        ("(gen_block(3,0,4)) on 3 of 7", "(gen_block(3,0,4)) on 3 of 7"),
        ("(cuts(3@0,0@1,4@2)) on 3 of 7", "(gen_block(3,0,4)) on 3 of 7"),
        ("(cuts(3@2,4@0)) on 3 of 7", "(cuts(3@2,4@0)) on 3 of 7"),
        // Found by fuzzing: pieces that hold nothing, on more processes than one would list.
        ("(cuts(0@0)) on 22of0", "(cuts(0@0)) on 22 of 0"),
    ] {
        let distribution: Distribution = written.parse().unwrap();
        assert_eq!(distribution.to_string(), expected);
        assert_eq!(expected.parse::<Distribution>().unwrap(), distribution);
    }
}

/// Some rule that fits so many processes.
fn deals(procs: u64) -> impl Strategy<Value = Deal> {
    let piece = (0_u64..1 << 40, 0..procs).prop_map(|(len, owner)| Piece { len, owner });
    prop_oneof![
        Just(Deal::Block),
        (1_u64..=1 << 62).prop_map(Deal::Cyclic),
        (1_u64..100).prop_map(Deal::Cyclic),
        prop::collection::vec(0_u64..1 << 40, procs as usize).prop_map(Deal::GenBlock),
        prop::collection::vec(piece, 1..9).prop_map(Deal::Cuts),
        Just(Deal::Whole),
    ]
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let extents = prop::collection::vec(prop_oneof![Just(1_u64), 1_u64..5], 1..5);
    extents.prop_flat_map(|extents| {
        let deals: Vec<_> = extents.iter().map(|&procs| deals(procs)).collect();
        let first: Vec<_> = extents.iter().map(|&procs| 0..procs).collect();
        (Just(extents), deals, first, any::<bool>(), 0_u64..3, any::<u64>()).prop_map(
            |(extents, deals, mut first, col, ranks, seed)| {
                for (first, deal) in first.iter_mut().zip(&deals) {
                    if matches!(deal, Deal::GenBlock(_) | Deal::Cuts(_) | Deal::Whole) {
                        *first = 0;
                    }
                }
                let grid = Grid::new(&extents).unwrap();
                let size = grid.size();
                let grid = grid.with_order(if col { RankOrder::ColMajor } else { RankOrder::RowMajor });
                let grid = match ranks {
                    0 => grid,
                    1 => grid.with_first_rank(seed >> 3).unwrap(),
                    _ => {
                        // A walk by an odd step through a power of two visits each rank once.
                        let ranks: Vec<u64> =
                            (0..size).map(|i| (i.wrapping_mul(seed | 1)) % (1 << 32)).collect();
                        grid.with_ranks(&ranks).unwrap()
                    }
                };
                Pattern::new(grid, deals, first).unwrap()
            },
        )
    })
}

/// Texts made of the notation's own words, which reach deeper than random characters.
fn almost_patterns() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "4",
        "x",
        "/",
        "64",
        "(",
        ")",
        ",",
        "cyclic",
        "block",
        "gen_block",
        "cuts",
        "*",
        " on ",
        " of ",
        "@",
        "first=",
        "order=",
        "rank-order=",
        "memory=",
        "strides=",
        "ranks=",
        "row",
        "col",
        "..",
        " ",
        "0",
        "4611686018427387904",
        "18446744073709551616",
        "é",
        "\u{0}",
    ]);
    prop::collection::vec(words, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn printing_and_parsing_gives_the_value_back(pattern in patterns()) {
        let text = pattern.to_string();
        prop_assert_eq!(text.parse::<Pattern>().unwrap(), pattern, "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in prop_oneof![almost_patterns(), any::<String>()]) {
        match text.parse::<Pattern>() {
            Ok(pattern) => prop_assert_eq!(pattern.to_string().parse::<Pattern>().unwrap(), pattern),
            Err(error) => prop_assert!(error.position().unwrap() <= text.chars().count()),
        }
        if let Ok(distribution) = text.parse::<Distribution>() {
            prop_assert_eq!(distribution.to_string().parse::<Distribution>().unwrap(), distribution);
        }
        let _ = parse_shape(&text);
    }
}
