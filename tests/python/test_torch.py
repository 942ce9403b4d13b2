# SPDX-License-Identifier: MIT
"""stitch.torch on the simulator: tasks from modules and files, with right programs and wrong ones for each."""

import contextlib
import gc
import os
import sys
import tempfile
import weakref

import sim
import tap
import stitch

try:
    import torch
except ImportError as missing:
    print(f"1..0 # SKIP {missing}")
    sys.exit(0)

import module_cases as cases  # noqa: E402
from module_cases import Bad  # noqa: E402
import stitch.torch as bridge  # noqa: E402


def judge(ctx, task, case, source=None):
    mask = "float"
    for tensor in task.interface:
        if tensor.name == "random1":
            mask = "bool" if tensor.dtype == stitch.Dtype.BOOL else "float"
    program = stitch.Program.parse(ctx, (source or case.source).replace("MASK", mask), case.plan)
    with program, stitch.verify(ctx, task, program, last_stage="correct") as report:
        return report.correct, report.text


def check(name, seed=1, **options):
    """The right program passes and the wrong one fails; the module is left as it was."""
    case = cases.CASES[name]
    torch.manual_seed(seed)
    module, inputs = case.make()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    generator = torch.get_rng_state()
    with sim.context() as ctx, bridge.task(module, inputs, ctx=ctx, **options) as task:
        assert torch.equal(generator, torch.get_rng_state())
        for key, value in module.state_dict().items():
            assert torch.equal(value, before[key]), key
        names = [t.name for t in task.interface if t.role == stitch.TensorRole.OUTPUT]
        assert tuple(names) == case.outputs and len(task.spec.draws) == case.draws, task.interface
        assert not [note for note in task.notes if "float32" in note], task.notes
        right, text = judge(ctx, task, case)
        assert right, text
        wrong, text = judge(ctx, task, case, case.source.replace(*case.wrong))
        assert not wrong, text
        return task.interface, task.spec, task.description, task.notes


def test_a_perceptron():
    interface, spec, description, notes = check("mlp")
    assert spec.batch == "B" and interface.dims == {"B": 16} and interface["x"].shape_expr == ("B", "12")
    assert interface["y"].shape_expr == ("B", "5") and interface["one.weight"].role == stitch.TensorRole.WEIGHT
    assert "training mode" in description and notes == []


def test_buffers_state_and_batch_statistics():
    interface, spec, description, _ = check("norm")
    assert {"norm.running_mean", "scale", "shift", "last"} <= set(spec.weights), spec.weights
    assert (
        "norm.running_mean" in description
        and "last" in description
        and interface["norm.num_batches_tracked"].shape == ()
    )


def test_several_inputs_and_outputs():
    interface, spec, description, _ = check("several")
    assert interface["mask"].dtype == stitch.Dtype.BOOL and "weight = 0.25" in description
    assert [name for name, _, _ in spec.inputs] == ["a", "b", "mask"]


def test_integers():
    interface, _, _, _ = check("words")
    assert interface["tokens"].dtype == stitch.Dtype.I64 and interface["y1"].dtype == stitch.Dtype.I64


def test_random_draws():
    interface, spec, description, _ = check("noisy")
    assert interface["random0"].shape_expr == ("B", "7") and spec.draws[1][1].kind == "bernoulli"
    assert "random1" in description


def test_a_function_that_closes_over_the_original():
    check("closure")


def test_files():
    with tempfile.TemporaryDirectory() as folder, sim.context() as ctx:
        path = os.path.join(folder, "7_Closure.py")
        with open(path, "w", encoding="utf-8") as text:
            text.write(cases.FILE)
        with bridge.from_file(path, ctx=ctx) as task:
            assert task.name == "7_Closure" and task.source == cases.FILE and task.notes == []
            assert task.precision == stitch.Precision.F32 and task.tolerance == (1e-4, 1e-4)
            right, text = judge(ctx, task, cases.MLP)
            assert right, text
            wrong, text = judge(ctx, task, cases.MLP, cases.MLP.source.replace(*cases.MLP.wrong))
            assert not wrong, text
            assert not stitch.admit(ctx, task).degenerate
        with bridge.from_file(path, ctx=ctx, seed=0) as one, bridge.from_file(path, ctx=ctx, seed=0) as same:
            assert one.hash == same.hash
        with bridge.from_file(path, ctx=ctx, seed=1) as other, bridge.from_file(path, ctx=ctx, seed=0) as one:
            assert one.hash != other.hash


