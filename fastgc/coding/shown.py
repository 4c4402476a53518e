"""Codes and rounds as people see them: pictures, tables, and what notebooks show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .._arrays import at_least, check_index
from .._shown import facts, listed, plural, short
from ..kernels import Arrivals
from .format import Format
from .picture import svg, text_of
from .scheme import Scheme

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = ["ShownCode", "ShownRound"]

_LISTED = 20  # workers that a table shows by itself
_COLUMNS = 16  # partitions up to which each has a column
_STRIP = 256  # workers up to which a round's picture has a cell for each
_CAME, _AWAITED, _CORRUPT = "#0072B2", "#ddd", "#D55E00"


class ShownCode(Scheme):
    """A scheme that can be looked at."""

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw who computes what, with which coefficients: `fastgc.plotting.assignment`.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; else a new figure that pyplot does not know of, ``ax.figure``.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.

        Examples
        --------
        >>> import fastgc
        >>> ax = fastgc.BinaryCode(12, stragglers=3).draw()
        >>> ax.figure.savefig("code.png")  # doctest: +SKIP
        """
        from ..plotting.rounds import assignment

        return assignment(self, ax)

    def table(self, workers: Iterable[int] | None = None, digits: int = 3) -> str:
        """The encoding matrix B as a text to print: what each worker computes and sends.

        Numbers are rounded, and what is too small to be seen beside the rest of its number is left
        out: `matrix` has what the kernels use, rounding errors and all.

        Parameters
        ----------
        workers : iterable of int, optional
            Default: the first 20.
        digits : int
            Significant digits of the coefficients.

        Returns
        -------
        str
            A line for each message, of up to 16 partitions with a column for each.

        Raises
        ------
        TypeError, ValueError
            If there is no such worker, or `digits` is below 1.

        Examples
        --------
        >>> import fastgc
        >>> print(fastgc.ReedSolomon(4, stragglers=1).table())
        ReedSolomon(n=4, stragglers=1): coefficients of partitions in messages
        worker     0     1     2     3
             0  2-2j     ·  2-2j     ·
             1  2+2j     ·  2+2j     ·
             2     ·  2-2j     ·  2-2j
             3     ·  2+2j     ·  2+2j
        """
        digits = at_least("digits", digits, 1)
        chosen = range(min(self.n, _LISTED)) if workers is None else workers
        chosen = [check_index("worker", worker, self.n) for worker in chosen]
        what = "coded blocks of data" if self.codes_data else "partitions"
        lines = [f"{self!r}: coefficients of {what} in messages"]
        labels, rows = [], []
        for worker in chosen:
            count = self.message_counts[worker]
            for index in range(count):
                labels.append(str(worker) if count == 1 else f"{worker}, message {index}")
                held = self.partitions(worker, index).tolist()
                values = self.coefficients(worker, index)
                texts = [
                    ";".join(text_of(each, digits) for each in np.atleast_1d(value))
                    for value in values
                ]
                rows.append(dict(zip(held, texts, strict=True)))
        width = max((len(label) for label in [*labels, "worker"]), default=0)
        if self.shard_count <= _COLUMNS:
            columns = range(self.shard_count)
            wide = [max(len(str(j)), *(len(row.get(j, "·")) for row in rows), 1) for j in columns]
            head = "".join(f"  {j:>{wide[j]}}" for j in columns)
            lines.append(f"{'worker':>{width}}{head}")
            for label, row in zip(labels, rows, strict=True):
                cells = "".join(f"  {row.get(j, '·'):>{wide[j]}}" for j in columns)
                lines.append(f"{label:>{width}}{cells}")
        else:
            lines.append(f"{'worker':>{width}}  partition: coefficient")
            for label, row in zip(labels, rows, strict=True):
                cells = "  ".join(f"{j}: {text}" for j, text in row.items())
                lines.append(f"{label:>{width}}  {cells}")
        if workers is None and self.n > _LISTED:
            lines.append(f"… {self.n} workers in all")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What notebooks show: parameters, and who computes what."""
        tolerated = "not known" if self.stragglers is None else self.stragglers
        least, load = int(self.loads.min()), self.load
        told: list[tuple[str, object]] = [
            ("workers n", self.n),
            ("partitions k", self.k),
            ("load w", load if least == load else f"{least} to {load}"),
            ("stragglers s tolerated", tolerated),
        ]
        if self.message_count != self.n:
            told.append(("messages of a round", self.message_count))
        kind = "complex" if self.is_complex else "integers" if self.integral else "real"
        told += [
            ("message, in gradients", short(self.message_weight)),
            ("coefficients", kind),
        ]
        return (
            '<div style="display:flex;gap:1.5em;align-items:center">'
            f"{facts(repr(self), told)}{svg(self)}</div>"
        )


class ShownRound:
    """A round at the master that can be looked at."""

    code: Scheme
    form: Format
    corrupt: list[int]
    _arrivals: Arrivals
    _decodable: bool
    _ready: bool

    @property
    def message_size(self) -> int:
        """Elements of a message."""
        return self.form.message_size

    def _came(self) -> list[int]:
        """Workers of which a message came, in ascending order."""
        heard = np.asarray(self._arrivals.heard, dtype=bool)
        senders = np.repeat(np.arange(self.code.n), self.code.message_counts)
        return np.unique(senders[heard[: senders.size]]).tolist()  # type: ignore[no-any-return]

    def _state(self) -> str:
        if self._decodable:
            return "ready" if self._ready else "decodable, waits for more messages"
        return "not decodable yet"

    def __repr__(self) -> str:
        came = int(np.count_nonzero(self._arrivals.heard))
        said = [f"{came} of {plural(self.code.message_count, 'message')}", self._state()]
        if self.corrupt:
            said.append(f"corrupt: workers {listed(self.corrupt)}")
        kind = self.form.gradient_dtype
        return (
            f"<{type(self).__name__} of {self.code!r}, {self.form.gradient_size} elements of "
            f"{kind}: {', '.join(said)}>"
        )

    def _repr_html_(self) -> str:
        """What notebooks show: who came, and whether that suffices."""
        came = self._came()
        told: list[tuple[str, object]] = [
            ("gradient", f"{self.form.gradient_size} elements of {self.form.gradient_dtype}"),
            (
                "messages",
                f"{int(np.count_nonzero(self._arrivals.heard))} of {self.code.message_count}",
            ),
            ("workers heard from", listed(came, 16) or "none"),
            ("state", self._state()),
        ]
        if self.corrupt:
            told.append(("corrupt", f"workers {listed(self.corrupt)}"))
        picture = _strip(self.code.n, came, self.corrupt) if self.code.n <= _STRIP else ""
        return f"<div>{facts(f'round of {self.code!r}', told)}{picture}</div>"


def _strip(n: int, came: list[int], corrupt: list[int]) -> str:
    """A cell for each worker: dark if a message came, pale if not."""
    across = min(n, 32)
    fills = [_AWAITED] * n
    for worker in came:
        fills[worker] = _CAME
    for worker in corrupt:
        fills[worker] = _CORRUPT
    cells = "".join(
        f'<rect x="{worker % across}" y="{worker // across}" width=".9" height=".9" '
        f'fill="{fill}"><title>worker {worker}</title></rect>'
        for worker, fill in enumerate(fills)
    )
    down = -(-n // across)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{12 * across}" height="{12 * down}" '
        f'viewBox="0 0 {across} {down}" role="img" aria-label="workers, dark if a message came">'
        f"{cells}</svg>"
    )
