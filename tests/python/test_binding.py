# SPDX-License-Identifier: MIT
"""Contexts, programs, tasks, verification, models and the loop on the simulator; errors, callbacks, lifetimes, threads,
leaks."""

import array
import gc
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from ctypes import CFUNCTYPE, c_int32, c_size_t, c_void_p

import sim
import tap
import stitch

TASK = os.path.join(sim.EXAMPLES, "tasks", "swiglu_mlp", "task.json")
REPLIES = os.path.join(sim.EXAMPLES, "replies", "swiglu_mlp.jsonl")


def vector_task(ctx, n=256, reference=True):
    task = stitch.Task(ctx, "scale")
    task.set_dim("N", n)
    task.add_tensor("x", "f32", ["N"], "input")
    task.add_tensor("y", "f32", ["N"], "output")
    task.tolerance = (1e-5, 1e-5)
    if reference:
        task.set_reference(sim.program(ctx, n=n))
    return task


def test_import_is_alone():
    """It brings neither NumPy nor PyTorch along, nor the library yet."""
    script = (
        "import sys, stitch; print('numpy' in sys.modules, 'torch' in sys.modules, stitch._library.lib._library, "
        "stitch.__version__ == stitch.version())"
    )
    env = dict(os.environ, PYTHONPATH=os.path.join(tap.CHECKOUT, "bindings", "python"))
    out = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=env
    ).stdout.split()
    assert out == ["False", "False", "None", "True"], out


def test_library_is_searched_for():
    script = "import stitch; print(stitch.version())"
    env = dict(os.environ, PYTHONPATH=os.path.join(tap.CHECKOUT, "bindings", "python"))
    out = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=dict(env, STITCH_LIBRARY="/no/such.so"),
    )
    assert (
        out.returncode != 0 and "/no/such.so (STITCH_LIBRARY)" in out.stderr and "ImportError" in out.stderr
    ), out.stderr
    out = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=dict(env, STITCH_LIBRARY="libc.so.6"),
    )
    assert out.returncode != 0 and "stitch_version" in out.stderr, out.stderr
    from stitch import _library

    kept = os.environ.pop("STITCH_LIBRARY", None)
    try:
        found = _library.candidates()
        assert (
            found[0][0] == "the package"
            and found[-1] == ("the system", "libstitch.so.0")
            and "the build folder" in [where for where, _ in found]
        )
    finally:
        if kept is not None:
            os.environ["STITCH_LIBRARY"] = kept
    kept, _library.c.VERSION_MINOR = _library.c.VERSION_MINOR, 99
    try:
        with tap.raises(ImportError, "needs 0.99"):
            _library.load()
    finally:
        _library.c.VERSION_MINOR = kept


def test_errors():
    for status in stitch.Status:
        if status:
            found = [kind for kind in stitch.StitchError.__subclasses__() if kind.status == status]
            assert len(found) == 1 and found[0].__name__ in stitch.__all__, status
    with sim.context("none") as ctx:
        with tap.raises(stitch.FormatError, "STITCH_E_FORMAT") as caught:
            stitch.Program.parse(ctx, "", "{")
        e = caught[0]
        assert (
            e.status == stitch.Status.E_FORMAT
            and e.name == "STITCH_E_FORMAT"
            and e.message
            and e.domain == stitch.Domain.JSON
        ), vars(e)
        copy = pickle.loads(pickle.dumps(e))
        assert type(copy) is type(e) and (copy.message, copy.details) == (e.message, e.details)
        with tap.raises(stitch.NotFoundError, "/no/such/task.json"):
            stitch.Task.load(ctx, "/no/such/task.json")
        with tap.raises(stitch.FileError) as caught:
            sim.program(ctx).save("/no/such/folder/p.stitch")
        assert isinstance(caught[0], OSError)
        with tap.raises(stitch.NoDeviceError):
            ctx.device
        with tap.raises(stitch.ValidateError) as caught:
            stitch.Program.parse(
                ctx,
                sim.SOURCE,
                {"stitch": 1, "run": [{"kernel": "scale", "grid": [0], "block": [9999], "args": ["q"]}]},
            ).validate(sim.interface())
        assert len(caught[0].details.splitlines()) > 1
        for wrong in (
            lambda: stitch.Tensor.make("x", "f99", []),
            lambda: stitch.Program.parse(ctx, "\0", "{}"),
            lambda: stitch.Task(ctx, "\ud800"),
            lambda: stitch.next_step([], 0, stitch.Policy(max_attempts=-1)),
            lambda: ctx.set_model(None, "nobody"),
        ):
            with tap.raises(stitch.InvalidError):
                wrong()
        for wrong in (
            lambda: stitch.Task(ctx, 5),
            lambda: stitch.Program(),
            lambda: stitch.Program.parse(ctx, "", "{}", limits={"size": 1}),
            lambda: stitch.Model.http(ctx, "https://h/v1", "m", colour="red"),
            lambda: pickle.dumps(ctx),
        ):
            with tap.raises(TypeError):
                wrong()
    with tap.raises(stitch.InvalidError):
        sim.context("gpu:x").device


