# SPDX-License-Identifier: MIT
"""stitch.torch.optimize() on the simulator: the loop, the module that comes of it, what it falls back for, files."""

import contextlib
import copy
import json
import os
import pickle
import sys
import tempfile
import warnings
import zipfile
from ctypes import byref, c_size_t, c_uint64

import sim
import tap
import stitch

try:
    import torch
except ImportError as missing:
    print(f"1..0 # SKIP {missing}")
    sys.exit(0)

import module_cases as cases  # noqa: E402
import stitch.torch as bridge  # noqa: E402
from stitch.torch._engine import _identity, _usable  # noqa: E402

REPLIES = os.path.join(sim.EXAMPLES, "replies", "swiglu_mlp.jsonl")


def reply(case, wrong=False):
    source = case.source.replace(*case.wrong) if wrong else case.source
    return f"```cuda\n{source.replace('MASK', 'float')}\n```\n```json\n{json.dumps(case.plan)}\n```\n"


PLAN = json.dumps(
    {
        "stitch_plan": 1,
        "strategy": "one kernel a layer",
        "bottlenecks": ["launches"],
        "subtasks": [{"id": "all", "level": "kernel", "title": "all of it", "goal": "write it", "after": []}],
    }
)


def answers(*replies):
    """A model that gives these programs one after the other."""
    left = list(replies)

    def answer(request):
        return f"```json\n{PLAN}\n```" if request.label == "plan" else left.pop(0)

    return answer


class Block:
    """Device memory of the simulated driver that looks like a tensor to an engine."""

    def __init__(self, driver, tensor):
        self.driver, self.tensor = driver, tensor.detach().contiguous()
        self.at = c_uint64()
        driver("cuMemAlloc_v2", byref(self.at), c_size_t(max(16, self.nbytes)))
        self.write()

    nbytes = property(lambda self: self.tensor.numel() * self.tensor.element_size())
    _version = property(lambda self: self.tensor._version)

    def is_inference(self):
        return False

    def detach(self):
        return self

    contiguous = resolve_neg = detach

    def is_neg(self):
        return False

    def stride(self):
        return self.tensor.stride()

    def data_ptr(self):
        return self.at.value

    def numel(self):
        return self.tensor.numel()

    def element_size(self):
        return self.tensor.element_size()

    def write(self):
        self.driver("cuMemcpyHtoD_v2", self.at, _pointer(self.tensor), c_size_t(self.nbytes))

    def read(self):
        self.driver("cuCtxSynchronize")
        self.driver("cuMemcpyDtoH_v2", _pointer(self.tensor), self.at, c_size_t(self.nbytes))
        return self.tensor

    def free(self):
        self.driver("cuMemFree_v2", self.at)


def _pointer(tensor):
    from ctypes import c_void_p

    return c_void_p(tensor.data_ptr())


class Staging:
    """Carries tensors of the CPU to the simulated device and back."""

    def __init__(self, driver):
        self.driver, self.weights, self.calls = driver, {}, 0

    def run(self, engine, inputs, weights, batch):
        self.calls += 1
        given = [Block(self.driver, t) for t in inputs]
        made = [Block(self.driver, torch.empty(engine.shapes[batch][n], dtype=d)) for n, d, _ in engine.spec.outputs]
        held = []
        for weight in weights:
            block = self.weights.setdefault(weight.data_ptr(), None) or Block(self.driver, weight)
            self.weights[weight.data_ptr()] = block
            block.write()
            held.append(block)
        try:
            engine.enqueue(given, held, made, batch, 0, False)
            return [block.read() for block in made]
        finally:
            for block in given + made:
                block.free()


def optimized(driver, case, *replies, **options):
    """An optimised module on the simulated driver that this process holds itself, so that it can run too."""
    torch.manual_seed(3)
    module, inputs = case.make()
    ctx = driver.stitch()
    options.setdefault("verify_options", {"last_stage": "correct"})
    fast = bridge.optimize(module, inputs, model=answers(*replies), ctx=ctx, **options)
    fast._engine.staging = Staging(driver)
    return module, inputs, fast


