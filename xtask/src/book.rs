//! The manual as a book (mdBook), and the papers' five examples as pages that the program writes.

use crate::tools::{Outcome, cargo, program, say};
use std::fs;

const BOOK: &str = "target/book";
const TOOL: &str = "target/mdbook/bin/mdbook";

/// The examples of Desprez et al.
const EXAMPLES: [(&str, &str); 5] =
    [("16/3", "16/5"), ("16/7", "16/11"), ("15/3", "15/5"), ("12/4", "8/3"), ("15/2", "6/3")];

/// Writes the book to `target/book`.
pub fn write() -> Outcome {
    let tool = ["mdbook", TOOL].into_iter().find(|tool| program(tool, &["--version"]).works());
    let tool = match tool {
        Some(tool) => tool,
        None => {
            say("mdbook is missing: installing it from crates.io in target/mdbook");
            cargo(&[
                "install",
                "mdbook",
                "--locked",
                "--root",
                "target/mdbook",
                "--target-dir",
                "target/mdbook/build",
            ])
            .run()?;
            TOOL
        }
    };
    say("the book");
    program(tool, &["build", "docs"]).run()?;
    let folder = format!("{BOOK}/examples");
    fs::create_dir_all(&folder).map_err(|error| format!("{folder}: {error}"))?;
    for (number, (from, to)) in EXAMPLES.iter().enumerate() {
        let page = format!("{folder}/example{}.html", number + 1);
        cargo(&[
            "run",
            "--quiet",
            "--locked",
            "--package",
            "reshard-cli",
            "--",
            "explain",
            from,
            to,
            "--html",
            &page,
        ])
        .run()?;
    }
    say(&format!("written to {BOOK}/index.html"));
    Ok(())
}