def test_objects_in_each_others_place():
    """The library would take one for the other."""
    with sim.context() as ctx, sim.context() as other:
        task = stitch.Task(ctx, "t")
        program = stitch.Program.parse(ctx, "", {"stitch": 1, "run": [{"copy": {"from": "x", "to": "y"}}]})
        model = stitch.Model.host(ctx, lambda request: "")
        for words, wrong in (
            ("task must be a stitch.Task, not a Program", lambda: stitch.verify(ctx, program, task)),
            ("Candidate or Program, not a Task", lambda: stitch.verify(ctx, task, task)),
            ("ctx must be a stitch.Context, not a Task", lambda: stitch.verify(task, task, program)),
            ("task must be a stitch.Task, not a Context", lambda: stitch.admit(ctx, other)),
            ("task must be a stitch.Task, not a NoneType", lambda: stitch.plan(ctx, None)),
            ("previous must be a stitch.Plan, not a Task", lambda: stitch.plan(ctx, task, previous=task)),
            ("report must be a stitch.Report, not a Plan", lambda: stitch.code(ctx, task, report=stitch.Plan.__new__(stitch.Plan))),
            ("program must be a stitch.Program, not a Task", lambda: stitch.Candidate.from_program(ctx, task)),
            ("program must be a stitch.Program, not a Task", lambda: stitch.Executor(ctx, task)),
            ("baseline must be a function or a stitch.Program, not a Task", lambda: task.add_baseline("b", task)),
            ("not Task", lambda: task.set_reference(task)),
            ("interface must be a stitch.Interface or Task, not a Context", lambda: program.validate(ctx)),
            ("ctx must be a stitch.Context, not a NoneType", lambda: stitch.Task.load(None, "t.json")),
            ("ctx must be a stitch.Context, not a NoneType", lambda: stitch.compile_source(None, "")),
            ("inner must be a stitch.Model, not a Task", lambda: stitch.Model.record(ctx, task, "f")),
            ("budget must be a stitch.Budget, not a Model", lambda: model.set_budget(model)),
            ("function must be callable, not a int", lambda: stitch.Model.host(ctx, 3)),
            ("task must be a stitch.Task, not a Program", lambda: stitch.profile_task(ctx, program)),
            ("program must be a stitch.Program, not a Task", lambda: stitch.profile_region(ctx, print, programs=[task])),
            ("metrics must be a sequence of str", lambda: stitch.verify(ctx, task, program, metrics="abc")),
        ):
            with tap.raises(TypeError, words):
                wrong()
        with tap.raises(stitch.InvalidError, "there are none, format, validate") as caught:
            stitch.verify(ctx, task, program, last_stage="nonsense")
        assert "count" not in str(caught[0])