def test_the_loop_with_recorded_replies():
    """The whole loop on a small module whose dims have the names that the recorded programs use."""
    c, f = 128, 256

    class SwiGlu(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.RMSNorm(c, eps=1e-6)
            self.gate, self.up = torch.nn.Linear(c, f, bias=False), torch.nn.Linear(c, f, bias=False)
            self.down = torch.nn.Linear(f, c, bias=False)

        def forward(self, x):
            h = self.norm(x)
            return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))

    torch.manual_seed(2)
    turns = []
    with sim.context() as ctx:
        fast = bridge.optimize(
            SwiGlu(),
            torch.randn(1, 16, c),
            ctx=ctx,
            model="replay:" + REPLIES,
            policy=stitch.Policy(max_attempts=4),
            dims={"B": 1, "T": 16, "C": c, "F": f},
            shapes={
                "x": ["B", "T", "C"],
                "norm.weight": ["C"],
                "gate.weight": ["F", "C"],
                "up.weight": ["F", "C"],
                "down.weight": ["C", "F"],
                "y": ["B", "T", "C"],
            },
            precision="f16",
            atol=1e-3,
            rtol=1e-3,
            verify_options={"last_stage": "correct"},
            on_turn=lambda turn: turns.append((turn.attempt.action.name, turn.report.correct)),
        )
        assert [correct for _, correct in turns] == [False, False, False, True], turns
        assert len(fast.reports) == 4 and fast.report["summary"]["correct"] and fast.enabled
        assert fast.plan["stitch"] == 1 and "__global__" in fast.source
        x = torch.randn(1, 16, c)
        assert torch.equal(fast(x), fast.original(x)) and fast.fallbacks == 1  # a simulated device: nothing to run on


def test_runs_the_program():
    driver = sim.Driver()
    module, (x,), fast = optimized(
        driver, cases.MLP, reply(cases.MLP, wrong=True), reply(cases.MLP), policy=stitch.Policy(max_attempts=2)
    )
    with torch.no_grad():
        for _ in range(3):
            assert (
                torch.allclose(fast(x), module(x), atol=1e-5) and fast.runs and fast._engine.staging.calls == fast.runs
            )
            x = torch.randn_like(x)
        # Weights that are changed in place or replaced are seen.
        module.one.weight.mul_(2.0)
        assert torch.allclose(fast(x), module(x), atol=1e-5)
        module.two.bias = torch.nn.Parameter(torch.randn(5))
        assert torch.allclose(fast(x), module(x), atol=1e-5)
        fast.load_state_dict({k: v + 0.5 for k, v in fast.state_dict().items()})
        assert torch.allclose(fast(x.t().contiguous().t()), module(x), atol=1e-5)
    assert fast.fallbacks == 0 and [n for n, _ in fast.named_parameters()][0] == "original.one.weight"


def test_the_short_way():
    """Which calls it is for, and what it is given; it is a GPU's, so that what it does is left out here."""
    driver = sim.Driver()
    module, (x,), fast = optimized(driver, cases.MLP, reply(cases.MLP), policy=stitch.Policy(max_attempts=1))
    asked = []
    fast._count, fast._engine.quick = 1, lambda form, *rest: asked.append((form.batch, form.names, *rest))

    def taken(*args, **kwargs):
        asked.clear()
        fast(*args, **kwargs)
        return len(asked) == 1

    with torch.no_grad():
        assert taken(x)
        batch, names, pointers, weights = asked[0]
        assert batch == 16 and names == ["x", "y"] and pointers == [x.data_ptr()]
        assert weights == [f(w) for w in module.parameters() for f in (id, torch.Tensor.data_ptr, lambda w: w._version)]
        assert taken(torch.nn.Parameter(x))
        assert not taken(torch._neg_view(x))
        assert not taken(x=x) and not taken(x[:7]) and not taken(x.t().contiguous().t())
        assert not taken(torch.randn(17 * 12)[1 : 1 + 16 * 12].view(16, 12))  # not aligned
        with torch.enable_grad():
            assert not taken(x)
        module.two.bias = torch.nn.Parameter(torch.randn(5))
        module.one.weight.mul_(2.0)
        assert taken(x) and asked[0][3] != weights
        assert asked[0][3][-2] == module.two.bias.data_ptr()
        before = asked[0][3]
        module.one.weight = torch.nn.Parameter(module.one.weight)  # the same memory, by another tensor
        assert taken(x) and asked[0][3] != before
        module.train(not module.training)
        assert not taken(x)
        module.train(not module.training)
        fast.enabled = False
        assert not taken(x)
        fast.enabled = True
        bias = module.two._parameters.pop("bias")
        module.two.bias = bias.detach()  # no parameter any more: the long way finds it
        assert not taken(x) and torch.allclose(fast(x), module(x), atol=1e-5)


