# SPDX-License-Identifier: MIT
"""Hardware counters in process beside Nsight Compute: values and times of the same six kernels, in pairs in one run.

usage: python3 tests/bench/counters_vs_ncu.py [-v] [--replay application|kernel] [ROUNDS]       (default 3; -v prints every value)

Needs a GPU, the right to count, ncu, and bench_counters in a build folder (STITCH_BUILD, default build). ncu is told to leave clocks and
caches alone, as CUPTI does. What is compared are medians of the rounds, each of our metrics with what metrics.def says it is in CUPTI's names,
sums and differences too, whichever counters it was read from. Counts have to agree within 2 %, rates and times within 5 %; where
both values are below a floor they are noise and not compared: bytes that a cache happens to keep, shares of less than a per cent, reasons
to wait that hold less than half a per cent of a kernel's waiting warps. Exits with 77 where something is missing, with 1 where values differ.
Values are read from ncu's report through its Python module, which has all digits; without that module from its text, which has two decimals.

--replay says with which of ncu's values ours must agree. With application replay (the default) ncu runs the process once for each pass, so
that a kernel finds in the L2 cache what the kernels before it left there, as it does here, where the work is repeated for each pass. With
kernel replay ncu puts a kernel's memory back before each pass, and that goes through the cache: bytes of DRAM and what follows from them
differ for kernels whose data the cache could keep. ncu's time is that of kernel replay, its default, in ROUNDS runs; application replay
runs once and its time is given besides.
"""
import argparse
import csv
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(os.environ.get("STITCH_BUILD", os.path.join(ROOT, "build")), "tests", "bench", "bench_counters")
KERNELS = ["add", "fused", "gather", "shared_read", "matrix", "increment"]


def find_ncu():
    places = [shutil.which("ncu")] + sorted(glob.glob("/usr/local/cuda*/bin/ncu") + glob.glob("/opt/nvidia/nsight-compute/*/ncu"), reverse=True)
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


def run(command):
    """Standard output and seconds."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        print(" ".join(command[:4]), "...:", done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        sys.exit(77 if done.returncode == 77 else 1)
    return done.stdout, seconds


def ours(which):
    """Values by kernel and metric, milliseconds of the collection, seconds of the process."""
    out, seconds = run([BENCH, "values", which])
    values, notes = {}, {}
    for line in out.splitlines():
        if line.startswith("# "):
            _, key, number = line.split()
            notes[key] = float(number)
        else:
            kernel, metric, number = line.split("\t")
            values[kernel, metric] = float(number)
    return values, notes, seconds


READ = """
import sys
import ncu_report
for kernels in ncu_report.load_report(sys.argv[1]):
    for kernel in kernels:
        for name in sys.argv[2:]:
            metric = kernel.metric_by_name(name)
            if metric is not None:
                print(kernel.name(), name, repr(metric.as_double()), sep=chr(9))
"""


def read_report(ncu, report, names):
    """Values by kernel and metric, with all digits; None without ncu's Python module."""
    places = glob.glob(os.path.join(os.path.dirname(os.path.realpath(ncu)), "extras", "python"))
    places += sorted(glob.glob("/opt/nvidia/nsight-compute/*/extras/python") + glob.glob("/usr/local/cuda*/nsight-compute-*/extras/python"), reverse=True)
    for place in places:
        done = subprocess.run([sys.executable, "-c", READ, report, *names], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=place))
        lines = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 2]
        if done.returncode == 0 and lines:
            return {(kernel.split("(")[0], name): float(value) for kernel, name, value in lines}
    return None


def read_text(ncu, report, names):
    """The same with two decimals."""
    out, _ = run([ncu, "--import", report, "--csv", "--page", "raw", "--print-units", "base", "--print-fp"])
    lines = out.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
    if not starts:
        print("ncu:", "\n".join(lines[-20:]), file=sys.stderr)
        sys.exit(77)
    rows = list(csv.reader(line for line in lines[starts[0]:] if line.startswith('"')))
    values = {}
    for row in rows[1:]:
        cells = dict(zip(rows[0], row))
        for name in names if row[0].isdigit() else []:
            try:
                values[cells["Kernel Name"].split("(")[0], name] = float(cells[name].replace(",", ""))
            except (KeyError, ValueError):
                pass
    return values


def theirs(ncu, names, replay):
    """Values by kernel and metric, seconds of ncu, where they were read."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "six.ncu-rep")
        _, seconds = run([ncu, "--export", report, "--clock-control", "none", "--cache-control", "none", "--replay-mode", replay,
                          "--launch-skip", str(len(KERNELS)), "--launch-count", str(len(KERNELS)), "--metrics", ",".join(names), BENCH, "run"])
        values = read_report(ncu, report, names)
        return (read_text(ncu, report, names), seconds, "text") if values is None else (values, seconds, "report")


def of_expression(text, kernel, values):
    """A name of CUPTI's, or a sum or difference of some, from values by kernel and name; None where one is missing."""
    total = 0
    for sign, name in re.findall(r"([+-]?)([^+-]+)", text):
        value = values.get((kernel, name))
        if value is None or value != value:
            return None
        total += -value if sign == "-" else value
    return max(total, 0)


