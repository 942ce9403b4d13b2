# SPDX-License-Identifier: MIT
"""Planted memory errors and races: the simulator names each one and its line, says nothing about the correct twin, and
agrees with compute-sanitizer where one of its tools looks for that kind.

Every planted/*.cu holds planted_NAME and correct_NAME, (float *out, const float *in, int n). Its head says how both are
launched, which kind of finding is expected, which tools of compute-sanitizer see it, and which report the twin ("false"); the lines at fault end in
"// planted". "arch: sm_90a" says that only such a GPU runs them. Prints TAP. Needs a build folder (STITCH_BUILD, default build) and NVRTC; the second half also needs nvcc,
compute-sanitizer and a GPU.

Under each tool one process runs all correct twins, and those planted kernels that the tool is said to see.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("STITCH_BUILD", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build"))
TOOLS = ["memcheck", "initcheck", "racecheck", "synccheck"]
SPEC = ["grid", "block", "shared", "in", "written", "out", "zero", "freed"]

results = []


def report(name, ok, detail=""):
    results.append(ok)
    print(f"{'ok' if ok else 'not ok'} {len(results)} - {name}", flush=True)
    if detail and not ok:
        print("# " + str(detail).replace("\n", "\n# "), flush=True)


def skip(name, why):
    results.append(True)
    print(f"ok {len(results)} - {name} # SKIP {why}", flush=True)


def read_case(path):
    with open(path, encoding="utf-8") as text:
        lines = text.read().splitlines()
    head = dict(re.findall(r"^ \* (launch|expect|tools|arch|false): (.+)$", "\n".join(lines), re.MULTILINE))
    spec = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", head["launch"])}
    unknown = set(spec) - set(SPEC)
    tools = [] if head["tools"] == "-" else head["tools"].split()
    marked = [i + 1 for i, line in enumerate(lines) if line.rstrip().endswith("// planted")]
    if unknown or not marked or set(tools) - set(TOOLS):
        sys.exit(f"{path}: bad head or no line marked: {unknown} {tools}")
    return {"name": os.path.splitext(os.path.basename(path))[0], "source": path, "spec": spec, "expect": head["expect"],
            "tools": tools, "false": head.get("false", "").split(), "lines": marked, "arch": head.get("arch")}


def launch_of(case, kind):
    spec = dict(case["spec"])
    if kind == "correct":
        spec.pop("freed", None)
    return spec


# ---- the simulator ---------------------------------------------------------------------------------------------------


def run_simulator(cases, arch):
    wanted = [dict(launch_of(case, kind), source=case["source"], kernel=f"{kind}_{case['name']}")
              for case in cases for kind in ("planted", "correct")]
    done = subprocess.run([os.path.join(BUILD, "tests", "gpu", "planted_run"), arch], input=json.dumps(wanted),
                          capture_output=True, text=True, timeout=250)
    if done.returncode == 77:
        for case in cases:
            skip(f"{case['name']}: simulator", "NVRTC is not installed")
        return
    if done.returncode:
        report("the simulator runs the kernels", False, done.stderr)
        return
    answers = {answer["kernel"]: answer for answer in json.loads(done.stdout)}
    for case in cases:
        answer = answers["planted_" + case["name"]]
        found = answer.get("findings", [])
        lines = {line for finding in found for line in finding["lines"]}
        good = bool(found) and all(finding["kind"] == case["expect"] for finding in found) and lines <= set(case["lines"])
        if case["expect"] != "barrier_divergence":  # which of the two barriers is named is a matter of who waits first
            good = good and lines == set(case["lines"])
        report(f"{case['name']}: the simulator finds {case['expect']}", good,
               f"expected {case['expect']} at lines {case['lines']}, got " + json.dumps(answer, indent=1))
        answer = answers["correct_" + case["name"]]
        report(f"{case['name']}: the simulator finds nothing in the twin", answer.get("findings") == [],
               json.dumps(answer, indent=1))


# ---- compute-sanitizer -----------------------------------------------------------------------------------------------

HOST = """\
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
%(includes)s
struct test { const char *name, *tools; void (*kernel)(float *, const float *, int); int %(fields)s; };
static const test tests[] = {
%(tests)s
};
int main(int argc, char **argv)
{
    int ran = 0;
    for (const test &t : tests) {
        if (argc > 1 && !strstr(t.tools, argv[1]))
            continue;
        float *out, *in;
        std::vector<float> values(t.in);
        for (int i = 0; i < t.in; i++)
            values[i] = (float)i;
        if (cudaMalloc(&out, t.out * 4) || cudaMalloc(&in, t.in * 4))
            return fprintf(stderr, "no device memory: %%s\\n", cudaGetErrorString(cudaGetLastError())), 1;
        if (t.zero)
            cudaMemset(out, 0, t.out * 4);
        cudaMemcpy(in, values.data(), t.written * 4, cudaMemcpyHostToDevice);
        if (t.freed)
            cudaFree(in);
        t.kernel<<<t.grid, t.block, t.shared>>>(out, in, t.in);
        cudaError_t e = cudaDeviceSynchronize();
        printf("ran %%s: %%s\\n", t.name, cudaGetErrorName(e));
        fflush(stdout);
        cudaGetLastError();
        cudaFree(out);
        if (!t.freed)
            cudaFree(in);
        ran++;
    }
    printf("ran %%d kernels\\n", ran);
    return 0;
}
"""


def find_program(name):
    places = [os.path.join(os.environ[key], "bin") for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    places += ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


def no_sanitizer():
    """Why the second half cannot run, or None."""
    if os.environ.get("STITCH_NO_SANITIZER"):
        return os.environ["STITCH_NO_SANITIZER"]
    if not os.path.exists("/dev/nvidiactl"):
        return "no GPU"
    for program in ("nvcc", "compute-sanitizer"):
        if not find_program(program):
            return f"no {program}"
    return None


def host_source(cases):
    tests = []
    for kind in ("correct", "planted"):  # those that may leave the context broken come last
        for case in cases:
            spec = launch_of(case, kind)
            spec.setdefault("written", spec["in"])
            tools = " ".join(case["tools"] if kind == "planted" else TOOLS)
            values = ", ".join(str(spec.get(key, 0)) for key in SPEC)
            kernel = f"{kind}_{case['name']}"
            tests.append(f'    {{"{kernel}", "{tools}", {kernel}, {values}}},')
    return HOST % {"includes": "\n".join(f'#include "{case["source"]}"' for case in cases), "tests": "\n".join(tests),
                   "fields": ", ".join(SPEC)}


def split_records(text):
    """The tool's reports: paragraphs of '=========' lines."""
    records, record = [], []
    for line in text.splitlines():
        body = line[9:].strip() if line.startswith("=========") else ""
        if body:
            record.append(body)
        elif record:
            records.append("\n".join(record))
            record = []
    return records + (["\n".join(record)] if record else [])