def test_weights_that_are_replaced():
    """What the long way looks at: memory, contents, and which way the memory is read; not the objects."""
    driver = sim.Driver()
    module, (x,), fast = optimized(driver, cases.MLP, reply(cases.MLP), policy=stitch.Policy(max_attempts=1))
    square = torch.nn.Parameter(torch.randn(5, 5))
    made = [_identity([w]) for w in (square, torch.nn.Parameter(square), torch.nn.Parameter(square.t()))]
    assert made[0] == made[1] and made[0] != made[2]
    assert _identity([torch._neg_view(square)]) != made[0]
    assert _usable(square).data_ptr() == square.data_ptr()
    negative = _usable(torch._neg_view(square))
    assert torch.equal(negative, -square) and not negative.is_neg()
    with torch.no_grad():
        square.add_(1)
    assert _identity([square]) != made[0]
    with torch.no_grad():
        assert torch.equal(fast(x), fast(x)) and fast.runs == 2
        bias = module.two.bias.detach()
        for other in (bias.half(), bias.view(torch.int32), bias[:4], bias[None]):  # some have as many bytes
            module.two._parameters["bias"] = other
            with contextlib.suppress(RuntimeError):  # it may not be the original's kind, either
                fast(x)
            assert fast.runs == 2, other
        module.two.bias = torch.nn.Parameter(bias + 1)
        assert torch.allclose(fast(x), module(x), atol=1e-5) and fast.runs == 3


def test_weights_in_lists():
    """A parameter has one name in the task; where the module has it once more both places are looked at."""
    driver = sim.Driver()
    module, (x,), fast = optimized(
        driver, cases.RECURRENT, reply(cases.RECURRENT), policy=stitch.Policy(max_attempts=1)
    )
    assert list(fast._engine.spec.weights) == ["weight_ih_l0", "weight_hh_l0"]
    with torch.no_grad():
        assert torch.allclose(fast(x)[0], module(x)[0], atol=1e-5) and fast.runs == 1
        module.weight_ih_l0 = torch.nn.Parameter(module.weight_ih_l0 * 3)
        assert torch.allclose(fast(x)[0], module(x)[0], atol=1e-5) and fast.runs == 2
        module.flatten_parameters()
        module.load_state_dict({name: value * 2 for name, value in module.state_dict().items()})
        assert torch.allclose(fast(x)[0], module(x)[0], atol=1e-5) and fast.runs == 3

    module, (x,), fast = optimized(driver, cases.LISTED, reply(cases.LISTED), policy=stitch.Policy(max_attempts=1))
    assert list(fast._engine.spec.weights) == ["one", "more.a.1"]
    asked, runs = [], 0
    fast._count, fast._engine.quick = 1, lambda form, *rest: asked.append(rest[1])

    def right(quick, run):
        """Whether the short way was asked, and whether the program ran."""
        nonlocal runs
        asked.clear()
        runs += run
        return torch.allclose(fast(x), module(x), atol=1e-5) and (len(asked), fast.runs) == (quick, runs)

    with torch.no_grad():
        assert right(1, 1)
        module.more["a"][1] = torch.randn(7)
        assert right(1, 1) and asked[0][3] == id(module.more["a"][1])
        module.more = {"a": (torch.zeros(7), torch.randn(7))}
        assert right(0, 1) and right(1, 1)
        module.one = torch.nn.Parameter(torch.randn(7))  # the list still has the old one, which forward uses
        assert right(1, 0) and right(1, 0)
        module.used[0] = module.one
        assert right(0, 1) and right(1, 1)
        compiled = torch.compile(fast, backend="eager", fullgraph=True)
        for _ in range(2):
            assert torch.allclose(compiled(x), module(x), atol=1e-5)
            module.used[0] = torch.nn.Parameter(torch.randn(7))
        module.used[0] = module.one
        module.more = {"a": []}
        with tap.raises(IndexError):  # the module's own
            fast(x)


