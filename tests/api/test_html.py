# SPDX-License-Identifier: MIT
"""Reports to read in a browser, of a run on the simulator with hostile replies: one self-contained, well-formed page in which text of a candidate
stays text. Where there is a browser it draws the page, also with figures such as a GPU gives, without an error. Prints TAP.

usage: test_html.py STITCH [FOLDER-FOR-THE-PAGES]
"""
import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

STITCH = os.path.abspath(sys.argv[1])
FOLDER = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else tempfile.mkdtemp()
VOID = {"meta", "link", "br", "img", "input", "hr", "base", "area", "col", "embed", "source", "track", "wbr"}
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"><!-- ' \" ` ${7*7} &lt;\u202eevil\u2028\u00e9"
HOSTILE_SOURCE = HOSTILE.replace("\u202e", "").replace("\u2028", "")  # with those it is refused
KERNEL = """// %s
extern "C" __global__ void k(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x; /* %s */
    y[i] = %s * x[i];
}
"""
tests = []


def check(name, ok, detail=""):
    tests.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(tests)} - {name}", flush=True)
    for line in [] if ok else str(detail).splitlines()[:40]:
        print("# " + line[:1000])


def skip(name, why):
    tests.append(True)
    print(f"ok {len(tests)} - {name} # SKIP {why}", flush=True)


def run(*args):
    env = dict(os.environ, STITCH_CACHE_DIR=os.path.join(FOLDER, "cache"))
    return subprocess.run([STITCH, *args], capture_output=True, timeout=120, env=env, cwd=FOLDER)


