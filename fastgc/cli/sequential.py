"""``fastgc sequential``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import typer

from ..codes import catalogue
from . import options
from .common import CHOOSING, Options, command, echo, numbers, option
from .options import DELAYS, completes, named
from .output import Heading, Tables, check_pictures, draw, milliseconds
from .values import one_count, read_recorded

if TYPE_CHECKING:
    from ..planning import Recording
    from ..sequential import Compared

_ENOUGH, _MOST = 40, 200  # `hint` needs this many recorded rounds, and uses no more


def _names() -> list[str]:
    from .. import sequential

    return [*sequential.names(), *catalogue.names()]


class Schemes(Options):
    """The schemes to compare, and the rounds."""

    names: list[str] | None = options.codes(
        "m-sgc, sr-sgc, codes, and module:Class, such as m-sgc:burst=1,window=2,stragglers=3 "
        "binary. The first rounds choose what a name leaves open.",
        "these two and five codes",
        complete=completes(_names),
    )
    workers: str = options.workers(stragglers=False)
    models: int = option(
        4,
        "Models that are trained in turn. A model's step must be done before its next one begins.",
        min=1,
    )
    mu: str = option(
        "0/0.2/1",
        "A round waits at least (1 + mu) times as long as the fastest worker takes. Give one "
        "number, or several to choose among, such as 0/0.2/1. Codes go on as soon as they can "
        "decode.",
    )
    delays: str = options.delays(DELAYS)
    cost: float = options.cost("Seconds to compute one of n partitions.")
    rounds: int = options.rounds(400, "Rounds to simulate.")
    probe: int | None = option(
        None,
        "How many of the rounds choose what names leave open; the others are timed. (default: "
        "half, at most 100)",
        min=1,
    )
    seed: int = options.seed()
    finish: bool = options.finish("what")
    recorded: Path | None = options.recorded("Use the rounds of this file, in their order")
    unit: str = options.unit()
    per: str = options.per()
    plot: Path | None = options.picture(
        "Plot the number of finished gradients over time, and seconds per gradient for all that "
        "was tried, to this file."
    )
    width: str = options.width()


class _Times(NamedTuple):
    """Seconds of rounds at load `at_load`, and the seconds that a unit of load adds."""

    seconds: Any
    slope: Any
    at_load: float


@command(
    CHOOSING, "fastgc sequential m-sgc sr-sgc binary -n 12 --cost 0.8 --delays exponential:mean=0.1"
)
def sequential(context: typer.Context, what: Schemes, output: Tables) -> None:
    """Compare coding across rounds, for several models in turn, with coding each round by itself.

    A worker that straggles in one round makes up for it in later ones. The table lists the fastest
    first, by seconds per gradient.
    """
    from .. import plotting
    from ..sequential import compare
    from ..sequential.simulation import NAMES

    output.check()
    check_pictures(what.width, what.plot)
    recording = read_recorded(context, what, "delays", "rounds", "workers")
    if recording is None:
        times, source = _drawn(what), f"{what.delays}, {what.cost:g} s per partition"
    else:
        times, source = _times(recording), recording.source
        if recording.per == "round":
            source += f"; {recording.cost:.3g} s per partition"
    found = compare(
        times.seconds,
        named(what.names) or NAMES,
        models=what.models,
        mu=numbers("--mu", what.mu, "a number, or several as in 0/0.2/1"),
        load_slope=times.slope,
        at_load=times.at_load,
        interrupted=not what.finish,
        probe=what.probe,
        seed=what.seed,
        progress=True,
    )
    n = times.seconds.shape[1]
    about = f"n = {n}; {source}"
    draw(lambda: plotting.sequential_curves(found, caption=about), what.plot, what.width)
    figures = [_figures(each) for each in found]
    if not output.write(figures, figures):
        _show(found, figures, f"n={n} workers, {what.models} models; {source}", output)


def _drawn(what: Schemes) -> _Times:
    from ..delays import parse
    from ..delays.interface import per_of, sample

    model = parse(what.delays)
    n = one_count("--workers", what.workers)
    late = np.zeros((what.rounds, n))
    if model is not None:
        late[:] = [sample(model, t, n, what.seed) for t in range(what.rounds)]
    if per_of(model) == "computation":
        return _Times(np.zeros_like(late), late + what.cost, 0.0)
    return _Times(late, what.cost, 0.0)


def _times(recording: Recording) -> _Times:
    """Return the times of a recording."""
    if recording.per == "computation":
        return _Times(np.zeros_like(recording.times), recording.times, 0.0)
    # A time is at least as long as its computation.
    return _Times(np.maximum(recording.times, recording.cost), recording.cost, 1.0)


def hint(recording: Recording, name: str, seconds: float, seed: int) -> str | None:
    """Return a remark for `fastgc plan` if coding across rounds is faster than its best code.

    It tries few parameters and rounds, so that it takes little time compared to the plan.
    """
    from ..sequential import compare

    times = _times(recording)
    if len(times.seconds) < _ENOUGH:
        return None
    asked = ("m-sgc:burst=1,window=2", "m-sgc:burst=2,window=3", "sr-sgc:burst=1,window=2")
    best = compare(
        times.seconds[:_MOST],
        asked,
        mu=(0.2, 1.0),
        load_slope=times.slope,
        at_load=times.at_load,
        interrupted=False,  # as in the plan
        probe=_ENOUGH // 2,
        seed=seed,
    )[0]
    ratio = best.run.seconds_per_job / seconds
    if not ratio < 1:
        return None
    return (
        f"Where {best.scheme.delay + 1} models are trained in turn, {best.text} (load "
        f"{best.scheme.load:.3g}) takes {ratio:.2f} times as long for a gradient as {name}, "
        "without decoding: `fastgc sequential --recorded … --finish` compares more."
    )


def _figures(found: Compared) -> dict[str, Any]:
    """Return all figures of a scheme; times are in seconds."""
    run, scheme = found.run, found.scheme
    return {
        "scheme": found.text,
        "load": scheme.load,
        "delay": scheme.delay,
        "mu": found.mu,
        "seconds_per_gradient": run.seconds_per_job,
        "standard_error": run.standard_error,
        "waited": float(run.waited.mean()) if found.mu else float("nan"),
        "stragglers": float(run.stragglers.mean()),
        "rounds": run.rounds.size,
        "gradients": run.done.size,
        "tried": len(found.tried),
    }


def _show(found: list[Compared], figures: list[dict[str, Any]], title: str, output: Tables) -> None:
    from ..sequential.catalogue import describe

    rows = [
        [
            each["scheme"],
            f"{each['load']:.3g}",
            str(each["delay"]),
            f"{each['mu']:g}" if each["delay"] else "–",
            milliseconds(each["seconds_per_gradient"], 4),
            milliseconds(each["standard_error"], 2),
            "–" if np.isnan(each["waited"]) else f"{100 * each['waited']:.0f}%",
            *([f"{each['stragglers']:.1f}"] if output.markdown else []),
        ]
        for each in figures
    ]
    chosen = max(each["tried"] for each in figures) > 1
    rounds = found[0].run.rounds.size
    title += f"; {rounds} rounds" + ", after those that chose parameters" * chosen
    columns: list[Heading] = [
        "scheme",
        "load",
        ("T", "done after rounds"),
        "mu",
        ("time", "seconds per gradient, ms"),
        ("±", "standard error"),
        ("waited", "rounds that waited longer"),
        *(["stragglers, mean"] if output.markdown else []),
    ]
    output.show(title, columns, rows, describe)
    if output.markdown:
        return
    echo(
        "load: partitions per worker and round, where uncoded has 1; T: further rounds that a "
        "gradient may take after its first; time: per gradient, ms (±: its standard error); "
        "waited: share of rounds that lasted longer than (1 + mu) times the fastest worker's time"
    )
    names = dict.fromkeys(each.name for each in found)
    echo(f"Schemes: {', '.join(map(describe, names))}.")
