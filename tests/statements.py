"""Rounds whose statements are checked against what an adversary knows: who lies, and the truth.

A round is drawn from a seed: a code, the kind of partial gradients and lies, who lies, what
energies they tell, in which order messages come, and whether threads flush subnormal numbers to
zero. Then every statement of the round is compared with the truth.
"""

import itertools
import math

import numpy as np
from floating import FLUSHES, flushing
from liars import consistent, dense
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

DTYPES = ["float64", "float32"]
SIZES = {"float64": [1.0, 1e-155, 1e-290, 1e-310, 1e150], "float32": [1.0, 1e-36, 1e-39, 1e30]}
SHAPES = ["random", "pairs", "skewed", "sparse", "alike"]
LIES = ["noise", "negated", "zero", "half", "huge", "small", "hidden", "stale"]
ENERGIES = [
    lambda x: x,
    lambda x: math.inf,
    lambda x: 1e308,
    lambda x: 1e32 * x,
    lambda x: 0.0,
    lambda x: 1e-6 * x,
]


class Played:
    """A round that is drawn from a seed and played."""

    def __init__(self, seed, code=None, e=None):
        self.seed = seed
        self.rng = rng = np.random.default_rng(seed)
        drawn = CODES[int(rng.integers(len(CODES)))]
        self.code, self.e = drawn if code is None else (code, e)
        self.dtype = DTYPES[int(rng.integers(2))]
        usual = rng.random() < 0.8
        self.size = 1.0 if usual else SIZES[self.dtype][int(rng.integers(len(SIZES[self.dtype])))]
        self.shape = SHAPES[int(rng.integers(len(SHAPES)))]
        self.lie = LIES[int(rng.integers(len(LIES)))]
        self.energy = int(rng.integers(len(ENERGIES))) if rng.random() < 0.5 else 0
        self.flushes = self.size < 1e-30 and (rng.random(2) < 0.3) & FLUSHES
        self.p = int(rng.choice([2, 6, 50, 700]))
        self.liars = rng.permutation(self.code.n)[: rng.integers(0, self.e + 1)].tolist()
        self._encode()
        self._play()

    def __repr__(self):
        return (
            f"seed {self.seed}: {self.code!r}, verify={self.e}, {self.dtype}, {self.size:g}, "
            f"{self.shape}, {self.lie} by {self.liars}, energy {self.energy}, "
            f"flushes {self.flushes}, p {self.p}"
        )

    def _partials(self):
        code, rng = self.code, self.rng
        if code.scheme.data.coded:
            job, self.size = Job(code, seed=int(rng.integers(1000))), 1.0
            self.p = job.p
            return np.array(job.partials)
        g = rng.standard_normal((code.k, self.p))
        if code.scheme.layout != "complex" and rng.random() < 0.2:
            self.dtype = {"float32": "complex64", "float64": "complex128"}[self.dtype]
            g = g + 1j * rng.standard_normal(g.shape)
        if self.shape == "pairs":
            g[1::2] = -g[: 2 * (code.k // 2) : 2] * (1 - 10.0 ** rng.uniform(-6, 0))
        elif self.shape == "skewed":
            g *= 10.0 ** rng.integers(-4, 5, (code.k, 1))
        elif self.shape == "sparse":
            g *= rng.random(g.shape) < 0.1
        elif self.shape == "alike":
            g = g[0] + 0.1 * g
        return (self.size * g).astype(self.dtype)

    def _encode(self):
        code, scheme = self.code, self.code.scheme
        self.g = g = self._partials()
        dtype = g.dtype if scheme.layout != "complex data" else g.real.dtype
        if scheme.data.coded:
            self.dtype = dtype
        self.honest, self.sent = [], []
        with flushing(bool(np.any(self.flushes) and self.flushes[0])):
            for number in range(scheme.messages.count):
                worker, index = scheme.messages.sender(number)
                encoder = code.encoder(worker, self.p, dtype, index=index)
                for j in code.partitions(worker, index).tolist():
                    encoder.add(j, g[j])
                self.honest.append((encoder.message().copy(), encoder.energy))
        wide = np.longdouble if g.dtype.kind != "c" else np.clongdouble
        self.truth = g.astype(wide).sum(axis=0)
        if scheme.data.coded:
            self.truth = self.code.decode(
                range(scheme.messages.count), [m for m, _ in self.honest], p=self.p
            )
        self.sent = [self._told(number) for number in range(scheme.messages.count)]

    def _told(self, number):
        worker, _ = self.code.scheme.messages.sender(number)
        message, energy = self.honest[number]
        if worker not in self.liars:
            return message, energy
        with np.errstate(all="ignore"):
            lie = self._lie(number, message)
            if not np.isfinite(lie).all():
                lie = message
        return lie.astype(message.dtype), ENERGIES[self.energy](energy)

    def _lie(self, number, message):
        rng, size = self.rng, np.linalg.norm(message.astype(np.clongdouble)).astype(float)
        noise = rng.standard_normal(message.size).astype(message.dtype)
        kinds = {
            "noise": lambda: message + size * noise,
            "negated": lambda: -message,
            "zero": lambda: 0 * message,
            "half": lambda: message / 2,
            "huge": lambda: message * 1e20,
            "small": lambda: message + size * noise * 10.0 ** rng.uniform(-9, -2),
            "stale": lambda: self.honest[(number + 1) % len(self.honest)][0],
            "hidden": lambda: message + self._hidden(number, size, noise),
        }
        return kinds[self.lie]()

    def _hidden(self, number, size, noise):
        """A change that is smallest in the checks of all messages, with those of other liars."""
        scheme = self.code.scheme
        everyone = np.arange(scheme.messages.count)
        mine = scheme.messages.of(self.liars)
        H = dense(scheme.parity(everyone), everyone.size)[:, mine]
        if not len(H):
            return size * noise
        way = np.linalg.svd(H)[2][-1].conj()
        part = way[list(mine).index(number)] / np.abs(way).max()
        shared = np.random.default_rng(self.seed + 1).standard_normal(noise.size)
        if scheme.is_complex and noise.dtype.kind != "c":
            return size * (part * shared.view(np.complex128)).view(float)
        return size * part * shared

    def _order(self):
        rng, scheme = self.rng, self.code.scheme
        order = rng.permutation(scheme.messages.count)
        what = rng.random()
        if what < 0.2:  # liars first
            order = np.array(
                sorted(order, key=lambda m: scheme.messages.sender(int(m))[0] not in self.liars)
            )
        elif what < 0.4:  # workers one after the other from some point on
            order = (np.arange(order.size) + rng.integers(order.size)) % order.size
        return order.tolist()

    def _play(self):
        code, scheme = self.code, self.code.scheme
        self.found, self.error, self.came = [], None, []
        rnd = self.rnd = code.round(self.p, self.dtype, verify=self.e)
        late = self.rng.random() < 0.3  # goes on after it is told to stop
        with flushing(bool(np.any(self.flushes) and self.flushes[1])):
            was = False
            for number in self._order():
                worker, index = scheme.messages.sender(number)
                if not rnd.wants(worker):
                    continue
                message, energy = self.sent[number]
                ready = rnd.receive(worker, message, index, energy=energy)
                self.came.append(number)
                if not (scheme.approximate or scheme.data.coded or rnd.corrupt):
                    spans = code.residual(self.came) < 1e-9
                    assert rnd.decodable == spans, f"{self}: decodable {rnd.decodable}"
                if ready or (rnd.decodable and self.rng.random() < 0.5):
                    self.state()
                assert not was or rnd.verified, f"{self}: verified no more"
                was = was or rnd.verified
                if ready and not late:
                    break
            self.state()
            assert not was or rnd.verified, f"{self}: verified no more"

    def off(self, gradient):
        """The error relative to the truth decoded, as trust and resolution mean it."""
        wide = gradient.astype(np.clongdouble if gradient.dtype.kind == "c" else np.longdouble)
        size = float(np.linalg.norm((wide / self.size).astype(complex)))
        error = float(np.linalg.norm(((wide - self.truth) / self.size).astype(complex)))
        return error / size if size else (0.0 if not error else math.inf)

    def state(self):
        """Check every statement of the round as it stands."""
        rnd = self.rnd
        assert set(rnd.corrupt) <= set(self.liars), f"{self}: accused {rnd.corrupt}"
        try:
            gradient = rnd.gradient()
        except fastgc.NotDecodableError:
            assert not rnd.verified
            return
        except fastgc.CorruptMessageError:
            assert not rnd.verified
            assert self.liars, f"{self}: honest messages contradict each other"
            self.contradicts()
            return
        assert rnd.verified
        lost = np.any(self.flushes) and not any(message.any() for message, _ in self.sent)
        if not self.code.scheme.approximate and not lost:
            off = self.off(gradient)
            self.found.append(off)
            assert off <= rnd.resolution(), (
                f"{self}: error {off:.1e}, resolution {rnd.resolution():.1e}"
            )
            if not self.liars:
                trusted = rnd.trust().relative_error
                assert off <= 30 * trusted, f"{self}: error {off:.1e}, trust {trusted:.1e}"

    def contradicts(self):
        """Two sets of liars explain the messages, and lead to other gradients."""
        if (
            self.dtype not in ("float64", "complex128")
            or self.size != 1
            or self.shape == "skewed"
            or self.energy
            or self.lie == "huge"
        ):
            return
        code, scheme = self.code, self.code.scheme
        came = [n for n in self.came if scheme.messages.sender(n)[0] not in self.rnd.corrupt]
        workers = sorted({scheme.messages.sender(n)[0] for n in came})
        left = self.e - len(self.rnd.corrupt)
        gradients = []
        for count in range(left + 1):
            for lost in itertools.combinations(workers, count):
                kept = [n for n in came if scheme.messages.sender(n)[0] not in lost]
                if not consistent(code, kept, [self.sent[n][0] for n in kept]):
                    continue
                if not code.decodable(kept):
                    return
                gradients.append(code.decode(kept, [self.sent[n][0] for n in kept], p=self.p))
        if not gradients:
            return
        apart = max(np.linalg.norm(a - gradients[0]) for a in gradients)
        assert apart > 3e-9 * np.linalg.norm(gradients[0]), (
            f"{self}: raised where nothing is in doubt"
        )
