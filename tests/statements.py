"""Rounds whose statements are checked against what an adversary knows: who lies, and the truth.

A round is drawn from a seed: a code, dtypes, the kind of partial gradients and lies, who lies, what
energies they tell, in which order messages come, and whether threads flush subnormal numbers to
zero. Then every statement of the round is compared with the truth:

- verified: the error is at most the resolution, and the resolution at most the limit;
- accused: that worker sent something else than it computed;
- decodable: the residual is of the order of rounding, and it is not if the round is not decodable;
- raised: two sets of liars explain the messages and lead to different gradients, or leave it open;
- trusted: without a lie in what is decoded, the error is at most 30 times what trust says.
"""

import itertools
import math

import numpy as np
from floating import FLUSHES, flushing
from liars import dense
from tables import Job

import fastgc

# Codes, and how many liars a round of them looks for.
CODES = [
    (fastgc.Uncoded(6, load=3), 1),
    (fastgc.Uncoded(12, load=6), 2),
    (fastgc.RandomAssignment(8, load=5, seed=1), 1),
    (fastgc.PartialWork(8, load=4), 1),
    (fastgc.LagrangeCode(10, 6, load=4, messages=4), 1),
    (fastgc.LagrangeCode(10, 6, load=4), 1),
    (fastgc.LagrangeCode(10, 8, load=2), 2),
    (fastgc.CouponCollector(12, load=8, seed=3), 1),
    (fastgc.BinaryCode(7, stragglers=2), 1),
    (fastgc.BinaryCode(11, stragglers=4), 2),
    (fastgc.BinaryCode(20, stragglers=2), 1),
    (fastgc.FractionalRepetition(8, stragglers=7), 3),
    (fastgc.FractionalRepetition(9, stragglers=2), 1),
    (fastgc.FractionalRepetition(6, stragglers=2, wait=3), 1),
    (fastgc.CyclicRepetition(12, stragglers=4), 1),
    (fastgc.CyclicRepetition(8, stragglers=3), 2),
    (fastgc.ReedSolomon(9, stragglers=3), 1),
    (fastgc.ReedSolomon(12, stragglers=5), 2),
    (fastgc.ReedSolomon(12, stragglers=2, clusters=3), 1),
    (fastgc.ReedSolomon(7, stragglers=3, packed=False), 1),
    (fastgc.LinearCode(fastgc.ReedSolomon(6, stragglers=2).matrix(), packed=False), 1),
    (fastgc.GraphCode(6, degree=3), 1),
    (fastgc.FractionalRepetition(3, 1000, stragglers=2), 1),
    (fastgc.Grouped([fastgc.ReedSolomon(4, stragglers=2), fastgc.BinaryCode(4, stragglers=1)]), 1),
]
# Workers add so many partial gradients that few rounds of these are played.
LOADED = [
    (fastgc.FractionalRepetition(3, 10_000, stragglers=2), 1),
    (fastgc.GraphCode(6, 20_000, degree=3), 1),
    (fastgc.CyclicRepetition(3, 9_999, stragglers=2), 1),
    (fastgc.ReedSolomon(3, 10_000, stragglers=2), 1),
    (fastgc.BinaryCode(4, 10_000, stragglers=2), 1),
]
FEW = 0.01  # part of the rounds that are of these

SIZES = {
    "float64": [1e-155, 1e-290, 1e-310, 1e150],
    "float32": [1e-36, 1e-39, 1e30],
    "float16": [1e-3],
}
# Of partial gradients, of messages (None: the same), and of the gradient.
FORMATS = [
    ("float64", None, "float64"),
    ("float32", None, "float32"),
    ("float32", "float64", "float32"),
    ("float64", "float32", "float32"),
    ("float32", "float16", "float32"),
]
USUAL = 0.85  # part of the rounds that have one of the first two formats
COMPLEX = {"float32": "complex64", "float64": "complex128"}

