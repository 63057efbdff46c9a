//! A Python with NumPy and safetensors, which read what we write and write what we read: in a virtual environment, so that the system's stays
//! as it is.

use crate::tools::{install, program, say};

/// Says to the tests that they must not pass for want of NumPy and safetensors.
pub const NEEDED: &str = "RESHARD_NEEDS_NUMPY";

const FOLDER: &str = "target/python";
const PYTHON: &str = "target/python/bin/python";

/// Makes sure of the virtual environment.
pub fn ready() -> bool {
    let here = || program(PYTHON, &["-c", "import numpy, safetensors"]).works();
    if here() {
        return true;
    }
    say(&format!("making a Python with NumPy and safetensors of PyPI in {FOLDER}"));
    let environment = || program("python3", &["-m", "venv", FOLDER]).works();
    let made = environment() || (install("python3-venv") && environment());
    made && program(PYTHON, &["-m", "pip", "install", "--quiet", "numpy", "safetensors"]).works() && here()
}
