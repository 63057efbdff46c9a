//! `reshard simulate` and `reshard explain` as scripts use them: stable keys, the million-rank run, drawings, mistakes.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

fn reshard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reshard")).args(arguments).output().unwrap()
}

fn simulated(arguments: &[&str]) -> serde_json::Value {
    let output = reshard(&[&["simulate", "--json"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap()
}

fn drawing(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn simulate_prints_the_promised_keys() {
    let answer =
        simulated(&["--from", "16/3", "--to", "16/5", "--alpha", "100", "--beta", "1", "--barriers"]);
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    let mut promised = [
        "schema",
        "from",
        "to",
        "shape",
        "strategy",
        "network",
        "barriers",
        "ranks",
        "messages",
        "steps",
        "makespan",
        "bound",
        "predicted",
        "busy",
        "timeline",
    ];
    promised.sort_unstable();
    assert_eq!(keys, promised);
    assert_eq!((&answer["strategy"], &answer["network"]), (&"optimal".into(), &"flat".into()));
    assert_eq!((&answer["ranks"], &answer["messages"]), (&16.into(), &112.into()));
    // Seven steps that cost 15 elements, and every port has as much to do.
    for key in ["makespan", "bound", "predicted"] {
        assert_eq!(number(&answer[key]), 715.0, "{key}");
    }
    assert_eq!(number(&answer["busy"]["sending"]), 1.0);
    let timeline = answer["timeline"].as_array().unwrap();
    assert_eq!(timeline.len(), 112);
    assert_eq!(timeline.iter().map(|sent| sent["elems"].as_u64().unwrap()).sum::<u64>(), 240);
    assert!(timeline.iter().all(|sent| number(&sent["start"]) < number(&sent["end"])));
}

/// The table of docs/simulation.md: times of a strategy and of the caterpillar.
#[test]
fn the_papers_ratios_to_the_caterpillar() {
    let times = |from, to, strategy, flags: &str| {
        let run = |strategy| {
            let layouts = ["--from", from, "--to", to, "--strategy", strategy];
            let answer = simulated(&[&layouts[..], &flags.split(' ').collect::<Vec<_>>()].concat());
            if flags.contains("--barriers") {
                assert_eq!(answer["makespan"], answer["predicted"]);
            }
            number(&answer["makespan"])
        };
        (run(strategy), run("caterpillar"))
    };
    let startups = "--alpha 1 --beta 0";
    let elements = "--alpha 0 --beta 1";
    let flags = [
        format!("{startups} --barriers"),
        format!("{elements} --barriers"),
        startups.to_string(),
        elements.to_string(),
        format!("{elements} --network torus:4x4"),
    ];
    // Example 4 has more than one schedule of least cost, and without barriers they differ.
    for ((from, to, strategy), expected) in [
        (
            ("16/3", "16/5", "classes"),
            &[(7.0, 16.0), (15.0, 48.0), (7.0, 12.0), (15.0, 21.0), (15.0, 30.0)][..],
        ),
        (
            ("16/7", "16/11", "classes"),
            &[(16.0, 16.0), (77.0, 112.0), (16.0, 16.0), (77.0, 93.0), (124.0, 137.5)],
        ),
        (("12/4", "8/3", "min-cost"), &[(4.0, 6.0), (8.0, 18.0)]),
    ] {
        for (flags, &expected) in flags.iter().zip(expected) {
            let found = times(from, to, strategy, flags);
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(
                close(found.0, expected.0) && close(found.1, expected.1),
                "{from} {to} {flags}: {found:?}"
            );
        }
    }
    // Only six steps of the caterpillar are not empty; all twelve count if it is barriers that take time.
    let barriers = "--alpha 0 --beta 0 --barriers --barrier-cost 1";
    assert_eq!(times("12/4", "8/3", "min-cost", barriers), (4.0, 12.0));
    assert_eq!(times("12/4", "8/3", "async", elements), (6.0, 8.0));
}

#[test]
fn every_network_and_strategy_answers() {
    let flat = number(&simulated(&["--from", "12/4", "--to", "8/3"])["makespan"]);
    for network in ["flat", "ring", "torus", "torus:3x4", "fat-tree", "fat-tree:4:4"] {
        let answer = simulated(&["--from", "12/4", "--to", "8/3", "--network", network, "--barriers"]);
        assert!(number(&answer["makespan"]) >= flat, "{network}");
    }
    for strategy in ["optimal", "stepwise", "greedy", "split", "async", "caterpillar", "eager"] {
        for flags in [&["--shared-ranks"][..], &["--ports", "2"], &["--half-duplex"], &["--pack", "1e-9"]] {
            let base = ["--from", "4x2/3x5", "--to", "2x3/2x4", "--shape", "40x30", "--strategy", strategy];
            let answer = simulated(&[&base[..], flags].concat());
            assert!(
                number(&answer["makespan"]) >= number(&answer["bound"]) * 0.999_999,
                "{strategy} {flags:?}"
            );
            assert_eq!(answer["strategy"], strategy);
        }
    }
    // Nothing to move takes no time.
    let nothing = simulated(&["--from", "2/3", "--to", "3/2", "--shape", "0"]);
    assert_eq!((&nothing["messages"], number(&nothing["makespan"])), (&0.into(), 0.0));
}

#[test]
fn text_sums_up_and_draws_a_chart() {
    let output = reshard(&["simulate", "--from", "16/3", "--to", "16/5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(text.contains("16 ranks, 112 messages in 7 steps"), "{text}");
    assert!(text.contains("makespan   14.01 us"), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with('|')).count(), 8, "{text}");
    assert!(!text.contains('\x1b'), "colour without a terminal");
}

#[test]
fn large_runs_are_streamed() {
    let flags = ["--from", "100000/8", "--to", "100000/25", "--beta", "1e-6"];
    let (free, steps) = (simulated(&flags), simulated(&[&flags[..], &["--barriers"]].concat()));
    for answer in [&free, &steps] {
        assert_eq!((&answer["ranks"], &answer["messages"]), (&100_000.into(), &3_200_000.into()));
        assert!(answer.get("timeline").is_none());
        assert!(answer["memory"]["calculated_bytes"].as_u64().unwrap() < 200_000_000);
        assert!(number(&answer["makespan"]) >= number(&answer["bound"]));
    }
    assert_eq!(steps["makespan"], steps["predicted"]);
    assert_eq!(free["predicted"], steps["predicted"]);
    assert!(number(&free["makespan"]) <= number(&steps["makespan"]));
    let text = String::from_utf8(reshard(&[&["simulate"], &flags[..]].concat()).stdout).unwrap();
    assert!(text.contains("3200000 messages in 50 steps") && text.contains("memory"), "{text}");
}

#[test]
fn explain_draws_the_grid_and_the_timeline() {
    let path = drawing("example1.svg");
    let output = reshard(&["explain", "--from", "16/3", "--to", "16/5", "--svg", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(
        svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    // A cell for each message, and a bar where it is sent and where it is received; a square for each step.
    assert_eq!(svg.matches(" in step ").count(), 3 * 112);
    assert_eq!(svg.matches(" us</title>").count(), 2 * 112);
    assert_eq!(svg.matches("<title>step ").count(), 7);
    assert!(svg.contains("<title>rank 0 to rank 3: 3 elements in step d</title>"), "{svg}");
    assert!(svg.contains(">d: 3</text>"), "{svg}");
    assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    // Cut messages, empty traffic, and large grids without room for words.
    for flags in [
        &["--from", "12/4", "--to", "8/3", "--strategy", "split", "--network", "ring"][..],
        &["--from", "2/3", "--to", "3/2", "--shape", "0"],
        &["--from", "200/3", "--to", "100/5"],
    ] {
        let output = reshard(&[&["explain", "--svg", path.to_str().unwrap()], flags].concat());
        assert!(output.status.success(), "{flags:?}");
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(!svg.contains("NaN"), "{svg}");
    }
}

#[test]
fn all_strategies_are_compared_as_they_are_simulated() {
    let flags = ["12/3", "8/5", "--network", "ring", "--alpha", "3us"];
    let compared = simulated(&[&["--compare"], &flags[..]].concat());
    assert_eq!(compared["network"], "ring");
    let rows = compared["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    let mut applied = 0;
    for row in rows {
        let strategy = row["strategy"].as_str().unwrap();
        if row.get("error").is_some() {
            continue;
        }
        let one = simulated(&[&["--strategy", strategy], &flags[..]].concat());
        for key in ["messages", "steps", "makespan", "bound", "predicted", "busy"] {
            assert_eq!(row[key], one[key], "{strategy}: {key}");
        }
        applied += 1;
    }
    assert!(applied >= 8, "{compared}");
    let path = drawing("compared.svg");
    let text =
        reshard(&[&["simulate", "--compare", "--svg", path.to_str().unwrap()], &flags[..]].concat()).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("caterpillar") && text.contains("drawn to"), "{text}");
    let said = std::fs::read_to_string(&path).unwrap();
    assert!(said.contains("<title>caterpillar: "), "{said}");
}

#[test]
fn a_drawing_that_cannot_be_written_is_a_failure() {
    let path = drawing("no such folder").join("a.svg");
    let output = reshard(&["explain", "--from", "2/3", "--to", "3/2", "--svg", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("a.svg") && message.lines().count() == 1, "{message}");
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let simulate =
        |flags: &[&'static str]| [&["simulate", "--from", "2/3", "--to", "3/5"][..], flags].concat();
    for (arguments, says) in [
        (vec!["simulate"], "--from"),
        (simulate(&["--strategy", "fast"]), "--strategy: the strategy \"fast\" is not known"),
        (simulate(&["--strategy", "classes", "--shared-ranks"]), "use the strategy optimal"),
        (
            vec!["simulate", "--from", "20000/1", "--to", "1/20000", "--strategy", "eager"],
            "20000 messages arrive at rank 0 in one step",
        ),
        (simulate(&["--network", "mesh"]), "--network: the network \"mesh\" is not known"),
        (simulate(&["--network", "torus:1x2"]), "give a larger torus"),
        (simulate(&["--network", "fat-tree:0:1"]), "--network"),
        (simulate(&["--alpha", "-1"]), "--alpha: the start-up time alpha was given as -1"),
        (simulate(&["--alpha", "nan"]), "--alpha"),
        (simulate(&["--beta", "x"]), "--beta"),
        (simulate(&["--pack", "1e10"]), "--pack"),
        (simulate(&["--barrier-cost", "-2"]), "--barrier-cost"),
        (simulate(&["--ports", "0"]), "--ports"),
        (simulate(&["--shape", "3y"]), "--shape"),
        (vec!["simulate", "--from", "1000000/1", "--to", "999999/1"], "take fewer ranks"),
        (vec!["simulate", "--from", "1000000/8", "--to", "1000000/25", "--ports", "2"], "fewer ranks"),
        (vec!["simulate", "--from", "400/1", "--to", "399/1", "--network", "ring"], "network flat"),
        (vec!["explain", "--from", "2/3", "--to", "3/5"], "--svg"),
        (vec!["explain", "--from", "1000/3", "--to", "3/5", "--svg", "a.svg"], "too large to draw"),
    ] {
        let output = reshard(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty() && message.lines().count() == 1, "{arguments:?}: {message}");
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
}
