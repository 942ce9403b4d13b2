/* SPDX-License-Identifier: MIT
   A profile: what bounds a run, its timeline, kernels, roofline, the lines that warps wait at, advice. docs/profile.md
   says what the members are. */

const BOUNDS = {
  memory: "at or near the memory's ceiling",
  compute: "at or near the ceiling of a unit that computes",
  latency: "far from both: warps wait",
  launch: "the device waits for launches, or has too little work",
  copy: "copies take the time",
  host: "the device waits for the host",
  unknown: "",
};

const isCounted = (profile) => profile.facts.source === "simulator";
const listOf = (value) => (Array.isArray(value) ? value : []);

function placeOf(facts, kernel) {
  const step = listOf(facts.steps)[kernel.step];
  return step && kernel.step >= 0 ? step.place : "";
}

/* ---- timeline ---- */

function traceRows(trace, facts, color) {
  const streams = new Map(), threads = new Map(), records = listOf(trace.records);
  const from = Math.min(...records.map((r) => r.start)),
        to = Math.max(...records.filter((r) => r.end >= 0).map((r) => r.end));
  for (const r of records) {
    if (!(r.end >= r.start)) continue;
    const device = r.stream !== undefined, rows = device ? streams : threads, key = device ? r.stream : r.thread;
    const wait = r.kind === "sync", step = listOf(facts.steps)[r.step];
    const about = [
      `${r.name}${step ? " (" + step.place + ")" : ""}`,
      `${time(r.end - r.start)}, from ${time(r.start - from) || "0"} on`,
      r.grid && `grid ${r.grid.join(" \u00d7 ")}, block ${r.block.join(" \u00d7 ")}`,
      r.grid && `${r.registers} registers, ${bytes(r.shared)} shared`, r.bytes && bytes(r.bytes)
    ];
    if (!rows.has(key)) rows.set(key, []);
    rows.get(key).push({
      start: r.start - from,
      end: r.end - from,
      name: r.name,
      text: about.filter(Boolean).join("\n"),
      color: r.kind === "kernel" ? color(r.name) :
          device                 ? "#8899aa" :
          wait                   ? "var(--rule)" :
                                   "var(--quiet)",
    });
  }
  const byKey = (a, b) => a[0] - b[0];
  return {
    span: Math.max(to - from, 0.001),
    rows: [
      ...[...threads].sort(byKey).map(
          ([, boxes], i, all) => ({label: all.length > 1 ? "host " + (i + 1) : "host", host: true, boxes})),
      ...[...streams].sort(byKey).map(([key, boxes]) => ({label: "stream " + key, boxes}))
    ],
  };
}

function timelineOf(profile, trace, color) {
  const facts = profile.facts;
  if (!trace || !listOf(trace.records).length) {
    return el(
        "p", "quiet",
        isCounted(profile) ? "A simulated device has no times, and so no timeline." : "No run was traced.",
        facts.no_timeline && " " + facts.no_timeline);
  }
  const {rows, span} = traceRows(trace, facts, color), outer = el("div", "scroll"), level = el("span", "", "1\u00d7");
  let zoom = 1;
  const show = () => {
    const wide = Math.max(280, outer.clientWidth) * zoom;
    outer.replaceChildren(timeline(rows, span, wide));
    outer.firstChild.style.maxWidth = zoom > 1 ? "none" : "";
    level.textContent = zoom + "\u00d7";
  };
  const change = (factor) => {
    const middle = (outer.scrollLeft + outer.clientWidth / 2) / Math.max(1, outer.scrollWidth);
    zoom = Math.max(1, Math.min(64, zoom * factor));
    show();
    outer.scrollLeft = middle * outer.scrollWidth - outer.clientWidth / 2;
  };
  let width = 0;
  watch(outer, () => {
    if (outer.clientWidth > 0 && outer.clientWidth !== width) width = outer.clientWidth, show();
  });
  return [
    el("div", "tools", button("\u2212", () => change(0.5)), level, button("+", () => change(2)),
       el("span", "",
          "One run, as it was traced; of the host dark: CUDA calls, light: waiting. Hover for figures.")),
    outer, trace.left_out ? el("p", "quiet small", plural(trace.left_out, "record") + " were left out.") : null
  ];
}

/* ---- kernels ---- */

const METRIC_UNITS = /_pct$/;

