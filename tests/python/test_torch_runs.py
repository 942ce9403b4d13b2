# SPDX-License-Identifier: MIT
"""What making a task of a module leaves behind: the module, the process's settings, also after Ctrl-C and in threads."""

import collections
import os
import random
import sys
import threading
import warnings

import sim
import tap
import stitch

try:
    import torch
except ImportError as missing:
    print(f"1..0 # SKIP {missing}")
    sys.exit(0)

from module_cases import Bad  # noqa: E402
import stitch.torch as bridge  # noqa: E402
from stitch.torch import _run, _settings  # noqa: E402

HERE = os.path.dirname(_run.__file__)


class Changing(torch.nn.Module):
    """Changes itself in every way that must be undone."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.linear = torch.nn.Linear(4, 4)
        self.steps = torch.nn.ModuleDict({"a": torch.nn.ReLU(), "b": torch.nn.Tanh()})
        self.register_buffer("sum", torch.zeros(4))
        self.calls, self.last = 0, torch.zeros(4)
        self.rows, self.cache, self.seen = [], {"n": 0, "rows": [1]}, {5}
        self.recent = collections.deque([1, 2], maxlen=2)

    def forward(self, x):
        self.calls += 1
        self.more = self.calls
        y = self.linear(self.norm(x)) * self.calls + len(self.rows) + self.cache["n"] + len(self.seen)
        for step in self.steps.values():
            y = step(y)
        self.steps["a"] = self.steps.pop("a")  # the other order next time
        self.sum += 1
        self.last = y[0]
        self.rows.append(x)
        self.cache["n"] += 1
        self.cache["rows"].append(2)
        self.cache["x"] = x
        self.seen.add(7)
        self.recent.append(3)
        return y


def state(module):
    """Everything of it, by value."""

    def plain(value):
        if isinstance(value, torch.Tensor):
            return (id(value), value.tolist())
        if isinstance(value, torch.nn.Module):
            return state(value)
        if isinstance(value, dict):
            return [(key, plain(value[key])) for key in value]
        if isinstance(value, (list, tuple, collections.deque)):
            return [plain(item) for item in value]
        return sorted(value) if isinstance(value, set) else value if isinstance(value, (int, str)) else repr(value)

    return {key: plain(value) for key, value in vars(module).items()}


def settings():
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch._C._len_torch_dispatch_stack(),
        _settings.Flags.current(),
        list(_settings.Precision._active),
    )


def test_what_forward_changes_is_put_back():
    torch.manual_seed(1)
    module = Changing()
    before = state(module)
    with sim.context() as ctx, bridge.task(module, torch.randn(8, 4), ctx=ctx, baselines=["tf32"]) as task:
        assert state(module) == before
        for name in ("calls", "more", "norm.running_mean", "sum", "last", "rows", "cache", "seen", "recent"):
            assert name in task.description, (name, task.description)
        assert "linear.weight" not in task.description.replace("a Linear weight", "")
        assert task.spec.batch == "B" and not any("float32" in note for note in task.notes), task.notes
    assert state(module) == before


def interrupt(at, only, work):
    """Runs it, with KeyboardInterrupt at the at-th line of the functions that only(code) says; False: it had fewer."""
    left = [at]

    def line(frame, event, arg):
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return line

    sys.settrace(lambda frame, event, arg: line if only(frame.f_code) else None)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return left[0] < 0


def test_interrupts_anywhere_leave_the_module_alone():
    x, rng = torch.randn(3, 4), random.Random(4)
    restoring = {"restore", "_put_back", "_restore_parameters"}
    kinds = [
        (lambda code: code.co_filename == _run.__file__ and code.co_name in restoring, (0, 4700), 24),
        (lambda code: code.co_filename == _run.__file__, (0, 20000), 24),
        (lambda code: code.co_filename.startswith(HERE) or "torch" in code.co_filename, (0, 30000), 24),
    ]
    outside, hits = settings(), 0
    with sim.context() as ctx:
        for only, reach, times in kinds:
            for _ in range(times):
                module = Changing()
                before = state(module)
                at = rng.randrange(*reach)
                hits += interrupt(at, only, lambda: bridge.task(module, x, ctx=ctx, batch=None).close())
                assert state(module) == before, at
                assert settings() == outside, (at, settings())
    assert hits > 36, hits


def test_parameters_that_are_written_behind_the_back_of_PyTorch():
    linear = torch.nn.Linear(4, 4)
    before = state(linear)

    def data(x):
        linear.weight.data.add_(1)
        return linear(x)

    def counted(x):
        with torch.no_grad():
            linear.bias.add_(1)
        return linear(x)

    with sim.context() as ctx:
        for function, name in ((data, "inner.weight"), (counted, "inner.bias")):
            module = Bad(function)
            module.inner = linear
            with tap.raises(stitch.UnsupportedError, f"changes the parameter {name}"):
                bridge.task(module, torch.randn(8, 4), ctx=ctx)
            assert state(linear) == before
        linear.weight.data[0, 0] = float("nan")  # differs from itself, and is no change
        bridge.task(linear, torch.randn(8, 4), ctx=ctx).close()


class Hidden:
    """State where nobody looks for it."""

    count = 0


def test_parameters_that_are_in_a_list_too():
    """Recurrent layers keep one. Putting attributes back must not write to them, which would look like forward's doing."""
    module, x = torch.nn.RNN(4, 3, batch_first=True), torch.randn(16, 1, 4)
    runner = _run.Runner(module)
    before = [p._version for p in module.parameters()]
    for _ in range(3):
        runner.call([x], {})
        runner.restore()
        runner.check()
    assert [p._version for p in module.parameters()] == before and not runner.changed


