//! The communication grids the scheduling paper prints, reproduced by the program to the letter.
//!
//! Each file of `tables/` is one table: the flags, then the grid with its message counts. Spaces inside a cell are
//! written as underscores.

#![allow(clippy::unwrap_used)]

use std::process::Command;

/// The words of the table the program draws between its heading and its summary.
fn drawn(flags: &str) -> Vec<Vec<String>> {
    let output = Command::new(env!("CARGO_BIN_EXE_reshard"))
        .arg("plan")
        .args(flags.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap().replace("Nbr of msg.", "Nbr_of_msg.");
    let lines: Vec<&str> = text.lines().collect();
    words(&lines[1..lines.len() - 1])
}

fn words(lines: &[&str]) -> Vec<Vec<String>> {
    lines.iter().map(|line| line.split_whitespace().map(String::from).collect()).collect()
}

fn reproduce(table: &str) {
    let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    let (flags, grid) = lines.split_first().unwrap();
    for method in ["naive", "classical", "falls", "scan", "aspen"] {
        assert_eq!(drawn(&format!("{flags} --method {method}")), words(grid), "{flags} by {method}");
    }
}

#[test]
fn table_1() {
    reproduce(include_str!("tables/table01.txt"));
}

#[test]
fn table_4() {
    reproduce(include_str!("tables/table04.txt"));
}

#[test]
fn table_7() {
    reproduce(include_str!("tables/table07.txt"));
}

#[test]
fn table_10() {
    reproduce(include_str!("tables/table10.txt"));
}

#[test]
fn table_13() {
    reproduce(include_str!("tables/table13.txt"));
}

#[test]
fn table_14() {
    reproduce(include_str!("tables/table14.txt"));
}