function nameCell(facts, kernel, color) {
  const key = el("span", "key");
  key.style.background = color(kernel.name);
  const place = placeOf(facts, kernel);
  return [
    key, el("code", "", kernel.name), place && el("span", "quiet small", "  " + place),
    kernel.library && el("span", "quiet small", "  library")
  ];
}

/* In per cent. CUPTI's shares of a multiprocessor's pipes leave out the time in which it had no block. */
function deviceShare(metrics, key) {
  return known(metrics[key]) ? metrics[key] * (known(metrics.sm_active_pct) ? metrics.sm_active_pct / 100 : 1) : null;
}

/* Of what the verdict compares with, where that is known. */
function dramShare(facts, metrics, verdict) {
  const ceiling = (facts.ceilings || {}).dram_gb_s;
  return known(verdict.gb_per_s) && ceiling > 0 ? Math.min(100, 100 * verdict.gb_per_s / ceiling) : metrics.dram_pct;
}

function timedKernels(profile, color) {
  const {facts, advice} = profile;
  return table(
      [
        ["kernel", "name"], ["share", "nowrap"], ["time", "number"], ["launches", "number"], ["bound", ""],
        ["of its limit", "number"], ["DRAM", "number"], ["L2", "number"], ["tensor", "number"], ["issue", "number"],
        ["occupancy", "number"], ["registers", "number"], ["shared", "number"], ["grid \u00d7 block", "nowrap"]
      ],
      facts.kernels.map((k, i) => {
        const v = listOf(advice.kernels)[i] || {}, m = k.metrics || {},
              of = (value) => (known(value) ? digits(value, 0) + " %" : "");
        return [
          nameCell(facts, k, color), [bar(k.share, color(k.name)), percent(k.share, 1)], time(k.time_us), k.launches,
          v.bound, percent(v.reached), of(dramShare(facts, m, v)), of(m.l2_pct), of(deviceShare(m, "tensor_active_pct")), of(m.issue_pct),
          k.occupancy ? percent(k.occupancy) : "", k.registers || "",
          bytes((k.static_shared || 0) + (k.dynamic_shared || 0)),
          listOf(k.grid).join(",") + " \u00d7 " + listOf(k.block).join(",")
        ];
      }));
}

function countedKernels(profile, color) {
  const {facts, advice} = profile, work = (k) => ((k.metrics || {}).inst || 0) * (k.launches || 1);
  const all = facts.kernels.reduce((sum, k) => sum + work(k), 0) || 1;
  const ratio = (value, ideal) => (ideal > 0 ? digits(value / ideal, 2) : "");
  return table(
      [
        ["kernel", "name"], ["of all instructions", "nowrap"], ["launches", "number"], ["bound", ""],
        ["warp instr.", "number"], ["operations", "number"], ["sectors", "number"], ["\u00d7 needed", "number"],
        ["wavefronts", "number"], ["\u00d7 needed", "number"], ["diverging", "number"], ["blocks run", "number"]
      ],
      facts.kernels.map((k, i) => {
        const v = listOf(advice.kernels)[i] || {}, m = k.metrics || {};
        return [
          nameCell(facts, k, color), [bar(work(k) / all, color(k.name)), percent(work(k) / all)], k.launches, v.bound,
          digits(m.inst, 0), digits(m.flops, 0), digits(m.global_sectors, 0),
          ratio(m.global_sectors, m.global_ideal_sectors), digits(m.shared_wavefronts, 0),
          ratio(m.shared_wavefronts, m.shared_ideal_wavefronts),
          m.branches > 0 ? percent(m.divergent_branches / m.branches, 1) : "", percent(k.counted)
        ];
      }));
}

function allMetrics(facts) {
  const shown = facts.kernels.slice(0, 12), keys = new Set();
  for (const k of shown)
    for (const key in k.metrics || {}) keys.add(key);
  const extra = listOf(facts.extra_names),
        value = (v) => (known(v) ? (Math.abs(v) >= 1e5 || v === Math.round(v) ? digits(v, 0) : short(v)) : "");
  if (!keys.size && !extra.length) return null;
  const rows = [
    ...[...keys].map(
        (key) =>
            [el("code", "", key),
             ...shown.map(
                 (k) => value((k.metrics || {})[key]) +
                     (METRIC_UNITS.test(key) && known((k.metrics || {})[key]) ? " %" : ""))]),
    ...extra.map((name, i) => [el("code", "", name), ...shown.map((k) => value(listOf(k.extra)[i]))])
  ];
  const box = el("details", "", el("summary", "", "All counters, the mean of a launch"));
  box.append(el("div", "inside", table([["metric", ""], ...shown.map((k) => [k.name, "number"])], rows)));
  return box;
}