def test_device_and_doctor():
    with sim.context() as ctx:
        assert (
            ctx.device.simulated
            and ctx.device.arch == "sm_90a"
            and ctx.device.memory_bytes > 0
            and ctx.device is ctx.device
        )
        found = ctx.doctor()
        assert found["ok"] and any(item["name"].lower().startswith("nvrtc") for item in found["items"])
        with tap.raises(stitch.UnsupportedError):
            stitch.Trace(ctx)
        with stitch.Cancel() as cancel, tap.raises(stitch.UnsupportedError):
            stitch.Trace(ctx, cancel=cancel, timeout=5)
        with tap.raises(stitch.InvalidError):
            stitch.Trace(ctx, timeout=0)
    assert "items" in stitch.doctor("none")


def test_compile():
    with sim.context("none") as ctx:
        image = stitch.compile_source(ctx, sim.SOURCE, arch="sm_90a", names=["scale"], flags=["-DX=1"], timeout=60)
        (kernel,) = image.kernels
        assert (
            image.arch == "sm_90a"
            and image.data[:4] == b"\x7fELF"
            and kernel.name == "scale"
            and kernel.registers > 0
            and len(kernel.params) == 3
        )
        assert stitch.compile_source(ctx, sim.SOURCE, arch="sm_90a", ptx=True).data.startswith(b"//")
        with tap.raises(stitch.CompileError) as caught:
            stitch.compile_source(ctx, sim.SOURCE + "\nint broken = ;\n", arch="sm_90a")
        first = caught[0].image.diagnostics[0]
        assert first.severity == stitch.Severity.ERROR and first.line == 8 and not caught[0].image.data
        p = sim.program(ctx)
        assert p.compile("sm_90a").kernels[0].params[0].dtype == p.interface["x"].dtype or True
        with tap.raises(stitch.CompileError) as caught:
            sim.program(ctx, sim.SOURCE.replace("int i =", "int i = oops +")).compile("sm_90a")
        assert "oops" in caught[0].image.log
        cancel = stitch.Cancel()
        cancel.trigger()
        with tap.raises(stitch.CancelledError):
            stitch.compile_source(ctx, sim.SOURCE, arch="sm_90a", cancel=cancel)
        cancel.reset()
        assert not cancel.triggered


def test_programs():
    with sim.context("none") as ctx, tempfile.TemporaryDirectory() as folder:
        p = stitch.Program.parse(ctx, sim.SOURCE, json.dumps(sim.PLAN))
        assert (
            p.interface is None
            and p.source == sim.SOURCE
            and p.plan["run"][0]["kernel"] == "scale"
            and len(p.hash) == 64
        )
        p.validate(sim.interface(), "sm_90a")
        assert (
            p.interface.dims == {"N": 256}
            and p.interface["y"].role == stitch.TensorRole.OUTPUT
            and "x" in p.interface
            and len(p.interface) == 2
        )
        path = os.path.join(folder, "ä.stitch")
        p.compile("sm_90a")
        p.save(path)
        again = stitch.Program.load(ctx, path)
        third = stitch.Program.from_bytes(ctx, p.to_bytes())
        assert again.hash == third.hash == p.hash and again.interface == p.interface
        with tap.raises(stitch.FormatError):
            stitch.Program.from_bytes(ctx, b"nothing of the kind")
        with tap.raises(stitch.LimitError):
            stitch.Program.load(ctx, path, limits={"file_bytes": 10})


