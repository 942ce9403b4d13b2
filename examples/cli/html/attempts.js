/* SPDX-License-Identifier: MIT
   The page: head, attempts with their code, profiles. */

const STAGES =
    ["format", "validate", "compile", "simulate", "load", "prepare", "correct", "exploit", "time", "profile"];

function outcome(attempt) {
  const summary = attempt.report.summary;
  if (summary.failed_stage) return {ok: false, text: "failed in " + summary.failed_stage};
  return {ok: true, text: summary.median_us > 0 ? "correct" : "correct, not timed"};
}

function stageStrip(report) {
  return el("span", "stages", report.stages.map((s) => {
    const cell = el("i", s.status, {passed: "\u2713", failed: "\u2715", skipped: "\u2013"}[s.status] || " ");
    cell.setAttribute("aria-label", `${s.stage}: ${s.status}`);
    return hover(cell, () => `${s.stage}: ${s.status}${s.message ? "\n" + s.message : ""}`);
  }));
}

function stageTable(report) {
  const color = {passed: "good", failed: "bad", skipped: "quiet"};
  return table(
      [["stage", ""], ["", ""], ["time", "number"], ["", ""]],
      report.stages.filter((s) => s.status !== "not run")
          .map(
              (s) =>
                  [s.stage, el("span", color[s.status], s.status), digits(s.milliseconds, 1) + " ms",
                   el("span", "quiet", s.message)]));
}

/* ---- head ---- */

function head(data) {
  const attempts = listOf(data.attempts), best = attempts[data.best], any = best || attempts[attempts.length - 1],
        report = any && any.report;
  const s = best ? best.report.summary : {}, task = report ? report.task : {}, env = report ? report.environment : {};
  const speedup = report && report.time && report.time.speedup;
  const figures = [
    [
      s.speedup > 0 ? short(s.speedup) + "\u00d7" : "",
      speedup && speedup.against ? "against " + speedup.against : "speed-up"
    ],
    [s.speedup_low > 0 ? `${short(s.speedup_low)} \u2013 ${short(s.speedup_high)}\u00d7` : "", "95 % interval"],
    [time(s.median_us), "median of a run"], [time(s.baseline_us), "baseline"],
    [best && known(s.max_abs_error) ? (s.max_abs_error ? s.max_abs_error.toExponential(1) : "0") : "", "largest error"],
    [attempts.length > 1 || data.command === "run" ? String(attempts.length) : "", "attempts"],
    [data.tokens > 0 ? digits(data.tokens, 0) : "", "tokens"], [data.cost > 0 ? digits(data.cost, 2) : "", "cost"],
    [data.seconds > 0 ? time(data.seconds * 1e6) : "", "elapsed"]
  ];
  const dims = task.dims ? Object.entries(task.dims).map(([name, value]) => `${name} = ${value}`).join(", ") : "";
  return [
    el("p", "kind", `stitch ${data.command}`), el("h1", "", data.task),
    data.description && el("p", "quiet", data.description),
    !best && attempts.length ? el("p", "note bad", "No attempt is correct.") : null,
    s.degenerate ?
        el("p", "note bad", "The task cannot tell a right program from a cheap answer: a verdict on it means nothing. ",
           s.degenerate_reason) :
        null,
    el("div", "figures", figures.filter((f) => f[0]).map((f) => figure(...f))), facts([
      [
        "Device",
        [
          env.device || data.device,
          env.arch || data.arch ? ` (${env.arch || data.arch}${env.simulated ? ", simulated" : ""})` : ""
        ]
      ],
      [
        "Software",
        env.library &&
            `libstitch ${env.library}, CUDA driver ${env.driver}${env.driver_release ? ` (${env.driver_release})` : ""}, NVRTC ${env.nvrtc}${
                env.cublaslt ? `, cuBLASLt ${env.cublaslt}` : ""}`
      ],
      ["Programs ran", env.program_ran], ["Outputs came", env.outputs], ["Dims", dims && dims + (task.reduced_dims ? " (reduced)" : "")],
      [
        "Precision",
        task.precision &&
            (task.precision === "any" ? "any: no policy" : `${task.precision}: products may use it, not less`)
      ],
      ["Tolerance", task.tolerance && `${task.tolerance.atol} + ${task.tolerance.rtol} \u00d7 |reference|`],
      ["Reference", task.reference],
      ["Clocks", report && report.time && report.time.clocks && clocks(report.time.clocks)],
      ["Seed", report && report.seed], ["Task", task.sha256 && el("code", "", task.sha256)]
    ])
  ];
}