/* ---- roofline ---- */

function rooflineOf(profile, color) {
  const {facts, advice} = profile, c = facts.ceilings || {}, counted = isCounted(profile), points = [], without = [];
  const roofs = [
    ["float32", c.f32_tflops], ["TF32 tensor", c.tf32_tflops], ["F16 tensor", c.f16_tflops],
    ["BF16 tensor", c.bf16_tflops], ["F8 tensor", c.f8_tflops]
  ].filter((r) => r[1] > 0);
  if (!(c.dram_gb_s > 0) || !roofs.length) return el("p", "quiet", "The ceilings of the device are not known.");
  facts.kernels.forEach((k, i) => {
    const v = listOf(advice.kernels)[i] || {}, m = k.metrics || {},
          asked = counted && m.global_bytes > 0 ? m.flops / m.global_bytes : null;
    const intensity = known(v.intensity) ? v.intensity : asked;
    if (!(intensity > 0) || (!counted && !known(v.tflops))) {
      without.push(k.name);
      return;
    }
    points.push({
      intensity,
      tflops: counted ? null : v.tflops,
      color: color(k.name),
      radius: 4 + 7 * Math.sqrt(k.share || 0),
      text: [
        k.name, `${short(intensity)} operations per byte`, known(v.tflops) && `${short(v.tflops)} TFLOP/s`,
        known(v.gb_per_s) && `${short(v.gb_per_s)} GB/s`, v.bound && `bound: ${v.bound}`
      ].filter(Boolean)
                .join("\n"),
    });
  });
  return [
    drawn((width) => roofline(roofs, c.dram_gb_s, points, width)),
    el("p", "quiet small",
       c.measured ? "Ceilings were measured on this device." :
                    "Ceilings follow from the architecture's rates and clocks.",
       counted && " Rings stand where a kernel's roof is by the bytes that its threads ask for; nothing was timed.",
       !counted && points.length > 0 && " A point's size is the kernel's share of the time.",
       without.length > 0 &&
           ` Not drawn, for they have no operations or it is not known how many: ${[...new Set(without)].join(", ")}.`)
  ];
}

/* ---- lines ---- */

/* [{kernel, line, share, about}], most first; shares are of the samples of all kernels by their time, or of
 * instructions. */
function hotLines(profile) {
  const counted = isCounted(profile), out = [], kernels = profile.facts.kernels;
  const all = counted ? kernels.reduce((sum, k) => sum + ((k.metrics || {}).inst || 0) * (k.launches || 1), 0) : 1;
  for (const k of kernels) {
    for (const line of listOf(k.lines)) {
      const share = counted ? (line.instructions || 0) * (k.launches || 1) / (all || 1) :
          k.samples > 0     ? (line.samples / k.samples) * (k.share || 0) :
                              0;
      if (!(share > 0)) continue;
      const about = listOf(line.reasons).slice(0, 4).map((r) => `${r.name} ${percent(r.samples / line.samples)}`);
      if (line.sectors > 1.05 * line.ideal_sectors)
        about.push(`${short(line.sectors / line.ideal_sectors)}\u00d7 the global sectors that it needs`);
      if (line.wavefronts > 1.05 * line.ideal_wavefronts)
        about.push(`${short(line.wavefronts / line.ideal_wavefronts)}\u00d7 the shared wavefronts that it needs`);
      out.push({kernel: k, line, share, about: about.join(", ")});
    }
  }
  return out.sort((a, b) => b.share - a.share);
}

/* For codeView(): line of the program's source to [share, text]. */
function heatOf(profile) {
  const heat = new Map();
  for (const {kernel, line, share, about} of hotLines(profile)) {
    if (line.file !== "program.cu" || !(line.line > 0)) continue;
    const before = heat.get(line.line) || [0, ""];
    heat.set(line.line, [
      before[0] + share,
      [before[1], `${kernel.name}: ${percent(share, 1)}${about ? " \u2014 " + about : ""}`].filter(Boolean).join("\n")
    ]);
  }
  return heat;
}

