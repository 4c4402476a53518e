"""Liars with s + 1 copies: verified rounds whose master asks again (Hofmeister et al. 2024).

Contradictions between messages show with half as many copies as it takes to tell which messages are
wrong (`fastgc.coding.verify`). The master then asks the suspects what each of their partial
gradients contributed. It computes as few partial gradients itself as decide who lies. A suspect
that does not answer remains one: its message stays, and the master computes its answer.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import Array, Bools, Ints, check_index, check_integer, unit_roundoff
from ..errors import CorruptMessageError
from ..numerics.parity import SAFETY
from .format import Format
from .round import NOBODY, Costs, Host, Round
from .scheme import Coded, Scheme
from .trust import Watch
from .verify import Finding

Compute = Callable[[int], ArrayLike]
_Said = Mapping[int, ArrayLike | None]  # answers by worker; None: no answer
Ask = Callable[[list[int], int], _Said]
_Case = Generator[list[int], _Said, None]

# Roundings, in units of SAFETY, by which a claim about a partial gradient may differ from what the
# master computes, and from the claim of another worker: a little more than twice as many.
_OFF, _APART = 2.0, 5.0


class AskingRound(Round):
    """A verified round that identifies liars with only as many messages as show that they lie.

    With ``verify=s``, s spare messages show that up to s workers lie, but 2s are needed to identify
    them: copies of every partition on 2s + 1 workers. Here copies on s + 1 workers are enough. If
    messages contradict each other, `settle` asks the suspects.

    Parameters
    ----------
    code : Code
        Its workers must send one message each. Each partition must be on more than `liars` workers.
    p, dtype, message_dtype, tracker
        As in `Round`; messages must be float32, float64 or complex.
    liars : int
        Largest number of workers that may lie, s: 1 to 16.
    partial_dtype : numpy dtype, optional
        As in `Round`.

    Attributes
    ----------
    costs : Costs
        What asking cost in this round.
    silent : list of int
        Workers that were asked and did not answer; the master computes their answers.

    Raises
    ------
    ValueError, TypeError
        As `Round`, and for codes and messages about which workers cannot be asked.

    Notes
    -----
    The protocol is that of Hofmeister, Maßny, Yaakobi, Bitar, "Byzantine-resilient gradient coding
    through local gradient computations" (arXiv 2401.02380), for any code and for floating-point
    numbers, with one question instead of a tournament of matches. A question is a seed, drawn after
    all messages have come. For each partition of the worker, the answer has the norm of its
    gradient and the gradient's inner products with the random vector of this seed. Then

    1. a worker that contradicts its own message lies;
    2. if two workers contradict each other on a partition, the master computes its gradient, and
       the worker that is wrong lies;
    3. if no workers do, and more workers than may still lie have computed or claimed each
       partition, the messages differ by a few roundings at most, and all are used.

    So each computation identifies a liar, at most s as in the paper, except for computations that
    replace missing claims. An answer has w (m + 1) numbers, for a load of w and m pieces. In the
    paper it has one number at each of about log2(w) levels, but each level takes a round trip.

    The master stops waiting as soon as other messages show who lies. A suspect that does not answer
    may be honest: its message is kept, and the master computes all its partial gradients, at most
    w, instead of its answer.

    A seed stays secret until all messages that it compares have come. If a later message
    contradicts others, the suspects are asked with a new seed.

    Contradictions are noticed as in `fastgc.coding.verify`, by a random projection of each message,
    and missed as rarely. In float64 the probability of a miss is of the order of 1e-12. In float32
    it is up to some thousandths, for lies that exceed rounding errors by a factor of 1e5.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> from fastgc.codes import AskingRound
    >>> code = fastgc.FractionalRepetition(6, stragglers=1)  # two copies, one liar
    >>> g = np.arange(60.0).reshape(6, 10)
    >>> rnd = AskingRound(code, 10, liars=1)
    >>> for worker in range(6):
    ...     message = code.encode(worker, g[code.partitions(worker)])
    ...     ready = rnd.receive(worker, -message if worker == 4 else message)
    >>> def ask(workers, seed):  # what each of them does
    ...     return {i: AskingRound.answer(code, i, g[code.partitions(i)], seed) for i in workers}
    >>> rnd.settle(ask, lambda partition: g[partition])
    Costs(asks=2, numbers=8, computed=0)
    >>> rnd.corrupt, bool((rnd.gradient() == g.sum(axis=0)).all())
    ([4], True)
    """

    _sampling: _Sampling  # drawn anew in each round before a worker is asked

    def __init__(
        self,
        code: Coded,
        p: int,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
        tracker: Watch | None = None,
        *,
        liars: int,
        partial_dtype: DTypeLike | None = None,
    ) -> None:
        if isinstance(liars, bool) or check_integer("liars", liars) < 1:
            raise ValueError(f"liars must be a number of workers, at least 1, not {liars!r}")
        _require_askable(code.scheme, code.scheme.format(p, dtype, message_dtype))
        self._liars = liars
        types = p, dtype, message_dtype
        super().__init__(code, *types, tracker, verify=liars, partial_dtype=partial_dtype)

    def reset(self) -> None:
        """Forget all messages, and all who lied."""
        self._claims: dict[int, Array] = {}  # workers' answers
        self._truth: dict[int, Array] = {}  # partitions' answers that the master computed
        self._before: set[int] = set()  # workers whose messages had come when it was drawn
        self.costs, self.silent = Costs(), list[int]()
        self._host = NOBODY  # if it computes, contradictions are settled as they come
        self._case: _Case | None = None  # the contradiction being settled
        self._open: dict[int, int] = {}  # workers that owe an answer, and the seed of the question
        self._said: dict[int, ArrayLike | None] = {}
        self._new: list[tuple[int, int]] = []  # questions not yet told by `questions`
        self.due = math.inf
        super().reset()

    @staticmethod
    def answer(
        code: Coded,
        worker: int,
        partials: Iterable[ArrayLike],
        seed: int,
        *,
        dtype: DTypeLike | None = None,
        message_dtype: DTypeLike | None = None,
    ) -> Array:
        """Return the answer of an honest worker: a few numbers about each partial gradient.

        Parameters
        ----------
        code : Code
        worker : int
        partials : iterable of (p,) arrays
            The partial gradients of its message, in the order of ``code.partitions(worker)``. Each
            is read before the next is taken.
        seed : int
            The seed of the question.
        dtype, message_dtype : numpy dtypes, optional
            Those of the round. Default: that of `partials` for both.

        Returns
        -------
        (w, pieces + 1) float64 or complex128 array
            For each partial gradient, the inner products of its pieces with a random vector, and
            its norm. Complex for codes with complex coefficients.

        Raises
        ------
        ValueError
            If there are not as many partial gradients as the worker has partitions.
        TypeError, ValueError
            If there is no such worker, or the round cannot ask about these messages.
        """
        scheme = code.scheme
        worker = check_index("worker", worker, scheme.n)
        sampling = None
        told = []
        for partial in partials:
            array = np.asarray(partial)
            if sampling is None:
                form = scheme.format(
                    array.size, array.dtype if dtype is None else dtype, message_dtype
                )
                _require_askable(scheme, form)
                sampling = _Sampling(scheme, form, check_integer("seed", seed))
            told.append(sampling.of_partial(array))
        held = scheme.partitions(worker).size
        if len(told) != held:
            raise ValueError(f"worker {worker} has {held} partitions, got {len(told)} gradients")
        return np.array(told)

    @property
    def contradicted(self) -> bool:
        """Whether messages contradict each other, so that `settle` would ask."""
        return not self._inspect().holds

    def _covers(self, used: Bools) -> bool:
        """As in `Round`, or true once as many liars are named as there may be."""
        return not self._left() or super()._covers(used)

    def settle(self, ask: Ask | None, compute: Compute) -> Costs:
        """Ask until no messages contradict each other, and drop the wrong ones.

        Without a contradiction it does nothing. You may call it again after further messages.

        Parameters
        ----------
        ask : callable or None
            ``ask(workers, seed)`` returns the `answer` of each worker. Workers that do not answer
            are missing or None, and the master computes their answers. No worker is asked twice
            with the same seed. If `ask` is None, no worker is asked, and the master computes
            everything that the suspects have computed.
        compute : callable
            ``compute(partition)`` returns the partial gradient of a partition, a (p,) array, as
            workers compute it, up to rounding.

        Returns
        -------
        Costs
            The costs of this round so far.

        Raises
        ------
        CorruptMessageError
            If more than `liars` workers lied.
        """
        case = self._settling(compute, ask is not None)
        try:
            asked = next(case)
            while True:
                assert ask is not None
                self._count(asks=len(asked))
                said = ask(asked, self._sampling.seed)
                asked = case.send({worker: said.get(worker) for worker in asked})
        except StopIteration:
            return self.costs

    def begin(self, host: Host) -> None:
        """Begin a round; if the host computes, contradictions are settled as they come."""
        self._host = host

    @property
    def ready(self) -> bool:
        """As in `Round`, but false while answers are awaited."""
        return self._ready and self._case is None

    @property
    def awaited(self) -> Collection[int]:
        """Workers that owe an answer."""
        return self._open

    def receive(
        self, worker: int, message: ArrayLike, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        """Take a worker's message, as in `Round`."""
        super().receive(worker, message, index, energy=energy)
        host = self._host
        if self._case is not None:
            if not self.contradicted:  # this message settled it: no answers are needed
                self._go_on()
        elif host.compute is not None and self._decodable and self.contradicted:
            self._case = self._settling(host.compute, host.asks)
            self._ask(next(self._case, []))
        return self.ready

    def _go_on(self) -> None:
        """Resume settling with the answers that came."""
        assert self._case is not None
        said, self._said = self._said, {}
        try:
            asked = self._case.send(said)
        except StopIteration:
            asked = []
        self._ask(asked)

    def _ask(self, asked: list[int]) -> None:
        """Queue a question to each of these workers not asked yet; none closes the case."""
        if not asked:
            self._case, self._open, self._new, self.due = None, {}, [], math.inf
            return
        seed = self._sampling.seed
        new = [(worker, seed) for worker in asked if self._open.get(worker) != seed]
        self._open = dict.fromkeys(asked, seed)
        if new:
            self._new = [each for each in self._new if each in self._open.items()] + new
            self._count(asks=len(new))
            self.due = min(self._host.deadline, self._host.clock() + self._host.answer_timeout)

    def _count(self, asks: int = 0, numbers: int = 0, computed: int = 0) -> None:
        """Add to the costs."""
        each = zip(self.costs, (asks, numbers, computed), strict=True)
        self.costs = Costs(*(before + more for before, more in each))

    def questions(self) -> list[tuple[int, int]]:
        """Return the suspects to be asked, each with a seed. Each question is returned once."""
        new, self._new = self._new, []
        return new

    def hear(
        self, worker: int, what: Any, answer: Array | None, *, energy: float = math.nan
    ) -> Ints:
        """Take a suspect's answer; None means that none will come."""
        if worker in self._open and what == self._open[worker]:
            self._said[worker] = None if answer is None else answer.copy()
            del self._open[worker]
            if not self._open:
                self._go_on()
        return super().hear(worker, what, answer, energy=energy)

    def straggles(self, worker: int) -> None:
        """As in `Round`; it will not answer either."""
        super().straggles(worker)
        if worker in self._open:
            self.hear(worker, self._open[worker], None)

    def elapse(self) -> None:
        """Go on without the answers that are missing."""
        self._said |= dict.fromkeys(self._open)
        self._open = {}
        self._go_on()

    def _settling(self, compute: Compute, asks: bool) -> _Case:
        """Settle contradictions, as `settle` says: yield workers to ask, and be sent answers."""
        while True:
            assert self._inspector is not None
            finding = self._inspect()
            if len(self.corrupt) > self._liars:
                raise CorruptMessageError(
                    f"messages of {len(self.corrupt)} workers are corrupt, {self.corrupt}, and at "
                    f"most liars={self._liars} were expected: other messages may be corrupt, too",
                    tuple(self.corrupt),
                )
            if self._inspector.liars != self._left():
                self._inspector.expect(self._left())
                self._finding = None
                continue
            if finding.holds:
                self._decide()
                return
            suspects = self._suspects(finding)
            unsaid = [worker for worker in suspects if worker not in self._claims]
            new = [worker for worker in unsaid if asks and worker not in self.silent]
            if wrong := self._wrong(suspects, compute):
                self._drop(wrong)
                self._finding = None
            elif not self._before.issuperset(suspects):
                self._draw()
            elif new:
                self._take_claims((yield new))
            elif unsaid:
                self._compute_claims(unsaid, compute)
            elif wrong := self._wrong_of_few(suspects, compute):
                self._drop(wrong)
                self._finding = None
            else:  # nothing is wrong by more than rounding
                covered = self._inspector.covered(self.survivors)
                self._conclude(finding._replace(covered=covered, holds=True))

    def _left(self) -> int:
        """Return how many workers may still lie, beside those already named."""
        return max(0, self._liars - len(self.corrupt))

    def _suspects(self, finding: Finding) -> list[int]:
        groups = [group or self.survivors.tolist() for group in finding.suspects]
        return sorted(set().union(*groups))

    def _draw(self) -> None:
        """Draw a new seed. All messages that it is to compare have come, so none can change."""
        self._sampling = _Sampling(self.scheme, self.form, secrets.randbits(63))
        self._before = set(self.survivors.tolist())
        self._claims.clear()
        self._truth.clear()

    def _take_claims(self, said: _Said) -> None:
        """Take suspects' answers, and note who gave none."""
        for worker, answer in said.items():
            claims = self._answered(answer, self.scheme.partitions(worker).size)
            if claims is None:
                self.silent.append(worker)
            else:
                self._claims[worker] = claims

    def _compute_claims(self, workers: list[int], compute: Compute) -> None:
        """Compute what these workers should have answered."""
        for worker in workers:
            held = self.scheme.partitions(worker).tolist()
            self._claims[worker] = np.array([self._true(j, compute) for j in held])

    def _answered(self, said: ArrayLike | None, held: int) -> Array | None:
        """Return an answer as an array; None if missing, all NaN (always wrong) if malformed."""
        reals = 2 if self.scheme.is_complex else 1
        shape = held, self.scheme.pieces + 1
        if said is None:
            return None
        self._count(numbers=math.prod(shape) * reals)
        kind = np.complex128 if self.scheme.is_complex else np.float64
        found = np.full(shape, np.nan, dtype=kind)
        told = np.asarray(said)
        if told.shape == shape and told.dtype.kind in ("fc" if reals == 2 else "f"):
            found[:] = told
        return found

    def _true(self, partition: int, compute: Compute) -> Array:
        if partition not in self._truth:
            self._truth[partition] = self._sampling.of_partial(np.asarray(compute(partition)))
            self._count(computed=1)
        return self._truth[partition]

    def _contradicts_itself(self, worker: int) -> bool:
        """Say whether a worker's claims do not add up to its message."""
        message = self._rows.arrays[int(np.flatnonzero(self.survivors == worker)[0])]
        sent, size = self._sampling.of_message(message)
        coefficients = self.scheme.coefficients(worker).reshape(-1, self.scheme.pieces)
        claims = self._claims[worker]
        with np.errstate(over="ignore", invalid="ignore"):
            said = (coefficients * claims[:, :-1]).sum()
            parts = (np.abs(coefficients).sum(axis=1) * np.abs(claims[:, -1])).sum()
            roundings = size + (len(claims) + 2) * parts
            within = SAFETY * self._sampling.unit * roundings
            # Python's own abs raises an error beyond float64.
            return not float(np.abs(sent - said)) <= within < math.inf

    def _claimed(self, suspects: list[int]) -> dict[int, list[tuple[int, Array]]]:
        """Return the claims about each partition, with the workers that made them."""
        claimed: dict[int, list[tuple[int, Array]]] = {}
        for i in suspects:
            if i in self._claims:
                held = self.scheme.partitions(i).tolist()
                for j, claim in zip(held, self._claims[i], strict=True):
                    claimed.setdefault(j, []).append((i, claim))
        return claimed

    def _wrong(self, suspects: list[int], compute: Compute) -> list[int]:
        """Return who contradicts the own message; else who is wrong where claims differ most."""
        wrong = [i for i in suspects if i in self._claims and self._contradicts_itself(i)]
        claimed = self._claimed(suspects)
        if wrong or not claimed:
            return wrong
        apart = {
            j: max(self._sampling.apart(claim, claims[0][1]) for _, claim in claims)
            for j, claims in claimed.items()
        }
        worst = max(apart, key=apart.__getitem__)
        return self._untrue(worst, claimed[worst], compute) if apart[worst] > _APART else []

    def _wrong_of_few(self, suspects: list[int], compute: Compute) -> list[int]:
        """Return workers with a wrong claim about a partition that few enough claim to all lie."""
        for j, claims in self._claimed(suspects).items():
            if len(claims) <= self._left() and (wrong := self._untrue(j, claims, compute)):
                return wrong
        return []

    def _untrue(
        self, partition: int, claims: list[tuple[int, Array]], compute: Compute
    ) -> list[int]:
        """Compute a partition's gradient, and return the workers whose claims differ from it."""
        truth = self._true(partition, compute)
        return [i for i, claim in claims if self._sampling.apart(truth, claim) > _OFF]