function clocks(c) {
  return `${c.sm_mhz_min ?? "?"} \u2013 ${c.sm_mhz_max ?? "?"} MHz${
      c.throttled ? ", throttled: " + listOf(c.throttle_reasons).join(", ") : ""}`;
}

/* ---- attempts ---- */

function attemptText(attempt, i) {
  const s = attempt.report.summary, result = outcome(attempt),
        stage = attempt.report.stages.find((x) => x.stage === s.failed_stage);
  return [
    `attempt ${i + 1}${attempt.action ? " (" + attempt.action + ")" : ""}: ${result.text}`,
    s.median_us > 0 && `${time(s.median_us)}, ${short(s.speedup)}\u00d7`,
    s.speedup_low > 0 && `95 %: ${short(s.speedup_low)} \u2013 ${short(s.speedup_high)}\u00d7`, stage && stage.message
  ].filter(Boolean)
      .join("\n");
}

function attemptChart(data) {
  const attempts = data.attempts, timed = attempts.some((a) => a.report.summary.speedup > 0);
  const points = attempts.map((a, i) => {
    const s = a.report.summary, last = a.report.stages.map((x) => x.status).lastIndexOf("passed");
    return {
      number: i + 1,
      best: i === data.best,
      text: attemptText(a, i),
      value: s.speedup,
      low: s.speedup_low,
      high: s.speedup_high,
      ok: timed ? !s.failed_stage && s.speedup > 0 : !s.failed_stage,
      stage: s.failed_stage ? STAGES.indexOf(s.failed_stage) : last
    };
  });
  return drawn((width) => (timed ? speedupChart(points, width) : stageChart(points, STAGES, width)));
}

function attemptTable(data) {
  const planned = data.attempts.some((a) => a.plan > 0),
        timed = data.attempts.some((a) => a.report.summary.median_us > 0),
        counted = data.attempts.some((a) => a.tokens > 0);
  return table(
      [
        ["", "number"], ["result", "result"], ...(timed ? [["time", "number"], ["speed-up", "number"]] : []),
        ["stages", "nowrap"], ["made by", ""], ...(planned ? [["plan", "number"]] : []),
        ...(counted ? [["tokens", "number"]] : [])
      ],
      data.attempts.map((a, i) => {
        const s = a.report.summary, result = outcome(a), link = el("a", "", String(i + 1)),
              failed = a.report.stages.find((x) => x.status === "failed");
        link.href = "#attempt-" + (i + 1);
        return {
          className: i === data.best ? "best" : "",
          cells: [
            link,
            [
              el("span", result.ok ? "good" : "bad", result.text, i === data.best && " (best)"),
              failed &&
                  el("div", "quiet small why",
                     failed.message.length > 120 ? failed.message.slice(0, 117) + "\u2026" : failed.message)
            ],
            ...(timed ? [time(s.median_us), s.speedup > 0 ? short(s.speedup) + "\u00d7" : ""] : []),
            stageStrip(a.report), [a.action, a.base >= 0 && el("span", "quiet", ` of ${a.base + 1}`)],
            ...(planned ? [String(a.plan + 1)] : []), ...(counted ? [a.tokens > 0 ? digits(a.tokens, 0) : ""] : [])
          ]
        };
      }));
}

/* Code and launch plan, against an earlier attempt or as they are. */
function codeOf(data, i) {
  const attempt = data.attempts[i], box = el("div", "");
  if (attempt.source === undefined)
    return attempt.reply ? [el("h3", "", "Reply"), el("pre", "", attempt.reply)] :
                           el("p", "quiet", "There is no program.");
  const earlier = data.attempts.map((a, k) => k).filter((k) => k < i && data.attempts[k].source !== undefined);
  const entries = [["", "as it is"], ...earlier.reverse().map((k) => [String(k), `changes since attempt ${k + 1}`])];
  const show = (value) => {
    const from = value === "" ? null : data.attempts[Number(value)], view = (name) => {
      if (!from) return codeView(whole(attempt[name]), {numbers: 1});
      if (from[name] === attempt[name]) return el("p", "quiet", "No change.");
      return codeView(diff(from[name], attempt[name]), {fold: true});
    };
    box.replaceChildren(
        el("h3", "", "program.cu"), part(() => view("source")), el("h3", "", "Launch plan"),
        part(() => view("plan_json")));
  };
  const first = entries.length > 1 ? entries[1][0] : "";
  show(first);
  return [entries.length > 1 ? el("div", "tools", "Code: ", choice(entries, first, show)) : null, box];
}