def test_tasks():
    with sim.context("none") as ctx:
        task = vector_task(ctx, reference=False)
        task.set_reduced_dim("N", 16)
        task.reduced = True
        assert task.reduced and task.interface["x"].shape == (16,)
        task.reduced = False
        task.add_tensor("w", "i32", [3], "weight", stitch.Dist("randint", 0, 5))
        task.set_data("w", array.array("i", [1, 2, 3]))
        with tap.raises(stitch.InvalidError):
            task.set_data("w", b"short")
        with tap.raises(stitch.InvalidError, "w is i32", "'f'"):
            task.set_data("w", array.array("f", [1, 2, 3]))
        with tap.raises(stitch.InvalidError, "another type"):  # big-endian
            task.set_data("w", (c_int32.__ctype_be__ * 3)(1, 2, 3))
        task.set_data("w", bytes(12))
        task.add_tensor("v", "bf16", [3], "weight")
        task.set_data("v", array.array("H", [1, 2, 3]))  # its bits
        task.set_data("w", array.array("i", [1, 2, 3]))
        task.set_text(description="doubles", source="def f(x): ...")
        task.precision = "tf32"
        task.set_flops("2*N")
        task.set_reference(lambda stream, tensors: 0, "f64")
        task.add_baseline("slow", lambda stream, tensors: 0, "f32")
        assert (
            task.baselines == [("slow", stitch.Precision.F32)]
            and task.precision == stitch.Precision.TF32
            and task.tolerance == (1e-5, 1e-5)
        )
        assert (task.name, task.description, task.source) == ("scale", "doubles", "def f(x): ...") and len(
            task.hash
        ) == 64
        with tap.raises(stitch.StateError, "exactly one"):
            task.set_reference(lambda stream, tensors: 0)
        with open(TASK, encoding="utf-8") as text:
            document = json.load(text)
        parsed = stitch.Task.parse(ctx, document, os.path.dirname(TASK))
        assert parsed.hash == stitch.Task.load(ctx, TASK).hash and parsed.description.startswith("RMS norm")
        with tap.raises(stitch.StitchError):
            stitch.Task.parse(ctx, document)
        taken = sim.program(ctx)
        vector_task(ctx, reference=False).set_reference(taken)
        assert taken.closed


def test_integers_that_do_not_fit():
    """ctypes would take their low bits."""
    with sim.context() as ctx:
        task, program = vector_task(ctx), sim.program(ctx)
        for call in (
            lambda: task.set_dim("N", 2**64 + 5),
            lambda: task.set_reduced_dim("N", -(2**64) + 5),
            lambda: stitch.verify(ctx, task, program, trials=2**32 + 1),
            lambda: stitch.verify(ctx, task, program, seed=2**64 + 1),
            lambda: stitch.next_step([], 0, stitch.Policy(max_attempts=2**32 + 1)),
            lambda: stitch.Budget(ctx, max_tokens=2**64 + 1),
            lambda: stitch.Executor(ctx, program, dims={"N": 2**64 + 256}),
        ):
            with tap.raises(stitch.InvalidError, "is not from"):
                call()
        with tap.raises(TypeError, "stitch_task_set_dim"):
            task.set_dim("N", 1.5)
        assert task.interface.dims == {"N": 256}


def test_verify_and_feedback():
    seen = []
    with sim.context() as ctx:
        task = vector_task(ctx)
        report = stitch.verify(
            ctx, task, sim.program(ctx), last_stage="exploit", seed=7, on_stage=lambda *args: seen.append(args)
        )
        s = report.summary
        assert (
            report.correct
            and s.correct
            and s.failed_stage == stitch.Stage.NONE
            and s.seed == 7
            and s.elements >= 256
            and not s.timed
        ), report.text
        assert {stage for stage, *_ in seen} >= {stitch.Stage.COMPILE, stitch.Stage.CORRECT} and isinstance(
            seen[0][1], stitch.StageStatus
        )
        assert (
            report.json["summary"]["correct"] is True
            and report.stage("correct").status == stitch.StageStatus.PASSED
            and len(report.stages) == 10
        )
        wrong = stitch.verify(
            ctx, task, stitch.Candidate.from_program(ctx, sim.program(ctx, sim.WRONG)), last_stage="correct"
        )
        assert not wrong.correct and wrong.summary.failed_stage == stitch.Stage.CORRECT and wrong.summary.mismatches > 0
        assert (
            "correct" in wrong.feedback()
            and len(wrong.feedback(300).encode()) <= 300 < len(wrong.feedback())
            and str(wrong)
        )
        assert wrong.fingerprint != report.fingerprint
        broken = stitch.verify(ctx, task, stitch.Program.parse(ctx, "broken", sim.PLAN))
        assert broken.summary.failed_stage == stitch.Stage.COMPILE and broken.summary.status == stitch.Status.E_COMPILE
        unparsed = stitch.Report.of_reply_failure(ctx, "no code at all")
        assert unparsed.summary.failed_stage == stitch.Stage.FORMAT and "cuda" in unparsed.feedback()
        with tap.raises(stitch.ReplyError):
            stitch.Candidate.from_reply(ctx, "no code at all")
        admission = stitch.admit(ctx, task, seed=3)
        assert not admission.degenerate and admission.reason == "" and admission.json and admission.text


