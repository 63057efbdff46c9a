"""What is written about the package is true: examples run, types fit, the stubs say what is there."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reshard
import reshard._foreign
import reshard._rings

PYTHON = Path(__file__).parent.parent
ROOT = PYTHON.parent


@pytest.mark.parametrize("module", [reshard, reshard._foreign, reshard._rings], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module) -> None:  # type: ignore[no-untyped-def]
    failed, tried = doctest.testmod(module)
    assert tried and not failed


@pytest.mark.parametrize("page", [PYTHON / "README.md", ROOT / "README.md", ROOT / "docs" / "python.md"], ids=lambda page: page.name)
def test_examples_of_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python(,mpi)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for mpi, block in blocks:
        if mpi:
            pytest.importorskip("mpi4py")
            subprocess.run([sys.executable, "-c", block], check=True, env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1"})
        else:
            exec(compile(block, str(page), "exec"), known)


def test_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for command in (
        ["mypy", "--strict", "-p", "reshard"],
        ["mypy.stubtest", "reshard", "--ignore-disjoint-bases"],
    ):
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_everything_that_is_named_is_there() -> None:
    for name in reshard.__all__:
        assert hasattr(reshard, name), name
        assert name == "__version__" or getattr(reshard, name).__doc__, name