SHAPES = ["random", "pairs", "skewed", "sparse", "alike", "equal", "vanishing", "inside"]
LIES = [
    *("noise", "negated", "zero", "half", "huge", "small", "stale", "element"),
    *("hidden", "hidden", "framing", "framing"),
]
ENERGIES = [
    lambda x: math.inf,
    lambda x: 1e308,
    lambda x: 1e32 * x,
    lambda x: 1e4 * x,
    lambda x: 0.0,
    lambda x: 1e-6 * x,
]
CANCELLING = "pairs", "vanishing", "inside"
TELLING = ["all", "nobody", "some"]  # who tells energies

# Trust is an estimate, off by so much at most.
TRUSTED = 30
# Norms are known by projections, which may be off by so much.
BLURRED = 5
# Rounding that a round takes for possible, in units of typical rounding errors of each message.
POSSIBLE = 30
# Part of the largest message: if one may err by more, as its energy claims, it says nothing.
USELESS = 1e-6


class Played:
    """A round that is drawn from a seed and played, for a code and so many liars if they are given.

    `honest` rounds have no liars; `told` says that everybody tells energies. Of each third seed, p
    is one less than a size, and so odd: messages of packed codes are then padded.
    """

    def __init__(self, seed, code=None, e=None, honest=False, told=False, sizes=(2, 6, 50, 700)):
        self.seed = seed
        self.rng = rng = np.random.default_rng(seed)
        codes = LOADED if rng.random() < FEW else CODES
        self.code, self.e = codes[int(rng.integers(len(codes)))]
        if code is not None:
            self.code, self.e = code, e
        self.telling = TELLING[0] if told or rng.random() < 0.85 else TELLING[rng.integers(1, 3)]
        self.limit = None if rng.random() < 0.8 else 10.0 ** rng.uniform(-10, 1)
        self.p = int(rng.choice(sizes)) - (seed % 3 == 0)
        self._draw_format()
        # Without energies, what cancels inside messages shows nowhere.
        untold = self.telling != "all" and rng.random() < 0.5
        shapes = CANCELLING if untold else SHAPES
        self.shape = shapes[int(rng.integers(len(shapes)))]
        # Whether workers add up in orders of their own; and whether those do so in one call that
        # tell no energies, as trust takes it.
        self.own_order = rng.random() < 0.5
        self.at_once = self.telling != "all" and rng.random() < 0.5
        self._encode()
        for self.turn in range(1 + (rng.random() < 0.1)):  # a round may be used again
            count = 0 if honest else rng.integers(0, self.e + 1)
            self.liars = rng.permutation(self.code.n)[:count].tolist()
            self.lie = LIES[int(rng.integers(len(LIES)))]
            self.claim = int(rng.integers(len(ENERGIES))) if rng.random() < 0.4 else None
            self.order = self._order()
            self._lie_all()
            self._play()

    def __repr__(self):
        return (
            f"seed {self.seed}: {self.code!r}, verify={self.e}, {self.formats}, {self.size:g}, "
            f"{self.shape}, {self.lie} by {self.liars}, claim {self.claim}, told by "
            f"{self.telling}, flushes {self.flushes}, p {self.p}, limit {self.limit}"
        )

    def _draw_format(self):
        rng, scheme = self.rng, self.code.scheme
        loaded = scheme.load > 100
        which = rng.integers(2) if rng.random() < USUAL else rng.integers(2, len(FORMATS))
        partial, message, gradient = FORMATS[which]
        if message == "float16" and loaded:  # it overflows
            message = None
        least = message if message in ("float16", "float32") else partial
        self.size = 1.0 if rng.random() < 0.8 else float(rng.choice(SIZES[least]))
        if scheme.data.coded:
            partial, message, gradient = "float64", None, "float64"
            self.size = 1.0
        wide = scheme.layout in ("real", "packed") and message is None and rng.random() < 0.1
        if wide:
            partial, gradient = COMPLEX[partial], COMPLEX[gradient]
        if scheme.layout == "complex":  # it sends no others
            message, gradient = None, partial
        self.formats = partial, message, gradient
        self.flushes = self.size < 1e-30 and (rng.random(2) < 0.3) & FLUSHES
        if loaded:
            self.p = min(self.p, 50)

    def _partials(self):
        code, rng = self.code, self.rng
        if code.scheme.data.coded:
            job = Job(code, seed=int(rng.integers(1000)))
            self.p, self.formats = job.p, (job.partials[0].dtype, None, "float64")
            return np.array(job.partials)
        g = rng.standard_normal((code.k, self.p))
        if np.dtype(self.formats[0]).kind == "c":
            g = g + 1j * rng.standard_normal(g.shape)
        if self.shape == "inside":  # little is left of them in any message, if that can be
            rows = np.vstack([code.matrix().real, code.matrix().imag])
            _, sizes, right = np.linalg.svd(rows, full_matrices=False)
            right = right[sizes > 1e-9 * sizes[0]]
            g = g - (1 - 10.0 ** rng.uniform(-12, 0)) * (right.T @ (right @ g))
        elif self.shape in CANCELLING:
            least = -6 if self.shape == "pairs" else -18
            g[1::2] = -g[: 2 * (code.k // 2) : 2] * (1 - 10.0 ** rng.uniform(least, 0))
            if self.shape == "vanishing" and code.k % 2:
                g[-1] = 0
        elif self.shape == "skewed":
            g *= 10.0 ** rng.integers(-4, 5, (code.k, 1))
        elif self.shape == "sparse":
            g *= rng.random(g.shape) < 0.1
        elif self.shape == "alike":
            g = g[0] + 0.1 * g
        elif self.shape == "equal":
            g = np.tile(g[0], (code.k, 1))
        if self.formats[1] == "float16":
            g *= 1e3 / (np.abs(g).sum(axis=0).max() or 1.0)
        return (self.size * g).astype(self.formats[0])

    def _encode(self):
        code, scheme = self.code, self.code.scheme
        self.g = g = self._partials()
        self.honest = []
        with flushing(bool(np.any(self.flushes) and self.flushes[0])):
            for number in range(scheme.messages.count):
                worker, index = scheme.messages.sender(number)
                kind = {"index": index, "message_dtype": self.formats[1]}
                encoder = code.encoder(worker, self.p, self.formats[0], **kind)
                held = code.partitions(worker, index)
                order = self.rng.permutation(held) if self.own_order else held
                for j in order.tolist():
                    encoder.add(j, g[j])
                message, energy = encoder.message().copy(), encoder.energy
                if self.at_once:
                    message = code.encode(worker, g[held], **kind)
                self.honest.append((message, energy))
        wide = np.longdouble if g.dtype.kind != "c" else np.clongdouble
        self.truth = g.astype(wide).sum(axis=0)
        if scheme.data.coded:
            self.truth = self.code.decode(
                range(scheme.messages.count), [m for m, _ in self.honest], p=self.p
            )

    # ------------------------------------------------------------------------------ the lies

    def _order(self):
        rng, scheme = self.rng, self.code.scheme
        orders = [rng.permutation(scheme.messages.count) for _ in range(8)]
        order, what = orders[0], rng.random()
        if what < 0.2:  # liars first
            order = np.array(
                sorted(order, key=lambda m: scheme.messages.sender(int(m))[0] not in self.liars)
            )
        elif what < 0.4:  # workers one after the other from some point on
            order = (np.arange(order.size) + rng.integers(order.size)) % order.size
        elif what < 0.6:  # checks are weak
            order = min(orders, key=self._seen)
        return order.tolist()

    def _first(self, order):
        """The messages of an order that a round hears first, about as many as it needs."""
        scheme = self.code.scheme
        need = scheme.threshold or scheme.messages.count // 2
        return np.sort(np.array(order[: need + self.e]))

    def _checks(self, numbers):
        return dense(self.code.scheme.parity(numbers), numbers.size)

    def _seen(self, order):
        """How much checks of the first messages see of the liars' that they see least of."""
        first = self._first(order)
        mine = np.flatnonzero(np.isin(self.code.scheme.messages.workers[first], self.liars))
        H = self._checks(first)
        if not mine.size or not len(H):
            return math.inf
        values = np.linalg.svd(H[:, mine], compute_uv=False)
        return 0.0 if values.size < mine.size else float(values[-1])

    def _lie_all(self):
        """Make what is sent: messages and energies."""
        rng, messages = self.rng, self.code.scheme.messages
        self._way = None
        if self.lie in ("hidden", "framing"):
            numbers = np.arange(messages.count)
            if rng.random() < 0.5:
                numbers = self._first(self.order)
            self._way = self._ways(numbers)
        self._scale = 1.0 if rng.random() < 0.5 else 10.0 ** rng.uniform(-10, 3)
        one = rng.random() < 0.2  # only one message of each liar is wrong
        self.sent = []
        for number, (message, energy) in enumerate(self.honest):
            worker, index = messages.sender(number)
            if worker in self.liars and not (one and index):
                message = self._wrong(number, message)
                claim = self.claim
                if claim is not None and rng.random() < 0.2:
                    claim = int(rng.integers(len(ENERGIES)))
                energy = energy if claim is None else ENERGIES[claim](energy)
            silent = self.telling == "nobody" or (self.telling == "some" and rng.random() < 0.5)
            self.sent.append((message, math.nan if silent else energy))

    def lied(self):
        """Workers that sent anything else than they computed."""
        found = set()
        for number in range(len(self.sent)):
            (one, energy), (true, right) = self.sent[number], self.honest[number]
            if one.tobytes() != true.tobytes() or energy not in (right, math.nan):
                found.add(self.code.scheme.messages.sender(number)[0])
        return found & set(self.liars)

    def _wrong(self, number, message):
        with np.errstate(all="ignore"):
            lie = self._lie(number, message).astype(message.dtype)
        return lie if np.isfinite(lie).all() else message  # others are refused

    def _lie(self, number, message):
        rng, size = self.rng, np.linalg.norm(message.astype(np.clongdouble)).astype(float)
        kind = "complex128" if message.dtype.kind == "c" else "float64"
        wide = message.astype(kind)
        noise = rng.standard_normal(message.size).astype(kind)
        element = np.zeros_like(noise)
        padded = message.size > self.p and rng.random() < 0.5
        element[self.p if padded else rng.integers(message.size)] = size
        kinds = {
            "noise": lambda: wide + size * noise,
            "negated": lambda: -wide,
            "zero": lambda: 0 * wide,
            "half": lambda: wide / 2,
            "huge": lambda: wide * 1e20,
            "small": lambda: wide + size * noise * 10.0 ** rng.uniform(-9, -2),
            "stale": lambda: self.honest[(number + 1) % len(self.honest)][0],
            "element": lambda: wide + element * 10.0 ** rng.uniform(-9, 2),
            "hidden": lambda: wide + self._adapted(number, size, noise),
            "framing": lambda: wide + self._adapted(number, size, noise),
        }
        return kinds[self.lie]()

    def _ways(self, numbers):
        """Parts of a change in each of the liars' messages, adapted to the checks of messages.

        Checks see next to nothing of it; or they see what another worker's change would show.
        """
        senders = self.code.scheme.messages.workers[numbers]
        mine = np.flatnonzero(np.isin(senders, self.liars))
        H = self._checks(numbers)
        if not mine.size or not len(H):
            return {}
        others = np.setdiff1d(np.arange(self.code.n), self.liars)
        if self.lie == "framing" and others.size:
            framed = np.flatnonzero(senders == self.rng.choice(others))
            shown = H[:, framed] @ self.rng.standard_normal(framed.size)
            way = np.linalg.lstsq(H[:, mine], shown)[0]
        else:
            way = np.linalg.svd(H[:, mine])[2][-1].conj()
        largest = np.abs(way).max() or 1.0
        return dict(zip(numbers[mine].tolist(), (way / largest).tolist(), strict=True))

    def _adapted(self, number, size, noise):
        part = self._way.get(number, 0.0)
        shared = np.random.default_rng(self.seed + 1).standard_normal(noise.size)
        if self.code.scheme.is_complex and noise.dtype.kind != "c":
            return size * self._scale * (part * shared.view(np.complex128)).view(float)
        return size * self._scale * part * shared

    # ----------------------------------------------------------------------- the round, checked

    def _play(self):
        code, scheme = self.code, self.code.scheme
        partial, message, gradient = self.formats
        self.found, self.came, self.contradicted = [], [], False
        if not self.turn:
            others = {} if partial == gradient else {"partial_dtype": partial}
            options = {"verify": self.e, "limit": self.limit, **others}
            self.rnd = code.round(self.p, gradient, message, **options)
        else:
            self.rnd.reset()
        rnd = self.rnd
        late = self.rng.random() < 0.3  # goes on after it is told to stop
        often = min(0.5, 4 / len(self.order))
        with flushing(bool(np.any(self.flushes) and self.flushes[1])):
            for number in self.order:
                worker, index = scheme.messages.sender(number)
                if not rnd.wants(worker):
                    continue
                message, energy = self.sent[number]
                ready = rnd.receive(worker, message, index, energy=energy)
                self.came.append(number)
                self.decodes()
                if ready or (rnd.decodable and self.rng.random() < often):
                    self.state()
                if ready and not late:
                    break
            self.state(last=True)

    @property
    def kept(self):
        """The messages that came, but those of workers that the round dropped."""
        senders = self.code.scheme.messages.workers
        return [n for n in self.came if self.rnd.wants(int(senders[n]))]

    def decodes(self):
        """Check that the round is decodable if and only if the messages left leave out nothing."""
        scheme, kept = self.code.scheme, self.kept
        spans = bool(kept) and self.code.residual(kept) < 1e-9
        if scheme.data.coded:  # so many distinct points determine a polynomial
            spans |= len(kept) >= scheme.threshold
        if scheme.wait is not None:
            spans |= np.unique(scheme.messages.workers[kept]).size >= scheme.wait
        assert self.rnd.decodable == spans, f"{self}: decodable {self.rnd.decodable}"

    def off(self, gradient, truth, decoded=None):
        """The error relative to what is `decoded`; by default, to the gradient."""
        with np.errstate(all="ignore"):
            return self._off(gradient, truth, decoded)

    def _off(self, gradient, truth, decoded):
        wide = gradient.astype(np.clongdouble if gradient.dtype.kind == "c" else np.longdouble)
        decoded = wide if decoded is None else decoded
        size = float(np.linalg.norm((decoded / self.size).astype(complex)))
        if decoded is not wide:  # compared by sums in float64, which lose what is less
            vector, used = self.rnd._vector(), self.rnd.survivors.tolist()
            parts = [
                abs(a) * self._norm(self.sent[n][0]) for a, n in zip(vector, used, strict=True)
            ]
            size = max(size, 4 * np.finfo(float).eps * math.hypot(*parts))
        error = float(np.linalg.norm(((wide - truth) / self.size).astype(complex)))
        return error / size if size else (0.0 if not error else math.inf)

    def combined(self, messages):
        """What the round decodes of these messages, but for rounding."""
        rnd, form = self.rnd, self.rnd.form
        wide = [np.longdouble, np.clongdouble]
        vector, total = rnd._vector(), 0
        for a, n in zip(vector, rnd.survivors.tolist(), strict=True):
            message = messages[n][0]
            if np.iscomplexobj(vector) and not np.iscomplexobj(message):
                message = message.astype(np.longdouble).view(np.clongdouble)
            total = total + wide[np.iscomplexobj(a)](a) * message.astype(
                wide[np.iscomplexobj(message)]
            )
        if form.decode_mode == fastgc.kernels.REAL_PART:
            return total.real
        real = form.gradient_dtype.kind != "c"
        return total.view(np.longdouble)[: self.p] if real and np.iscomplexobj(total) else total

    @property
    def assumed(self):
        """Whether partial gradients are as a round takes them to be if nobody tells energies."""
        if self.telling == "all":
            return True
        most = 1 / fastgc.coding.verify.default_limit(self.rnd.form)
        return all(
            self._energy(number) <= most * self._norm(message) ** 2
            for number, (message, _) in enumerate(self.honest)
        )

    def _energy(self, number):
        """A message's energy, as told, but for squares that were lost."""
        if self.code.scheme.data.coded:
            return self.honest[number][1]
        sender = self.code.scheme.messages.sender(number)
        held, values = self.code.partitions(*sender), self.code.coefficients(*sender)
        return sum(
            abs(b) ** 2 * self._norm(self.g[j]) ** 2 for b, j in zip(values, held, strict=True)
        )

    def state(self, last=False):
        """Check every statement of the round as it stands."""
        rnd = self.rnd
        assert set(rnd.corrupt) <= self.lied(), f"{self}: accused {rnd.corrupt}"
        if self.telling != "all" and any(math.isnan(self.sent[n][1]) for n in self.came):
            assert not rnd.corrupt, f"{self}: accused {rnd.corrupt} without energies"
        if not self.assumed:
            return  # nobody knows how large rounding errors are: the page on lies says so
        try:
            gradient = rnd.gradient()
        except (fastgc.NotDecodableError, fastgc.CorruptMessageError) as error:
            assert not rnd.verified
            assert not self.found, f"{self}: verified no more"
            if isinstance(error, fastgc.NotDecodableError):
                return
            assert self.lied(), f"{self}: honest messages contradict each other"
            self.suspected(error.suspects)
            if last or not self.contradicted:
                self.contradicts()
            self.contradicted = True
            return
        assert rnd.verified
        resolution = rnd.resolution()
        if self.limit is not None:
            assert resolution <= self.limit
        if np.any(self.flushes) and not any(message.any() for message, _ in self.sent):
            return  # flushed by the workers: the same messages as of partial gradients of 0
        # Of approximate codes, lies are what makes the gradient another one than without them.
        approximate = self.code.scheme.approximate
        truth = self.combined(self.honest) if approximate else self.truth
        off = self.off(gradient, truth, self.combined(self.sent))
        self.found.append(off)
        assert off <= resolution, f"{self}: error {off:.1e}, resolution {resolution:.1e}"
        self.trusts(gradient)

    def trusts(self, gradient):
        """Check that trust holds if no liar's message is decoded."""
        rnd, used = self.rnd, self.rnd.survivors
        if self.lied().intersection(self.code.scheme.messages.workers[used].tolist()):
            return  # what lies change is in the resolution
        if self.telling != "all" and not (self.at_once and self.shape not in CANCELLING):
            return  # it takes messages to be of `Code.encode`, and sees not what cancels in them
        if self.code.scheme.approximate and rnd.residual() > 1e-9:
            return  # what is left out may be of any size: it has not come
        off, trusted = self.off(gradient, self.truth), rnd.trust().relative_error
        assert off <= TRUSTED * trusted, f"{self}: error {off:.1e}, trust {trusted:.1e}"

    def suspected(self, suspects):
        """Check that some liar is among those that may lie."""
        assert self.lied() & {*suspects, *self.rnd.suspects}, f"{self}: suspects {suspects}"

    @flushing(False)
    def contradicts(self):
        """Two sets of liars explain the messages, and lead to other gradients or leave it open.

        A round believes energies that it cannot refute: such messages may err as they claim.
        """
        kept, senders = self.kept, self.code.scheme.messages.workers
        workers = np.unique(senders[kept]).tolist()
        left = self.e - len(set(senders[self.came].tolist()) - set(workers))
        limit = fastgc.coding.verify.default_limit(self.rnd.form)
        limit = limit if self.limit is None else self.limit
        gradients = []
        for count in range(left + 1):
            for lost in itertools.combinations(workers, count):
                explained, gradient, error = self.without(lost, kept)
                if explained and not error <= limit / BLURRED:
                    return
                if explained:
                    gradients.append(gradient)
        assert gradients, f"{self}: the liars explain what the round knows"
        size = min(map(self._size, gradients))
        apart = max(np.linalg.norm(a - gradients[0]) for a in gradients) / size
        least = (
            limit * fastgc.coding.verify.SEEN
        )  # by the proof, what is seen may be of so much more
        assert apart > least, f"{self}: raised where nothing is in doubt"

    def without(self, lost, kept):
        """Whether the messages but those of some workers agree, and what they decode to.

        Also return how far that may be from the truth, relative to its norm.
        """
        senders, scheme = self.code.scheme.messages.workers, self.code.scheme
        scale = self.roundings(kept)
        good = ~np.isin(senders[kept], lost) & (scale < USELESS * self.largest)
        numbers, scale = np.array(kept)[good], scale[good]
        if not numbers.size:
            return True, 0.0, math.inf
        equations, values = scheme.equations(numbers), self._values(numbers.tolist())
        left, sizes, right = np.linalg.svd(equations.rows, full_matrices=False)
        used = sizes > 1e-9 * sizes[0]
        left, sizes, right = left[:, used], sizes[used], right[used]
        checks = np.eye(numbers.size) - left @ left.conj().T
        rest = np.linalg.norm(checks @ values, axis=1)
        own = 100 * np.finfo(float).eps * self.largest
        agree = bool((rest <= np.abs(checks) @ (POSSIBLE * scale) + own).all())
        seen = equations.target @ right.conj().T
        if np.linalg.norm(seen @ right - equations.target) > 1e-9 * np.linalg.norm(seen):
            return agree, 0.0, math.inf
        vector = (seen / sizes) @ left.conj().T
        gradient = vector @ values
        error = POSSIBLE * np.linalg.norm(vector * scale)
        size = self._size(gradient)
        return agree, gradient, error / size if size else math.inf

    def _size(self, gradient):
        """Norm of what messages decode to, but for padding."""
        padded = np.iscomplexobj(gradient) and self.sent[0][0].size > self.p
        return np.linalg.norm(gradient.view(float)[: self.p] if padded else gradient)

    @property
    def largest(self):
        """Norm of the largest honest message."""
        return max(self._norm(message) for message, _ in self.honest)

    def _norm(self, message):
        return float(np.linalg.norm(message.astype(np.clongdouble) / self.size))

    def _values(self, numbers):
        """The messages as numbers; lies that are far too large are all shorter by one factor."""
        most = 10 * self.largest
        norms = [self._norm(self.sent[n][0]) for n in numbers]
        longest = max(max(norms) / most, 1.0)
        rows = [self.sent[n][0].astype(complex) / self.size for n in numbers]
        rows = [
            row / (longest if norm > most else 1.0) for row, norm in zip(rows, norms, strict=True)
        ]
        values = np.array(rows)
        if values.dtype.kind == "c" and not np.iscomplexobj(self.sent[0][0]):
            values = values.real.copy()
            if self.code.scheme.is_complex:
                values = values.view(complex)
        return values

    def roundings(self, numbers):
        """Typical rounding errors of the messages, as far as the round may believe in them."""
        form, sent, scheme = self.rnd.form, self.rnd._sent, self.code.scheme
        own = fastgc.coding.verify.unit_roundoff(form.message_dtype)
        sums = fastgc.coding.verify.unit_roundoff(form.sum_dtype) * (math.sqrt(scheme.load) + 2)
        # Squares that a thread flushed to zero are in no energy.
        lost_squares = np.finfo(float).tiny * self.p * scheme.load
        honest = [(self._norm(m), math.sqrt(e + lost_squares) / self.size) for m, e in self.honest]
        largest = [max(each) for each in zip(*honest, strict=True)]
        # What threads flush of messages, and of the partial gradients in them.
        lost = max(fastgc.coding.verify.least_number(form.message_dtype), sent.least) / self.size
        least = own * 1e-6 * largest[0] + lost * math.sqrt(self.p * scheme.load)
        found = []
        for n in numbers:
            message, energy = self.sent[n]
            size = min(self._norm(message), largest[0])
            assumed = size / math.sqrt(fastgc.coding.verify.default_limit(form))
            told = math.sqrt(energy + lost_squares) / self.size
            inside = assumed if math.isnan(energy) else told
            found.append(own * size + sums * inside + least)
        return np.array(found)