SIZES = """import torch
from torch import nn

batch = 64; width: int = 4096
height, depth = 2 * batch, (3,
                            4)  # ä
a = b = 5
name = "ä"; last = 1.5
area = width * depth[0]


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return x * self.w * last


def get_inputs():
    return [torch.rand(batch, area)]


def get_init_inputs():
    return [area]
"""


def test_other_values_and_types_of_files():
    with tempfile.TemporaryDirectory() as folder, sim.context() as ctx:
        path = os.path.join(folder, "sizes.py")
        with open(path, "w", encoding="utf-8") as text:
            text.write(SIZES)
        file = bridge.read(path, {"batch": 8, "width": 16, "depth": [2], "b": (1, "x"), "last": -2.0})
        space = file.get_inputs.__globals__  # a has b's
        found = {name: space[name] for name in ("batch", "width", "height", "depth", "a", "b", "name", "last", "area")}
        assert found == {"batch": 8, "width": 16, "height": 16, "depth": [2], "a": (1, "x"), "b": (1, "x"), "name": "ä",
                         "last": -2.0, "area": 32}, found  # fmt: skip
        assert bridge.read(path).get_inputs.__globals__["area"] == 3 * 4096
        with bridge.from_file(path, ctx=ctx, values={"batch": 8, "width": 16}) as task:
            assert task.interface["x"].shape == (8, 48) and task.spec.batch == "B" and "batch = 8; width: int = 16" in task.source
            assert task.interface["x"].dtype is stitch.Dtype.F32 and task.precision is stitch.Precision.F32
        for dtype in ("f16", torch.bfloat16):
            with bridge.from_file(path, ctx=ctx, values={"batch": 8, "width": 16}, dtype=dtype) as task:
                want = stitch.Dtype.F16 if dtype == "f16" else stitch.Dtype.BF16
                assert [task.interface[n].dtype for n in ("x", "w", "y")] == [want] * 3 and task.precision is stitch.Precision.F16
                assert task.tolerance == (1e-2, 1e-2) and not any("float64" in note for note in task.notes), task.notes
                name = "__half" if dtype == "f16" else "__nv_bfloat16"
                source = f"""#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const {name} *x, const {name} *w, {name} *y, int n)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = {name}((float)x[i] * (float)w[i % 48] * 1.5f);
}}
"""
                plan = {"stitch": 1, "run": [{"kernel": "k", "grid": ["B"], "block": [48], "args": ["x", "w", "y", {"i32": "B*48"}]}]}
                assert stitch.verify(ctx, task, stitch.Program.parse(ctx, source, plan), last_stage="correct").correct
                wrong = source.replace("1.5f", "1.4f")
                assert not stitch.verify(ctx, task, stitch.Program.parse(ctx, wrong, plan), last_stage="correct").correct
        with tap.raises(stitch.FormatError, "assigns no Model"):
            bridge.read(path, {"Model": 1})
        with tap.raises(stitch.InvalidError, "together with another name"):
            bridge.read(path, {"a": 1, "b": 2})
        with tap.raises(stitch.InvalidError, "the value of batch"):
            bridge.read(path, {"batch": torch.ones(1)})
        with tap.raises(stitch.InvalidError, "values are for read()"):
            bridge.from_file(file, ctx=ctx, values={"batch": 8})
        for bad in ("f8", torch.int32, None.__class__):
            with tap.raises(stitch.InvalidError, "cast to f64"):
                bridge.from_file(file, ctx=ctx, dtype=bad)
        with open(path, "w", encoding="utf-8") as text:
            text.write("batch = 1\ndef f(:")
        with tap.raises(stitch.FormatError, "SyntaxError"):
            bridge.read(path, {"batch": 2})


NESTED = """import collections
import torch

Pair = collections.namedtuple("Pair", "left right")


class Model(torch.nn.Module):
    def forward(self, pair, more, count):
        return pair.left + pair.right[0] * more["a"] + more["rows"] * count


def get_inputs():
    rows = torch.arange(4 * 8).view(4, 8)
    return [Pair(torch.randn(4, 8), [torch.randn(4, 8)]), collections.OrderedDict(a=torch.randn(4, 8), rows=rows), 3]


def get_init_inputs():
    return []
"""


