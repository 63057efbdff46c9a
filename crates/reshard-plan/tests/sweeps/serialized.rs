//! The feature `serde`: what is written is read back as an equal value, and nonsense is refused.

#![cfg(feature = "serde")]
#![allow(clippy::unwrap_used)]

use reshard_plan::schedule::{Schedule, Strategy};
use reshard_plan::{Distribution, Layout, Move, Pattern, Plan, Problem};
use reshard_testkit::Random;
use reshard_testkit::conformance::{Case, Kinds};
use serde::de::DeserializeOwned;

fn round_trip<T: serde::Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value, "{text}");
}

#[test]
fn values_are_read_back() {
    round_trip(&"4x4/64x64 first=1x2".parse::<Pattern>().unwrap());
    round_trip(&"(gen_block(3,4), *) on 2x1 of 7x9".parse::<Distribution>().unwrap());
    let mut random = Random::new(77);
    let kinds = Kinds { procs: 3, dims: 1..4, ..Kinds::default() };
    for _ in 0..300 {
        let moving = Case::random(&mut random, &kinds).moving;
        round_trip(moving.from());
        round_trip(&moving);
        let plan = Plan::new(vec![moving.clone(), moving.clone()]).unwrap();
        round_trip(&plan);
        let hosted = Plan::for_ranks(vec![moving], &plan.ranks()[..1]).unwrap();
        round_trip(&hosted);
        round_trip(&hosted.with_peers().unwrap());
    }
}

#[test]
fn schedules_are_written_with_the_keys_of_the_program() {
    let problem = Problem::new("16/3 of 240".parse().unwrap(), "16/5 of 240".parse().unwrap()).unwrap();
    let written = serde_json::to_value(Schedule::new(&problem, Strategy::Optimal).unwrap()).unwrap();
    assert_eq!((&written["num_steps"], &written["total_cost"]), (&7.into(), &15.into()));
    assert_eq!(written["steps"][0]["messages"].as_array().unwrap().len(), 16);
    assert!(written["steps"][0]["messages"][0]["elems"].is_u64());
}

#[test]
fn nonsense_is_refused() {
    let said = serde_json::from_str::<Pattern>("\"4x4/64\"").unwrap_err().to_string();
    assert!(said.contains("block size"), "{said}");
    let layout = r#"{"layout": "2x2/3x3 of 9x9", "strides_of": {"0": [1, 1]}}"#;
    let said = serde_json::from_str::<Layout>(layout).unwrap_err().to_string();
    assert!(said.contains("at one address"), "{said}");
    let moving = r#"{"from": {"layout": "2/3 of 9"}, "to": {"layout": "3/2 of 9"}, "shape": [10], "from_at": [0], "to_at": [0],
        "axes": [0], "elem_bytes": 8}"#;
    let said = serde_json::from_str::<Move>(moving).unwrap_err().to_string();
    assert!(said.contains("make the window smaller"), "{said}");
}