function attemptInside(data, i) {
  const a = data.attempts[i], failed = a.report.stages.find((s) => s.status === "failed"),
        notes = listOf(a.report.notes);
  return [
    failed && el("p", "note bad", el("b", "", failed.stage + ": "), failed.message),
    a.notice && el("p", "note", a.notice), notes.map((n) => el("p", "note small", n)), el("h3", "", "Stages"),
    stageTable(a.report), a.feedback && [el("h3", "", "Feedback"), el("pre", "", a.feedback)],
    a.notes && [el("h3", "", "What the model wrote beside it"), el("pre", "", a.notes)], part(() => codeOf(data, i))
  ];
}

/* What is inside is made when it is opened, or printed. */
function attemptBox(data, i) {
  const a = data.attempts[i], s = a.report.summary, result = outcome(a),
        box = el(
            "details", "",
            el("summary", "", `Attempt ${i + 1}`, a.action && ` \u00b7 ${a.action}`, " \u00b7 ",
               el("span", result.ok ? "good" : "bad", result.text), s.median_us > 0 && ` \u00b7 ${time(s.median_us)}`,
               s.speedup > 0 && ` \u00b7 ${short(s.speedup)}\u00d7`,
               i === data.best && data.attempts.length > 1 && " \u00b7 best"));
  let made = false;
  const make = () => {
    if (!made) box.append(el("div", "inside", part(() => attemptInside(data, i))));
    made = true;
  };
  box.id = "attempt-" + (i + 1);
  box.addEventListener("toggle", () => box.open && make());
  window.addEventListener("beforeprint", () => {
    make();
    box.open = true;
  });
  if (i === data.best || data.attempts.length === 1) make(), box.open = true;
  return box;
}

function planView(plan, i) {
  const list = el("ol", "advice");
  for (const task of listOf(plan.subtasks))
    list.append(
        el("li", "", el("p", "", el("b", "", task.title), el("span", "quiet small", `  ${task.level}`)),
           el("p", "", task.goal)));
  const box =
      el("details", "", el("summary", "", `Plan ${i + 1} \u00b7 ${plural(listOf(plan.subtasks).length, "sub-task")}`));
  box.append(
      el("div", "inside", el("p", "", plan.strategy), listOf(plan.bottlenecks).map((b) => el("p", "note small", b)),
         list));
  return box;
}

/* ---- profiles ---- */

function profiles(data) {
  const profiled = data.attempts.map((a, i) => i).filter((i) => data.attempts[i].report.profile), box = el("div", "");
  if (!profiled.length) return null;
  const first = profiled.includes(data.best) ? data.best : profiled[profiled.length - 1];
  const show = (value) => {
    const a = data.attempts[Number(value)];
    box.replaceChildren(
        ...[part(() => profileView(a.report.profile, a.trace, a.source))].flat(Infinity).filter(Boolean));
  };
  show(first);
  return [
    el("h2", "", "Profile"),
    profiled.length > 1 ?
        el("div", "tools",
           choice(
               profiled.map((i) => [String(i), `attempt ${i + 1}${i === data.best ? " (best)" : ""}`]), String(first),
               show)) :
        null,
    box
  ];
}

function page(data) {
  const attempts = listOf(data.attempts), root = document.getElementById("page");
  data.attempts = attempts;
  document.title = visible(`${data.task} \u2014 stitch ${data.command}`);
  root.replaceChildren();
  put(root, [
    part(() => el("header", "", head(data))),
    attempts.length > 1 ?
        el("section", "", el("h2", "", "Attempts"), part(() => attemptChart(data)), part(() => attemptTable(data))) :
        null,
    part(() => el("section", "", profiles(data))),
    attempts.length ? el("section", "", el("h2", "", attempts.length > 1 ? "Each attempt" : "The program"),
                         attempts.map((_, i) => part(() => attemptBox(data, i)))) :
                      null,
    listOf(data.plans).length ?
        el("section", "", el("h2", "", "Plans"), data.plans.map((p, i) => part(() => planView(p, i)))) :
        null,
    data.reference ? el("section", "", el("h2", "", "What the task is measured against"),
                        part(() => profileView(data.reference, null, ""))) :
                     null,
    el("footer", "",
       `Made ${data.made} by stitch ${data.version}. Text of candidates is shown as it came, `,
       "with the numbers of characters that cannot be seen.")
  ]);
  const open = () => {
    const box = document.getElementById(location.hash.slice(1));
    if (box && box.tagName === "DETAILS") box.open = true;
  };
  window.addEventListener("hashchange", open);
  open();
}

page(JSON.parse(document.getElementById("data").textContent));
