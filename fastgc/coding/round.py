"""One iteration at the master: messages go in, what it waits for and the gradient come out.

A transport carries and decides nothing. A master decides which worker gets what and carries
nothing. A round says what it waits for. A new kind of round is a subclass of `Gathering`, in one
file; masters and engines need not know it. Two kinds are here: `Round` takes any messages that
come, and `Chosen` exactly the messages of an earlier run, so that it decodes the same bits again.

*Events.* Whoever runs a round calls `begin`, and then one method for each event, from one thread:

=============  ====================================================================
`receive`      a worker has sent a message
`hear`         a worker has sent a share that it was asked for, or cannot
`straggles`    a worker has died, or was dead when the round began
`elapse`       the time `due` has come
=============  ====================================================================

*States.* After each event the round says where it stands:

- `ready`: it needs nothing more, and is over. If it has `linger`, it still takes messages for a
  while.
- `questions`: which workers to ask for shares of others. Whoever runs the round asks them. Those
  that have not answered are `owing`.
- `due`: when to call `elapse`, if nothing else happens before.
- Otherwise it waits for messages. If no more can come, it is over, too. Whoever runs it uses what
  came if the round is `decodable`, and else raises what `require` raises.

*Invariants.*

1. A round that is ready gets nothing more, unless it lingers.
2. It gets each message once, and none of a worker that it does not want (`wants`).
3. A worker that was asked owes an answer to the last question only. A worker that has died, or that
   `elapse` passed over, owes none. An answer that is not owed changes nothing.
4. `elapse` moves `due` to a later time. So each round ends, whoever is silent.
5. `survivors` are among the messages that the round got (`taken`), each once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import kernels
from .._base.arrays import (
    Array,
    Floats,
    Ints,
    Output,
    as_real,
    check_index,
    check_vector,
    check_workers,
    is_zero,
)
from .._base.text import listed, plural
from ..errors import CorruptMessageError, NotDecodableError
from ..kernels import Status
from ..kernels.arrivals import NEXT, Arrivals, Tally
from .arguments import Uncopied
from .format import Format
from .plan import Plan, blame, warn_of_error
from .rules import Sooner
from .scheme import Coded, Decoder
from .trust import Approximation, Estimate, Partial, Trust, Watch, nearest_vector

_NO_MESSAGES = np.empty(0, dtype=np.int64)

# Statuses by which `Arrivals` says that it took a message. As ints they compare in half the time.
_TOO_FEW, _OK = int(Status.TOO_FEW), int(Status.OK)


class Share(NamedTuple):
    """A request to a worker: the message of another worker whose partitions it holds.

    Attributes
    ----------
    worker : int
        The other worker.
    """

    worker: int


class Host(NamedTuple):
    """What whoever runs a round offers it.

    Attributes
    ----------
    clock : callable
        ``clock()`` returns the seconds by which rounds are timed.
    asks : bool
        Whether workers answer questions.
    least_wait : float
        Seconds that an answer may take, at least, before others are asked instead.
    """

    clock: Callable[[], float]
    asks: bool = True
    least_wait: float = math.inf


# The host of a round that no host has begun: no time passes.
NOBODY = Host(lambda: 0.0, asks=False)


class Gathering(Uncopied):
    """A round: it takes the messages of workers, and says what it waits for.

    `Cluster.collect` runs it. Your own subclass defines `ready`, `survivors`, `receive` and
    `require`, and sets `code` and `form`; everything else has a default. Messages are overwritten
    in the next round: copy what you keep.

    Attributes
    ----------
    code : Code
        The code of the cluster.
    form : Format
        The format of the cluster's rounds, with its size and dtypes.
    linger : float or None
        A round that is `ready` takes more messages until all have come, or until (1 + linger) times
        as long has passed as until the first one came. None: it takes no more.
    verified : bool
        As `Round.verified`.
    verifies : bool
        Whether it compares messages with each other. If workers could change messages afterwards,
        it gets copies.
    replaceable : bool
        Whether other messages can replace one that is not finite, if the round verifies, which
        finds it when it comes. Otherwise its error ends the round.
    due : float
        Time on the `Host`'s clock at which to call `elapse`; inf: not until something happens.
    asks : int
        Number of questions to workers so far.
    stood_in : tuple of (int, int, float)
        For each message that a worker computed for its owner: the message, that worker, and when
        it was asked, in seconds since the round began.
    """

    code: Coded
    form: Format
    linger: float | None = 0.0
    verified: bool = False
    verifies: bool = False
    replaceable: bool = True
    due: float = math.inf
    asks: int = 0
    stood_in: tuple[tuple[int, int, float], ...] = ()

    @property
    def ready(self) -> bool:
        """Whether no more messages need come."""
        raise NotImplementedError

    @property
    def decodable(self) -> bool:
        """Whether the messages so far suffice if no more come. Default: whether it is ready."""
        return self.ready

    @property
    def survivors(self) -> Ints:
        """Numbers of the messages used, in order of arrival."""
        raise NotImplementedError

    @property
    def taken(self) -> Ints:
        """Numbers of the messages that came, used or not. Default: the survivors."""
        return self.survivors

    @property
    def corrupt(self) -> list[int]:
        """Workers whose messages are no longer taken. Default: none."""
        return []

    @property
    def owing(self) -> Collection[int]:
        """Workers that owe an answer. Default: none."""
        return ()

    def begin(self, host: Host) -> None:
        """Begin, with what the `Host` offers. Default: do nothing."""

    def receive(
        self, worker: int, message: Array, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        """Take a message, as `Round.receive`; return whether the round is ready."""
        raise NotImplementedError

    def questions(self) -> Sequence[tuple[int, Share]]:
        """Return workers to ask, and for whose share. Each question is returned once.

        Default: none.
        """
        return ()

    def hear(
        self, worker: int, what: Share, answer: Array | None, *, energy: float = math.nan
    ) -> Ints:
        """Take a worker's answer to a question, None if it has none.

        Return the numbers of the messages that come with it. Default: none.
        """
        return _NO_MESSAGES

    def straggles(self, worker: int) -> None:
        """Note that no further message of this worker will come. Default: do nothing."""

    def elapse(self) -> None:
        """Stop waiting for what was `due`. Default: nothing is."""

    def require(self, messages: Ints) -> None:
        """Raise NotDecodableError unless these messages alone would suffice."""
        raise NotImplementedError

    def wants(self, worker: int) -> bool:
        """Whether messages of this worker are of use. Default: True."""
        return True

    def resolution(self) -> float:
        """Largest relative error that liars can have caused unseen; NaN, by default: unknown."""
        return math.nan

    def lapse(self, why: str) -> None:
        """Note that the messages have been overwritten. Default: nobody reads them."""


class Round(Gathering):
    """One iteration at the master: messages in, gradient out.

    A round keeps references to the messages, not copies. Do not change them until `gradient` has
    returned. `reset` makes the round ready for the next iteration.

    Only `gradient`, `best` and `trust` read messages, and only those with a coefficient other than
    0. NaN and Inf in others change nothing, and nobody looks for them.

    This class takes messages as they are. `fastgc.coding.verified.VerifiedRound`, which
    `fastgc.Code.round` makes with ``verify=``, compares them with each other first.

    Parameters
    ----------
    code : Code
    p : int
        The gradient dimension.
    dtype : numpy dtype
        Dtype of the gradient: float32 if `message_dtype` is float16 or bfloat16.
    message_dtype : numpy dtype, optional
        Dtype of the messages. For float32 gradients it may be float16 or bfloat16, which are
        shorter, or float64, which is more precise. Default: `dtype`.
    tracker : StabilityTracker, optional
        Records how precise each gradient is, and may ask for more messages.
    first_worker : int
        The number of worker 0 in errors, if the code is the code of one group among others.
    partial_dtype : numpy dtype, optional
        Dtype of the workers' partial gradients, if messages are less precise, for instance float32
        messages of float64 gradients. A worker's sum is then rounded only once, and cancellation
        inside it does less harm.

    Attributes
    ----------
    form : Format
        Dtypes and sizes of gradient and messages.

    Raises
    ------
    ValueError, TypeError
        If arguments do not fit, or the code has no such message format.
    """

    linger = None

    def __init__(
        self,
        code: Coded,
        p: int,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
        tracker: Watch | None = None,
        *,
        first_worker: int = 0,
        partial_dtype: DTypeLike | None = None,
    ) -> None:
        self.code, self.scheme, self._watch = code, code.scheme, tracker
        scheme = self.scheme
        self._first_worker = first_worker
        self.form = form = scheme.format(p, dtype, message_dtype)
        if form.gradient_dtype != np.dtype(dtype):
            raise TypeError(
                f"messages of {form.message_dtype} decode to gradients of {form.gradient_dtype}: "
                f"dtype must be {form.gradient_dtype}, not {np.dtype(dtype)}"
            )
        self._sent = self._as_sent(p, partial_dtype)
        self._rows = form.room(scheme.messages.count)
        self._decoder = Decoder(scheme, form.unit)
        # C counts messages by most rules, if no messages are dropped.
        self._tally = tally = scheme.rule.tally()
        counted = tally if isinstance(tally, Tally) and not self.verifies else None
        self._counted = counted is not None
        self._arrivals = Arrivals(
            self._rows,
            self._decoder.survivors,
            np.array(scheme.messages.first),
            counted,
            self._prepare(),
            (form.message_dtype, form.message_size),
        )
        self._keep = self._rows.arrays.append
        # Squared norms of messages and gradient, from decoding, once `trust` has been asked for.
        self._squares: Floats | None = None
        self._directly = self._bind()
        self._accept = self._arrivals.accept
        self.reset()

    def _prepare(self) -> kernels.rows.Projecting | None:
        """Make what a subclass keeps beside the messages; return what to project them by."""
        return None

    def _bind(self) -> kernels.rows.CombineApart | None:
        """Decode in one call, if nothing is to be looked at before or after."""
        if self.scheme.gate.waits or self._watch is not None:
            return None
        return Plan(self._decoder, self.form, True, self._squares).run

    def _as_sent(self, p: int, partial_dtype: DTypeLike | None) -> Format:
        """The format by which workers encode."""
        form = self.form
        if partial_dtype is None:
            return form
        sent = self.scheme.format(p, partial_dtype, form.message_dtype)
        if sent.gradient_dtype != form.gradient_dtype:
            raise TypeError(
                f"partial gradients of {sent.partial_dtype} do not decode to gradients of "
                f"{form.gradient_dtype}, but to {sent.gradient_dtype}"
            )
        return sent

    def reset(self) -> None:
        """Forget all messages."""
        self._arrivals.reset()
        self._lapsed = ""
        if not self._counted:
            self._tally.reset()
        # The method that filled the decoder's vector, and for how many messages; likewise those
        # whose norms are in `_squares`, and whose doubt is in `_error`.
        self._filled = self._noted = self._doubted = "", 0
        self._decodable = self._ready = False

    def lapse(self, why: str) -> None:
        """Declare that the messages have been overwritten and must not be read any more.

        Until `reset`, methods that would read them raise a RuntimeError that says `why`.
        """
        self._lapsed = why

    @property
    def message_size(self) -> int:
        """Number of elements of a message."""
        return self.form.message_size

    def _state(self) -> str:
        if self.decodable:
            return "ready" if self._ready else "decodable, waits for more messages"
        return "not decodable yet"

    def __repr__(self) -> str:
        came, form = int(np.count_nonzero(self._arrivals.heard)), self.form
        said = [f"{came} of {plural(self.scheme.messages.count, 'message')}", self._state()]
        if self.corrupt:
            said.append(f"corrupt: workers {listed(self.corrupt)}")
        return (
            f"<{type(self).__name__} of {self.scheme!r}, {form.gradient_size} elements of "
            f"{form.gradient_dtype}: {', '.join(said)}>"
        )

    @property
    def survivors(self) -> Ints:
        """Numbers of the messages so far, in order of arrival."""
        numbers: Ints = self._decoder.survivors[self._places()]
        return numbers.copy()

    def _places(self) -> Any:
        """Positions of the messages that are used, among all that came. Default: all."""
        return slice(self._rows.count)

    @property
    def decodable(self) -> bool:
        """Whether the gradient can be decoded."""
        if self._decodable or not isinstance(self.scheme.rule, Sooner):
            return self._decodable
        return not self.scheme.rule.missing(self.survivors)

    @property
    def ready(self) -> bool:
        """Whether the gradient should be decoded now.

        A round may be `decodable` and not ready: a tracker may wait for more messages, and so may a
        code that decodes some sets of messages imprecisely. An example is `LagrangeCode`, if
        workers send several messages: it waits until the set is better, or n - s workers have sent
        all of theirs.
        """
        return self._ready

    def require(self, messages: Ints) -> None:
        """Raise NotDecodableError unless these messages alone would suffice."""
        checked = self.scheme.check_survivors(messages)
        if self.scheme.rule.missing(checked):
            self.scheme.raise_too_few(checked)

    def receive(
        self, worker: int, message: ArrayLike, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        """Take a worker's message, whose dtype and shape are checked. It is not read yet.

        Parameters
        ----------
        worker : int
        message : (message_size,) array
        index : int, optional
            Which of the worker's messages, if it sends several in a round. Default: the one after
            the last that came.
        energy : float, optional
            `Encoder.energy` of the encoder that made the message. Without it `trust` cannot see
            cancellation inside the message, nor `verify` how large its rounding errors are.

        Returns
        -------
        bool
            Whether the round is `ready`.

        Raises
        ------
        TypeError, ValueError
            If it does not fit, or came before. The round is unchanged.
        """
        at = NEXT if index is None else index
        if type(worker) is type(at) is int and not self._lapsed:
            try:
                status = self._accept(worker, at, id(message), energy)
            except (OverflowError, TypeError):  # of the first that C cannot take
                return self._receive(worker, message, index, energy)
            if status == _TOO_FEW:
                self._keep(message)
                return False
            if status == _OK:
                return self._took(message)
        return self._receive(worker, message, index, energy)

    def _receive(self, worker: int, message: ArrayLike, index: int | None, energy: float) -> bool:
        """`receive` for messages that C does not take as they are."""
        scheme, form = self.scheme, self.form
        worker, energy = check_index("worker", worker, scheme.n), as_real("energy", energy)
        named = self._first_worker + worker
        self._require_fresh()
        if not self.wants(worker):
            raise ValueError(
                f"messages of worker {named} were found to be corrupt in this round: no more of "
                "them are taken"
            )
        if index is None:
            index, sent = self._next_of(worker), scheme.messages.counts[worker]
            if index >= sent > 0:
                what = "was heard already" if sent == 1 else f"sent all its {sent} messages already"
                raise ValueError(f"worker {named} {what} in this round")
        number = scheme.messages.number(worker, index)
        if self._arrivals.heard[number]:
            what = "" if scheme.messages.counts[worker] == 1 else f"message {index} of "
            raise ValueError(f"{what}worker {named} was heard already in this round")
        row = check_vector(
            "message of worker", message, form.message_dtype, form.message_size, number=named
        )
        at = number - scheme.messages.first[worker]
        status = self._arrivals.arrive(worker, at, form.reals(row, form.decode_mode), energy)
        if status == _TOO_FEW:
            self._keep(row)
            return False
        if status != _OK:
            form.require_finite(named, row)
        return self._took(row)

    def _took(self, message: Any) -> bool:
        """Note a message that C took, and may suffice; return whether the round is ready."""
        self._keep(message)
        if self._counted or self._tally.add(int(self._arrivals.numbers[self._rows.count - 1])):
            self._decodable = True
        if self._decodable and not self._ready:
            self._ready = self._enough()
        return self._ready

    def _next_of(self, worker: int) -> int:
        """Which of a worker's messages is due next, if they come in order."""
        return int(self._arrivals.next[worker])

    def _enough(self) -> bool:
        """Whether neither the code nor the tracker waits for more messages."""
        if self._complete:
            return True
        gate = self.scheme.gate
        if gate.waits and gate.awaits_more(self.survivors, self._doubt):
            return False
        return self._watch is None or self._watch.enough(lambda: self.trust().relative_error)

    def _doubt(self, method: str = "auto") -> float:
        """`Gate.doubt` of the messages so far, which is computed once."""
        vector, key = self._vector(method), (method, self._rows.count)
        if self._doubted != key:
            self._error = self.scheme.gate.doubt(self.survivors, vector, self.form)
            self._doubted = key
        return self._error

    @property
    def _complete(self) -> bool:
        """Whether no further message can be taken."""
        return self._rows.count == self.scheme.messages.count

    def _require_fresh(self) -> None:
        if self._lapsed:
            raise RuntimeError(f"the messages of this round are gone: {self._lapsed}")

    def _vector(self, method: str = "auto") -> Array:
        """The decoding vector of the messages so far."""
        f = len(self._rows.arrays)
        if self._filled != (method, f):
            self._decoder.fill(f, method)
            self._filled = method, f
        return self._decoder.vector[:f]

    def _fill(self, method: str) -> int:
        """Write the vector of all messages so far to the decoder's; return how many they are."""
        return len(self._vector(method))

    def _require_verified(self) -> None:
        """Raise an error if lies could be in what is decoded. Default: nobody looks."""

    def _vouched(self, vector: Array) -> Array:
        """Return a vector for `best`; raise as `_require_verified`."""
        return vector

    def gradient(self, out: Output | None = None, method: str = "auto") -> Array:
        """Decode from every message received.

        Parameters
        ----------
        out : (p,) array, optional
            Contiguous and writable, of the round's dtype. It must not share memory with a message.
        method : str, default "auto"
            As in `Code.decoding_vector`.

        Raises
        ------
        NotDecodableError
            If more messages are needed.
        NonFiniteMessageError
            If a message that was read holds NaN or Inf. `out` is undefined then.
        UnstableRoundError
            If the tracker finds the gradient too imprecise and was told to raise; `out` is
            unchanged.
        CorruptMessageError
            With `verify`, if messages contradict each other, and what the gradient is depends on
            which are corrupt.
        UnverifiedError
            With `verify`, if messages agree but are not `verified`.
        """
        if not self._lapsed:
            self._require_verified()
            if self._directly is not None and self._decodable:
                form, f = self.form, self._fill(method)
                found = np.empty(form.gradient_size, form.gradient_dtype) if out is None else out
                if not self._directly(self._rows, found, f):
                    self._noted = method, f
                    return found
        target = self._output(out)
        vector = self._vector(method)
        if self.scheme.gate.waits and (error := self._doubt(method)):
            warn_of_error(self.scheme, self.survivors.size, error)
        if self._watch is None:
            self._combine(vector, target, method)
        else:
            self._note_norms()
            gradient = self._combine(vector, self._output(None), method)
            predicted = self._trust(method).relative_error
            self._watch.record(self.scheme, self.survivors, vector, self.form, predicted)
            target[:] = gradient
        decoded: Array = target if out is None else out
        return decoded

    def residual(self) -> float:
        """What `gradient` leaves out, as `Approximation.residual`: computed from messages' rows."""
        return self.scheme.precision.residual(self.survivors, self._vector())

    def best(self, out: Output | None = None, partial: Partial = "best") -> Approximation:
        """The best approximation from the messages so far, for a master that waits no longer.

        It is what `Code.decode` gives with this `partial`: the gradient, if the messages determine
        it.

        Raises
        ------
        NotDecodableError
            If it is to be unbiased, and the messages contain nothing of the gradient.
        ValueError
            If there is no message.
        NonFiniteMessageError, CorruptMessageError, UnverifiedError
            As `gradient` does, also if messages do not suffice.
        """
        target = self._output(out)
        if not self._rows.count:
            raise ValueError("there is no approximation without any message")
        found = nearest_vector(self.scheme, self.survivors, self.form.unit, partial)
        self._combine(self._vouched(found.vector), target)
        return Approximation(target if out is None else out, found.residual, found.mean)

    def _output(self, out: Output | None) -> Any:
        self._require_fresh()
        target = self.form.output(out)
        # Decoding would overwrite that message, which `trust` or another `gradient` reads.
        if out is not None and self._rows.overlap(target):
            raise ValueError("out shares memory with a message that was received")
        return target

    def _combine(self, vector: Array, out: Any, method: str = "") -> Any:
        """Combine all messages by a vector, which was computed by this method."""
        squares = None if self._squares is None else self._squares[: self._rows.count + 1]
        self._noted = method, self._rows.count
        if not self.form.combine(self._rows, vector, out, True, squares):
            numbers = self._decoder.survivors[: self._rows.count]
            which = self.scheme, self.form, numbers, self._rows.arrays, vector
            blame(*which, self._first_worker)
        return out

    def trust(self) -> Trust:
        """How far to trust the gradient that these messages decode to.

        The estimate uses the norms of the messages and of the gradient, so it includes cancellation
        between messages. If `receive` got the energy of each message, as engines give it, the
        estimate also includes cancellation inside messages.

        The first call decodes once more. From then on `gradient` notes the norms, which takes it
        1.0 to 1.9 times the time, and `trust` after it reads no message.
        """
        if self._squares is None or self._noted != ("auto", self._rows.count):
            self._note_norms()
            self._combine(self._vector(), self._output(None), "auto")
        return self._trust("auto")

    def _note_norms(self) -> None:
        """Have `gradient` note norms from now on."""
        if self._squares is None:
            self._squares = squares = np.empty(self.scheme.messages.count + 1)
            self._directly = self._bind()
            came = self._decoder.vector, self._arrivals.numbers, squares, self._arrivals.energies
            self._estimate = Estimate(self.scheme, self._sent, *came)

    def _trust(self, method: str) -> Trust:
        """Return trust in what this method decodes, whose norms were noted."""
        assert self._squares is not None
        f = self._fill(method)
        zero = not self._squares[f] and all(map(is_zero, self._rows.arrays))
        return self._estimate(self._places(), f, zero)


