"""How fast the package for Python is: calls beside the engine in them, arrays beside the program, ranks beside what people write with mpi4py.

    python speed.py target/release/reshard

Everything that is compared is run in turns, and medians are compared. Writes docs/python-speed.md and benchmarks/results/python.json.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import reshard

TURNS = 15
SIDE = 4096
CASES = [
    ("4x4/64x64", "2x8/50x30"),
    ("4x4/64x64", "3x3/100x100"),
    ("2x2/64x64", "1x4/32x32"),
    ("2x2/8x8", "4x1/5x7"),
]
BETWEEN = [("2x2/64x64", "1x4/32x32"), ("1x4/256x256", "2x2/128x128"), ("4x1/64x64", "2x2/50x30"), ("2x2/8x8", "4x1/5x7")]
SMALL = [
    ("4x4 on one rank", "1x1/4x4 of 4x4", "1x1/4x4 of 4x4"),
    ("25x25, 4 ranks to 3", "2x2/4x4 of 25x25", "3x1/5x5 of 25x25"),
    ("256x256, 16 ranks to 9", "4x4/16x16 of 256x256", "3x3/20x20 of 256x256"),
]


def processor() -> str:
    fields = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return f"{fields.get('model name', 'unknown')}, model {fields.get('model', '?')}, {os.cpu_count()} cores, linux {platform.machine()}"


def calls() -> list[dict]:
    """What a call takes beyond the engine that it calls, which times itself."""
    rows = []
    for name, src, dst in SMALL:
        plan = reshard.Plan(src, dst, "f8")
        a = [plan.src.zeros(rank) for rank in plan.src.ranks]
        out = [plan.dst.zeros(rank) for rank in plan.dst.ranks]
        whole, engine = [], []
        for _ in range(20_000):
            begun = time.perf_counter()
            plan.run(a, out)
            whole.append(time.perf_counter() - begun)
            engine.append(plan.report["seconds"])
        rows.append(
            {
                "case": name,
                "call": statistics.median(whole),
                "engine": statistics.median(engine),
                "overhead": statistics.median(w - e for w, e in zip(whole, engine, strict=True)),
            }
        )
    return rows


def beside_the_program(program: str) -> list[dict]:
    rows = []
    for src, dst in CASES:
        plan = reshard.Plan(f"{src} of {SIDE}x{SIDE}", f"{dst} of {SIDE}x{SIDE}", "f8")
        a = [plan.src.empty(rank) for rank in plan.src.ranks]
        out = [plan.dst.empty(rank) for rank in plan.dst.ranks]
        for number, part in enumerate(a + out):
            part[...] = number
        ours, theirs = [], []
        for _ in range(TURNS):
            command = [program, "run", "--shape", f"{SIDE}x{SIDE}", "--from", src, "--to", dst, "--repeat", "5", "--json"]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            theirs.append(json.loads(told)["run_seconds"]["median"])
            times = []
            for _ in range(6):
                begun = time.perf_counter()
                plan.run(a, out)
                times.append(time.perf_counter() - begun)
            ours.append(statistics.median(times[1:]))
        rows.append(
            {
                "from": src,
                "to": dst,
                "python": statistics.median(ours),
                "program": statistics.median(theirs),
                "ratio": statistics.median(ours) / statistics.median(theirs),
            }
        )
    return rows


def between_processes() -> list[dict]:
    launcher = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [launcher, "--oversubscribe", "-n", "4", sys.executable, str(Path(__file__).parent / "rivals.py"), str(SIDE), str(TURNS)]
    for src, dst in BETWEEN:
        command += [src, dst]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    results = {
        "machine": processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "calls": calls(),
        "program": beside_the_program(sys.argv[1]),
        "ranks": between_processes(),
    }
    lines = [
        "# Speed from Python",
        "",
        f"Machine: {results['machine']}; Python {results['python']}, NumPy {results['numpy']}. Reproduce with `cargo xtask bench python`; raw numbers in",
        "`benchmarks/results/python.json`. Everything compared was run in turns; times are medians.",
        "",
        "## Calls",
        "",
        "`Plan.run(a, out)` in one process, 20,000 times: a call, the engine in it, and what is between the two (goal: 20 microseconds). Microseconds.",
        "",
        "| arrays | call | engine | overhead |",
        "|---|---|---|---|",
    ]
    for row in results["calls"]:
        lines.append(f"| {row['case']} | {1e6 * row['call']:.1f} | {1e6 * row['engine']:.1f} | {1e6 * row['overhead']:.1f} |")
    lines += [
        "",
        "## Beside the program",
        "",
        f"Doubles, {SIDE} x {SIDE}, arrays of NumPy beside `reshard run`, {TURNS} turns of 5 runs each; milliseconds (goal: 1.10).",
        "",
        "| from | to | Python | program | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in results["program"]:
        lines.append(
            f"| {row['from']} | {row['to']} | {1e3 * row['python']:.2f} | {1e3 * row['program']:.2f} | {row['ratio']:.2f} |"
        )
    lines += [
        "",
        "## Beside what people write with mpi4py",
        "",
        f"Four ranks, Open MPI, doubles, {SIDE} x {SIDE}, each rank its own part, {TURNS} turns; milliseconds from a barrier to the end of the slowest rank, and",
        "how many times as long as reshard. `Alltoallw` has a derived type for each pair of ranks, made once; `Alltoallv` packs by NumPy's",
        "indexing with lists of indices, made once. Every element was checked for each. The programs: `benchmarks/python/rivals.py`.",
        "",
        "| from | to | reshard | by | `Alltoallw` | | packing, `Alltoallv` | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results["ranks"]:
        ours = row["reshard"]
        lines.append(
            f"| {row['from']} | {row['to']} | {1e3 * ours:.1f} | {row['mover']} | {1e3 * row['alltoallw']:.1f} | {row['alltoallw'] / ours:.1f} | "
            f"{1e3 * row['alltoallv']:.1f} | {row['alltoallv'] / ours:.1f} |"
        )
    text = "\n".join(lines) + "\n"
    Path("docs/python-speed.md").write_text(text, encoding="utf-8")
    Path("benchmarks/results/python.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(text)


main()