def put(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return path


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
        return f.read()


# ---- the page as markup ----


class Page(html.parser.HTMLParser):
    """Elements, attributes, texts of scripts; what is not closed, or closed without having been opened."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.elements, self.scripts, self.styles, self.words = [], [], [], [], [], []
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append("/" + tag)

    def handle_data(self, data):
        where = self.open[-1] if self.open else ""
        if where == "script":
            self.scripts[-1] += data
        elif where == "style":
            self.styles[-1] += data
        else:
            self.words.append(data)


def digest(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def check_markup(name, text):
    page = Page(text)
    check(f"{name}: well formed", not page.wrong and text.lower().startswith("<!doctype html>"), page.wrong)
    policy = next((a.get("content", "") for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"), "")
    check(f"{name}: a data script and one that is allowed to run", len(page.scripts) == 2 and len(page.styles) == 1 and
          f"script-src '{digest(page.scripts[1])}'" in policy and f"style-src '{digest(page.styles[0])}'" in policy and "default-src 'none'" in policy, policy)
    loading = [(t, a) for t, a in page.elements if {"src", "href", "srcset", "data", "action", "poster", "background"} & set(a) or
               any(key.startswith("on") or key == "style" for key in a) or t in ("link", "img", "iframe", "object", "embed", "base")]
    addresses = re.findall(r"\w+://[^\s\"']*", text.replace(page.scripts[0], ""))
    fetching = re.findall(r"@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|import\(|innerHTML|outerHTML|document\.write|eval\(", text.replace(page.scripts[0], ""))
    check(f"{name}: loads nothing, and makes no markup of text", not loading and not fetching and set(addresses) == {"http://www.w3.org/2000/svg"},
          (loading, addresses, fetching))
    check(f"{name}: the data cannot end their element", not set(page.scripts[0]) & set("<>&") and page.scripts[0].isascii())
    return json.loads(page.scripts[0])


def with_data(text, data):
    """The same page with other data."""
    start = text.index('id="data">') + len('id="data">')
    escaped = re.sub("[<>&]", lambda c: f"\\u{ord(c[0]):04x}", json.dumps(data))
    return text[:start] + escaped + text[text.index("</script>", start) :]


# ---- figures such as a GPU gives ----


def gpu_facts(name):
    kernels = [
        {"name": "ln<256>", "symbol": "ln", "step": 0, "launches": 1, "time_us": 21.5, "share": 0.17, "grid": [4096, 1, 1], "block": [256, 1, 1],
         "registers": 32, "static_shared": 1024, "occupancy": 1.0, "waves": 3.9, "limiter": "", "gap_us": 1.1, "samples": 800,
         "metrics": {"dram_pct": 81.2, "l2_pct": 41.0, "issue_pct": 22.0, "tensor_active_pct": 0.0, "inst": 1834212.0, "l1_hit_pct": 3.0},
         "lines": [{"file": "program.cu", "line": 4, "text": "int i = blockIdx.x;", "samples": 500,
                    "reasons": [{"name": "long_scoreboard", "samples": 400}, {"name": "wait", "samples": 100}]}]},
        {"name": name, "symbol": "t", "step": 1, "launches": 1, "time_us": 88.0, "share": 0.7, "grid": [64, 64, 1], "block": [32, 8, 1], "registers": 40,
         "dynamic_shared": 33792, "occupancy": 0.5, "waves": 2.1, "limiter": "shared memory", "samples": 4000,
         "metrics": {"dram_pct": 31.0, "l2_pct": 72.5, "issue_pct": 9.0, "tensor_active_pct": 0.0, "inst": 934212.0},
         "lines": [{"file": "program.cu", "line": 5, "text": HOSTILE, "samples": 3000, "reasons": [{"name": "lg_throttle", "samples": 2900}]},
                   {"file": "program.cu", "line": 1, "text": "", "samples": 10, "reasons": []}]},
        {"name": "gemm_f16", "symbol": "g", "step": 2, "library": True, "launches": 2, "time_us": 8.2, "share": 0.13, "grid": [32, 4, 1], "block": [384, 1, 1],
         "registers": 168, "dynamic_shared": 214016, "occupancy": 0.1875, "limiter": "registers", "samples": 0,
         "metrics": {"dram_pct": 22.0, "l2_pct": 30.0, "issue_pct": 31.0, "tensor_active_pct": 74.0, "sm_active_pct": 50.0, "inst": 52000.0}, "lines": []}]
    return {"stitch_facts": 1, "source": "cupti", "device": "NVIDIA H200", "arch": "sm_90a", "multiprocessors": 132, "precision": "f16",
            "ceilings": {"measured": True, "dram_gb_s": 4100.5, "f32_tflops": 60.1, "tf32_tflops": 410.0, "f16_tflops": 790.0, "bf16_tflops": 800.0},
            "run": {"wall_us": 141.0, "busy_us": 126.0, "idle_us": 12.0, "launches": 4, "graph": True},
            "steps": [{"place": f"run[{i}]", "kind": "kernel", "name": "", "next": -1} for i in range(3)],
            "extra_names": ["lts__t_sectors.sum"], "kernels": [dict(k, extra=[1048576.0] if i else [None]) for i, k in enumerate(kernels)]}


def gpu_profile(name):
    verdict = {"bound": "memory", "because": "L2 at 73 % of its peak in 70 % of the time", "limit_us": 92.4, "reached": 0.655, "intensity": 0.8, "gb_per_s": 2400.0,
               "tflops": 2.1}
    verdicts = [dict(verdict, name="ln<256>", step=0, intensity=1.3, tflops=4.4), dict(verdict, name=name, step=1, intensity=0.25, tflops=0.31, reached=0.725),
                dict(verdict, name="gemm_f16", step=2, bound="compute", intensity=None, tflops=None, reached=0.74)]
    advice = [{"rule": "uncoalesced", "kernel": 1, "step": 1, "file": "program.cu", "line": 5, "source": HOSTILE, "problem": "Threads of a warp access global memory "
               "far apart.", "evidence": "31.8 sectors a request, 4 would do", "action": "Load a tile along the rows into shared memory and write it transposed.",
               "gain_us": 61.2, "gain_share": 0.43},
              {"rule": "fusable_neighbours", "kernel": None, "step": 1, "file": None, "line": None, "source": None, "problem": "Steps hand data on.",
               "evidence": "run[1] hands on 33 MB", "action": "Fuse them.", "gain_us": 12.0, "gain_share": 0.09}]
    return {"stitch_profile": 1, "facts": gpu_facts(name), "advice": {"verdict": verdict, "kernels": verdicts, "advice": advice}}


def gpu_trace(name):
    records, at = [], 6.0
    for step, (kernel, us) in enumerate((("ln<256>", 21.5), (name, 88.0), ("gemm_f16", 8.1), ("gemm_f16", 8.3))):
        records.append({"kind": "kernel", "name": kernel, "start": at, "end": at + us, "stream": 7 + (step == 3), "step": min(step, 2),
                        "grid": [64, 64, 1], "block": [32, 8, 1], "registers": 40, "shared": 33792})
        at += us + 1.4
    records.append({"kind": "copy", "name": "DtoD", "start": at, "end": at + 2.0, "stream": 7, "bytes": 1 << 20})
    records.append({"kind": "graph_launch", "name": "cuGraphLaunch", "start": 0.0, "end": 4.5, "thread": 1})
    records.append({"kind": "sync", "name": "stream", "start": 5.0, "end": at + 4.0, "thread": 1})
    return {"records": records, "left_out": 3}


def gpu_like(data):
    """Twelve attempts on a GPU, some of which fail."""
    name = HOSTILE[:60]
    made = []
    for i in range(12):
        attempt = json.loads(json.dumps(data["attempts"][-1]))
        report, failed = attempt["report"], i in (0, 1, 5, 9)
        attempt.update(action="optimise" if i > 2 else "repair_compile" if i else "draft", base=max(-1, i - 1), plan=i // 6, tokens=5000 + 917 * i)
        attempt["source"] = attempt["source"].replace("2 *", f"{i} *") + "\n" * (i % 3) + "".join(f"// line {k}\n" for k in range(i, 60, 1 + i % 3))
        report["environment"].update(device="NVIDIA H200", simulated=False, driver_release="580.159.03", cublaslt="13.1.0", program_ran="in a worker (no privileges, rlimits, landlock 7, seccomp)")
        report["profile"] = gpu_profile(name)
        if failed:
            report["summary"].update(failed_stage="compile" if i < 2 else "correct", correct=False)
            for stage in report["stages"][2 if i < 2 else 6 :]:
                stage.update(status="not run", message="")
            report["stages"][2 if i < 2 else 6].update(status="failed", message="y: 12 of 4,096 elements are wrong, the first at [0, 7]: " + HOSTILE)
            del report["profile"]
        else:
            us = 900 / (1 + i) ** 0.8
            report["summary"].update(median_us=us, baseline_us=1740.0, speedup=1740 / us, speedup_low=1700 / us, speedup_high=1791 / us, timed=True)
            report["time"] = {"speedup": {"against": "eager, float32 products"}, "candidate": {"busy_us": us * 0.9}}
        made.append(attempt)
    made[11]["trace"] = gpu_trace(name)
    return dict(data, attempts=made, best=11, tokens=123456, cost=1.25, seconds=512.5, reference=gpu_profile("eager"), device="NVIDIA H200")


# ---- a browser ----


def draw(browser, path):
    """Markup and console of the drawn page. A browser on a busy machine may give up once."""
    drawn = draw_once(browser, path)
    return drawn if drawn[0] else draw_once(browser, path)


def draw_once(browser, path):
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={home}", "--no-first-run",
                               "--window-size=1280,2000", "--virtual-time-budget=4000", "--enable-logging=stderr", "--dump-dom", "file://" + path],
                              capture_output=True, timeout=120, env=dict(os.environ, HOME=home))
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if ":CONSOLE:" in line]
    return done.stdout.decode(errors="replace"), console


def check_drawn(browser, name, path, words, shapes):
    dom, console = draw(browser, path)
    page = Page(dom)
    tags = [t for t, _ in page.elements]
    check(f"{name}: drawn without an error", dom and not console, console or "no output")
    check(f"{name}: no part is missing", not [w for w in page.words if "cannot be shown" in w], [w for w in page.words if "cannot be shown" in w])
    check(f"{name}: hostile text is text", tags.count("script") == 2 and not {"img", "iframe", "link"} & set(tags) and re.findall("<title>(.*?)</title>", dom)[0].startswith("hostile") and
          not [a for _, a in page.elements if any(key.startswith("on") for key in a)] and
          any("</script><script>document.title='taken'</script>" in w and "\u2039U+202E\u203a" in w for w in page.words), dom[:3000])
    check(f"{name}: says what it must", all(any(word in w for w in page.words) for word in words), [w for w in words if not any(w in x for x in page.words)])
    check(f"{name}: charts", all(tags.count(tag) >= least for tag, least in shapes.items()), {tag: tags.count(tag) for tag in shapes})


def check_diff(browser, script):
    """What the page's diff() says leads from the one text to the other, in as few lines as can be."""
    body = script[: script.rindex("page(JSON.parse(")] + """
      let seed = 7, bad = [];
      const random = (n) => (seed = (seed * 16807) % 2147483647) % n;
      const least = (a, b) => { /* lines that are not common, by the table of common subsequences */
        let row = new Array(b.length + 1).fill(0);
        for (const x of a) {
          const next = [0];
          b.forEach((y, j) => next.push(x === y ? row[j] + 1 : Math.max(row[j + 1], next[j])));
          row = next;
        }
        return a.length + b.length - 2 * row[b.length];
      };
      for (let i = 0; i < 2000; i++) {
        const lines = () => Array.from({ length: random(12) }, () => "abcd"[random(1 + i % 4)]);
        const a = lines(), b = i % 5 ? lines() : [...a.slice(0, random(6)), "e", ...a.slice(random(6))], rows = diff(a.join("\\n"), b.join("\\n"));
        const side = (sign, number) => rows.filter((r) => r.sign !== sign).map((r, k) => (r[number] === k + 1 ? r.text : "?")).join("\\n");
        const changed = rows.filter((r) => r.sign !== " ").length;
        if (side("+", "old") !== a.join("\\n") || side("-", "now") !== b.join("\\n") || changed !== least(a.join("\\n").split("\\n"), b.join("\\n").split("\\n")))
          bad.push(JSON.stringify([a, b, rows]));
      }
      const long = diff("x\\n".repeat(5000), "y\\n".repeat(5000));
      if (long.length !== 10001) bad.push("long: " + long.length);
      document.title = bad.length ? "bad: " + bad[0] : "all good";"""
    dom, console = draw(browser, put("diff.html", "<!doctype html><title>-</title><body><script>" + body + "</script>"))
    title = re.findall("<title>(.*?)</title>", dom, re.S)
    check("what changed between attempts", title == ["all good"] and not console, (title, console))


def long_names(value):
    """The same with every text of the candidate's without a place to break it."""
    words = ("name", "place", "symbol", "evidence", "message", "file", "text", "reason", "kernel", "title", "goal")
    if isinstance(value, dict):
        return {k: "v" * 500 if k in words and isinstance(v, str) else long_names(v) for k, v in value.items()}
    return [long_names(v) for v in value] if isinstance(value, list) else value


def check_room(browser, text, data):
    """Long names and many attempts: the page is no wider than the window, and no number of a chart is over another one."""
    many = [dict(long_names(data["attempts"][i % len(data["attempts"])]), base=i - 1) for i in range(400)]
    page = with_data(text, dict(long_names(data), attempts=many, best=398, task="t" * 255, device="d" * 200))
    probe = """<script>
      const rows = {}, clash = [];
      document.querySelectorAll("svg").forEach((s, k) => s.querySelectorAll("text.label").forEach((t) => {
        const r = t.getBoundingClientRect();
        if (/^[0-9]+$/.test(t.textContent)) (rows[k + " " + Math.round(r.top)] ||= []).push([r.left, r.right, t.textContent]);
      }));
      for (const row of Object.values(rows)) row.sort((a, b) => a[0] - b[0]).forEach((r, i) => i && r[0] < row[i - 1][1] && clash.push(row[i - 1][2] + " " + r[2]));
      document.title = JSON.stringify([document.documentElement.scrollWidth - document.documentElement.clientWidth, document.querySelectorAll("details").length, clash]);
    </script>"""
    page = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", probe + "</body>")
    dom, console = draw(browser, put("long.html", page))
    said = json.loads(re.findall("<title>(.*?)</title>", dom, re.S)[0] or "[]")
    check("long names and 400 attempts have room", len(said) == 3 and said[0] <= 0 and said[1] > 400 and not said[2] and not console, (said, console))


# ---- the whole ----


def task():
    put("k.cu", KERNEL % ("", "", "2"))
    put("k.json", json.dumps({"stitch": 1, "run": [{"kernel": "k", "grid": [8], "block": [128], "args": ["x", "y", {"i32": "N"}]}]}))
    return put("task.json", json.dumps({
        "stitch_task": 1, "name": "hostile " + HOSTILE[:40], "description": HOSTILE, "dims": {"N": 1024},
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["N"]}], "outputs": [{"name": "y", "dtype": "f32", "shape": ["N"]}],
        "reference": {"program": {"source": "k.cu", "plan": "k.json"}}}))