def test_falls_back():
    driver = sim.Driver()
    module, (x,), fast = optimized(driver, cases.MLP, reply(cases.MLP), policy=stitch.Policy(max_attempts=1))
    y = fast(x)  # parameters want gradients
    y.sum().backward()
    assert fast.fallbacks == 1 and fast.runs == 0 and module.one.weight.grad is not None
    with torch.no_grad():
        for given in (x[:5], x[None], x.expand(2, *x.shape)):
            assert torch.equal(fast(given), module(given)), given.shape
        assert fast.runs == 0
        fast(x=x)  # another form of call than the example
        assert fast.runs == 0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert fast(x).dtype == torch.bfloat16
        fast.eval()
        fast(x)
        assert fast.runs == 0
        fast.train()
        fast(x)
        assert fast.runs == 1
        fast.enabled = False
        fast(x)
        assert fast.runs == 1
        fast.enabled = True
        with tap.raises(RuntimeError):
            fast(x.double())
        with tap.raises(TypeError):
            fast(x, x, x)


def test_forward_derivatives_and_transforms():
    """The original computes where more than the results is wanted."""
    from torch.autograd import forward_ad

    driver = sim.Driver()
    module, (x,), fast = optimized(driver, cases.MLP, reply(cases.MLP), policy=stitch.Policy(max_attempts=1))
    v = torch.randn_like(x)
    module.requires_grad_(False)
    quick = []

    def check():
        """Nothing of these runs the program, the short way's either."""
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, v)
            got, want = (forward_ad.unpack_dual(f(dual)).tangent for f in (fast, module))
            assert got is not None and torch.equal(got, want)
        for got, want in zip(torch.func.jvp(fast, (x,), (v,)), torch.func.jvp(module, (x,), (v,))):
            assert torch.equal(got, want)
        many = torch.randn(3, *x.shape)
        assert torch.equal(torch.func.vmap(fast)(many), torch.func.vmap(module)(many))
        got, want = (torch.func.grad(lambda z, f=f: f(z).square().sum())(x) for f in (fast, module))
        assert torch.equal(got, want)
        compiled = torch.compile(lambda z: torch.func.vmap(fast)(z), backend="eager", fullgraph=True)
        assert torch.allclose(compiled(many), torch.func.vmap(module)(many), atol=1e-5)
        assert fast.runs == 0 and not quick

    check()
    with torch.no_grad():
        check()
        fast._count, fast._engine.quick = 1, lambda *given: quick.append(given)
        check()
        hooked = []
        module.one.register_forward_hook(lambda *given: hooked.append("inner"))
        fast.register_forward_hook(lambda *given: hooked.append("fast"))
        assert torch.allclose(fast(x), module(x), atol=1e-5) and fast.runs == 1 and len(quick) == 1
        assert hooked == ["fast", "inner"]  # the inner one by module(x)


def test_further_batches():
    driver = sim.Driver()
    fixed = copy.copy(cases.MLP)
    fixed.source = fixed.source.replace("ROW(n * o)", "ROW(n * o) if (n == 5) return;")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        module, (x,), fast = optimized(
            driver, cases.MLP, reply(fixed), policy=stitch.Policy(max_attempts=1), batches=[1, 4, 5, 20]
        )
    assert any("B = 5" in str(w.message) for w in seen), seen
    with torch.no_grad():
        for rows, runs in ((16, 1), (4, 2), (5, 2), (3, 2), (4, 3), (1, 4), (20, 5)):
            x = torch.randn(rows, 12)
            assert torch.allclose(fast(x), module(x), atol=1e-5) and fast.runs == runs, (rows, fast.runs)
    with tap.raises(stitch.InvalidError, "cannot be changed"):
        optimized(driver, cases.MLP, reply(cases.MLP), policy=stitch.Policy(max_attempts=1), batches=[4], batch=None)

    def unasked(request):
        raise AssertionError("the model was asked")

    for bad, kind in (([8, 0], stitch.InvalidError), ([1.5], TypeError), (["8"], TypeError)):
        with tap.raises(kind):
            bridge.optimize(cases.MLP.make()[0], [torch.randn(16, 12)], model=unasked, ctx=driver.stitch(), batches=bad)