def run_tool(tool, program, cases):
    command = [find_program("compute-sanitizer"), "--tool", tool, "--print-limit", "10000", "--show-backtrace", "no"]
    if tool == "memcheck":
        command += ["--destroy-on-device-error", "kernel"]  # or the first error ends the process's context
    command += [program, tool]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired as late:
        report(f"{tool} ends", False, f"{late}\n{late.stdout!r}")
        return
    text = done.stdout + done.stderr
    # A report names its kernel as "planted_NAME+0x10 in FILE.cu:12", in this or the other order.
    seen = {}
    for record in split_records(text):
        for kernel in set(re.findall(r"\b((?:planted|correct)_\w+?)\b(?=\(|\+|\s|$)", record)):
            if re.search(r"\b(Error|Invalid|Uninitialized|Race|Barrier|misaligned)\b", record, re.IGNORECASE):
                seen.setdefault(kernel, []).append(record)
    finished = re.search(r"^ran (\d+) kernels$", text, re.MULTILINE)
    planted = [case for case in cases if tool in case["tools"]]
    report(f"{tool} runs all {len(cases) + len(planted)} kernels",
           bool(finished) and int(finished.group(1)) == len(cases) + len(planted), text[-3000:])
    for case in planted:
        records = seen.get("planted_" + case["name"], [])
        name = os.path.basename(case["source"])
        lines = {int(line) for record in records for line in re.findall(re.escape(name) + r":(\d+)", record)}
        print(f"# {tool} on {case['name']}: lines {sorted(lines)}, planted {case['lines']}")
        report(f"{case['name']}: {tool} agrees", bool(records) and (not lines or bool(lines & set(case["lines"]))),
               "\n\n".join(records[:3]) or text[-3000:])
    excused = {"correct_" + case["name"] for case in cases if tool in case["false"]}
    wrong = {kernel: found for kernel, found in seen.items() if kernel.startswith("correct_") and kernel not in excused}
    report(f"{tool} finds nothing in the {len(cases)} twins", not wrong,
           "\n\n".join(record for found in wrong.values() for record in found[:2]))


ARCH_OPTIONS = {"native": "-arch=native", "sm_90a": "-gencode=arch=compute_90a,code=sm_90a"}


def device_arch():
    """The architecture to compile for, with the instructions that only one has where that is known to be right."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True,
                              text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "native"
    return "sm_90a" if done.stdout.split("\n")[0].strip() == "9.0" else "native"


def run_sanitizer(cases):
    why = no_sanitizer()
    arch = None if why else device_arch()
    for case in cases:
        if arch and case["arch"] not in (None, arch):
            skip(f"{case['name']}: compute-sanitizer", f"needs {case['arch']}")
    cases = [case for case in cases if case["arch"] in (None, arch)]
    if why:
        for tool in TOOLS:
            skip(f"compute-sanitizer {tool}", why)
        return
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "planted_host.cu"), os.path.join(folder, "planted_host")
        with open(source, "w", encoding="utf-8") as text:
            text.write(host_source(cases))
        done = subprocess.run([find_program("nvcc"), ARCH_OPTIONS[arch], "-lineinfo", "-o", program, source], capture_output=True,
                              text=True, timeout=120)
        report("nvcc compiles the kernels", done.returncode == 0, done.stderr)
        if done.returncode == 0:
            for tool in TOOLS:
                run_tool(tool, program, cases)


def main():
    cases = [read_case(path) for path in sorted(glob.glob(os.path.join(HERE, "planted", "*.cu")))]
    run_simulator(cases, "sm_90a")
    run_sanitizer(cases)
    print(f"1..{len(results)}")
    return 0 if all(results) else 1


sys.exit(main())
