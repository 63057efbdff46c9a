//! A headless Chromium and what drives it, for the tests of the page: Debian's browser, and playwright-core of npm in a folder of its own.

use crate::tools::{install, program, say};

/// Says to the tests that they must not pass for want of a browser.
pub const NEEDED: &str = "RESHARD_NEEDS_BROWSER";

const FOLDER: &str = "target/browser";

/// Makes sure of both, and of Node.js.
pub fn ready() -> bool {
    let has = |name: &str, package: &str| {
        let here = || program(name, &["--version"]).works();
        here() || (install(package) && here())
    };
    if !has("node", "nodejs") || !has("chromium", "chromium") {
        return false;
    }
    let driver =
        || program("node", &["-e", "require('./target/browser/node_modules/playwright-core')"]).works();
    if driver() {
        return true;
    }
    say(&format!("installing playwright-core of npm in {FOLDER}"));
    has("npm", "npm")
        && std::fs::create_dir_all(FOLDER).is_ok()
        && program(
            "npm",
            &["install", "--silent", "--no-audit", "--no-fund", "--prefix", FOLDER, "playwright-core@1"],
        )
        .works()
        && driver()
}
