//! `reshard schedule` as scripts use it.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn schedule(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reshard")).arg("schedule").args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = schedule(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn complaint(arguments: &[&str]) -> String {
    let output = schedule(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty() && message.lines().count() == 1, "{arguments:?}: {message}");
    message
}

#[test]
fn the_promised_keys_in_the_promised_order() {
    let output = schedule(&["--from", "16/3", "--to", "16/5", "--strategy", "stepwise", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let begin = r#"{"schema":1,"from":"16/3","to":"16/5","shape":[240],"strategy":"stepwise","num_steps":7,"total_cost":15,"bound_steps":7,"bound_cost":15,"optimal_steps":true,"optimal_cost":true,"steps":[{"cost":3,"messages":[{"from":0,"to":"#;
    assert!(text.starts_with(begin), "{text}");
}

#[test]
fn steps_hold_every_message_once_and_no_port_twice() {
    for strategy in ["optimal", "classes", "stepwise", "greedy", "min-cost", "caterpillar"] {
        let answer = json(&["--from", "16/3", "--to", "16/5", "--strategy", strategy]);
        let mut elems = 0;
        for step in answer["steps"].as_array().unwrap() {
            let messages = step["messages"].as_array().unwrap();
            for end in ["from", "to"] {
                let mut ranks: Vec<u64> =
                    messages.iter().map(|message| message[end].as_u64().unwrap()).collect();
                ranks.sort_unstable();
                ranks.dedup();
                assert_eq!(ranks.len(), messages.len(), "{strategy}");
            }
            let longest =
                messages.iter().map(|message| message["elems"].as_u64().unwrap()).max().unwrap_or(0);
            assert_eq!(step["cost"], longest, "{strategy}");
            elems += messages.iter().map(|message| message["elems"].as_u64().unwrap()).sum::<u64>();
        }
        assert_eq!(elems, 240, "{strategy}");
    }
}

#[test]
fn min_cost_says_what_it_proves() {
    let example = ["--from", "15/3", "--to", "15/5", "--strategy", "min-cost"];
    let free = json(&example);
    assert_eq!((free["num_steps"].as_u64(), free["total_cost"].as_u64()), (Some(11), Some(23)));
    assert_eq!((free["optimal_cost"].as_bool(), free["optimal_steps"].as_bool()), (Some(true), Some(false)));
    assert_eq!((free["price"].as_f64(), free["gap_percent"].as_f64()), (Some(34.0), Some(0.0)));
    let ten = json(&[&example[..], &["--steps", "10"]].concat());
    assert_eq!((ten["num_steps"].as_u64(), ten["total_cost"].as_u64()), (Some(10), Some(25)));
    assert_eq!(ten["optimal_cost"], true);
    // Where a step costs much, ten are better.
    let dear = json(&[&example[..], &["--alpha", "2.5", "--beta", "0.5"]].concat());
    assert_eq!((dear["num_steps"].as_u64(), dear["price"].as_f64()), (Some(10), Some(37.5)));
    let seconds = json(&[&example[..], &["--alpha", "2e-6", "--beta", "1e-9"]].concat());
    assert_eq!(seconds["num_steps"], 10);
    // A dear step makes a schedule that is not the cheapest in elements, and it is told so.
    let dearest = json(&[&example[..], &["--alpha", "100"]].concat());
    assert_eq!((dearest["total_cost"].as_u64(), dearest["optimal_cost"].as_bool()), (Some(25), Some(false)));
    // Others are told that they are beaten.
    assert_eq!(json(&["--from", "15/2", "--to", "6/3", "--strategy", "stepwise"])["optimal_cost"], false);
}

#[test]
fn strategies_are_compared() {
    let compared = json(&["--from", "16/3", "--to", "16/5", "--compare"]);
    let names: Vec<_> =
        compared["rows"].as_array().unwrap().iter().map(|row| row["strategy"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "optimal",
            "classes",
            "stepwise",
            "greedy",
            "min-cost",
            "split",
            "async",
            "caterpillar",
            "walker-otto",
            "eager"
        ]
    );
    // In general by way of blocks of lcm(3, 5): 5 steps of 3 and 3 of 5.
    let general = &compared["rows"][8];
    assert_eq!(
        (&general["via"], &general["num_steps"], &general["total_cost"]),
        (&"16/15".into(), &8.into(), &30.into())
    );
    let refused = json(&["--from", "12/4", "--to", "8/3", "--compare"]);
    let said = refused["rows"][8]["error"].as_str().unwrap();
    assert!(said.contains("walker-otto needs"), "{said}");
    let text = String::from_utf8(schedule(&["--from", "16/3", "--to", "16/5", "--compare"]).stdout).unwrap();
    assert!(text.contains("in two redistributions, by way of 16/15"), "{text}");
    let text = String::from_utf8(schedule(&["--from", "12/4", "--to", "8/3", "--compare"]).stdout).unwrap();
    assert!(text.contains("walker-otto  not applicable:"), "{text}");
}

#[test]
fn the_step_table_has_a_letter_for_each_message() {
    let text = String::from_utf8(schedule(&["--from", "12/4", "--to", "8/3"]).stdout).unwrap();
    let rows: Vec<Vec<&str>> =
        text.lines().skip(2).take(12).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.iter().flatten().filter(|cell| **cell != "-").count(), 12 + 24, "{text}");
    assert!(text.contains("4 steps (optimal)"), "{text}");
}

#[test]
fn shared_ranks_keep_what_they_have() {
    let shared = json(&["--from", "16/7", "--to", "16/11", "--shared-ranks"]);
    assert_eq!((shared["num_steps"].as_u64(), shared["optimal_steps"].as_bool()), (Some(15), Some(true)));
    for step in shared["steps"].as_array().unwrap() {
        assert!(step["messages"].as_array().unwrap().iter().all(|message| message["from"] != message["to"]));
    }
}

#[test]
fn one_rank_is_scheduled_alone_as_among_all() {
    for (from, to) in
        [("16/3", "16/5"), ("15/3", "15/5"), ("2x3/4x5", "3x2/7x2"), ("(gen_block(7,9)) on 2", "4/2")]
    {
        let all = json(&["--from", from, "--to", to]);
        let one = json(&["--from", from, "--to", to, "--rank", "1"]);
        let mut expected = Vec::new();
        for (number, step) in all["steps"].as_array().unwrap().iter().enumerate() {
            for message in step["messages"].as_array().unwrap() {
                if message["from"] == 1 || message["to"] == 1 {
                    let mut message = message.clone();
                    message["step"] = number.into();
                    expected.push(message);
                }
            }
        }
        assert_eq!(one["messages"], serde_json::Value::Array(expected), "{from} to {to}");
    }
    let far = json(&["--from", "1000000/64", "--to", "1000000/125", "--rank", "999999"]);
    assert_eq!(far["messages"].as_array().unwrap().len(), 252);
}

#[test]
fn mistakes_get_one_sentence() {
    let example = ["--from", "15/3", "--to", "15/5"];
    for (more, says) in [
        (&["--strategy", "fastest"][..], "choose one of optimal, classes"),
        (&["--steps", "9", "--strategy", "min-cost"], "at least 10 are needed"),
        (&["--steps", "10"], "--strategy min-cost"),
        (&["--alpha", "-1"], "--alpha"),
        (&["--alpha", "much"], "--alpha: \"much\" was given"),
        (&["--alpha", "inf"], "from 0 to 1e9"),
        (&["--beta", "1.2.3"], "--beta: \"1.2.3\" was given"),
        (&["--strategy", "eager", "--in-flight", "0"], "at least 1"),
        (&["--strategy", "classes"], "use the strategy optimal"),
        (&["--strategy", "walker-otto"], "use the strategy optimal"),
    ] {
        let message = complaint(&[&example[..], more].concat());
        assert!(message.contains(says), "{more:?}: {message}");
    }
    let said = complaint(&["--from", "99999/1", "--to", "99998/3"]);
    assert!(said.contains("one rank at a time with --rank"), "{said}");
    let said = complaint(&["--from", "4/1", "--to", "4/3", "--rank", "4"]);
    assert!(said.contains("neither"), "{said}");
    // What would take minutes is refused before it begins.
    let said = complaint(&["--from", "6000/1", "--to", "1/6000", "--strategy", "split"]);
    assert!(said.contains("use optimal or async"), "{said}");
    let many = ["--from", "1024/3", "--to", "1023/5", "--shape", "20000003", "--strategy", "stepwise"];
    let said = complaint(&many);
    assert!(said.contains("use optimal"), "{said}");
}