def medians(rounds):
    return {key: statistics.median(r[key] for r in rounds if key in r) for key in set().union(*rounds)}


def is_rate(name):
    return name.endswith((".pct", ".ratio")) or ".pct_of_" in name or name.startswith("gpu__time")


def waiting(values):
    """Warps that wait, for whatever reason, by kernel."""
    total = {}
    for (kernel, name), value in values.items():
        if "_stalled_" in name:
            total[kernel] = total.get(kernel, 0) + value
    return total


def floor(name, warps):
    if name.startswith("gpu__time"):
        return 1000  # ns
    if "_stalled_" in name:
        return max(0.05, warps / 200)
    if is_rate(name):
        return 1
    return 8 << 20 if "bytes" in name else 64


def deviation(a, b, noise):
    """Relative; None where both are noise."""
    if max(abs(a), abs(b)) <= noise:
        return None
    return abs(a - b) / max(abs(a), abs(b))


def compare(mine, other, verbose, quiet=False):
    """The values that differ; prints them unless quiet, and how many there are."""
    worst, bad, compared, missing, warps = {}, [], 0, [], waiting(mine)
    for (kernel, name), a in sorted(mine.items()):
        b = of_expression(name, kernel, other)
        if b is None:
            missing.append((kernel, name))
            continue
        noise = floor(name, warps.get(kernel, 0))
        d = deviation(a, b, noise)
        limit = 0.05 if is_rate(name) else 0.02
        verdict = "noise" if d is None else "ok" if d <= limit or abs(a - b) <= noise / 4 else "DIFFERS"
        if not quiet and (verbose or verdict == "DIFFERS"):
            print(f"  {verdict:8}{kernel:12} {name:84} {a:18.6g} {b:18.6g} {'' if d is None else f'{100 * d:7.2f} %'}")
        if d is None:
            continue
        compared += 1
        kind = "rates" if is_rate(name) else "counts"
        worst[kind] = max(worst.get(kind, 0), d)
        if verdict == "DIFFERS":
            bad.append((kernel, name))
    print(f"  {compared} values compared, {len(bad)} differ, {len(missing)} not in ncu's output; largest difference: "
          + ", ".join(f"{kind} {100 * d:.2f} %" for kind, d in sorted(worst.items())))
    return bad


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", dest="verbose", action="store_true", help="prints every value")
    parser.add_argument("--replay", choices=("application", "kernel"), default="application", help="ncu's values to agree with")
    parser.add_argument("rounds", nargs="?", type=int, default=3, help="runs of each whose median time is given")
    return parser.parse_args()


def main():
    options = arguments()
    rounds = max(options.rounds, 1)
    ncu = find_ncu()
    if not ncu or not os.access(BENCH, os.X_OK):
        print("no ncu" if not ncu else f"no {BENCH}: build it first", file=sys.stderr)
        return 77
    bad = []
    plain = statistics.median(run([BENCH, "run"])[1] for _ in range(rounds + 1))
    print(f"the process without counters: {plain:.3f} s; {ncu}: {run([ncu, '--version'])[0].splitlines()[-1]}")
    for which in ("cheap", "full"):
        names = run([BENCH, "names", which])[0].split()
        inside, again, process, tool, mine, kernel = [], [], [], [], [], []
        for _ in range(rounds):
            values, notes, seconds = ours(which)
            mine.append(values)
            inside.append(notes["ms"] / 1000)
            again.append(notes["again"] / 1000)
            process.append(seconds - notes["extra"] / 1000)
            values, seconds, place = theirs(ncu, names, "kernel")
            kernel.append(values)
            tool.append(seconds)
        mine, other = medians(mine), {"kernel": medians(kernel)}
        other["application"], whole, place = theirs(ncu, names, "application")
        print(f"{which} set: {len({name for _, name in mine})} metrics of {len(names)} names, {notes['passes']:.0f} passes here; ncu's values from its {place}")
        for replay, values in other.items():
            print(f"  beside ncu's {replay} replay:")
            differ = compare(mine, values, options.verbose, replay != options.replay)
            bad += differ if replay == options.replay else []
        i, a, p, t = (statistics.median(v) for v in (inside, again, process, tool))
        print(f"  here {i:.3f} s in process ({min(inside):.3f} to {max(inside):.3f}), from then on {a:.3f} s ({min(again):.3f} to {max(again):.3f}), "
              f"{p:.3f} s as a process of its own; ncu {t:.3f} s ({min(tool):.3f} to {max(tool):.3f}), with application replay {whole:.3f} s: "
              f"{t / i:.1f} x and {t / a:.1f} x of the collection, {t / p:.1f} x end to end")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
