"""Which backend is in use: the fastest there is, or the one that was asked for."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from .completion import Completion, CompletionPlan
from .cover import CellsPlan, TilingPlan
from .cyclic import CyclicPlan, CyclicStream, Decode, StreamCalls, Where
from .delays import DelayPlan
from .edges import EdgesPlan
from .fourier import Polar
from .rows import CombineRows, EncodeRows, Rows

__all__ = ["NAMES", "backend", "backends", "folds_floats", "load", "use_backend"]

BackendName = Literal["c", "numba", "numpy"]
NAMES = ("c", "numba", "numpy")  # best first


class Backend(Protocol):
    """What each backend offers."""

    def bind_decoding_vector(
        self,
        plan: CyclicPlan,
        survivors: NDArray[np.int64],
        out: NDArray[np.complex128],
        longest: float,
    ) -> tuple[Decode, Where]: ...

    def bind_polar(
        self,
        plan: CyclicPlan,
        survivors: NDArray[np.int64],
        present: NDArray[np.bool_],
        size: NDArray[np.float64],
        out: NDArray[np.complex128],
    ) -> Polar: ...

    def bind_stream(self, plan: CyclicPlan, stream: CyclicStream) -> StreamCalls: ...

    def decoding_vectors(
        self,
        plan: CyclicPlan,
        masks: NDArray[np.bool_],
        method: int,
        out: NDArray[np.complex128],
        where: NDArray[np.int64],
        longest: float,
    ) -> None: ...

    def bind_survivor_mask(
        self, n: int, survivors: NDArray[np.int64], bits: NDArray[np.uint8]
    ) -> Callable[[int], int]: ...

    def bind_cells(
        self, plan: CellsPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
    ) -> Callable[[int], int]: ...

    def bind_tiling(
        self, plan: TilingPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
    ) -> Callable[[int], int]: ...

    def bind_edges(
        self, plan: EdgesPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
    ) -> Callable[[int], int]: ...

    def combine(
        self,
        mode: int,
        rows: Rows,
        coef: NDArray[Any],
        out: NDArray[Any],
        extent: int,
        accumulate: bool,
        check: bool,
    ) -> bool: ...

    def combine_pairs(
        self,
        rows: Rows,
        coef: NDArray[np.complex128],
        out: NDArray[np.float64],
        extent: int,
        paired: bool,
        rounded: bool,
        accumulate: bool,
        check: bool,
    ) -> bool: ...

    def bind_combine(
        self,
        mode: int,
        rows: Rows,
        numbers: NDArray[np.int64],
        coef: NDArray[Any],
        out: NDArray[Any],
        extent: int,
        accumulate: bool,
        check: bool,
    ) -> CombineRows: ...

    def bind_encode(
        self,
        mode: int,
        rows: Rows,
        coef: NDArray[Any],
        weights: NDArray[np.float64],
        out: NDArray[Any],
        extent: int,
        accumulate: bool,
    ) -> EncodeRows: ...

    def square_sum(self, x: NDArray[Any]) -> float: ...

    def sgd(
        self,
        theta: NDArray[Any],
        velocity: NDArray[Any] | None,
        gradient: NDArray[Any],
        lr: float,
        momentum: float,
    ) -> float: ...

    def nesterov(
        self,
        theta: NDArray[Any],
        point: NDArray[Any],
        gradient: NDArray[Any],
        lr: float,
        momentum: float,
    ) -> float: ...

    def amsgrad(
        self,
        theta: NDArray[Any],
        h: NDArray[Any],
        v: NDArray[Any],
        gradient: NDArray[Any],
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
    ) -> float: ...

    def replace(
        self, old: NDArray[Any], new: NDArray[Any], total: NDArray[Any] | None
    ) -> float: ...

    def square_distance(self, x: NDArray[Any], y: NDArray[Any]) -> float: ...

    def leja_order(self, nodes: NDArray[Any], order: NDArray[np.int64]) -> None: ...

    def solve_vandermonde(
        self,
        nodes: NDArray[Any],
        b: NDArray[Any],
        order: NDArray[np.int64] | None,
        transpose: bool,
        out: NDArray[Any],
        forced: bool,
        bound: NDArray[np.float64] | None,
        choose: bool,
    ) -> bool: ...

    def lagrange_products(
        self,
        nodes: NDArray[Any],
        points: NDArray[Any],
        mantissa: NDArray[Any],
        exponent: NDArray[np.int64],
        hit: NDArray[np.int64],
    ) -> None: ...

    def lagrange_basis(
        self,
        nodes: NDArray[Any],
        weights: NDArray[Any],
        weight_exponent: NDArray[np.int64],
        points: NDArray[Any],
        out: NDArray[Any],
    ) -> None: ...

    def lagrange_weights(
        self,
        nodes: NDArray[Any],
        scaled: NDArray[Any],
        weights: NDArray[Any],
        exponent: NDArray[np.int64] | None,
    ) -> int | None: ...

    def lagrange_evaluate(
        self,
        nodes: NDArray[Any],
        weights: NDArray[Any],
        weight_exponent: NDArray[np.int64],
        values: NDArray[Any],
        points: NDArray[Any],
        scale: float,
        out: NDArray[Any],
    ) -> bool: ...

    def bind_functional(
        self,
        nodes: NDArray[Any],
        points: NDArray[Any],
        chosen: NDArray[np.int64],
        out: NDArray[Any],
    ) -> Callable[[int], int]: ...

    def ridge(
        self,
        circle: NDArray[np.complex128],
        turns: NDArray[np.int64],
        c: int,
        unit: float,
        out: NDArray[np.complex128],
    ) -> None: ...

    def ridge_pairs(
        self,
        circle: NDArray[np.float64],
        turns: NDArray[np.int64],
        c: int,
        out: NDArray[np.complex128],
    ) -> None: ...

    def locator_pairs(
        self,
        circle: NDArray[np.float64],
        turns: NDArray[np.int64],
        out: NDArray[np.complex128],
    ) -> None: ...

    def completion(
        self,
        plan: CompletionPlan,
        delay: NDArray[np.float64],
        work: NDArray[np.float64],
        late: NDArray[np.float64],
        receive: float,
        overhead: float,
        interrupted: bool,
        out: Completion,
    ) -> None: ...

    def draw(
        self,
        delays: DelayPlan,
        first: int,
        wait: NDArray[np.float64],
        whole: NDArray[np.float64],
    ) -> None: ...


active: Backend | None = None  # None until a kernel is first asked for
name = ""


def backends() -> tuple[str, ...]:
    """Names of the backends that can be used here, the preferred one first."""
    needs = {"c": "fastgc.kernels._cffi", "numba": "numba", "numpy": "numpy"}
    return tuple(name for name in NAMES if importlib.util.find_spec(needs[name]) is not None)


def _select(wanted: str) -> None:
    global active, name
    if wanted not in NAMES:
        raise ValueError(f"unknown backend {wanted!r}: choose one of {', '.join(NAMES)}")
    try:
        module: ModuleType = importlib.import_module(f".{wanted}", __package__)
    except ImportError as error:
        raise ImportError(
            f"the {wanted!r} backend cannot be loaded ({error}); available: {', '.join(backends())}"
        ) from error
    active, name = cast(Backend, module), wanted


def load() -> Backend:
    """The backend in use, chosen now if a kernel is asked for the first time."""
    if active is None:
        _select(os.environ.get("FASTGC_BACKEND") or backends()[0])
    assert active is not None
    return active


def backend() -> str:
    """Name of the backend in use: "c", "numba" or "numpy"."""
    load()
    return name


def folds_floats() -> bool:
    """Whether rows of float32 are added up in float32, a few at a time: by C; others in float64."""
    return backend() == "c"


class use_backend:
    """Use this backend from now on, or for the length of a ``with`` statement.

    The choice holds for the whole process. Objects made earlier that keep prepared pointers
    (rounds, decoders, encoders) go on with the backend they were made under.

    Parameters
    ----------
    name : {"c", "numba", "numpy"}

    Raises
    ------
    ValueError
        If there is no backend of that name.
    ImportError
        If it cannot be loaded here.
    """

    def __init__(self, name: BackendName | str) -> None:
        self._before = backend()
        _select(name)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _select(self._before)