function linesOf(profile, source, color) {
  const lines = hotLines(profile), facts = profile.facts, counted = isCounted(profile);
  if (!lines.length) return el("p", "quiet", "No lines are known.", facts.no_samples && " " + facts.no_samples);
  const top = table(
      [["share", "nowrap"], [counted ? "line, kernel, what it moves" : "line, kernel, what its warps wait for", ""]],
      lines.slice(0, 12).map(
          ({kernel, line, share, about}) => [[bar(share, color(kernel.name)), percent(share, 1)], [
            el("div", "", el("code", "", line.text || "\u2014")),
            el("div", "quiet small", `${line.file}:${line.line} \u00b7 ${kernel.name}`, about && " \u00b7 " + about)
          ]]));
  const heat = heatOf(profile);
  return [
    el("p", "quiet small",
       counted ?
           "Share of all warp instructions. What lines move is compared with what the lanes would need side by side." :
           "Share of the kernels' time, by samples of what warps wait for."),
    top,
    source && heat.size ?
        [el("h3", "", "The source with these shares"), codeView(whole(source), {fold: true, heat, numbers: 1})] :
        null
  ];
}

/* ---- the whole ---- */

function adviceOf(profile) {
  const {facts, advice} = profile, list = el("ol", "advice");
  for (const a of listOf(advice.advice)) {
    const kernel = known(a.kernel) ? facts.kernels[a.kernel] : null;
    list.append(el(
        "li", "",
        el("p", "", el("b", "", kernel ? kernel.name + ": " : ""), a.problem, el("span", "quiet small", "  " + a.rule)),
        el("p", "quiet", a.evidence + "."),
        a.line ? el("p", "small", el("code", "", `${a.file}:${a.line}  ${a.source || ""}`)) : null,
        el("p", "", a.action,
           known(a.gain_us) &&
               el("span", "good nowrap", `  up to ${time(a.gain_us)}, ${percent(a.gain_share)} of the run`))));
  }
  return list.children.length ? list : el("p", "quiet", "Nothing that is worth a change was found.");
}

function profileView(profile, trace, source) {
  const {facts, advice} = profile, verdict = advice.verdict || {}, run = facts.run || {}, color = palette();
  const wall = run.wall_us > 0 ? run.wall_us : (run.busy_us || 0) + (run.idle_us || 0);
  for (const k of facts.kernels) color(k.name);
  const missing = [
    ["Times", facts.no_timeline], ["Counters", facts.no_counters], ["Stalls by line", facts.no_samples]
  ].filter((m) => m[1]);
  return [
    el("p", "", el("b", "", verdict.bound === "unknown" ? "What bounds it is not known" : `${verdict.bound}-bound`),
       el("span", "quiet", BOUNDS[verdict.bound] && !isCounted(profile) ? " \u2014 " + BOUNDS[verdict.bound] : ""),
       el("br"), verdict.because, "."),
    wall > 0 &&
        el("div", "figures",
           [
             [time(wall), "a run"], [time(run.busy_us), "device busy"], [time(run.idle_us), "device idle"],
             [time(verdict.limit_us), "what the ceiling allows"], [percent(verdict.reached), "of the ceiling reached"],
             [run.launches ? String(run.launches) : "", run.graph ? "launches, in a graph" : "launches"]
           ].filter((f) => f[0])
               .map((f) => figure(...f))),
    missing.map(([what, why]) => el("p", "note small", `${what} are missing: ${why}`)), el("h3", "", "Advice"),
    el("p", "quiet small", "Most gain first; gains are upper bounds and do not add up."), part(() => adviceOf(profile)),
    el("h3", "", "Timeline"), part(() => timelineOf(profile, trace, color)), el("h3", "", "Kernels"),
    part(
        () =>
            (facts.kernels.length ? (isCounted(profile) ? countedKernels : timedKernels)(profile, color) :
                                    el("p", "quiet", "None are known."))),
    part(() => allMetrics(facts)), el("h3", "", "Roofline"), part(() => rooflineOf(profile, color)),
    el("h3", "", isCounted(profile) ? "Lines" : "Lines that warps wait at"), part(() => linesOf(profile, source, color))
  ];
}
