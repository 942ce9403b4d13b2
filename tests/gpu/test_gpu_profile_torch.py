# SPDX-License-Identifier: MIT
"""Profiles of PyTorch modules: a small model that waits for the host is called so, a large product is not, and beside
PyTorch's own profiler nothing breaks. Prints TAP. Needs a GPU, PyTorch, and STITCH_LIBRARY or a build folder."""

import sys
import time

from with_torch import context, note, torch_or_skip
import sim
import tap
import stitch

torch = torch_or_skip()

WAITS = {"host_bound", "sync_bound", "launch_bound"}


def profiled(ctx, function, **options):
    begun = time.perf_counter()
    made = stitch.profile_region(ctx, function, **options)
    note(f"profiled in {(time.perf_counter() - begun) * 1e3:.0f} ms\n{made}")
    return made


class Small(torch.nn.Module):
    """Few microseconds of work in each kernel, and a look at a value after each layer."""

    def __init__(self, layers=6, width=256, waits=True):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.waits = waits

    def forward(self, x):
        for layer in self.layers:
            x = torch.softmax(torch.nn.functional.gelu(layer(x)), dim=-1)
            if self.waits and x.max().item() > 2:
                x = x / 2
        return x


def small(**options):
    torch.manual_seed(1)
    module, x = Small(**options).cuda().eval(), torch.randn(64, 256, device="cuda")

    def run():
        with torch.no_grad():
            return module(x)

    run()
    torch.cuda.synchronize()
    return run


def check_gains(profile):
    run = profile.verdict.time_us
    for a in profile.advice:
        assert 0 <= a.gain_us <= run * (1 + 1e-9), a
        if a.kernel:
            assert a.gain_us <= sum(k.time_us for k in profile.kernels if k.name == a.kernel) * (1 + 1e-9), a


def test_a_small_model_waits_for_the_host():
    with context() as ctx:
        run = small()
        before = run()
        made = profiled(ctx, run, profile="full")
        facts = made.json["facts"]
        assert made.verdict.bound in ("host", "launch"), made.verdict
        rules = {a.rule for a in made.advice}
        assert rules & WAITS, rules
        assert not rules & {"memory_bound_near_limit", "compute_bound_near_limit", "redundant_copies"}, rules
        assert facts["run"]["launches"] >= 18, facts["run"]  # a product, gelu and softmax a layer
        assert facts["run"]["idle_us"] > facts["run"]["busy_us"], facts["run"]
        check_gains(made)
        assert torch.equal(run(), before)


def test_without_looks_it_is_launches():
    with context() as ctx:
        made = profiled(ctx, small(waits=False), profile="timeline")
        assert made.verdict.bound in ("host", "launch"), made.verdict
        assert {a.rule for a in made.advice} & WAITS, made.advice
        assert "not asked for" in made.json["facts"]["no_counters"]


def test_a_large_product_is_not():
    with context() as ctx:
        a, b = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
        made = profiled(ctx, lambda: torch.mm(a, b), profile="full")
        assert made.verdict.bound not in ("host", "launch", "copy"), made.verdict
        assert not {x.rule for x in made.advice} & WAITS, made.advice
        assert made.kernels[0].time_us > 500, made.kernels[0]
        check_gains(made)


def test_an_exception_comes_out():
    with context() as ctx:
        run, calls = small(), []

        def stops():
            calls.append(1)
            if len(calls) == 3:
                raise ValueError("enough")
            run()

        with tap.raises(ValueError, "enough"):
            stitch.profile_region(ctx, stops)
        assert len(calls) == 3
        profiled(ctx, run, profile="timeline")  # CUPTI is free again


def kernels_seen(prof):
    return sum(e.device_type == torch.autograd.DeviceType.CUDA for e in prof.events())


def torch_profile(run, inside=lambda: None):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as prof:
        run()
        inside()
        run()
        torch.cuda.synchronize()
    return prof


def test_verified_programs_have_profiles():
    """Beside PyTorch in the process: Report.profile of a program in a worker."""
    with context() as ctx:
        task = stitch.Task.parse(
            ctx,
            {
                "stitch_task": 1,
                "name": "scale",
                "dims": {"N": 1 << 20},
                "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}],
                "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}],
                "reference": {"program": {"source": {"text": sim.SOURCE}, "plan": sim.PLAN}},
            },
        )
        program = stitch.Program.parse(ctx, sim.SOURCE, sim.PLAN)
        report = stitch.verify(ctx, task, program, trials=2, iterations=12)
        assert report.correct, report.text
        assert report.profile is not None, report.text
        assert report.profile.kernels[0].name == "scale", report.profile
        note(report.profile)
        made = stitch.profile_task(ctx, task, profile="timeline")
        assert made.kernels[0].name == "scale", made


def test_beside_pytorchs_profiler():
    """It has CUPTI: this profile is refused, or says what is missing. PyTorch's is what it is without us."""
    with context() as ctx:
        run, said = small(), []
        alone = kernels_seen(torch_profile(run))
        if not alone:
            raise tap.Skip("PyTorch's profiler sees no kernels here")

        def inside():
            try:
                made = stitch.profile_region(ctx, run, profile="full")
                facts = made.json["facts"]
                said.extend(facts[k] for k in ("no_timeline", "no_counters", "no_samples") if facts.get(k))
                note(f"a profile beside PyTorch's profiler:\n{made}")
            except (stitch.UnsupportedError, stitch.BusyError) as e:
                said.append(e.message)
                note("beside PyTorch's profiler:", e.message)

        beside = kernels_seen(torch_profile(run, inside))
        after = kernels_seen(torch_profile(run))
        note(f"PyTorch's profiler saw {alone} kernels alone, {beside} beside the call, {after} afterwards")
        assert said and all(said), said
        assert beside >= alone, (alone, beside)
        assert after == alone, (alone, after)
        # Whether PyTorch lets go of CUPTI is its affair; if it does not, that is said.
        try:
            made = stitch.profile_region(ctx, run, profile="timeline")
            note(f"and after it:\n{made}")
            assert made.kernels
        except (stitch.UnsupportedError, stitch.BusyError) as e:
            note("after PyTorch's profiler:", e.message)
            assert e.message


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
