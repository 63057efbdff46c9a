"""The extension module: what is in Rust."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._looks import Picture, Relabelling, Traffic

__version__: str

__all__ = [
    "Layout",
    "Plan",
    "Ring",
    "Run",
    "Schedule",
    "ShardSet",
    "Timeline",
    "__version__",
    "convert",
    "layout_from_state",
    "open",
    "plan_from_state",
    "redistribute",
    "save",
]

@final
class Layout:
    """Which rank owns which element of an array, and where in its memory.

    ``notation`` is reshard's, as ``"4x4/64x64"`` (grid, blocks) or ``"(block, cyclic(3)) on 2x2"``; it says the shape itself
    (``"4x4/64x64 of 8192x8192"``), or ``shape`` does. ``order`` is "F", the first index runs fastest, or "C"; "F" if nothing is said.
    """

    def __new__(cls, notation: str, shape: int | Sequence[int] | None = None, order: str | None = None) -> Self: ...
    @staticmethod
    def block_cyclic(
        shape: int | Sequence[int], grid: int | Sequence[int], blocks: int | Sequence[int], order: str | None = None
    ) -> Layout:
        """A block-cyclic array from numbers."""
    @staticmethod
    def whole(shape: int | Sequence[int], order: str | None = None) -> Layout:
        """All of an array on rank 0."""
    @staticmethod
    def from_descriptor(descriptor: Sequence[int], grid: int | Sequence[int], rank: int | None = None) -> Layout:
        """A matrix as ScaLAPACK's descriptor says it, on a grid; its leading dimension counts if ``rank`` says whose descriptor it is."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array."""
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int:
        """How many elements the whole array has."""
    @property
    def grid(self) -> tuple[int, ...]:
        """The extents of the grid of processes."""
    @property
    def ranks(self) -> list[int]:
        """The ranks, ascending: the order of parts in lists."""
    @property
    def order(self) -> str:
        """ "F" or "C". """
    @property
    def copies(self) -> int:
        """On how many ranks each element is."""
    def owner(self, *index: int) -> int:
        """The rank that owns an element; of copies the first."""
    def owners(self, *index: int) -> list[int]:
        """All ranks that have an element."""
    def locate(self, *index: int) -> tuple[int, tuple[int, ...]]:
        """The rank that owns an element, and its index in that rank's part."""
    def global_index(self, rank: int, *index: int) -> tuple[int, ...]:
        """The index in the whole array of an element of a rank's part."""
    def indices(self, rank: int) -> tuple[NDArray[np.int64], ...]:
        """For each dimension the indices that a rank has: ``whole[np.ix_(*layout.indices(rank))]`` is its part."""
    def local_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's part."""
    def strides(self, rank: int) -> tuple[int, ...]:
        """The strides of a rank's part, in elements."""
    def empty(self, rank: int, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """A new array for a rank's part, its elements anything."""
    def zeros(self, rank: int, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """A new array for a rank's part, of zeros."""
    def scatter(self, array: Any) -> list[NDArray[Any]]:
        """The parts of a whole array, by ascending rank."""
    def gather(self, parts: Sequence[Any]) -> NDArray[Any]:
        """The whole array out of all ranks' parts."""
    def with_order(self, order: str) -> Layout:
        """The same distribution, every part tight in the order "F" or "C"; strides that were given are forgotten."""
    def with_allocated(self, extents: int | Sequence[int]) -> Layout:
        """Every part in memory of these extents, as with ScaLAPACK's leading dimension."""
    def with_strides_of(self, rank: int, memory: Any) -> Layout:
        """One rank's part with the strides of an array, or with a tuple of strides in elements."""
    def with_ranks(self, ranks: Sequence[int]) -> Layout:
        """The same parts on other ranks, one for each process of the grid, the last dimension fastest."""
    def shifted(self, by: int) -> Layout:
        """The same layout with a number added to all ranks."""
    def _repr_svg_(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Run:
    """A run in flight. Its arrays stay in use until it is over: write to neither.

    As a context manager it is waited for at the end; an exception inside ends it at once, and the other ranks are told. One that is
    dropped without either is waited for, at most for the deadline.
    """

    def test(self) -> bool:
        """Moves what can be moved without waiting. Whether it is over."""
    def wait(self) -> Any:
        """Waits until it is over, and returns the destination. Ctrl-C ends it on all ranks."""
    @property
    def report(self) -> dict[str, float] | None:
        """Bytes, messages, steps and seconds, once it is over."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> bool: ...

@final
class Schedule:
    """In which step each message goes."""

    @property
    def strategy(self) -> str: ...
    @property
    def steps(self) -> list[list[tuple[int, int, int]]]:
        """For each step its messages: sender, receiver, elements."""
    @property
    def costs(self) -> list[int]:
        """For each step the elements of its longest message."""
    @property
    def total_cost(self) -> int: ...
    @property
    def bound_steps(self) -> int:
        """Fewer steps no schedule has."""
    @property
    def bound_cost(self) -> int:
        """Less no schedule costs."""
    @property
    def optimal_steps(self) -> bool | None:
        """Whether it has the fewest steps; None if that is not known."""
    @property
    def optimal_cost(self) -> bool | None: ...
    def __len__(self) -> int: ...

@final
class Timeline:
    """A redistribution in virtual time."""

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
    @property
    def messages(self) -> list[tuple[int, int, int, float, float]]:
        """Sender, receiver, elements, start and end."""
    @property
    def busy(self) -> tuple[float, float]:
        """The shares of the time in which ports send, and receive."""
    @property
    def schedule(self) -> Schedule: ...
    def _repr_svg_(self) -> str: ...

@final
class Plan:
    """What is moved, worked out once and run any number of times.

    Without ``comm`` a run takes and returns the lists of all ranks' parts; with a communicator of mpi4py each rank gives and gets its own,
    making a plan is collective, and an argument that is wrong on one rank is an exception on all. A run that fails on one rank, be it
    by a wrong array, fails on all, and the plan is of no use after that: make a new one.

    ``window`` are slices of the source (``np.s_[10:40, 5:25]``), ``at`` says where they begin in the destination, and axis ``d`` of the
    destination is axis ``axes[d]`` of the source. ``deadline`` is how many seconds a rank waits for another (120; ``math.inf``: without
    end), ``mover`` how bytes travel, ``memory`` a limit in bytes; those three are for communicators, ``threads`` is for all ranks here.
    """

    def __new__(
        cls,
        src: Layout | str,
        dst: Layout | str,
        dtype: DTypeLike | None = None,
        comm: Any = None,
        *,
        window: Any = None,
        at: int | Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        threads: int | None = None,
        deadline: float | None = None,
        mover: str | None = None,
        memory: int | None = None,
    ) -> Self: ...
    def run(
        self, a: Any, out: Any = None, *, alpha: complex | None = None, beta: complex | None = None, conjugate: bool | None = None
    ) -> Any:
        """Moves, waits, and returns the destination: ``out``, or new arrays.

        With ``alpha`` or ``beta`` the destination becomes ``alpha * a + beta * out``; ``conjugate`` takes the conjugate of ``a``.
        """
    def start(
        self, a: Any, out: Any = None, *, alpha: complex | None = None, beta: complex | None = None, conjugate: bool | None = None
    ) -> Run:
        """Begins to move, so that something else can be computed meanwhile. Without a communicator all is moved before it returns."""
    @property
    def src(self) -> Layout: ...
    @property
    def dst(self) -> Layout: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def comm(self) -> Any: ...
    @property
    def elements(self) -> int:
        """How many elements are written, each copy counted."""
    @property
    def mover(self) -> str:
        """How bytes travel."""
    @property
    def report(self) -> dict[str, float] | None:
        """Bytes, messages, steps and seconds of the last ``run``."""
    def traffic(self) -> Traffic:
        """Who owes whom how many elements."""
    def relabel(self) -> Relabelling:
        """The ranks on which the destination would keep most elements where they are."""
    def schedule(
        self,
        strategy: str = "optimal",
        *,
        alpha: int = 1,
        beta: int = 1,
        max_steps: int | None = None,
        in_flight: int = 8,
        shared_ranks: bool = False,
    ) -> Schedule:
        """In which step each message goes. ``alpha``, ``beta`` and ``max_steps`` are for "min-cost", ``in_flight`` for "eager"."""
    def simulate(
        self,
        strategy: str = "optimal",
        *,
        network: str = "flat",
        alpha: float | None = None,
        beta: float | None = None,
        pack: float = 0.0,
        ports: int = 1,
        barriers: bool = False,
        half_duplex: bool = False,
        in_flight: int = 8,
        shared_ranks: bool = False,
    ) -> Timeline:
        """The redistribution in virtual time: ``alpha`` seconds to start a message, ``beta`` for each element, on a network."""
    def explain(self, strategy: str = "optimal", **machine: Any) -> Picture:
        """A picture of the array before and after, the communication grid, the steps and the times."""
    def _traffic(self) -> list[NDArray[np.uint64]]: ...
    def _relabelled(self) -> tuple[list[int], list[int]]: ...

def redistribute(
    a: Any,
    src: Layout | str,
    dst: Layout | str,
    comm: Any = None,
    out: Any = None,
    *,
    window: Any = None,
    at: int | Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    alpha: complex | None = None,
    beta: complex | None = None,
    conjugate: bool | None = None,
    threads: int | None = None,
    deadline: float | None = None,
    mover: str | None = None,
    memory: int | None = None,
) -> Any:
    """Moves an array once, or a window of it, and returns the destination: see :class:`Plan` for the arguments.

    Arrays may be in any order and have gaps: what memory they have is seen here. Nothing is copied first, unless ``out`` reaches into ``a``.
    """

@final
class Ring:
    """A ring of processes whose loads are balanced: see :func:`reshard.ring`."""

    def __new__(
        cls,
        loads: Sequence[int],
        targets: Sequence[int],
        right: Sequence[int] | None,
        left: Sequence[int] | None,
        unit: float,
        one_way: bool,
        ordered: bool,
        comm: Any = None,
        dtype: DTypeLike | None = None,
        item: int | Sequence[int] | None = None,
        deadline: float | None = None,
        memory: int | None = None,
        refused: BaseException | None = None,
    ) -> Self: ...
    @property
    def loads(self) -> list[int]: ...
    @property
    def targets(self) -> list[int]: ...
    @property
    def makespan(self) -> float:
        """The time that it takes."""
    @property
    def lower_bound(self) -> float:
        """Nothing is faster."""
    @property
    def optimal(self) -> bool | None: ...
    @property
    def method(self) -> str: ...
    @property
    def transfers(self) -> list[tuple[int, int, int, float, float]]:
        """From, to, items, start and end."""
    @property
    def net_flow(self) -> list[int]:
        """Items from process i to i + 1; negative: the other way."""
    def run(self, parts: Any) -> Any:
        """Moves the items: takes and returns the arrays of all processes, whose first dimension counts items; on a communicator its own."""
    def _repr_svg_(self) -> str: ...

@final
class ShardSet:
    """An array, or the tensors of a model, in files."""

    @property
    def path(self) -> Path: ...
    @property
    def names(self) -> list[str]:
        """The names of its arrays; that of the only one may be empty."""
    @property
    def nbytes(self) -> int: ...
    @property
    def layout(self) -> Layout:
        """The layout of the only array."""
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def layout_of(self, name: str) -> Layout: ...
    def dtype_of(self, name: str) -> np.dtype[Any]: ...
    def load_as(self, layout: Layout | str, rank: int | None = None, *, name: str | None = None) -> NDArray[Any]:
        """The part that a rank has under any layout: what it needs is read, and of the rest what lies between short pieces. Rank 0 if none is said."""
    def verify(self, progress: Callable[[int, int], object] | None = None) -> dict[str, int]:
        """Reads everything, and checks it."""

def open(
    path: str | PathLike[str],
    *,
    layout: Layout | str | Sequence[str] | Mapping[str, str] | None = None,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> ShardSet:
    """Opens a set: a directory with a manifest; or files without one, as a pattern of names (``"out/rank_{rank:04}.npy"``) and their layout."""

def save(
    path: str | PathLike[str],
    layout: Layout | str,
    parts: Any,
    comm: Any = None,
    *,
    format: str | None = None,
    dtype: DTypeLike | None = None,
    deadline: float | None = None,
) -> None:
    """Writes the parts of all ranks, or each rank its own over a communicator, as a set that is absent or complete.

    ``format`` is "npy", "raw" or "safetensors". A rank without a part says what the others have as ``dtype``, and raw bytes get a name
    that NumPy lacks by it, such as "bf16". ``deadline`` is how many seconds ranks wait for each other (3600).
    """

def convert(
    src: str | PathLike[str],
    dst: str | PathLike[str],
    to: Layout | str | Sequence[str] | Mapping[str, str],
    comm: Any = None,
    *,
    layout: Layout | str | Sequence[str] | Mapping[str, str] | None = None,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    memory: int | None = None,
    axes: Sequence[int] | None = None,
    format: str | None = None,
    names: str | None = None,
    threads: int | None = None,
    resume: bool | None = None,
    checksums: bool | None = None,
    progress: Callable[[int, int], object] | None = None,
    deadline: float | None = None,
) -> dict[str, float]:
    """Writes a set anew under another layout, in at most ``memory`` bytes (256 MiB) whatever its size. Returns what it did.

    ``progress(done, all)`` is called now and then; an exception in it, or Ctrl-C, ends the work, and ``resume=True`` continues it later.
    Over a communicator the ranks share the work, each in that much memory, and such an exception is raised when it is done. ``dst`` is a
    directory, with a pattern of names after it if wanted, or one file; ``checksums=False`` neither checks nor writes any.
    """

def layout_from_state(state: str) -> Layout: ...
def plan_from_state(state: str, dtype: np.dtype[Any], threads: int | None) -> Plan: ...