class Chosen(Gathering):
    """A round that takes exactly the messages that were chosen beforehand.

    It decodes them in the chosen order, so sums round exactly as when they came in this order. The
    round `rnd` takes the messages, once all have come. `numbers` are theirs, or a boolean for each
    message of the code, and their workers must be among those `asked`. If `partial` is "raise",
    they must suffice, as in `fastgc.engines.RoundOptions`; otherwise NotDecodableError is raised.
    """

    linger = None
    replaceable = False

    def __init__(
        self, rnd: Gathering, numbers: ArrayLike, asked: frozenset[int], partial: Partial | str
    ) -> None:
        self.code, self.form = rnd.code, rnd.form
        chosen = check_workers("survivors", numbers, self.code.scheme.messages.count)
        senders = [self.code.scheme.messages.sender(m)[0] for m in chosen.tolist()]
        if len(set(chosen.tolist())) < chosen.size:
            raise ValueError(f"survivors name a message twice: {chosen.tolist()}")
        if not asked.issuperset(senders):
            strangers = sorted(set(senders) - asked)
            raise ValueError(f"survivors are of workers {strangers}, which take no part")
        if partial == "raise":
            rnd.require(chosen)
        self._round, self._chosen = rnd, chosen
        self._missing = set(chosen.tolist())
        self._held: dict[int, tuple[Array, float]] = {}

    @property
    def ready(self) -> bool:
        """Whether all chosen messages came."""
        return not self._missing

    def resolution(self) -> float:
        """As for the inner round."""
        return self._round.resolution()

    # As for the inner round. It has the chosen messages once all came, and none before.
    decodable, corrupt, verifies, verified, survivors = (
        property(attrgetter(f"_round.{name}"))
        for name in ("decodable", "corrupt", "verifies", "verified", "survivors")
    )

    def straggles(self, worker: int) -> None:
        """As for the inner round."""
        self._round.straggles(worker)

    def receive(
        self, worker: int, message: Array, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        """Take a message, or ignore one that was not chosen; return whether the round is ready."""
        number = self.code.scheme.messages.number(worker, index or 0)
        if number in self._missing:
            self._held[number] = message, energy
            self._missing.remove(number)
            if not self._missing:
                self._pass_on()
        return self.ready

    def _pass_on(self) -> None:
        """Pass the messages on to the inner round; a corrupt one cannot be replaced."""
        for m in self._chosen.tolist():
            worker, index = self.code.scheme.messages.sender(m)
            message, energy = self._held[m]
            self._round.receive(worker, message, index, energy=energy)
            if self._round.corrupt:
                raise CorruptMessageError(
                    f"the survivors that were chosen include messages of workers "
                    f"{self._round.corrupt}, which are corrupt",
                    tuple(self._round.corrupt),
                )

    def require(self, messages: Ints) -> None:
        """Raise NotDecodableError unless `messages` include all chosen ones that are missing."""
        missing = sorted(self._missing.difference(messages.tolist()))
        if missing:
            raise NotDecodableError(
                f"messages {missing}, which were chosen as survivors, are missing", len(missing)
            )
