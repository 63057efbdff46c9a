"""The same under mpirun, with mpi4py on an Open MPI and an MPICH: see ranks.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

HERE = Path(__file__).parent
FULL = bool(os.environ.get("RESHARD_FULL"))
NEEDED = bool(os.environ.get("RESHARD_NEEDS_MPI"))
CASES = 2_000 if FULL else 120


def launcher(family: str) -> tuple[list[str], dict[str, str]] | None:
    """How ranks are started, and their environment; none if that MPI is not here."""
    names = {"openmpi": ["mpirun.openmpi", "mpirun"], "mpich": ["mpirun.mpich", "mpiexec.hydra"]}[family]
    says = {"openmpi": "Open MPI", "mpich": "HYDRA"}[family]
    for name in names:
        if not shutil.which(name):
            continue
        told = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
        if says not in told and not (family == "openmpi" and "OpenRTE" in told):
            continue
        environment = {**os.environ, "MPI4PY_MPIABI": family, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        if family == "openmpi":
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            return [name, "--oversubscribe"], environment
        return [name], environment
    return None


FAMILIES = os.environ.get("RESHARD_MPI_FAMILIES", "openmpi,mpich").split(",")


@pytest.fixture(params=FAMILIES)
def ranks(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    family: str = request.param
    found = launcher(family)
    if found is None:
        if NEEDED:
            pytest.fail(f"no {family} is here, and it is needed")
        pytest.skip(f"no {family} is here")
    command, environment = found
    if family == "mpich":
        # Debian's has a name of its own, which wheels of mpi4py do not look for.
        for library in Path("/usr/lib").glob("*/libmpich.so.12"):
            (tmp_path / "libmpi.so.12").symlink_to(library)
        environment["LD_LIBRARY_PATH"] = f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"

    def play(count: int, *arguments: str) -> None:
        started = [*command, "-n", str(count), sys.executable, str(HERE / "ranks.py"), *arguments]
        done = subprocess.run(started, capture_output=True, text=True, env=environment, timeout=1200, check=False)
        assert done.returncode == 0 and done.stdout.count("fine") == count, f"{arguments}\n{done.stdout}\n{done.stderr}"

    return play


def test_random_redistributions(ranks) -> None:  # type: ignore[no-untyped-def]
    ranks(4, "values", "100000", str(CASES // 2))
    ranks(7, "values", "200000", str(CASES // 2), "imported-before")


@pytest.mark.parametrize("part", ["disagree", "troubled", "interrupted", "missing", "exported", "groups", "big", "movers"])
def test_ranks_together(ranks, part: str) -> None:  # type: ignore[no-untyped-def]
    ranks(4, part)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_programs_on_many_communicators(ranks, count: int) -> None:  # type: ignore[no-untyped-def]
    for seed in range(17 if FULL else 1):
        ranks(count, "programs", str(100 * count + seed), "10")


def test_nothing_leaks(ranks) -> None:  # type: ignore[no-untyped-def]
    ranks(4, "leaks", "5000" if FULL else "60")


def test_rings(ranks) -> None:  # type: ignore[no-untyped-def]
    ranks(4, "rings", "40")


def test_files(ranks, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ranks(4, "files", str(tmp_path))