def test_modules_that_give_other_results_each_time():
    def counts(x, hidden=Hidden()):
        hidden.count += 1
        return x * hidden.count

    def grows(x, hidden=Hidden()):
        hidden.count += 1
        return x[: hidden.count % 8 + 1]

    def unwritten(x):
        made = torch.empty(4, 4)
        made[:2] = x[:2]
        return x[:4] + made

    functions = [lambda x: x * random.choice([1.0, 2.0]), counts, grows, unwritten]
    try:
        import numpy
    except ImportError:
        pass
    else:
        functions.append(lambda x: x + numpy.random.randint(2))
    with sim.context() as ctx:
        for function in functions:
            with tap.raises(stitch.UnsupportedError, "other results for the same inputs"):
                bridge.task(Bad(function), torch.randn(8, 4), ctx=ctx)
        with tap.raises(stitch.UnsupportedError, "other random numbers"):
            bridge.task(
                Bad(lambda x, n=[4]: (n.append(n[-1] + 1), x + torch.rand(n[-1], 8, 4).sum(0))[1]),
                torch.randn(8, 4),
                ctx=ctx,
            )
        for function in (
            lambda x: x + torch.rand_like(x),
            lambda x: torch.empty(8, 4).copy_(x),
            lambda x: (random.random(), x * 2)[1],
            lambda x: x / 0 - x / 0,  # NaN is what it was
            lambda x: torch.nn.functional.dropout(x, 1e-9, training=True),  # drawn alike, but by chance
            lambda x: x + torch.randint(0, 2, (4,)),
        ):
            bridge.task(Bad(function), torch.randn(8, 4), ctx=ctx).close()


def test_random_numbers_that_forward_seeds():
    def seeds(x):
        torch.manual_seed(3)
        return x + torch.rand_like(x)

    def has_its_own(x):
        return x * torch.randn(8, 4, generator=torch.Generator().manual_seed(3))

    with sim.context() as ctx:
        with tap.raises(stitch.UnsupportedError, "seeds their generator itself", "a buffer of the module"):
            bridge.task(Bad(seeds), torch.randn(8, 4), ctx=ctx)
        with tap.raises(stitch.UnsupportedError, "from a generator of its own"):
            bridge.task(Bad(has_its_own), torch.randn(8, 4), ctx=ctx)
        default = lambda x: x + torch.rand(8, 4, generator=torch.default_generator)  # noqa: E731
        bridge.task(Bad(default), torch.randn(8, 4), ctx=ctx).close()


def test_two_runs_that_round_otherwise():
    from stitch.torch._module import reproduced

    x = torch.randn(1000)
    off = x.clone()
    off[7] += 1
    for a, b, same in [
        (x, x * (1 + 1e-6), True),
        (x, x * 1.001, False),
        (x.half(), x.half() * 1.001, True),
        (x, off, True),
        (x, x[:10], False),
        (x.argsort(), x.argsort().flip(0), False),
        (x > 0, x > 0.001, True),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([float("nan"), 1.0]), True),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([0.0, 1.0]), False),
        (torch.tensor([float("inf")]), torch.tensor([float("inf")]), True),
        (torch.tensor(1.0), torch.tensor(2.0), False),
    ]:
        assert reproduced([a], [b]) is same, (a, b)


