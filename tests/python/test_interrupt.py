# SPDX-License-Identifier: MIT
"""Ctrl-C during calls that block: a child process gets a real SIGINT while it is in C."""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import sim
import tap
import stitch

SLOW = """extern "C" __global__ void scale(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0.0f;
    for (long long k = 0; k < 1000000000000ll; k++)
        v = v * 0.999f + x[i < n ? i : 0];
    if (i < n)
        y[i] = v;
}
"""


def ready():
    """The parent sends SIGINT half a second after this line, when the call that follows is under way."""
    print("ready", flush=True)


def relay(ctx):
    return stitch.Model.relay(ctx, tempfile.mkdtemp())


def child_model():
    with sim.context("none") as ctx:
        model, token = relay(ctx), stitch.Cancel()
        try:
            ready()
            model.complete("x", cancel=token)
        except KeyboardInterrupt:
            assert token.triggered
            # The next call is not hit by what is over.
            try:
                model.complete(stitch.Request([stitch.Message("user", "u")], timeout=0.2))
            except stitch.DeadlineError:
                print("interrupted")


def task_of(ctx):
    task = stitch.Task(ctx, "scale")
    task.set_dim("N", 256)
    task.add_tensor("x", "f32", ["N"], "input")
    task.add_tensor("y", "f32", ["N"], "output")
    task.set_reference(sim.program(ctx))
    return task


def child_verify():
    with sim.context() as ctx:
        task = task_of(ctx)
        slow = sim.program(ctx, SLOW)
        slow.compile()
        try:
            ready()
            stitch.verify(ctx, task, slow)
        except KeyboardInterrupt:
            assert stitch.verify(ctx, task, sim.program(ctx), last_stage="correct").correct
            print("interrupted")


def child_callback():
    """The signal arrives while a callback runs: KeyboardInterrupt is raised in it and comes through."""

    def answer(request):
        ready()
        time.sleep(30)
        return "late"

    with sim.context("none") as ctx:
        try:
            stitch.Model.host(ctx, answer).complete("x")
        except KeyboardInterrupt:
            print("interrupted")


def child_handler():
    """A handler that does not raise: the call ends all the same, with CancelledError."""
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    with sim.context("none") as ctx:
        try:
            ready()
            relay(ctx).complete("x")
        except stitch.CancelledError:
            assert seen == [signal.SIGINT]
            print("interrupted")


def child_wakeup():
    """A wakeup descriptor that was there before (asyncio's) still hears of the signal, and is put back."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno())
    with sim.context("none") as ctx:
        try:
            ready()
            relay(ctx).complete("x")
        except KeyboardInterrupt:
            ours.settimeout(5)
            assert ours.recv(10) == bytes([signal.SIGINT])
            assert signal.set_wakeup_fd(-1) == theirs.fileno()
            print("interrupted")


def child_thread():
    """A call of another thread goes on; the main thread, which waits in Python, is what is interrupted."""
    done, ended = [], threading.Event()
    with sim.context("none") as ctx:
        model = relay(ctx)

        def work():
            try:
                model.complete(stitch.Request([stitch.Message("user", "u")], timeout=1.5))
            except stitch.StitchError as e:
                done.append(type(e))
            ended.set()

        try:
            threading.Thread(target=work).start()
            ready()
            ended.wait(30)
        except KeyboardInterrupt:
            ended.wait(30)
            assert done == [stitch.DeadlineError], done
            print("interrupted")


def child_fork():
    """A forked child has a watching thread of its own."""
    with sim.context("none") as ctx:
        try:
            relay(ctx).complete(stitch.Request([stitch.Message("user", "u")], timeout=0.1))
        except stitch.DeadlineError:
            pass
        if os.fork() == 0:
            code = 1
            try:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                with sim.context("none") as mine:
                    relay(mine).complete("x")
            except KeyboardInterrupt:
                code = 7
            finally:
                os._exit(code)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ready()
        if os.waitstatus_to_exitcode(os.wait()[1]) == 7:
            print("interrupted")


def child_sweep():
    """Signals at any point of short calls with callbacks: always KeyboardInterrupt, and nothing is left behind."""
    rng, found, asked, struck = random.Random(1), {}, [], []

    def strike():
        while True:
            if len(struck) == len(asked):
                time.sleep(0.0005)
                continue
            time.sleep(asked[-1])
            os.kill(os.getpid(), signal.SIGINT)
            struck.append(True)

    threading.Thread(target=strike, daemon=True).start()
    with sim.context("none") as ctx, stitch.Model.host(ctx, lambda request: "x") as model:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            what, more = "lost by Python", 500  # in a destructor, say, which must not raise
            try:
                asked.append(rng.uniform(0, 0.003))
                while more:
                    model.complete("x")
                    more -= len(struck) == len(asked)
            except KeyboardInterrupt:
                what = "KeyboardInterrupt"
            except stitch.StitchError as e:
                what = repr(e)
            found[what] = found.get(what, 0) + 1
            while len(struck) < len(asked):
                time.sleep(0.0005)
            assert signal.set_wakeup_fd(-1) == -1
    # Neither the model nor the context was in use still.
    rare = found.pop("lost by Python", 0)
    assert list(found) == ["KeyboardInterrupt"] and found["KeyboardInterrupt"] > rare, (found, rare)
    print("interrupted")


def run(name):
    with subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--child", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            line = child.stdout.readline()
            assert line == "ready\n", line + child.stderr.read()
            time.sleep(0.5)
            begun = time.monotonic()
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
            took = time.monotonic() - begun
        finally:
            child.kill()
    assert out == "interrupted\n" and child.returncode == 0, f"{out} {child.returncode} {err}"
    assert took < 30, took


def test_a_model_that_waits():
    run("model")


def test_a_verification_on_the_simulator():
    run("verify")


def test_a_callback_in_python():
    run("callback")


def test_a_handler_that_does_not_raise():
    run("handler")


def test_a_wakeup_descriptor_of_the_host():
    run("wakeup")


def test_a_call_of_another_thread_goes_on():
    run("thread")


def test_a_forked_process():
    run("fork")


def test_signals_at_any_point():
    if sys.version_info < (3, 11):
        raise tap.Skip("before Python 3.11 KeyboardInterrupt can come between any call and the `try` behind it")
    child = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--child", "sweep"], capture_output=True, text=True, timeout=100
    )
    assert child.stdout == "interrupted\n" and child.returncode == 0, f"{child.returncode} {child.stderr[-2000:]}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        globals()["child_" + sys.argv[2]]()
    else:
        tap.main(sys.modules[__name__])
