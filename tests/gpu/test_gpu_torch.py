# SPDX-License-Identifier: MIT
"""stitch.torch on a GPU: tasks without copies, baselines, optimised modules with streams, graphs and torch.compile.
Prints TAP. Needs a GPU, PyTorch, and STITCH_LIBRARY or a build folder."""

import gc
import json
import os
import sys
import tempfile
import time
import warnings

from with_torch import context, note, torch_or_skip
import sim
import tap
import stitch

torch = torch_or_skip()

import module_cases as cases  # noqa: E402
import stitch.torch as bridge  # noqa: E402

PLAN = json.dumps(
    {
        "stitch_plan": 1,
        "strategy": "one kernel a layer",
        "bottlenecks": ["launches"],
        "subtasks": [{"id": "all", "level": "kernel", "title": "all of it", "goal": "write it", "after": []}],
    }
)


def on_gpu(case, seed=1):
    torch.manual_seed(seed)
    module, inputs = case.make()
    bridge._run.move(module, torch.device("cuda:0"))
    move = lambda v: v.cuda() if isinstance(v, torch.Tensor) else v  # noqa: E731
    inputs = {k: move(v) for k, v in inputs.items()} if isinstance(inputs, dict) else [move(v) for v in inputs]
    return module, inputs


def source_for(task, case, wrong=False):
    """A dropout's mask is a bool where PyTorch has one kernel for it, and a float elsewhere."""
    kinds = {t.name: t.dtype for t in task.interface}
    source = case.source.replace(*case.wrong) if wrong else case.source
    keep = next((name for name, draw, _ in task.spec.draws if draw.kind == "bernoulli"), None)
    return source.replace("MASK", "bool" if keep and kinds[keep] == stitch.Dtype.BOOL else "float")


def answers(*replies):
    left = list(replies)

    def answer(request):
        return f"```json\n{PLAN}\n```" if request.label == "plan" else left.pop(0)

    return answer


def reply(case, mask="float", wrong=False):
    source = (case.source.replace(*case.wrong) if wrong else case.source).replace("MASK", mask)
    return f"```cuda\n{source}\n```\n```json\n{json.dumps(case.plan)}\n```\n"


def optimised(ctx, case, **options):
    module, inputs = on_gpu(case)
    options.setdefault("verify_options", {"last_stage": "correct"})
    options.setdefault("baselines", ["eager"])
    fast = bridge.optimize(
        module, inputs, ctx=ctx, model=answers(reply(case, "bool")), policy=stitch.Policy(max_attempts=1), **options
    )
    return module, inputs, fast


def test_right_and_wrong_programs():
    with context() as ctx:
        for name, case in cases.CASES.items():
            module, inputs = on_gpu(case)
            before = {key: value.clone() for key, value in module.state_dict().items()}
            begun = time.perf_counter()
            with bridge.task(module, inputs, ctx=ctx, baselines=["eager"]) as task:
                made = time.perf_counter() - begun
                assert not [n for n in task.notes if "float32" in n], (name, task.notes)
                for wrong in (False, True):
                    program = stitch.Program.parse(ctx, source_for(task, case, wrong), case.plan)
                    report = stitch.verify(ctx, task, program, last_stage="correct")
                    assert report.correct != wrong, (name, wrong, report.text)
                draws = [(d.kind, str(d.dtype)) for _, d, _ in task.spec.draws]
            for key, value in module.state_dict().items():
                assert torch.equal(value, before[key]), (name, key)
            note(f"{name}: task made in {made * 1e3:.0f} ms, draws {draws}")


def test_nothing_is_copied():
    """The reference sees the library's memory itself, and the float64 module is on the GPU."""
    with context() as ctx:
        module, inputs = on_gpu(cases.MLP)
        with bridge.task(module, inputs, ctx=ctx, baselines=["eager"]) as task:
            reference, seen = task._callbacks[0], []
            get = reference._get

            def watched(bound):
                tensor = get(bound)
                here = torch.cuda.current_stream().cuda_stream == bound._stream
                seen.append((tensor.data_ptr() == bound.pointer, tensor.is_cuda, here))
                return tensor

            reference._get = watched
            program = stitch.Program.parse(ctx, cases.MLP.source, cases.MLP.plan)
            assert stitch.verify(ctx, task, program, last_stage="correct").correct
            assert seen and all(all(row) for row in seen), seen
            assert next(reference.runner.module.parameters()).dtype == torch.float64