def test_draws_structures_and_state():
    driver = sim.Driver()
    module, (x,), fast = optimized(driver, cases.NOISY, reply(cases.NOISY), policy=stitch.Policy(max_attempts=1))
    with torch.no_grad():
        torch.manual_seed(11)
        a = fast(x)
        torch.manual_seed(11)
        assert torch.equal(a, fast(x)) and not torch.equal(a, fast(x)) and fast.runs == 3
        torch.manual_seed(11)
        assert torch.allclose(a, module(x), atol=1e-6)  # the same draws in the same order
    module, kwargs, fast = optimized(driver, cases.SEVERAL, reply(cases.SEVERAL), policy=stitch.Policy(max_attempts=1))
    got, want = fast(**kwargs), module(**kwargs)
    assert fast.runs == 1 and list(got) == list(want) and got["both"][1][1] is None
    for a, b in ((got["sum"], want["sum"]), (got["both"][0], want["both"][0]), (got["both"][1][0], want["both"][1][0])):
        assert torch.allclose(a, b)
    fast(**{**kwargs, "weight": 0.75})
    assert fast.runs == 1 and fast.fallbacks == 1
    module, (tokens,), fast = optimized(driver, cases.WORDS, reply(cases.WORDS), policy=stitch.Policy(max_attempts=1))
    with torch.no_grad():
        got, want = fast(tokens), module(tokens)
    assert fast.runs == 1 and isinstance(got, tuple) and torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_compiles():
    driver = sim.Driver()
    module, (x,), fast = optimized(driver, cases.MLP, reply(cases.MLP), policy=stitch.Policy(max_attempts=1))
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(fast, backend=backend, fullgraph=True)
        with torch.no_grad():
            calls = fast._engine.staging.calls
            for rows in (16, 16, 7):
                x = torch.randn(rows, 12)
                assert torch.allclose(compiled(x), module(x), atol=1e-5)
            assert fast._engine.staging.calls == calls + 2, (backend, fast._engine.staging.calls - calls)
    with torch.no_grad():
        y = torch.ops.stitch.run([x.new_zeros(16, 12)], [getattr(o, n) for o, n in fast._held], fast._handle, 16)
        assert y[0].shape == (16, 5)
        torch.library.opcheck(
            torch.ops.stitch.run.default,
            ([torch.randn(16, 12)], [getattr(o, n).detach() for o, n in fast._held], fast._handle, 16),
            test_utils=("test_schema", "test_faketensor"),
        )
    with tap.raises(stitch.StateError, "gone"):
        torch.ops.stitch.run([x], [], 10**9, 16)


def test_saved_and_loaded():
    driver = sim.Driver()
    for case in (cases.SEVERAL, cases.NOISY, cases.NORM):
        module, inputs, fast = optimized(driver, case, reply(case), policy=stitch.Policy(max_attempts=1))
        given, named = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ä.zip")
            fast.save(path)
            again = bridge.load(path, copy.deepcopy(module), ctx=driver.stitch())
            if again._engine.spec.weights:
                with tap.raises(stitch.InvalidError, "is of type float16; the program needs float32"):
                    bridge.load(path, copy.deepcopy(module).half(), ctx=driver.stitch())
        again._engine.staging = Staging(driver)
        with torch.no_grad():
            torch.manual_seed(1)
            a = torch.utils._pytree.tree_leaves(fast(*given, **named))
            torch.manual_seed(1)
            b = torch.utils._pytree.tree_leaves(again(*given, **named))
        assert again.runs == 1 and len(a) == len(b) and all(x is y or torch.equal(x, y) for x, y in zip(a, b))
        assert again.report == fast.report and again.notes == fast.notes and again.program_bytes == fast.program_bytes
        clone = copy.deepcopy(fast)
        assert clone._handle != fast._handle and clone.original is not fast.original
        with tap.raises(TypeError, "save()"):
            pickle.dumps(fast)