def test_what_no_task_can_be_made_of():
    x, linear = torch.randn(8, 4), torch.nn.Linear(4, 4)
    with warnings.catch_warnings(), sim.context() as ctx:
        warnings.simplefilter("ignore")  # much of this is deprecated
        for module in (torch.jit.script(linear), torch.nn.Sequential(torch.jit.trace(linear, x))):
            with tap.raises(stitch.UnsupportedError, "TorchScript"):
                bridge.task(module, x, ctx=ctx)
        if "fbgemm" in torch.backends.quantized.supported_engines:
            quantised = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(linear), {torch.nn.Linear})
            with tap.raises(stitch.UnsupportedError, "quantised weights"):
                bridge.task(quantised, x, ctx=ctx)
        nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
        with tap.raises(stitch.UnsupportedError, "input x is a nested tensor"):
            bridge.task(Bad(lambda x: x * 2), nested, ctx=ctx)
        with tap.raises(stitch.UnsupportedError, "output y is a nested tensor"):
            bridge.task(Bad(lambda x: torch.nested.nested_tensor([x[:2], x[2:]])), x, ctx=ctx)
        with tap.raises(stitch.InvalidError, "forward raised SystemExit: 3"):
            bridge.task(Bad(lambda x: sys.exit(3)), x, ctx=ctx)
        with tap.raises(stitch.NoMemoryError, "memory of cpu") as caught:
            bridge.task(Bad(lambda x: x.sum() + torch.zeros(1 << 46)), x, ctx=ctx)
        assert str(caught[0]).count("memory of cpu") == 1, caught[0]


def test_shapes_that_depend_on_values():
    x = torch.randn(8, 4)
    with sim.context() as ctx:
        for function, name in ((lambda x: x.nonzero(), "aten.nonzero"), (lambda x: x[x == x], "aten.index")):
            with bridge.task(Bad(function), x, ctx=ctx) as task:
                assert any(f"{name} gives shapes that depend on values" in note for note in task.notes), task.notes
        with tap.raises(stitch.UnsupportedError, "depend on the values"):
            bridge.task(Bad(lambda x: x[x > 0]), torch.randn(64, 64), ctx=ctx)
        with bridge.task(Bad(lambda x: x[torch.tensor([1, 0])].masked_fill(x[:2] > 0, 1.0)), x, ctx=ctx) as task:
            assert task.notes == []


def test_tasks_in_threads():
    """What other threads make meanwhile has the default dtype that they know."""
    x, found, dtypes, done = torch.randn(8, 4), [], set(), threading.Event()

    def work():
        try:
            with sim.context() as ctx:
                for _ in range(5):
                    with bridge.task(torch.nn.Linear(4, 4), x, ctx=ctx, baselines=["tf32"]) as task:
                        assert not task.notes, task.notes
            found.append("made")
        except Exception as e:  # pylint: disable=broad-except
            found.append(repr(e))

    def watch():
        while not done.is_set():
            dtypes.add(torch.zeros(1).dtype)

    outside, interval = settings(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns often
    threads = [threading.Thread(target=work) for _ in range(4)]
    watcher = threading.Thread(target=watch)
    watcher.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    sys.setswitchinterval(interval)
    assert found == ["made"] * 4 and dtypes == {torch.float32} and settings() == outside, (found, dtypes, settings())


def test_precision_flags_of_several_threads():
    def flags():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before, one, other = flags(), _settings.Precision(True), _settings.Precision(False)
    one.enter()
    assert flags() == ("high", True)
    thread = threading.Thread(target=other.enter)
    thread.start()
    thread.join()
    assert flags() == ("highest", False)
    one.leave()
    one.leave()
    assert flags() == ("highest", False)
    other.leave()
    assert flags() == before


def test_float64_where_forward_names_no_type():
    """As under torch.set_default_dtype(torch.float64)."""
    i = torch.arange(4)
    for make in [
        lambda: torch.zeros(3),
        lambda: torch.full((3,), 0.1),
        lambda: torch.full((3,), 1),
        lambda: torch.arange(0, 1, 0.25),
        lambda: torch.arange(4),
        lambda: torch.linspace(0, 1, 5),
        lambda: torch.eye(3),
        lambda: torch.empty(3).zero_(),
        lambda: torch.tensor([0.5, 0.25]),
        lambda: torch.tensor([1, 2]),
        lambda: torch.hann_window(8),
        lambda: i / 3,
        lambda: i * 0.1,
        lambda: (i > 1) * 0.1,
        lambda: 2.0**i,
        lambda: i.sqrt(),
        lambda: i * 1j,
        lambda: torch.where(i > 1, 1.0, 2.0),
        lambda: torch.cat([i, torch.ones(2)]),
        lambda: torch.zeros(3, dtype=torch.float32),
        lambda: i.float(),
        lambda: torch.zeros(4, dtype=torch.float16) + i,
    ]:
        torch.set_default_dtype(torch.float64)
        try:
            want = make()
        finally:
            torch.set_default_dtype(torch.float32)
        assert not _run.in_double()
        with _run.Watch(_run.generate, double=True):
            got, inside = make(), _run.in_double()
        assert inside and got.dtype is want.dtype and torch.equal(got, want), (got, want)
    with _run.Watch(_run.generate, double=True) as watch:
        drawn = torch.randn(3)
        data = torch.tensor([0.1]).to(torch.float32)  # the numbers of float32, in float64
    assert drawn.dtype is data.dtype is torch.float64 and float(data) == float(torch.tensor(0.1)) and not watch.lossy


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
