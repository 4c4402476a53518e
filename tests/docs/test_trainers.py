"""The examples of docs/trainers.md: after a rank's death, weights are those of one process."""

import importlib.util
import re

import pytest
from examples import EXAMPLES

torch = pytest.importorskip("torch")
from groups_of_ranks import torchrun, train_on_digits  # noqa: E402

# For each: the line before ranks find each other, the line that sums up, and the step's number.
LINES = {
    "lightning": (
        "        schedules = [",
        "        (mean,) = self.all_reduce(module.own)",
        "self.all_reduce.step",
    ),
    "accelerate": (
        "options = {",
        "            (mean,) = all_reduce(*backward(batch))",
        "all_reduce.step",
    ),
}
ENDS = {
    "lightning": "assert (trainer.global_step, trainer.current_epoch) == (STEPS, STEPS // 5)\n",
    "accelerate": "assert all_reduce.step == STEPS\n",
}


@pytest.mark.long
@pytest.mark.parametrize("name", LINES)
def test_the_example_is_the_plain_loop_though_a_rank_is_killed(name, tmp_path):
    """It is killed within an epoch; its guard starts it again, and it joins within another."""
    pytest.importorskip("sklearn")
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    text = (EXAMPLES / f"coded_{name}.py").read_text(encoding="utf-8")
    start, place, step = LINES[name]
    death = f"""
import os, time
if os.environ["RANK"] == "1" and {step} == 27 and not os.path.exists("died"):
    open("died", "w").close()
    os.kill(os.getpid(), 9)
while {step} == 32 and not os.path.exists("back"):
    time.sleep(0.1)
time.sleep(0.2 if {step} > 32 else 0.0)  # so that it joins before the end
"""
    back = """
import os
if os.environ["RANK"] == "1" and os.path.exists("died"):
    open("back", "w").close()
"""
    end = (
        f"\n{ENDS[name]}import os\n"
        "torch.save([p.detach() for p in model.parameters()], f\"{os.environ['RANK']}.pt\")\n"
    )
    for line, before in ((start, back), (place, death)):
        assert text.count(line) == 1
        indent = " " * (len(line) - len(line.lstrip()))
        text = text.replace(line, before.replace("\n", f"\n{indent}").rstrip() + "\n" + line)
    (tmp_path / "dies.py").write_text(text + end, encoding="utf-8")
    done = torchrun(tmp_path, 3, "-m", "fastgc.guard", "dies.py", seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was killed by SIGKILL, and is started again" in done.stderr
    found = re.findall(r"^(\d+): loss [\d.]+, ranks (.*)$", done.stdout, re.M)
    assert [step for step, _ in found] == ["20", "40", "60"], done.stdout
    assert found[-1][-1] == "[0, 1, 2]"
    for rank in range(3):
        found = torch.load(tmp_path / f"{rank}.pt")
        for mine, truth in zip(found, train_on_digits()[1], strict=True):
            assert (mine - truth).norm() <= 1e-6 * truth.norm()