def test_reference_in_python():
    driver = sim.Driver()
    shown = []

    def reference(stream, tensors):
        driver("cuStreamSynchronize", c_void_p(stream))
        x, y = tensors["x"], tensors["y"]
        values = driver.read(x.pointer, x.shape[0])
        driver.write(y.pointer, array.array("d", [v * 2.0 + 1.0 for v in values]))
        shown.append((y.dtype, x.__cuda_array_interface__, y.__dlpack_device__(), y.role))

    with driver.stitch() as ctx:
        task = vector_task(ctx, reference=False)
        task.set_reference(reference, "f64")
        assert stitch.verify(ctx, task, sim.program(ctx), last_stage="correct").correct
        dtype, facts, device, role = shown[0]
        assert (
            dtype == stitch.Dtype.F64
            and facts["shape"] == (256,)
            and facts["typestr"] == "<f4"
            and not facts["data"][1]
            and device == (2, 0)
        )
        assert role == stitch.TensorRole.OUTPUT
        assert not stitch.verify(ctx, task, sim.program(ctx, sim.WRONG), last_stage="correct").correct


def test_a_reference_that_computes_on_the_host():
    """Tensors come and go through the library, so that a simulated device needs nothing else."""
    kept = []

    def reference(stream, tensors):
        x = array.array("f", bytes(tensors["x"].nbytes))
        assert tensors["x"].read(x) == b"" and tensors["x"].read() == x.tobytes()
        tensors["y"].write(array.array("d", [v * 2.0 + 1.0 for v in x]))
        with tap.raises(stitch.InvalidError, "2052"):
            tensors["y"].write(b"\0" * 2052)
        with tap.raises(stitch.InvalidError, "2048"):  # the rest would be what it was
            tensors["y"].write(b"\0" * 8)
        for kind in "fqH":
            with tap.raises(stitch.InvalidError, "y is f64", f"'{kind}'"):
                tensors["y"].write(array.array(kind, [0] * (2048 // array.array(kind).itemsize)))
        with tap.raises(stitch.InvalidError, "x is f32", "'d'"):
            tensors["x"].read(array.array("d", [0.0] * 128))
        with tap.raises(stitch.InvalidError, "read-only"):
            tensors["x"].read(b"12")
        kept.append(tensors["x"])

    with sim.context() as ctx:
        task = vector_task(ctx, reference=False)
        task.set_reference(reference, "f64")
        assert stitch.verify(ctx, task, sim.program(ctx), last_stage="correct").correct
        assert not stitch.verify(ctx, task, sim.program(ctx, sim.WRONG), last_stage="correct").correct
        with tap.raises(stitch.StateError, "has returned"):
            kept[0].read()
    assert "_context" not in repr(kept[0])
    with tap.raises(stitch.StateError):
        kept[0].read()
    with tap.raises(stitch.StateError, "callback"):
        stitch.BoundTensor(kept[0].tensor, 0, 0).read()


def test_exceptions_in_callbacks():
    driver = sim.Driver()

    class Oops(Exception):
        pass

    def oops(*args):
        raise Oops("from the callback")

    with driver.stitch() as ctx:
        task = vector_task(ctx, reference=False)
        task.set_reference(oops)
        with tap.raises(Oops, "from the callback"):
            stitch.verify(ctx, task, sim.program(ctx), last_stage="correct")
        good = vector_task(ctx)
        with tap.raises(Oops):
            stitch.verify(ctx, good, sim.program(ctx), last_stage="correct", on_stage=oops)
        ctx.set_model(stitch.Model.host(ctx, oops))
        with tap.raises(Oops):
            stitch.code(ctx, good)
        with tap.raises(Oops):
            stitch.plan(ctx, good)
        model = stitch.Model.host(ctx, lambda request: 5)
        with tap.raises(TypeError, "str or a Reply"):
            model.complete("hello")
        model = stitch.Model.host(ctx, lambda request: "fine")
        with tap.raises(Oops):
            model.complete("hello", on_token=oops)
        assert stitch.verify(ctx, good, sim.program(ctx), last_stage="correct").correct  # and nothing is left of it
    unraisable, hook = [], sys.unraisablehook
    sys.unraisablehook = unraisable.append
    try:
        with sim.context("sim:sm_90a", log=oops, log_level="debug") as ctx:
            try:
                ctx.doctor()
                ctx.device
            except Oops:
                unraisable.append(None)
    finally:
        sys.unraisablehook = hook
    with tap.raises(Oops):
        with sim.context("cuda:0", get_proc=oops) as ctx:
            ctx.device


def test_log():
    lines = []
    with sim.context(log=lambda level, line: lines.append((level, line)), log_level="debug") as ctx:
        stitch.verify(ctx, vector_task(ctx), sim.program(ctx), last_stage="compile")
    assert all(isinstance(level, stitch.LogLevel) and isinstance(line, str) for level, line in lines)


def recorded():
    """A model in Python that answers with the recorded replies, by label and running number."""
    replies, asked = {}, []
    with open(REPLIES, encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            replies.setdefault(entry["label"], []).append(entry["reply"]["content"])

    def answer(request):
        asked.append(request)
        return stitch.Reply(replies[request.label].pop(0), reasoning="(recorded)", tokens_in=10, tokens_out=20)

    return answer, asked


def test_the_whole_loop_with_a_model_in_python():
    answer, asked = recorded()
    with sim.context() as ctx:
        task = stitch.Task.load(ctx, TASK)
        model, budget = stitch.Model.host(ctx, answer), stitch.Budget(ctx, max_tokens=10**6)
        model.set_budget(budget)
        ctx.set_model(model)
        attempts, plans, plan, tokens = [], 0, None, []
        candidates, reports, policy = [], [], stitch.Policy(max_attempts=4)
        while True:
            step = stitch.next_step(attempts, plans, policy)
            if step.action == stitch.Action.STOP:
                break
            if step.action in (stitch.Action.PLAN, stitch.Action.REPLAN):
                plan, plans = stitch.plan(ctx, task, previous=plan, attempts=list(zip(attempts, reports))), plans + 1
                continue
            revised = None if step.base < 0 else step.base
            (candidate,) = stitch.code(
                ctx,
                task,
                action=step.action,
                plan=plan,
                previous=None if revised is None else candidates[revised],
                report=None if revised is None else reports[revised],
                on_token=lambda *piece: tokens.append(piece),
            )
            report = stitch.verify(ctx, task, candidate, last_stage="correct")
            candidates.append(candidate)
            reports.append(report)
            attempts.append(stitch.Attempt.of(report, step.action, step.base, plans - 1))
        assert [a.action.name for a in attempts] == [
            "DRAFT",
            "REPAIR_CORRECTNESS",
            "REPAIR_CORRECTNESS",
            "DRAFT",
        ], attempts
        assert [a.correct for a in attempts] == [False, False, False, True] and step.best == 3 and step.reason
        assert plan.strategy and plan.subtasks[0].goal and stitch.Plan.parse(ctx, plan.json).strategy == plan.strategy
        assert (
            candidates[-1].tokens == 30
            and candidates[-1].reply
            and candidates[-1].format_repairs == 0
            and candidates[-1].notice == ""
        )
        assert (
            asked[0].label == "plan"
            and asked[0].messages[0].role == stitch.MessageRole.SYSTEM
            and tokens
            and tokens[0][1] in (0, 1)
        )
        assert budget.used == {"tokens": 30 * len(asked), "cost": 0.0, "requests": len(asked)}
        saved = candidates[-1].program.to_bytes()
        assert stitch.verify(ctx, task, stitch.Program.from_bytes(ctx, saved), last_stage="correct").correct
        model.close()
        with tap.raises(stitch.StateError, "no model"):
            stitch.plan(ctx, task)


def test_models():
    with sim.context("none") as ctx, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "r.jsonl")
        inner = stitch.Model.host(ctx, lambda request: request.messages[-1].content.upper())
        gone = weakref.ref(inner)
        model = stitch.Model.record(ctx, inner, path)
        assert inner.closed
        del inner
        gc.collect()
        request = stitch.Request(
            [stitch.Message("system", "s"), stitch.Message("user", "hello")],
            label="l",
            temperature=0.5,
            max_tokens=9,
            timeout=5,
        )
        reply = model.complete(request)
        assert gone() is None and reply.text == "HELLO" and reply.tokens_in == -1
        many = model.complete_many([request, stitch.Request([stitch.Message("user", "two")], label="m")])
        assert [r.text for r in many] == ["HELLO", "TWO"]
        model.close()
        replay = stitch.Model.open(ctx, "replay-strict:" + path)
        assert replay.complete(request).text == "HELLO"
        answers = replay.complete_many([request, stitch.Request([stitch.Message("user", "three")], label="x")])
        assert answers[0].text == "HELLO" and isinstance(answers[1], stitch.ReplayError)
        assert stitch.Model.replay(ctx, path).complete(request).text == "HELLO"
        with tap.raises(stitch.StitchError):
            stitch.Model.open(ctx, "nothing:of the kind")
        with tap.raises(stitch.InvalidError):
            replay.complete_many([])
        spent = stitch.Budget(ctx, max_tokens=1)
        model = stitch.Model.host(ctx, lambda request: "a long answer")
        model.set_budget(spent)
        model.complete("x")
        with tap.raises(stitch.BudgetError):
            model.complete("x")
        model.set_budget(None)
        spent.close()
        assert model.complete("x").text == "a long answer"
        relay = stitch.Model.relay(ctx, os.path.join(folder, "relay"))
        with tap.raises(stitch.DeadlineError):
            relay.complete(stitch.Request([stitch.Message("user", "u")], timeout=0.2))
        http = stitch.Model.http(
            ctx, "http://127.0.0.1:9/v1", "m", max_retries=-1, api_key="k" * 20, connect_timeout_ms=500
        )
        with tap.raises(stitch.HttpError):
            http.complete("x")
        assert ctx.prompt("plan") and ctx.prompt("no such") is None
        ctx.set_prompt("plan", "mine")
        assert ctx.prompt("plan") == "mine"
        ctx.set_prompt("plan", None)
        assert ctx.prompt("plan") != "mine"


def test_one_thread_at_a_time():
    """A second thread gets an exception instead of a race, and a handle in use cannot be closed."""
    inside, go_on, caught = threading.Event(), threading.Event(), []

    def slow(request):
        inside.set()
        go_on.wait(30)
        return "done"

    with sim.context("none") as ctx:
        model = stitch.Model.host(ctx, slow)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(model.complete("x").text))
        thread.start()
        inside.wait(30)  # which shows too that the GIL is free while the call runs
        ctx.set_model(stitch.Model.host(ctx, str), "judge")
        ctx._models[stitch.Role.CODER] = model  # as during plan() or code()
        changes = (lambda: ctx.set_model(None), lambda: ctx.set_prompt("plan", None))
        for use in (lambda: model.complete("y"), model.close, ctx.close, *changes):
            try:
                use()
            except stitch.BusyError as e:
                caught.append(e)
        assert not model.closed and not ctx.closed
        go_on.set()
        thread.join()
        assert len(caught) == 5 and answers == ["done"], (caught, answers)


def test_cancel_from_another_thread():
    with sim.context("none") as ctx, tempfile.TemporaryDirectory() as folder:
        relay, cancel = stitch.Model.relay(ctx, folder), stitch.Cancel()
        timer = threading.Timer(0.2, cancel.trigger)
        timer.start()
        begun = time.monotonic()
        with tap.raises(stitch.CancelledError):
            relay.complete("x", cancel=cancel)
        assert time.monotonic() - begun < 10 and cancel.triggered
        threading.Timer(0.2, ctx.cancel).start()
        with tap.raises(stitch.CancelledError):
            relay.complete("x")
        ctx.cancel_reset()


class Counting:
    """An allocator that counts the blocks of a context that are in use."""

    def __init__(self):
        import ctypes

        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = c_void_p, [c_size_t]
        libc.realloc.restype, libc.realloc.argtypes = c_void_p, [c_void_p, c_size_t]
        libc.free.restype, libc.free.argtypes = None, [c_void_p]
        self.blocks, self.lock = 0, threading.Lock()

        def alloc(size, _):
            with self.lock:
                self.blocks += 1
            return libc.malloc(size)

        def free(pointer, _):
            with self.lock:
                self.blocks -= 1
            libc.free(pointer)

        from stitch import _declarations as c

        fields = {name: kind for name, kind in c.stitch_allocator._fields_}
        self.value = c.stitch_allocator(
            24,
            fields["alloc"](alloc),
            fields["realloc"](lambda p, size, _: libc.realloc(p, size)),
            fields["free"](free),
            None,
        )
        self.value.struct_size = ctypes.sizeof(self.value)
        assert CFUNCTYPE


def test_nothing_leaks_whatever_the_order():
    counting = Counting()

    def use(close):
        ctx = sim.context(allocator=counting.value)
        task, p = vector_task(ctx), sim.program(ctx)
        report = stitch.verify(ctx, task, p, last_stage="correct")
        model = stitch.Model.host(ctx, lambda request: "nothing")
        budget = stitch.Budget(ctx, 100)
        model.set_budget(budget)
        ctx.set_model(model)
        candidate = stitch.Candidate.from_program(ctx, p)
        inner = candidate.program
        assert candidate.program is inner
        for bad in (
            lambda: stitch.Program.parse(ctx, "", "{"),
            lambda: stitch.Task.load(ctx, "/no/such"),
            lambda: stitch.plan(ctx, task),
        ):
            try:
                bad()
            except stitch.StitchError:
                pass
        handles = [ctx, task, report, model, budget, candidate, inner]
        handles[0].itself = handles  # a cycle: the collector finds them in an order of its own
        for i in close:
            handles[i].close()
        return [weakref.ref(handle) for handle in handles]

    for close in ((), (0,), (6, 5, 4, 3, 2, 1, 0), (4, 1, 2), (5, 3, 0)):
        refs = use(close)
        gc.collect()
        assert all(ref() is None for ref in refs), (close, [ref() for ref in refs])
        assert counting.blocks == 0, (close, counting.blocks)


def test_the_interpreter_ends_quietly_with_open_handles():
    script = (
        "import sim, stitch; ctx = sim.context('none'); p = sim.program(ctx); m = stitch.Model.host(ctx, lambda r: 'x');"
        "ctx.set_model(m); m.complete('x'); ctx.itself = ctx; t = stitch.Task(ctx, 't'); t.set_reference(lambda s, t: 0)"
    )
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
    out = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=env)
    assert (out.returncode, out.stdout, out.stderr) == (0, "", ""), out


def test_freed_once():
    freed = []
    from stitch._core import Ref

    parent = Ref(1, freed.append)
    child = Ref(2, freed.append, [parent])
    parent.release()
    parent.release()
    assert freed == []
    child.release()
    child.release()
    del child, parent
    gc.collect()
    assert freed == [2, 1], freed


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