def _require_askable(scheme: Scheme, form: Format) -> None:
    if scheme.codes_data or scheme.message_count != scheme.n:
        raise ValueError(
            f"workers of {scheme._made_by.__name__} cannot be asked for partial gradients: this "
            "needs a code of gradients, not of data, whose workers send one message each"
        )
    if form.scaled or form.message_dtype.char not in "fdFD":
        raise TypeError(
            "workers can be asked about messages of float32, float64 or complex numbers, not of "
            f"{form.message_dtype}"
        )


class _Sampling:
    """Inner products of a message, and of the pieces of partial gradients, with a random vector."""

    def __init__(self, scheme: Scheme, form: Format, seed: int) -> None:
        self.seed = seed
        self._form, self._pieces = form, scheme.pieces
        self._paired = scheme.is_complex and form.message_dtype.kind == "f"
        size = form.message_size // 2 if self._paired else form.message_size
        self._vector = np.random.default_rng(seed).standard_normal(size)
        self.unit = unit_roundoff(form.message_dtype) + 2.0**-53 * math.sqrt(size)
        self._kind = np.dtype(np.complex128 if scheme.is_complex else np.float64)

    def _numbers(self, array: Array) -> Array:
        wide = array.astype(np.result_type(array, np.float64))
        return wide.view(np.complex128) if self._paired else wide

    def of_message(self, message: Array) -> tuple[complex, float]:
        """Return the message's inner product, and its norm."""
        numbers = self._numbers(message.view(self._form.message_dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            return complex(numbers @ self._vector), _norm(numbers)

    def of_partial(self, partial: Array) -> Array:
        """Return the inner products of the partial gradient's pieces, and its norm."""
        p, size = self._form.gradient_size, self._form.message_size
        if partial.shape != (p,):
            raise ValueError(f"a partial gradient must be of shape ({p},), not {partial.shape}")
        padded = np.zeros(self._pieces * size, dtype=partial.dtype)
        padded[:p] = partial
        found = np.empty(self._pieces + 1, dtype=self._kind)
        with np.errstate(over="ignore", invalid="ignore"):
            for u, piece in enumerate(padded.reshape(self._pieces, size)):
                found[u] = self._numbers(piece) @ self._vector
            found[-1] = _norm(padded.astype(np.result_type(padded, np.float64)))
        return found

    def apart(self, one: Array, other: Array) -> float:
        """Return how far claims differ, in units of SAFETY roundings of the smaller norm."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            far = float(np.abs(one - other).max())
            if far == 0:
                return 0.0
            least = min(abs(one[-1]), abs(other[-1]))
            found = far / (SAFETY * self.unit * least) if least else math.inf
        return math.inf if math.isnan(found) else found


def _norm(numbers: Array) -> float:
    """Return the norm, even if squares overflow: an infinite bound would allow anything."""
    largest = float(np.abs(numbers).max(initial=0.0))
    if not 0 < largest < math.inf:
        return largest
    return largest * float(np.linalg.norm(numbers / largest))
