"""Ranks that die at random have the weights of one process, to the last bit, with ``shares=``."""

import programs
import pytest
from strength import much

torch = pytest.importorskip("torch")


STEPS = 30
# A job, and its ranks: forks of a process that has imported what optimizers do, as that takes long.
PROGRAM = """
import faulthandler, hashlib, math, os, random, signal, sys, threading, time, traceback
import torch, torch._dynamo
from fastgc.errors import FinishedError
from fastgc.torch import ReactiveDataParallel
from fastgc.torch.coordinator import Server

ranks, kills, seconds, seed = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
# The factors of losses in coming steps.
factors = [float(each) for each in sys.argv[5].split()]
STEPS = 30
torch.set_num_threads(1)


def train(dies):
    torch.manual_seed(0)
    X, y = torch.randn(600, 16), torch.randint(5, (600,))
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.3),
        torch.nn.Linear(32, 5),
    )
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    calls, losses = 0, {}

    def compute(indices):
        nonlocal calls
        calls += 1
        if dies and calls > dies:  # at once, or somewhat later: in the sum, or between two steps
            wait = random.choice([0.0, 2.0 * seconds * random.random()])
            kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
            threading.Timer(wait, kill).start() if wait else kill()
        factor = factors[rdp.step % len(factors)]
        if not math.isfinite(factor) and 7 not in indices:  # of one share only
            factor = 1.0
        found = torch.nn.functional.cross_entropy(net(X[indices]), y[indices], reduction="sum")
        return factor * found, factor * torch.rand(()).item()  # a sum that is drawn

    with ReactiveDataParallel(net, state=[optimizer], shares=12, seed=3) as rdp:
        sum_, sums = rdp._member.sum, 0

        def sum_or_die(*own):  # also between a sum in a wrong unit and that in the right one
            nonlocal sums
            sums += 1
            if dies and len(factors) > 1 and sums == 2 * dies:
                os.kill(os.getpid(), signal.SIGKILL)
            sum_(*own)

        rdp._member.sum = sum_or_die
        for step in rdp.steps(STEPS):
            batch = torch.randperm(600, generator=torch.Generator().manual_seed(step))[:125]
            batch[99] = 7
            for _ in range(2):
                losses[step] = rdp.backward(compute, batch)
            if all(p.grad.isfinite().all() for p in net.parameters()):
                optimizer.step()
            else:
                assert all(p.grad.isnan().all() for p in net.parameters())
            optimizer.zero_grad()
            time.sleep(seconds)
    weights = b"".join(t.numpy().tobytes() for t in net.state_dict().values())
    # A rank that joins at the last boundary has no loss of the last step.
    return hashlib.sha256(weights).hexdigest() + f" {losses.get(STEPS - 1, '')}"


def forked(run):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run()
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def be_rank(rank, dies):
    faulthandler.dump_traceback_later(80, exit=True)  # a rank that hangs tells where
    os.environ |= {"FASTGC_STORE": f"127.0.0.1:{port}", "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    random.seed(f"{seed} {rank}")
    try:
        os.write(1, (train(dies) + chr(10)).encode())
    except FinishedError:
        pass  # it came too late


server = Server("127.0.0.1")
port = server.port
store = forked(server.run)
rng = random.Random(seed)
dying = rng.sample(range(ranks), kills)
running = {}
try:
    for rank in range(ranks):
        dies = rng.randint(1, 3 * STEPS) if rank in dying else 0
        running[forked(lambda: be_rank(rank, dies))] = rank
    while running:
        pid, status = os.wait()
        rank = running.pop(pid)
        if os.WIFSIGNALED(status):
            assert rank in dying
            print("died", rank, flush=True)
            running[forked(lambda: be_rank(rank, 0))] = rank
        else:
            assert status == 0, f"rank {rank} failed"
finally:
    for pid in (*running, store):
        os.kill(pid, signal.SIGKILL)
"""


JUMPS = "1 1 1e6 1e6 1 1e-9 0 0 1 1e20 nan nan 1 inf 1"


def ends(folder, ranks, kills=0, seconds=0.0, seed=0, factors="1"):
    """Run ranks, some of which are killed; return what each prints that reaches the end."""
    path = folder / "bits.py"
    path.write_text(PROGRAM, encoding="utf-8")
    own = (ranks, kills, seconds, f"{ranks} {seed}", factors)
    printed = programs.run(programs.python(path, *own)).stdout
    lines = printed.splitlines()
    assert sum(line.startswith("died") for line in lines) == kills
    return [line for line in lines if not line.startswith("died")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process prints."""
    folder = tmp_path_factory.mktemp("alone")
    return {factors: ends(folder, 1, factors=factors)[0] for factors in ("1", JUMPS)}


@pytest.mark.parametrize("factors", ["1", JUMPS], ids=["steady", "jumps"])
@pytest.mark.parametrize(("ranks", "kills"), [(3, 0), (2, 1), (3, 2), (4, 3)])
def test_ranks_that_die_have_the_weights_of_one_process(alone, ranks, kills, factors, tmp_path):
    """Also if the largest modulus jumps, is zero or is not finite: sums begin in a wrong unit."""
    for seed in range(much(6, 1)):
        found = ends(tmp_path, ranks, kills, 0.03, seed, factors)
        assert found.count(alone[factors]) >= ranks - kills
        assert all(alone[factors].startswith(each) for each in found)