def test_nested_inputs_of_files():
    """They are moved and cast as those that are not nested, and keep their types."""
    with tempfile.TemporaryDirectory() as folder, sim.context() as ctx:
        path = os.path.join(folder, "nested.py")
        with open(path, "w", encoding="utf-8") as text:
            text.write(NESTED)
        for options, want in (({}, stitch.Dtype.F32), ({"dtype": "f16"}, stitch.Dtype.F16)):
            with bridge.from_file(path, ctx=ctx, **options) as task:
                found = {t.name: t.dtype for t in task.interface if t.role == stitch.TensorRole.INPUT}
                names = ["pair.left", "pair.right.0", "more.a"]
                assert found == {**dict.fromkeys(names, want), "more.rows": stitch.Dtype.I64}, found
        _, (pair, more, count) = bridge.read(path).load("meta", dtype=torch.bfloat16)
        assert type(pair).__name__ == "Pair" and type(more).__name__ == "OrderedDict" and count == 3
        leaves = [pair.left, pair.right[0], more["a"], more["rows"]]
        assert [leaf.device.type for leaf in leaves] == ["meta"] * 4
        assert [leaf.dtype for leaf in leaves] == [torch.bfloat16] * 3 + [torch.int64]


def test_files_that_are_none():
    cases_ = [
        ("raise RuntimeError('at import')", "at import"),
        ("import no_such_module_of_anyone", "no_such_module"),
        ("def f(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("class Model: pass\ndef get_inputs(): return []", "get_init_inputs"),
        (cases.FILE.replace("return [12, 5]", "return [12]"), "Model()"),
        (cases.FILE.replace("[torch.rand(16, 12)]", "1 / 0"), "get_inputs()"),
        (cases.FILE.replace("[torch.rand(16, 12)]", "5"), "not a list"),
        (cases.FILE.replace("nn.Module", "object").replace("super().__init__()", "self.x = 1"), "no torch.nn.Module"),
    ]
    with tempfile.TemporaryDirectory() as folder, sim.context() as ctx:
        path = os.path.join(folder, "f.py")
        for text, word in cases_:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            loaded = set(sys.modules)
            with tap.raises(stitch.FormatError, word):
                bridge.from_file(path, ctx=ctx)
            if "Model" not in word and "inputs()" not in word and word != "not a list" and "Module" not in word:
                assert not [name for name in set(sys.modules) - loaded if "stitch_file" in name], word
        with tap.raises(stitch.NotFoundError, "nowhere.py"):
            bridge.from_file(os.path.join(folder, "nowhere.py"), ctx=ctx)


def test_bad_modules():
    x = torch.randn(8, 4)
    with sim.context() as ctx:
        for function, kind, word in [
            (lambda x: x @ x, stitch.InvalidError, "forward raised RuntimeError"),
            (lambda x: x[x > 0], stitch.UnsupportedError, "depend on the values"),
            (lambda x: x.sum().item(), stitch.InvalidError, "no tensor"),
            (lambda x: (x, float(x[0, 0])), stitch.UnsupportedError, "depend on the values"),
            (lambda x: object(), stitch.UnsupportedError, "object"),
            (lambda x: x.to_sparse(), stitch.UnsupportedError, "sparse"),
            (lambda x: torch.fft.fft(x), stitch.UnsupportedError, "complex"),
            (lambda x: x * torch.randperm(4), stitch.UnsupportedError, "randperm"),
            (lambda x: x.to("meta"), stitch.StitchError, ""),
        ]:
            with tap.raises(kind, word):
                bridge.task(Bad(function), x, ctx=ctx)
        with tap.raises(stitch.InvalidError, "do not fit forward"):
            bridge.task(Bad(lambda x: x), [x, x], ctx=ctx)
        with tap.raises(TypeError, "torch.nn.Module"):
            bridge.task(lambda x: x, x, ctx=ctx)
        with tap.raises(TypeError, "example_inputs"):
            bridge.task(Bad(lambda x: x), 5, ctx=ctx)
        with tap.raises(stitch.UnsupportedError, "complex64"):
            bridge.task(Bad(lambda x: x.real), x.to(torch.complex64), ctx=ctx)
        with tap.raises(stitch.InvalidError, "no baseline 'fast'"):
            bridge.task(Bad(lambda x: x), x, ctx=ctx, baselines=["fast"])
        with tap.raises(stitch.InvalidError, "not on one device"):
            bridge.task(torch.nn.Linear(4, 4, device="meta"), x, ctx=ctx)
        with tap.raises(stitch.InvalidError, "no shape yet"):
            bridge.task(torch.nn.LazyLinear(4), x, ctx=ctx)
        with tap.raises(stitch.InvalidError, "which the task does not have"):
            bridge.task(Bad(lambda x: x * 2), x, ctx=ctx, shapes={"z": ["B"]}, dims={"B": 8})
        with tap.raises(stitch.InvalidError, "'x' has the shape [8, 4]"):
            bridge.task(Bad(lambda x: x * 2), x, ctx=ctx, shapes={"x": ["B", "B"]}, dims={"B": 8})
    with sim.context("none") as ctx:
        with tap.raises(stitch.NoDeviceError):
            bridge.task(Bad(lambda x: x), x, ctx=ctx)


def test_exceptions_of_the_reference_come_through():
    class Later(torch.nn.Module):
        broken = False

        def forward(self, x):
            if Later.broken:
                raise ArithmeticError("out of order")
            return x * 2

    plan = {"stitch": 1, "run": [{"kernel": "scale", "grid": ["B"], "block": [1], "args": ["x", "y", {"i32": "B"}]}]}
    with sim.context() as ctx, bridge.task(Later(), torch.randn(8), ctx=ctx) as task:
        Later.broken = True
        with tap.raises(ArithmeticError, "out of order"):
            stitch.verify(ctx, task, stitch.Program.parse(ctx, sim.SOURCE, plan), last_stage="correct")
        Later.broken = False
        report = stitch.verify(ctx, task, stitch.Program.parse(ctx, sim.SOURCE, plan), last_stage="correct")
        assert not report.correct  # x * 2 + 1
        right = stitch.Program.parse(ctx, sim.SOURCE.replace(" + 1.0f", ""), plan)
        assert stitch.verify(ctx, task, right, last_stage="correct").correct


def test_no_float64():
    """Where there is no float64 module the reference says so and computes in float32."""

    class Half(torch.nn.Module):
        def forward(self, x):
            return x.float() * 2

    class Captured(torch.nn.Module):
        """Parameters in a list that PyTorch does not know: no copy of it becomes float64."""

        def __init__(self):
            super().__init__()
            self.parts = [torch.nn.Linear(4, 4)]

        def forward(self, x):
            return self.parts[0](x)

    with sim.context() as ctx:
        for module, words in ((Half(), "stay in float64"), (Captured(), "fails")):
            with bridge.task(module, torch.randn(8, 4), ctx=ctx) as task:
                assert any("float32" in note and words in note for note in task.notes), task.notes
        assert [name for name in task.spec.weights if name.startswith("captured")], task.spec


def test_how_inputs_are_drawn():
    from stitch.torch import _data

    torch.manual_seed(5)
    n = 4096
    for tensor, kind, a, b in [
        (torch.randn(64, 64), "normal", 0, 1),
        (torch.randn(64, 64) * 3 + 2, "normal", 2, 3),
        (torch.rand(64, 64), "uniform", 0, 1),
        (torch.rand(64, 64) * 4 - 1, "uniform", -1, 3),
        (torch.full((7,), 3.0), "constant", 3, 0),
        ((torch.rand(64, 64) < 0.3).float(), "bernoulli", 0.3, 0),
        (torch.rand(64, 64) < 0.3, "bernoulli", 0.3, 0),
        (torch.randint(0, 10, (n,)), "randint", 0, 10),
        (torch.arange(5, 5 + 3 * 40, 3), "arange", 5, 3),
        (torch.randn(3), "normal", None, None),
    ]:
        found = _data.fit(tensor)
        assert found is not None and found.kind == kind, (kind, found)
        assert a is None or abs(found.a - a) < 0.25 and abs(found.b - b) < 0.25, (found, a, b)
    for tensor in [
        torch.triu(torch.randn(64, 64)),
        torch.randn(64, 64).softmax(-1),
        torch.randn(64, 64).cumsum(0),
        torch.randint(0, 2, (n,)) * 2 - 1,
        torch.randint(0, 1000, (n,)).sort().values,
        torch.relu(torch.randn(64, 64)),
        torch.randn(64, 64).exp(),
        torch.ones(64, 64).tril().bool(),
        (lambda m: m + m.T)(torch.rand(64, 64)),
    ]:
        assert _data.fit(tensor) is None, (tensor[:3], _data.fit(tensor))
    # Small inputs are drawn alike whatever their numbers happen to be: with contents the batch would not be free.
    for shape in ((16, 12), (8, 4, 8), (32, 32)):
        for draw, kind in ((torch.randn, "normal"), (torch.rand, "uniform")):
            kinds = {getattr(_data.fit(draw(*shape)), "kind", None) for _ in range(500)}
            assert kinds == {kind}, (shape, draw, kinds)


def test_fixed_contents_and_options():
    x = torch.triu(torch.randn(16, 16))
    with sim.context() as ctx:
        with bridge.task(Bad(lambda x: x * 2), x, ctx=ctx) as task:
            assert task.spec.batch is None and any("keeps the contents" in note for note in task.notes), task.notes
        with bridge.task(
            Bad(lambda x: x * 2),
            x,
            ctx=ctx,
            dists={"x": stitch.Dist("uniform", 0, 1)},
            batch="N",
            name="twice",
            atol=0.5,
            rtol=0.25,
            precision="tf32",
            description="doubles",
            source="x * 2",
        ) as task:
            assert task.spec.batch == "N" and task.name == "twice" and task.tolerance == (0.5, 0.25)
            assert (task.precision, task.description, task.source) == (stitch.Precision.TF32, "doubles", "x * 2")
        with bridge.task(
            Bad(lambda x: x * 2),
            x,
            ctx=ctx,
            dims={"R": 16},
            shapes={"x": ["R", "R"], "y": ["R", 16]},
            dists={"x": "normal"},
            reduced_dims={"R": 16},
        ) as task:
            assert task.interface["x"].shape_expr == ("R", "R") and task.spec.batch is None
        with bridge.task(Bad(lambda x: x.half()), x.half(), ctx=ctx, baselines=["eager"]) as task:
            assert task.precision == stitch.Precision.F16 and task.tolerance == (1e-2, 1e-2)
            assert task.baselines == [("eager", stitch.Precision.F16)]


def test_results_and_data_that_are_copied_first():
    """Where they are not dense: the copy lives until the library has read it."""
    from stitch.torch import _data

    tensor = torch.arange(6.0)
    alive, block = weakref.ref(tensor), memoryview(_data.memory(tensor))
    del tensor
    assert alive() is not None and block.nbytes == 24
    del block
    assert alive() is None
    x = torch.randn(16, 16).triu().t()
    for function in (torch.nonzero, lambda x: (x + 1).t()):
        with sim.context() as ctx, bridge.task(Bad(function), x, ctx=ctx) as task:
            admission = stitch.admit(ctx, task)
            assert "deterministic" not in admission.text and "as they were before" not in admission.text, admission.text


def test_options_of_tensors_that_are_not_there():
    with sim.context() as ctx:
        for options in ({"dists": {"z": "normal"}}, {"shapes": {"z": [16, 16]}}):
            with tap.raises(stitch.InvalidError, "names 'z'", "x"):
                bridge.task(Bad(lambda x: x * 2), torch.randn(16, 16), ctx=ctx, **options)


def test_inference_mode():
    """Tensors of it have no version."""
    plan = {"stitch": 1, "run": [{"kernel": "scale", "grid": ["B"], "block": [1], "args": ["x", "y", {"i32": "B"}]}]}
    with torch.inference_mode():
        made, module = torch.randn(8), Bad(lambda x: x * 2 + 1)
    for within in (False, True):
        with torch.inference_mode(within), sim.context() as ctx:
            for x in (made, torch.randn(8)):
                with bridge.task(module, x, ctx=ctx) as task:
                    program = stitch.Program.parse(ctx, sim.SOURCE, plan)
                    assert task.notes == [] and stitch.verify(ctx, task, program, last_stage="correct").correct, task.notes
            with bridge.task(Bad(lambda x: x.relu_() + 1), made, ctx=ctx) as task:
                assert task.spec.written == (0,)


def test_batches_of_other_kinds():
    for function, shape, text in [
        (lambda x: x.reshape(-1), (6, 4), ("4*B",)),
        (lambda x: torch.nn.functional.pad(x, (0, 0, 1, 1)), (6, 4), ("B+2", "4")),
        (lambda x: x.sum(), (6, 4), ()),
        (lambda x: x[: x.shape[0] // 2], (6, 4), ("3", "4")),
        (lambda x: x.reshape(6, 2, 2), (6, 4), ("6", "2", "2")),
        (lambda x: x * 2, (1, 4), ("B", "4")),
    ]:
        with sim.context() as ctx, bridge.task(Bad(function), torch.randn(*shape), ctx=ctx) as task:
            assert task.interface["y"].shape_expr == text, (task.interface["y"], text)


def test_arguments_that_are_overwritten():
    plan = {"stitch": 1, "run": [{"kernel": "scale", "grid": ["B"], "block": [1], "args": ["x", "y", {"i32": "B"}]}]}
    with sim.context() as ctx, bridge.task(Bad(lambda x: x.relu_() + 1), torch.randn(8), ctx=ctx) as task:
        assert task.spec.written == (0,) and "overwrites its argument x" in task.notes[0]
        source = sim.SOURCE.replace("x[i] * 2.0f", "fmaxf(x[i], 0.0f)")
        assert stitch.verify(ctx, task, stitch.Program.parse(ctx, source, plan), last_stage="correct").correct


class Autocast(torch.nn.Module):
    """Products of halves within forward; or only sums of them, which are no matter of the precision."""

    def __init__(self, products):
        super().__init__()
        self.linear, self.products = torch.nn.Linear(8, 8), products

    def forward(self, x):
        if not self.products:
            return self.linear(x).bfloat16().float() + 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x).float()


def test_autocast_within_forward():
    for products, precision in ((True, stitch.Precision.F16), (False, stitch.Precision.F32)):
        with sim.context() as ctx, bridge.task(Autocast(products), [torch.randn(4, 8)], ctx=ctx) as task:
            assert task.precision is precision, task.precision
            assert task.tolerance == ((1e-3, 1e-3) if products else (1e-4, 1e-4)), task.tolerance


def test_precision_flags():
    from stitch.torch import _settings

    before = _settings.Flags.current()
    with _settings.Precision(True):
        assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
        with _settings.Precision(False):
            assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
    assert _settings.Flags.current() == before
    torch.set_float32_matmul_precision("medium")
    try:
        with sim.context() as ctx, bridge.task(torch.nn.Linear(4, 4), torch.randn(8, 4), ctx=ctx) as task:
            assert task.flags.matmul == "medium" and task.precision == stitch.Precision.TF32
        with contextlib.suppress(ZeroDivisionError), _settings.Precision(False):
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_baselines_do_not_decide():
    """A baseline that fails is left out, and the notes say why."""
    with sim.context() as ctx:
        with bridge.task(torch.nn.Linear(4, 4), torch.randn(8, 4), ctx=ctx, baselines=["eager", "tf32"]) as task:
            eager = task._callbacks[1]
            eager.runner = None
            assert eager(0, {}) == int(stitch.Status.E_UNSUPPORTED) and "eager failed" in task.notes[0]
            assert [name for name, _ in task.baselines] == ["eager", "tf32"]
            with tap.raises(stitch.UnsupportedError, "timeline"):
                task.timeline()


def test_nothing_is_left():
    """A failed task leaves no handle, no copy of the module, no setting."""
    live = []

    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x):
            live.append(id(self))
            return self.fc(x)[: 0 if bool((x == 99).any()) else None]

    def count():
        gc.collect()
        return sum(type(thing) is Counted for thing in gc.get_objects())

    with sim.context() as ctx:
        with tap.raises(stitch.InvalidError, "no baseline"):
            bridge.task(Counted(), torch.randn(8, 4), ctx=ctx, baselines=["none"])
        with tap.raises(stitch.InvalidError):
            bridge.task(Counted(), torch.randn(8, 4), ctx=ctx, shapes={"x": ["Z", 4]}, dims={"B": 8})
        assert count() == 0 and not ctx._made() and torch.get_default_dtype() == torch.float32
        task = bridge.task(Counted(), torch.randn(8, 4), ctx=ctx, baselines=["eager"])
        assert count() == 3  # the module, its double, the baseline's copy
        task.close()
        task.module = None
        assert count() == 0, count()


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
