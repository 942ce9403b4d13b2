# SPDX-License-Identifier: MIT
"""Profiles: what a simulated device counts of a program that was verified; what only a GPU can tell is refused."""

import gc
import sys

import sim
import tap
import stitch

STRIDED = """extern "C" __global__ void scale(const float *x, float *y, int n)
{
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8 % n + (blockIdx.x * blockDim.x + threadIdx.x) * 8 / n;
    y[i] = x[i] * 2.0f + 1.0f;
}
"""
N = 1024


def task(ctx):
    made = stitch.Task(ctx, "scale")
    made.set_dim("N", N)
    made.add_tensor("x", "f32", ["N"], "input")
    made.add_tensor("y", "f32", ["N"], "output")
    made.set_reference(sim.program(ctx, n=N))
    return made


def counted(ctx, source, **options):
    report = stitch.verify(ctx, task(ctx), sim.program(ctx, source, N), trials=1, **options)
    assert report.correct, report.text
    return report


def test_a_report_has_what_the_simulator_counted():
    with sim.context() as ctx:
        straight, strided = counted(ctx, sim.SOURCE).profile, counted(ctx, STRIDED).profile
        for profile in (straight, strided):
            value = profile.json
            facts = value["facts"]
            (kernel,) = facts["kernels"]
            assert value["stitch_profile"] == 1 and facts["source"] == "simulator" and facts["arch"] == "sm_90a", facts
            assert kernel["name"] == "scale" and kernel["launches"] == 1 and kernel["grid"] == [N // 128, 1, 1], kernel
            # 32 lanes a request, a load and a store; 32 warps.
            assert kernel["metrics"]["global_requests"] == 2 * N / 32, kernel
            assert kernel["metrics"]["global_ideal_sectors"] == 2 * N / 8, kernel
            assert profile.text() and str(profile) == profile.text() and len(profile.text(100)) <= 100
        sectors = [p.json["facts"]["kernels"][0]["metrics"]["global_sectors"] for p in (straight, strided)]
        assert sectors == [2 * N / 8, 2 * N], sectors
        lines = strided.json["facts"]["kernels"][0]["lines"]
        assert "y[i] = x[i]" in lines[0]["text"] and lines[0]["line"] == 4, lines


def test_verdicts_and_advice():
    with sim.context() as ctx:
        profile = counted(ctx, STRIDED).profile
        value = profile.json["advice"]
        (kernel,) = profile.kernels
        assert isinstance(kernel, stitch.ProfileVerdict) and kernel.name == "scale" and kernel.bound, kernel
        assert profile.verdict.name == "" and profile.verdict.bound, profile.verdict
        assert [a.rule for a in profile.advice] == [a["rule"] for a in value["advice"]] and profile.advice, value
        assert profile.verdict.because == value["verdict"]["because"] and kernel.bound == value["kernels"][0]["bound"]
        gains = [a.gain_us for a in profile.advice]
        assert gains == sorted(gains, reverse=True), gains
        for advice in profile.advice:
            assert isinstance(advice, stitch.ProfileAdvice) and advice.rule and advice.problem and advice.action, advice
            assert 0 <= advice.gain_share <= 1 and advice.kernel in ("", "scale"), advice
        assert any(a.rule == "uncoalesced" and a.line == 4 for a in profile.advice), profile.advice


def test_how_much():
    with sim.context() as ctx:
        assert counted(ctx, sim.SOURCE, profile="never").profile is None
        assert counted(ctx, sim.SOURCE, profile=stitch.HowMuch.NEVER).profile is None
        assert counted(ctx, sim.SOURCE, profile="full").profile is not None
        assert counted(ctx, sim.SOURCE, last_stage="correct").profile is None
        wrong = stitch.verify(ctx, task(ctx), sim.program(ctx, sim.WRONG, N), trials=1)
        assert not wrong.correct and wrong.profile is None
        for bad, words in (
            ({"profile": "some"}, "timeline"),
            ({"profile": 7}, "no amount"),
            ({"metrics": [""]}, "metrics[0]"),
        ):
            with tap.raises(stitch.InvalidError, words):
                counted(ctx, sim.SOURCE, **bad)
        with tap.raises(TypeError, "metrics"):
            counted(ctx, sim.SOURCE, metrics=[1])


def test_what_a_simulated_device_cannot_tell():
    calls = []
    with sim.context() as ctx:
        with tap.raises(stitch.UnsupportedError, "simulated"):
            stitch.profile_region(ctx, lambda: calls.append(1))
        with tap.raises(stitch.UnsupportedError, "simulated"):
            stitch.profile_task(ctx, task(ctx))
        with tap.raises(stitch.InvalidError, "NEVER"):
            stitch.profile_task(ctx, task(ctx), profile="never")
        with tap.raises(stitch.InvalidError, "metrics[1]"):
            stitch.profile_region(ctx, lambda: None, metrics=["sm__cycles_elapsed.max", "a b"])
        with tap.raises(TypeError, "profile_region()"):
            stitch.Profile()
    assert not calls


def test_lifetimes():
    with sim.context() as ctx:
        report = counted(ctx, sim.SOURCE)
        profile = report.profile
        del report
        gc.collect()
        assert profile.json["stitch_profile"] == 1  # it keeps the report
        report = counted(ctx, sim.SOURCE)
        profile, again = report.profile, report.profile
        report.close()
        assert profile.closed and again.closed
        for use in (lambda: profile.json, lambda: profile.advice, profile.text, lambda: profile.verdict):
            with tap.raises(stitch.StateError, "closed"):
                use()
        profile = counted(ctx, sim.SOURCE).profile
    assert profile.closed


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