def test_files_that_are_broken():
    driver = sim.Driver()
    module, _, fast = optimized(driver, cases.MLP, reply(cases.MLP), policy=stitch.Policy(max_attempts=1))
    with tempfile.TemporaryDirectory() as folder, driver.stitch() as ctx:
        path = os.path.join(folder, "m")
        fast.save(path)
        with zipfile.ZipFile(path) as archive:
            document, program = json.loads(archive.read("module.json")), archive.read("program.stitch")

        def write(changed, data=program):
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("module.json", changed if isinstance(changed, str) else json.dumps(changed))
                archive.writestr("program.stitch", data)

        shapes = document["shapes"]["16"]
        deep = '{"kind": "list", "names": null, "items": ['
        draw = ["r", ["normal", 0, 1, "float32", [3]], ["3"]]
        drawing = {**document, "draws": [draw], "shapes": {"16": {**shapes, "r": [3]}}}
        for broken in (
            "{",
            "[]",
            "[" * 100000,
            {},
            {**document, "stitch_torch": 2},
            {**document, "inputs": [["x", "float31", ["B"]]]},
            {**document, "inputs": [["x", "float16", ["B", "12"]]]},
            {**document, "inputs": [["x", "float32", ["12", "B"]]]},
            {**document, "inputs": []},
            {**document, "inputs": document["inputs"] * 2},
            {**document, "outputs": []},
            {**document, "arguments": {"kind": "object"}},
            {**document, "arguments": {"kind": "constant", "value": 1}},
            {**document, "arguments": 0},
            {**document, "results": 7},
            {**document, "results": {"kind": "tuple", "names": ["a b"], "items": [0]}},
            {**document, "results": {"kind": "dict", "names": None, "items": [0]}},
            {**document, "results": {"kind": "dict", "names": [["a"]], "items": [0]}},
            json.dumps({**document, "results": "deep"}).replace('"deep"', deep * 5000 + "0" + "]}" * 5000),
            {**document, "shapes": {}},
            {**document, "shapes": {"16": {**shapes, "one.weight": [1]}}},
            {**document, "shapes": {"8": shapes}},
            {**document, "shapes": {"-16": shapes}},
            {**document, "dims": 5},
            {**document, "dims": {}},
            {**document, "dims": {"B": -3}},
            {**document, "batch": 5},
            {**document, "batch": []},
            {**document, "batch": None, "dims": {"B": 8}},
            {**document, "draws": [["r", 5, []]]},
            {**drawing, "draws": [["r", ["gamma", 0, 1, "float32", [3]], ["3"]]]},
            {**drawing, "draws": [["r", ["normal", 0, -1, "float32", [3]], ["3"]]]},
            drawing,
            {**document, "weights": [*document["weights"], ["one.weight", "one.weight"]]},
            {**document, "weights": [*document["weights"], ["other", "one.weight"]]},
            {
                **document,
                "weights": [*document["weights"], ["o", "one.weight"]],
                "shapes": {"16": {**shapes, "o": [1]}},
            },
            {**document, "written": None},
            {**document, "written": [1]},
            {**document, "report": []},
            {**document, "report": {"summary": 1}},
            {**document, "report": {"summary": {"speedup": "x"}}},
            {**document, "reports": [1]},
            {**document, "notes": 3},
            {**document, "notes": [3]},
        ):
            write(broken)
            with tap.raises(stitch.FormatError, "no saved module"):
                bridge.load(path, module, ctx=ctx)
        write(document)
        with open(path, "rb") as file:
            good = file.read()
        for at in (*range(30, 60), *range(len(good) - 90, len(good))):  # the begin of the data, and the directory
            with open(path, "wb") as file:
                file.write(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
            with contextlib.suppress(stitch.FormatError):  # a byte that does not matter
                bridge.load(path, module, ctx=ctx)
        write(document, b"nothing")
        with tap.raises(stitch.FormatError):
            bridge.load(path, module, ctx=ctx)
        write(document)
        with tap.raises(stitch.InvalidError, "no tensor one.weight"):
            bridge.load(path, torch.nn.Linear(3, 3), ctx=ctx)
        other = cases.Mlp()
        other.one = torch.nn.Linear(12, 21)
        with tap.raises(stitch.InvalidError, "[21, 12]"):
            bridge.load(path, other, ctx=ctx)
        with open(path, "wb") as file:
            file.write(b"PK")
        with tap.raises(stitch.FormatError):
            bridge.load(path, module, ctx=ctx)
        with tap.raises(stitch.NotFoundError):
            bridge.load(os.path.join(folder, "nowhere"), module, ctx=ctx)


def test_a_model_that_gives_up():
    """What is right already is kept; without anything the error comes through."""
    from types import SimpleNamespace

    from stitch.torch import _optimize

    def turns(kind, *best):
        for one in best:
            yield SimpleNamespace(best=one)
        raise kind("spent")

    for kind in (stitch.BudgetError, stitch.ReplyError, stitch.LimitError):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert len(list(_optimize._until_the_model_fails(turns(kind, None, object())))) == 2
        assert ["spent" in str(w.message) for w in seen] == [True]
        with tap.raises(kind, "spent"):
            list(_optimize._until_the_model_fails(turns(kind, None, None)))
    with tap.raises(stitch.StateError):
        list(_optimize._until_the_model_fails(_raise(stitch.StateError("lost"))))


def _raise(error):
    yield type("Turn", (), {"best": 1})
    raise error


def test_captured_tensors():
    """What the module does not hold cannot be found at calls: that is said before the model is asked."""
    scale = torch.randn(4)

    class Captured(torch.nn.Module):
        def forward(self, x):
            return x * scale

    with sim.context() as ctx, tap.raises(stitch.InvalidError, "no tensor captured.0"):
        bridge.optimize(Captured(), torch.randn(8, 4), ctx=ctx, model=answers())


def test_nothing_right():
    driver = sim.Driver()
    with tap.raises(stitch.NotFoundError, "no program was right after 2 attempts", "FAILED at"):
        optimized(
            driver, cases.MLP, reply(cases.MLP, True), reply(cases.MLP, True), policy=stitch.Policy(max_attempts=2)
        )

    def oops(request):
        raise ArithmeticError("no answer")

    with driver.stitch() as ctx:
        torch.manual_seed(0)
        module, inputs = cases.MLP.make()
        with tap.raises(ArithmeticError, "no answer"):
            bridge.optimize(module, inputs, ctx=ctx, model=oops)
        assert not ctx._made()
        with tap.raises(stitch.StateError, "no model"):
            bridge.optimize(module, inputs, ctx=ctx)


def test_the_contexts_own_model():
    """It is there again afterwards, whatever was given for a call and however that ended."""
    driver = sim.Driver()
    options = {"policy": stitch.Policy(max_attempts=1), "verify_options": {"last_stage": "correct"}}
    with driver.stitch() as ctx:
        module, inputs = cases.MLP.make()
        own = stitch.Model.host(ctx, answers(*[reply(cases.MLP)] * 2))
        planner = stitch.Model.host(ctx, lambda request: f"```json\n{PLAN}\n```")
        ctx.set_model(own)
        ctx.set_model(planner, "planner")
        kept = dict(ctx._models)
        given = stitch.Model.host(ctx, answers(reply(cases.MLP)))
        for model in (answers(reply(cases.MLP)), given, None):
            assert bridge.optimize(module, inputs, ctx=ctx, model=model, **options).report["summary"]["correct"]
            assert ctx._models == kept
        with tap.raises(stitch.NotFoundError):
            bridge.optimize(module, inputs, ctx=ctx, model=answers(reply(cases.MLP, wrong=True)), **options)
        assert ctx._models == kept
        assert bridge.optimize(module, inputs, ctx=ctx, **options).report["summary"]["correct"]
        ctx.set_model(None)
        bridge.optimize(module, inputs, ctx=ctx, model=answers(reply(cases.MLP)), **options)
        assert list(ctx._models.values()) == [planner]


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