def replies():
    plan = {"stitch_plan": 1, "strategy": HOSTILE, "bottlenecks": [HOSTILE], "subtasks": [
        {"id": "a", "level": "kernel", "title": HOSTILE, "goal": HOSTILE, "after": []}]}
    with open(os.path.join(FOLDER, "k.json"), encoding="utf-8") as f:
        launch = f.read()

    def code(factor, more=""):
        return f"{HOSTILE}\n```cuda\n{KERNEL % (HOSTILE_SOURCE, HOSTILE_SOURCE, factor)}{more}```\n```json\n{launch}\n```\n"

    return put("replies.jsonl", "".join(json.dumps({"label": label, "number": 1, "reply": {"content": content}}) + "\n" for label, content in (
        ("plan", json.dumps(plan)), ("code:draft", code("3")), ("code:repair_correctness", code("2", "// " + "x" * 3000 + "\n")))))


def main():
    made = run("run", "--device", "sim:sm_90a", "--task", task(), "--model", "replay:" + replies(), "--attempts", "4", "--out", "best.stitch", "--html", "run.html")
    if made.returncode == 3:
        skip("reports", "no simulator, or no NVRTC")
    else:
        check("a run writes its report", made.returncode == 0 and os.path.exists(os.path.join(FOLDER, "run.html")), made.stderr.decode())
        text = read("run.html")
        data = check_markup("run", text)
        check("run: attempts, their code and what was said of them", len(data["attempts"]) == 2 and data["best"] == 1 and HOSTILE_SOURCE in data["attempts"][1]["source"] and
              data["attempts"][0]["feedback"] and data["attempts"][1]["report"]["profile"]["facts"]["kernels"][0]["name"] == "k" and
              data["plans"][0]["strategy"] == HOSTILE and HOSTILE in data["attempts"][0]["notes"], list(data))
        source = (KERNEL % ("caf\xe9 \\x80 </script>", "", "2")).encode("latin-1").replace(b"\\x80", b"\xc3\x28\xf0\x9f")
        done = run("profile", "--device", "sim:sm_90a", "task.json", "--source", put("bad.cu", source), "--plan", "k.json", "--html", "bad.html")
        check("a source that is not UTF-8 is refused", done.returncode == 2 and b"UTF-8" in done.stderr and not os.path.exists(os.path.join(FOLDER, "bad.html")),
              done.stderr.decode(errors="replace"))
        done = run("profile", "--device", "sim:sm_90a", "task.json", "best.stitch", "--trials", "1", "--html", "profile.html", "--json")
        check("profile writes one, and its profile", done.returncode == 0 and json.loads(done.stdout)["stitch_profile"] == 1, done.stderr.decode())
        check_markup("profile", read("profile.html"))
        put("gpu.html", with_data(text, gpu_like(data)))
        check_markup("gpu", read("gpu.html"))
        done = run("profile", "--device", "sim:sm_90a", "task.json", "best.stitch", "--trials", "1", "--html", "no/such/folder.html")
        check("a report that cannot be written", done.returncode == 2 and b"no/such/folder.html" in done.stderr, done.stderr.decode())
        browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None)
        if browser:
            check_drawn(browser, "run", os.path.join(FOLDER, "run.html"), ["Attempts", "failed in ", "simulated", "memory-bound", "Lines"], {"svg": 2, "circle": 2})
            check_drawn(browser, "profile", os.path.join(FOLDER, "profile.html"), ["The program", "Kernels"], {"svg": 1})
            check_drawn(browser, "gpu", os.path.join(FOLDER, "gpu.html"), ["95 % interval", "CUDA driver 13.0 (580.159.03), NVRTC", "cuBLASLt 13.1.0", "uncoalesced", "long_scoreboard", "stream 7", "host", "37 %", "59 %"],
                        {"svg": 3, "rect": 7, "circle": 10})
            check_diff(browser, Page(text).scripts[1])
            check_room(browser, text, gpu_like(data))
            check_room(browser, text, data)
        else:
            skip("drawn by a browser", "there is no Chromium")
    print(f"1..{len(tests)}")
    return 0 if all(tests) else 1


if __name__ == "__main__":
    sys.exit(main())