def test_baselines():
    """All four are measured, in their own precision, and the caller's flags are as before."""
    width = 1024

    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(width, width)

        def forward(self, x):
            return torch.relu(self.fc(x))

    plan = {
        "stitch": 1,
        "run": [
            {
                "gemm": {
                    "a": "x",
                    "b": "fc.weight",
                    "c": "y",
                    "m": "B",
                    "n": width,
                    "k": width,
                    "trans_b": True,
                    "bias": "fc.bias",
                    "epilogue": "relu",
                }
            }
        ],
    }
    with context() as ctx:
        torch.manual_seed(0)
        flags = bridge._settings.Flags.current()
        with bridge.task(Wide().cuda(), torch.randn(4096, width, device="cuda"), ctx=ctx) as task:
            begun = time.perf_counter()
            task.warm()
            note(f"warm: {time.perf_counter() - begun:.1f} s; notes: {task.notes}")
            report = stitch.verify(ctx, task, stitch.Program.parse(ctx, "", plan))
            note(report.text)
            assert report.correct and report.summary.timed, report.text
            rows = report.json["time"]["baselines"]
            note(json.dumps(rows)[:2000])
            failed = [n for n in task.notes if "failed" in n]
            assert not any("eager" in n or "tf32" in n for n in failed), failed
            assert [name for name, _ in task.baselines] == ["eager", "tf32", "compile", "max-autotune"]
            assert report.summary.speedup > 0.5, report.text
        assert bridge._settings.Flags.current() == flags


def test_a_baseline_is_not_charged_for_the_copy_of_its_results():
    """An elementwise module moves as much memory as the copy would: it must come out as PyTorch alone has it."""

    class Scale(torch.nn.Module):
        def forward(self, x):
            return x * 2

    n = 1 << 26
    plan = {
        "stitch": 1,
        "run": [{"kernel": "scale", "grid": ["ceil_div(B,256)"], "block": [256], "args": ["x", "y", {"i32": "B"}]}],
    }
    with context() as ctx:
        x = torch.randn(n, device="cuda")
        with bridge.task(Scale(), x, ctx=ctx, baselines=["eager"]) as task:
            source = sim.SOURCE.replace(" + 1.0f", "")
            summary = stitch.verify(ctx, task, stitch.Program.parse(ctx, source, plan)).summary
        flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        times = []
        for _ in range(30):
            flush.zero_()
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            x * 2
            b.record()
            torch.cuda.synchronize()
            times.append(a.elapsed_time(b) * 1e3)
        times.sort()
        note(
            f"baseline {summary.baseline_us:.1f} us, PyTorch alone {times[15]:.1f} us, program {summary.median_us:.1f} us"
        )
        assert summary.correct and summary.baseline_us < 1.35 * times[15], (summary.baseline_us, times[15])


def test_devices_must_fit():
    with context() as ctx:
        torch.manual_seed(0)
        module, inputs = cases.MLP.make()
        with tap.raises(stitch.InvalidError, "on the CPU", ".cuda()"):
            bridge.task(module, inputs, ctx=ctx)
        with tap.raises(stitch.InvalidError, "not on one device"):
            bridge.task(module.cuda(), inputs, ctx=ctx)
        with sim.context() as simulated, tap.raises(stitch.InvalidError, "the module is on cuda:0"):
            bridge.task(module, [inputs[0].cuda()], ctx=simulated)


def test_files():
    with context() as ctx, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "1_File.py")
        with open(path, "w", encoding="utf-8") as text:
            text.write(cases.FILE)
        with bridge.from_file(path, ctx=ctx, baselines=["eager", "tf32"]) as task:
            assert task.device.type == "cuda" and task.notes == []
            for wrong in (False, True):
                program = stitch.Program.parse(ctx, source_for(task, cases.MLP, wrong), cases.MLP.plan)
                assert stitch.verify(ctx, task, program, last_stage="correct").correct != wrong


def test_nothing_is_left_on_the_gpu():
    class Late(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2048, 2048)

        def forward(self, x):
            return self.fc(x)[x[:, 0] > 0]

    with context() as ctx:
        module, x = Late().cuda(), torch.randn(64, 2048, device="cuda")
        with torch.no_grad():
            module(x)  # cuBLAS takes its workspace

        def left():
            """Without cuBLAS's workspaces: it keeps one for each stream that it was used on."""
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            gc.collect()
            torch.cuda.empty_cache()
            return torch.cuda.memory_allocated()

        before = left()
        with tap.raises(stitch.UnsupportedError, "depend on the values"):
            bridge.task(module, x, ctx=ctx)
        left()
        assert torch.cuda.memory_allocated() <= before + (1 << 20), (before, torch.cuda.memory_allocated())

        class Huge(torch.nn.Module):
            def forward(self, x):
                return x[:, None, None] + torch.zeros(1 << 20, 1 << 20, device=x.device)

        with tap.raises(stitch.NoMemoryError, "does not fit"):
            bridge.task(Huge(), x[:, 0], ctx=ctx)
        gc.collect()
        assert torch.cuda.memory_allocated() <= before + (1 << 20), (before, torch.cuda.memory_allocated())
        module, inputs = on_gpu(cases.MLP)
        gc.collect()
        before = torch.cuda.memory_allocated()
        with bridge.task(module, inputs, ctx=ctx, baselines=["eager"]) as task:
            program = stitch.Program.parse(ctx, cases.MLP.source, cases.MLP.plan)
            assert stitch.verify(ctx, task, program, last_stage="correct").correct
        task.module = None
        gc.collect()
        # cuBLAS keeps a workspace for each stream.
        note(f"{torch.cuda.memory_allocated() - before} bytes more after a task than before")
        assert torch.cuda.memory_allocated() <= before + (100 << 20)


def test_optimised_modules():
    with context() as ctx:
        for name, case in cases.CASES.items():
            module, inputs, fast = optimised(ctx, case)
            given, named = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
            with torch.no_grad():
                runner = bridge._run.Runner(module)
                torch.manual_seed(4)
                got = fast(*given, **named)
                torch.manual_seed(4)
                want = runner.call(given, named)
                runner.restore()
            assert fast.runs == 1 and fast.fallbacks == 0, (name, fast.runs, fast.fallbacks)
            a, b = torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)
            assert len(a) == len(b), name
            if name != "noisy":  # a dropout's own kernel draws in an order of its own
                for x, y in zip(a, b):
                    assert x is y or torch.allclose(x, y, atol=1e-4), (name, (x - y).abs().max())


def test_weights_streams_and_fallbacks():
    with context() as ctx:
        module, (x,), fast = optimised(ctx, cases.MLP, batches=[4])
        with torch.no_grad():
            module.one.weight.mul_(3)
            assert torch.allclose(fast(x), module(x), atol=1e-4)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = fast(x + 1)
            side.synchronize()
            assert torch.allclose(y, module(x + 1), atol=1e-4) and fast.runs == 2
            for rows in (4, 16, 4):
                z = torch.randn(rows, 12, device="cuda")
                assert torch.allclose(fast(z), module(z), atol=1e-4)
            assert fast.runs == 5 and fast.fallbacks == 0
            assert torch.equal(fast(x[:5]), module(x[:5])) and fast.fallbacks == 1
            with torch.autocast("cuda"):
                assert fast(x).dtype == torch.float16
            wide = torch.randn(16, 13, device="cuda")[:, 1:]
            assert torch.allclose(fast(wide), module(wide), atol=1e-4)
        fast(x).sum().backward()
        assert module.one.weight.grad is not None
        with torch.inference_mode():
            assert torch.allclose(fast(x), module(x), atol=1e-4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.zip")
            fast.save(path)
            again = bridge.load(path, module, ctx=ctx)
        with torch.no_grad():
            assert torch.allclose(again(x), module(x), atol=1e-4) and again.runs == 1


def test_weights_in_lists():
    """The short way follows them, too: every call but the one after a change goes it."""
    with context() as ctx, torch.no_grad():
        for case, names in ((cases.RECURRENT, ("weight_ih_l0",)), (cases.LISTED, ("one", "more"))):
            module, (x,), fast = optimised(ctx, case)
            leaves, quick, short = torch.utils._pytree.tree_leaves, fast._engine.quick, []
            fast._engine.quick = lambda *given: short.append(quick(*given)) or short[-1]

            def right():
                got = [leaves(fast(x)) for _ in range(3)]
                return all(torch.allclose(a, b, atol=2e-2) for one in got for a, b in zip(one, leaves(module(x))))

            assert right() and [made is None for made in short[-2:]] == [False] * 2 and fast.runs == 3
            for name in names:
                if name == "more":
                    module.more["a"][1] = module.more["a"][1] + 1
                else:
                    setattr(module, name, torch.nn.Parameter(getattr(module, name) * 3))
                if name == "one":
                    runs = fast.runs
                    assert right() and fast.runs == runs  # forward still has the old one in the list
                    module.used[0] = module.one
                assert right() and [made is None for made in short[-2:]] == [False] * 2, name
            module.cuda()  # recurrent layers make a new list
            assert right() and fast.fallbacks == (3 if case is cases.LISTED else 0)
            assert torch.allclose(leaves(fast(torch._neg_view(x)))[0], leaves(module(-x))[0], atol=2e-2)


def test_forward_derivatives_and_transforms():
    from torch.autograd import forward_ad

    with context() as ctx, torch.no_grad():
        module, (x,), fast = optimised(ctx, cases.MLP)
        fast(x)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            got, want = (forward_ad.unpack_dual(f(dual)).tangent for f in (fast, module))
            assert got is not None and torch.allclose(got, want, atol=1e-4)
        many = torch.randn(3, *x.shape, device="cuda")
        assert torch.allclose(torch.func.vmap(fast)(many), torch.func.vmap(module)(many), atol=1e-4)
        assert torch.allclose(fast(x), module(x), atol=1e-4) and (fast.runs, fast.fallbacks) == (2, 2)


def test_captured_in_a_graph():
    with context() as ctx:
        module, (x,), fast = optimised(ctx, cases.MLP)
        still = x.clone()
        with torch.no_grad():
            first = torch.cuda.CUDAGraph()
            calls = fast.fallbacks
            with torch.cuda.graph(first):
                y = fast(still)  # never ran before: the original is captured
            assert fast.fallbacks == calls + 1
            fast(still)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = fast(still) * 2
            assert fast.runs == 2
            for _ in range(3):
                still.normal_()
                graph.replay()
                torch.cuda.synchronize()
                assert torch.allclose(y, module(still) * 2, atol=1e-4)
                other = torch.randn_like(still)
                assert torch.allclose(fast(other), module(other), atol=1e-4)


def test_compiled_by_torch():
    with context() as ctx:
        module, (x,), fast = optimised(ctx, cases.MLP)
        for backend, mode in (
            ("eager", None),
            ("aot_eager", None),
            ("inductor", None),
            ("inductor", "reduce-overhead"),
        ):
            torch._dynamo.reset()
            compiled = torch.compile(lambda v: torch.sin(fast(v * 0.5)), backend=backend, mode=mode, fullgraph=True)
            try:
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for _ in range(4):
                        x = torch.randn_like(x)
                        assert torch.allclose(compiled(x), torch.sin(module(x * 0.5)), atol=1e-4), (backend, mode)
            except Exception as e:  # no compiler, no Triton: not what is tested
                if backend != "inductor" or isinstance(e, AssertionError):
                    raise
                note(f"{backend} {mode}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:300])
            else:
                note(f"{backend} {mode}: fine")


def test_model_new():
    """The exported file, as KernelBench's evaluator loads it: it compiles, is right, and needs no libstitch."""
    from stitch import kernelbench

    with context() as ctx, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "1_File.py")
        with open(path, "w", encoding="utf-8") as text:
            text.write(cases.FILE)
        with bridge.from_file(path, ctx=ctx, baselines=["eager"]) as task:
            program = stitch.Program.parse(ctx, cases.MLP.source, cases.MLP.plan)
            assert stitch.verify(ctx, task, program, last_stage="correct").correct
            program.validate(task)
            source = kernelbench.export(ctx, program.to_bytes(), task)
        os.environ["TORCH_EXTENSIONS_DIR"] = folder
        begun, space = time.perf_counter(), {"__name__": "exported"}
        try:
            exec(compile(source, "exported.py", "exec"), space)  # pylint: disable=exec-used
        except RuntimeError as e:
            if "ninja" in str(e).lower() or "compiler" in str(e).lower():
                raise tap.Skip(str(e).splitlines()[0]) from None
            raise
        note(f"load_inline took {time.perf_counter() - begun:.0f} s")
        torch.manual_seed(0)
        old = space["Model"](*space["get_init_inputs"]()).cuda()
        torch.manual_seed(0)
        new = space["ModelNew"](*space["get_init_inputs"]()).cuda()
        real, calls = space["Model"].forward, []
        space["Model"].forward = lambda self, x: calls.append(1) or real(self, x)
        with torch.no_grad():
            for _ in range(3):
                x = space["get_inputs"]()[0].cuda()
                assert torch.allclose(new(x), real(old, x), atol=1e-4)
            new.one.weight.mul_(2)
            old.one.weight.mul_(2)
            assert torch.allclose(new(x), real(old, x), atol=1e-4) and not calls
            new(x[:3])
            assert len(calls) == 1


def test_timeline():
    with context() as ctx:
        module, inputs = on_gpu(cases.MLP)
        with bridge.task(module, inputs, ctx=ctx, baselines=[]) as task:
            try:
                text = task.timeline()
            except (stitch.NoLibraryError, stitch.UnsupportedError, stitch.BusyError) as e:
                raise tap.Skip(e.message) from None
            note(text[:1500])
            assert "relu" in text.lower() or "elementwise" in text.lower() or "gemm" in text.lower(), text


def test_overhead():
    """What a call costs on the host beside the program's own launch."""
    with context() as ctx:
        module, (x,), fast = optimised(ctx, cases.MLP)
        figures = {}
        with torch.no_grad():
            for what, function in (("optimised", fast), ("original", module)):
                for _ in range(20):
                    function(x)
                torch.cuda.synchronize()
                begun = time.perf_counter()
                for _ in range(300):
                    function(x)
                figures[what] = (time.perf_counter() - begun) / 300 * 1e6
                torch.cuda.synchronize()
        note("host time a call:", ", ".join(f"{k} {v:.1f} us" for k, v in figures.items()))


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
