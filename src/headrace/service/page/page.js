"use strict";
// The live page of a hub. It reads the REST API and nothing else; everything it shows is what really happened.
// Sections: requests, samples, streams (the picture and its charts), pipelines, details, the SQL box, words and numbers.

const $ = (id) => document.getElementById(id);
const SHOWN_AT_ONCE = 100; // rows of the pipeline table: the page stays quick with hundreds
const DOTS_AT_ONCE = 60; // pipelines of one family in the picture
const WARNINGS_AT_ONCE = 5;
const KEPT_SAMPLES = 180;
const PREVIEW_AFTER_MS = 400;
const state = { streams: new Map(), pipelines: new Map(), history: new Map(), shown: SHOWN_AT_ONCE, selected: null, last: null, asked: null, next: new Map() };

// --- requests ------------------------------------------------------------------------------------

function headers(extra) {
  const token = sessionStorage.getItem("token");
  return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...extra };
}

async function api(method, path, body) {
  const options = { method, headers: headers(body ? { "Content-Type": "application/json" } : {}) };
  if (body) options.body = JSON.stringify(body);
  const answer = await fetch(`/api/v1${path}`, options);
  if (answer.status === 401) { await login(); return api(method, path, body); }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail || `${answer.status}`);
  return found;
}

let asking = null; // one dialog for all requests that were refused
function login() {
  asking ||= new Promise((resolve) => {
    const dialog = $("login");
    dialog.addEventListener("close", () => { sessionStorage.setItem("token", $("token").value); asking = null; resolve(); }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// Server-sent events by fetch: EventSource cannot send a token.
async function follow() {
  for (;;) {
    try {
      const extra = state.last === null ? {} : { "Last-Event-ID": String(state.last) };
      const answer = await fetch("/api/v1/events", { headers: headers(extra) });
      if (answer.status === 401) { await login(); continue; }
      if (!answer.ok) throw new Error(String(answer.status));
      connection("live", "good");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let pending = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        pending += value;
        let end;
        while ((end = pending.indexOf("\n\n")) >= 0) {
          const data = pending.slice(0, end).split("\n").find((line) => line.startsWith("data: "));
          pending = pending.slice(end + 2);
          if (data) await sample(JSON.parse(data.slice(6)));
        }
      }
    } catch { /* the hub is away: shown below, and tried again */ }
    connection("not connected, trying again", "bad");
    await new Promise((wake) => setTimeout(wake, 1000));
  }
}

function connection(text, kind) {
  const pill = $("connection");
  if (pill.textContent !== text) { pill.textContent = text; pill.className = `pill ${kind}`; }
}

// --- samples -------------------------------------------------------------------------------------

async function sample(found) {
  state.last = found.id;
  await declarations(found);
  const own = new Map();
  for (const p of Object.values(found.pipelines)) {
    const key = p.stream.toLowerCase();
    const sums = own.get(key) || { state: 0, late: 0 };
    own.set(key, { state: sums.state + p.state_bytes, late: sums.late + p.late });
  }
  for (const [name, status] of Object.entries(found.streams)) {
    const known = state.streams.get(name);
    if (!known) continue;
    known.status = status;
    const sums = own.get(name.toLowerCase()) || { state: 0, late: 0 };
    const past = state.history.get(name) || [];
    past.push({
      at: found.at, rows: status.rows_per_s, mb: status.mb_per_s, lag: status.lag_bytes, phases: status.phases,
      watermark: status.watermark ? Math.max(0, found.at - Date.parse(status.watermark) / 1000) : null,
      state: sums.state, late: sums.late, bad: Object.values(status.bad).reduce((a, b) => a + b, 0),
    });
    if (past.length > KEPT_SAMPLES) past.shift();
    state.history.set(name, past);
  }
  for (const [name, status] of Object.entries(found.pipelines)) {
    const known = state.pipelines.get(name);
    if (known) known.status = status;
  }
  draw();
}

// Definitions are fetched only when the set of names or instances has changed.
let declared = "";
async function declarations(found) {
  const names = JSON.stringify([Object.keys(found.streams), Object.entries(found.pipelines).map(([n, p]) => [n, p.instance])]);
  if (names === declared) return;
  const [streams, pipelines] = await Promise.all([api("GET", "/streams"), api("GET", "/pipelines")]);
  state.streams = new Map(streams.map((s) => [s.name, s]));
  state.pipelines = new Map(pipelines.map((p) => [p.name, p]));
  declared = names;
}

// --- drawing -------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

/** Replace the children of `target` unless they were made of the same facts before. */
function redraw(target, facts, make) {
  const key = JSON.stringify(facts);
  if (target.dataset.facts === key) return;
  target.dataset.facts = key;
  target.replaceChildren(...make());
}

function draw() {
  if (document.hidden) return;
  drawTotals();
  drawStreams();
  drawPipelines();
  if (state.selected) drawDetail();
}

function drawTotals() {
  const statuses = [...state.pipelines.values()].map((p) => p.status.state);
  const rows = [...state.streams.values()].reduce((sum, s) => sum + s.status.rows_per_s, 0);
  const failed = statuses.filter((s) => KINDS[s] === "bad").length;
  const facts = [[state.streams.size === 1 ? "stream" : "streams", state.streams.size], [state.pipelines.size === 1 ? "pipeline" : "pipelines", state.pipelines.size], ["rows/s", count(Math.round(rows))], ...(failed ? [["failed", failed]] : [])];
  redraw($("totals"), facts, () => facts.map(([what, value]) => element("div", {}, element("dt", {}, what), element("dd", {}, String(value)))));
}

function drawStreams() {
  const box = $("streams");
  for (const card of [...box.children]) if (!state.streams.has(card.dataset.stream)) card.remove();
  for (const stream of state.streams.values()) {
    let card = [...box.children].find((c) => c.dataset.stream === stream.name);
    const schema = stream.create_sql;
    if (card && card.dataset.schema !== schema) { card.remove(); card = null; }
    if (!card) { card = streamCard(stream); card.dataset.schema = schema; box.append(card); }
    updateStream(card, stream);
  }
}

const PHASES = { planning: "planning", reading: "reading, decoding", ring0: "Ring 0", state: "shuffle, state", sinks: "sinks" };
const CHARTS = [
  { key: "rows", title: "Rows/s", series: (p) => [p.rows], show: (v) => count(Math.round(v)) },
  { key: "mb", title: "MB/s", series: (p) => [p.mb], show: (v) => v.toFixed(v < 10 ? 2 : 1) },
  { key: "phases", title: "Epoch time by phase", wide: true, stacked: true, names: Object.values(PHASES), colors: Object.keys(PHASES).map((k) => `--p-${k}`),
    series: (p) => Object.keys(PHASES).map((k) => (p.phases || {})[k] || 0), show: (v) => `${Math.round(v)} ms` },
  { key: "watermark", title: "Watermark lag", series: (p) => [p.watermark], show: (v) => seconds(v) },
  { key: "state", title: "State size", series: (p) => [p.state], show: (v) => bytes(v) },
  { key: "lag", title: "Waiting input", series: (p) => [p.lag], show: (v) => bytes(v) },
  { key: "bad", title: "Bad and late rows", names: ["bad", "late"], colors: ["--bad", "--warn"], series: (p) => [p.bad, p.late], show: (v) => count(v) },
];

function streamCard(stream) {
  const stage = (key, title, ...inside) => element("div", { class: "stage", "data-stage": key, role: "listitem", "aria-label": title }, element("h3", {}, title), element("div", { class: "facts" }), ...inside);
  const pipe = () => element("div", { class: "pipe", "aria-hidden": "true" });
  const columns = element("div", { class: "columns", role: "group", "aria-label": `declared columns of ${stream.name}; lit ones are decoded` },
    ...stream.columns.map((c) => element("button", { class: "column", type: "button", "data-column": c.name, "aria-pressed": "false", onclick: () => ask(stream.name, c.name) }, c.name)));
  const signal = (key, title) => element("div", {}, element("dt", {}, title), element("dd", { "data-signal": key }));
  return element("section", { class: "card", "data-stream": stream.name, "aria-label": `stream ${stream.name}` },
    element("div", { class: "row" }, element("h2", {}, stream.name), element("span", { class: "pill", "data-state": "" }), element("span", { class: "hint", "data-about": "" })),
    element("div", { class: "failure", hidden: "", role: "alert" }), element("ul", { class: "warnings", hidden: "", role: "status", "aria-label": "warnings" }),
    element("div", { class: "flow", role: "list", "aria-label": `path of a row through ${stream.name}` },
      stage("source", "Source"), pipe(),
      stage("decode", "Columns", columns, element("p", { class: "hint asked", "aria-live": "polite" })), pipe(),
      stage("ring0", "Ring 0: filters, partials", element("div", { class: "families" })), pipe(),
      stage("bridge", "Bridge"), pipe(), stage("ring1", "Ring 1: state"), pipe(), stage("sinks", "Sinks")),
    element("dl", { class: "signals" }, signal("epoch", "Epoch"), signal("watermark", "Watermark"), signal("barrier", "Barrier"), signal("pressure", "Backpressure")),
    element("div", { class: "charts" }, ...CHARTS.map((chart) => chartFigure(stream, chart))));
}

/** Show who asks for a column; asking again for the same one ends it. */
function ask(stream, column) {
  const same = state.asked && state.asked.stream === stream && state.asked.column === column;
  state.asked = same ? null : { stream, column };
  draw();
}

function updateStream(card, stream) {
  const status = stream.status;
  const pill = card.querySelector("[data-state]");
  if (pill.textContent !== status.state) pill.textContent = status.state;
  pill.className = `pill ${KINDS[status.state] || ""}`;
  card.querySelector("[data-about]").textContent = `${stream.source}, ${stream.format}${stream.addresses.length ? `, ${stream.addresses.join(", ")}` : ""}`;
  const failure = card.querySelector(".failure");
  failure.hidden = !status.problem;
  if (status.problem) redraw(failure, [status.problem, status.since, status.attempt, status.next_try], () => failureParts(status.problem, status.since, status.next_try ? `attempt ${status.attempt}, next try ${clock(status.next_try)}` : ""));

  const own = [...state.pipelines.values()].filter((p) => p.stream.toLowerCase() === stream.name.toLowerCase());
  const warnings = [status, ...own.map((p) => p.status)].flatMap((s) => s.warnings || []), shown = warnings.slice(0, WARNINGS_AT_ONCE);
  const list = card.querySelector(".warnings");
  list.hidden = !warnings.length;
  redraw(list, [shown, warnings.length], () => [...shown, ...(warnings.length > shown.length ? [`and ${warnings.length - shown.length} more`] : [])].map((text) => element("li", {}, text)));
  const flow = card.querySelector(".flow");
  flow.classList.toggle("running", status.running);
  flow.classList.toggle("moving", status.running && status.rows_per_s > 0);
  const askers = updateColumns(card, stream);
  updateFamilies(card, own, askers);
  updateStages(card, stream, own);
  updateSignals(card, stream);
  for (const figure of card.querySelectorAll(".chart")) drawChart(figure, state.history.get(stream.name) || []);
}

/** Light the decoded columns; the pipelines that ask for the chosen column, or null when none is chosen. */
function updateColumns(card, stream) {
  const status = stream.status, lit = new Set(status.decoding_columns), askers = new Map();
  for (const [name, columns] of Object.entries(status.subscribers))
    for (const column of columns.includes("*") ? stream.columns.map((c) => c.name) : columns)
      askers.set(column, [...(askers.get(column) || []), name]);
  const next = state.next.get(stream.name.toLowerCase()) || new Set();
  const chosen = state.asked && state.asked.stream === stream.name ? state.asked.column : null;
  const told = (name) => {
    const by = askers.get(name) || [];
    const who = by.slice(0, 12).join(", ") + (by.length > 12 ? ` and ${by.length - 12} more` : "");
    if (!lit.has(name)) return next.has(name) ? `${name}: not decoded; your statement would need it` : `${name}: not decoded, no pipeline needs it`;
    return `${name}: decoded for ${who || "the watermark"}`;
  };
  for (const chip of card.querySelectorAll(".column")) {
    const name = chip.dataset.column;
    chip.classList.toggle("lit", lit.has(name));
    chip.classList.toggle("next", next.has(name) && !lit.has(name));
    chip.setAttribute("aria-pressed", String(name === chosen));
    const text = told(name);
    if (chip.title !== text) { chip.title = text; chip.setAttribute("aria-label", text); }
  }
  const line = card.querySelector(".asked"), text = chosen ? told(chosen) : "Choose a column to see which pipelines need it.";
  if (line.textContent !== text) line.textContent = text;
  card.querySelector(".flow").classList.toggle("asking", chosen !== null);
  return chosen === null ? null : new Set(askers.get(chosen) || []);
}

/** The pipelines hang off Ring 0 by family: those of one family share one pass. */
function updateFamilies(card, own, askers) {
  const families = new Map();
  for (const p of own) {
    const label = p.family || "stateless";
    families.set(label, [...(families.get(label) || []), p]);
  }
  const sorted = [...families].sort((a, b) => b[1].length - a[1].length);
  const facts = sorted.map(([label, members]) => [label, members.slice(0, DOTS_AT_ONCE).map((p) => [p.name, p.status.state, askers !== null && askers.has(p.name)]), members.length]);
  redraw(card.querySelector(".families"), facts, () => facts.map(([label, dots, total]) => element("div", { class: "familyline" },
    element("span", { class: "label" }, label, element("span", { class: "dim" }, ` · ${total} ${total === 1 ? "pipeline" : "pipelines"}`)),
    element("div", { class: "dots" }, ...dots.map(([name, its, asks]) =>
      element("button", { class: `dot ${KINDS[its] || ""} ${asks ? "asker" : ""}`, type: "button", title: `${name}: ${its}`, "aria-label": `${name}: ${its}`, onclick: () => select(name) })),
    total > dots.length ? element("span", { class: "dim" }, `+${total - dots.length}`) : null))));
}

function updateStages(card, stream, own) {
  const status = stream.status, bridge = status.bridge || { sent: {}, received: {} };
  const sum = (key) => own.reduce((total, p) => total + (p.status[key] || 0), 0);
  const sinks = new Map();
  for (const p of own) for (const sink of p.sinks) sinks.set(sink, (sinks.get(sink) || 0) + p.status.rows_out);
  const running = own.filter((p) => p.status.state === "running").length;
  const facts = {
    source: [count(status.rows), "rows read", bytes(status.bytes), ...(status.losses || [])],
    decode: [`${status.decoding_columns.length} of ${stream.columns.length}`, "decoded"],
    ring0: [`${running} of ${own.length}`, "pipelines run"],
    bridge: [count(bridge.sent.rows || 0), "partial rows", `${count(bridge.sent.batches || 0)} batches`, `${count(bridge.sent.watermarks || 0)} watermarks`, `${count(bridge.received.barriers || 0)} barriers`],
    ring1: [bytes(sum("state_bytes")), `${count(sum("groups"))} groups`, sum("late") ? `${count(sum("late"))} late rows` : ""],
    sinks: [count([...sinks.values()].reduce((a, b) => a + b, 0)), "rows out", ...[...sinks].slice(0, 5).map(([name, rows]) => `${name}: ${count(rows)}`), sinks.size > 5 ? `and ${sinks.size - 5} more` : ""],
  };
  for (const [key, lines] of Object.entries(facts)) {
    const wanted = lines.filter(Boolean);
    redraw(card.querySelector(`[data-stage="${key}"] .facts`), wanted, () => wanted.map((line, i) => element("div", { class: i ? "dim" : "big" }, line)));
  }
}

function updateSignals(card, stream) {
  const status = stream.status, gateway = status.gateway || {};
  const past = state.history.get(stream.name) || [], newest = past[past.length - 1] || {};
  const flying = status.epoch_age === null ? "" : `, the next one is ${seconds(status.epoch_age)} old (${status.waiting_for})`;
  const set = (key, text, kind = "") => {
    const cell = card.querySelector(`[data-signal="${key}"]`);
    if (cell.textContent !== text) cell.textContent = text;
    cell.className = kind;
  };
  set("epoch", status.epoch < 0 ? "none yet" : `${count(status.epoch)}${status.epoch_ms === null ? "" : `, ${Math.round(status.epoch_ms)} ms`}${flying}`, status.epoch_age > 30 ? "warn" : "");
  set("watermark", !stream.event_time ? "none declared" : status.watermark ? `${status.watermark.slice(0, 19).replace("T", " ")}, ${seconds(newest.watermark)} behind` : "no row yet");
  set("barrier", status.barrier ? status.barrier.replace("_", " ") : "none since the hub was opened");
  if (gateway.state) {
    const full = gateway.journal_limit ? ` ${Math.round((100 * gateway.journal_bytes) / gateway.journal_limit)} % full` : "";
    set("pressure", `${gateway.state}; journal ${bytes(gateway.journal_bytes || 0)}${full}, paused ${count(gateway.pauses || 0)} times`, gateway.state === "paused" ? "bad" : "");
  } else set("pressure", status.lag_bytes ? `${bytes(status.lag_bytes)} wait` : "none", status.lag_bytes > 256e6 ? "warn" : "");
}

function failureParts(text, when, more = "") {
  const lines = text.split("\n"), found = /^\[([A-Z_0-9]+)\] ?(.*)$/.exec(lines[0]);
  const advice = lines.slice(1).map((l) => l.trim()).filter(Boolean);
  return [
    element("div", { class: "row" }, element("b", {}, found ? found[1] : "FAILED"), element("span", { class: "hint" }, [when ? moment(when) : "", more].filter(Boolean).join(" · "))),
    element("p", {}, found ? found[2] : lines[0]),
    ...(advice.length ? [element("p", { class: "advice" }, advice.join(" "))] : []),
  ];
}

// --- charts --------------------------------------------------------------------------------------

function chartFigure(stream, chart) {
  const canvas = element("canvas", { role: "img", "aria-label": `${chart.title} of ${stream.name}` });
  const figure = element("figure", { class: `chart${chart.wide ? " wide" : ""}`, "data-chart": chart.key },
    element("figcaption", {}, element("span", {}, chart.title), element("b", {})), canvas,
    chart.names ? element("div", { class: "legend" }, ...chart.names.map((name, i) => { const mark = element("i"); mark.style.background = `var(${chart.colors[i]})`; return element("span", {}, mark, name); })) : null);
  canvas.addEventListener("pointermove", (event) => { figure.dataset.at = String(event.offsetX / canvas.clientWidth); drawChart(figure, state.history.get(stream.name) || []); });
  canvas.addEventListener("pointerleave", () => { delete figure.dataset.at; drawChart(figure, state.history.get(stream.name) || []); });
  return figure;
}

/** The top of a chart: a rare spike, such as the first epoch, is cut off so that the rest can be read. */
function ceiling(values) {
  const sorted = [...values].sort((a, b) => a - b), most = sorted.length ? sorted[sorted.length - 1] : 0, usual = sorted[Math.floor(sorted.length * 0.9)] || 0;
  return Math.max(1e-9, sorted.length >= 30 && usual && most > 3 * usual ? 1.3 * usual : most);
}

function drawChart(figure, past) {
  const chart = CHARTS.find((c) => c.key === figure.dataset.chart), canvas = figure.querySelector("canvas");
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width) return;
  if (canvas.width !== Math.round(width * scale)) { canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); }
  const style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const points = past.map((p) => chart.series(p)), total = (p) => (chart.stacked ? p.reduce((a, b) => a + b, 0) : Math.max(...p.map((v) => v ?? 0)));
  const top = ceiling(points.map(total)), x = (i) => width - (points.length - 1 - i) * (width / (KEPT_SAMPLES - 1)), y = (v) => height - 2 - Math.min(1, v / top) * (height - 14);
  pen.strokeStyle = color("--line");
  pen.lineWidth = 1;
  for (const share of [0.5, 1]) { pen.beginPath(); pen.moveTo(0, Math.round(y(top * share)) + 0.5); pen.lineTo(width, Math.round(y(top * share)) + 0.5); pen.stroke(); }
  const lines = points.length ? points[0].length : 0, below = points.map(() => 0);
  for (let line = 0; line < lines; line += 1) {
    const ink = color(chart.colors ? chart.colors[line] : "--water").trim();
    if (chart.stacked) {
      pen.beginPath();
      points.forEach((p, i) => pen.lineTo(x(i), y(below[i] + p[line])));
      for (let i = points.length - 1; i >= 0; i -= 1) pen.lineTo(x(i), y(below[i]));
      points.forEach((p, i) => { below[i] += p[line]; });
      pen.fillStyle = ink;
      pen.fill();
      continue;
    }
    pen.beginPath();
    points.forEach((p, i) => { if (p[line] !== null) pen.lineTo(x(i), y(p[line])); });
    pen.strokeStyle = ink;
    pen.lineWidth = 1.8;
    pen.lineJoin = "round";
    pen.stroke();
    const first = points.findIndex((p) => p[line] !== null);
    if (lines === 1 && first >= 0) {
      pen.lineTo(x(points.length - 1), height); pen.lineTo(x(first), height);
      pen.globalAlpha = 0.12; pen.fillStyle = ink; pen.fill(); pen.globalAlpha = 1;
    }
  }
  pen.fillStyle = color("--dim");
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "bottom";
  if (points.length && top > 1e-9) pen.fillText(chart.show(top), 2, y(top) - 1);
  let index = points.length - 1;
  if (figure.dataset.at !== undefined && points.length) {
    index = Math.min(points.length - 1, Math.max(0, Math.round(points.length - 1 - (1 - Number(figure.dataset.at)) * (KEPT_SAMPLES - 1))));
    pen.strokeStyle = color("--dim");
    pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(x(index), 0); pen.lineTo(x(index), height); pen.stroke();
  }
  const values = points[index];
  const told = !values || values.every((v) => v === null) ? "–" : chart.names && !chart.stacked ? values.map((v) => chart.show(v)).join(" / ") : chart.show(chart.stacked ? total(values) : values[0]);
  const back = figure.dataset.at !== undefined && index < points.length - 1 ? ` ${Math.round(past[past.length - 1].at - past[index].at)} s ago` : "";
  figure.querySelector("b").textContent = told + back;
  canvas.setAttribute("aria-label", `${chart.title}: ${told}`);
}

// --- pipelines -----------------------------------------------------------------------------------

const KINDS = { running: "good", failed: "bad", starting: "warn", created: "warn", stopping: "warn", retrying: "warn", dead: "bad" };
const CELLS = { state: "state", stream: "stream", rows_out: "rows out", late: "late", bad: "bad", missed: "missed", state_bytes: "state", epoch_ms: "ms/epoch" };

function drawPipelines() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...state.pipelines.values()].filter((p) => {
    const text = `${p.name} ${p.status.state} ${p.stream} ${p.family || "stateless"}`.toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const broken = (p) => (KINDS[p.status.state] === "bad" ? 0 : 1);
  const label = (p) => (broken(p) ? p.family || "stateless" : "failed");
  all.sort((a, b) => broken(a) - broken(b) || label(a).localeCompare(label(b)) || a.name.localeCompare(b.name, undefined, { numeric: true }));
  const rows = [], wanted = all.slice(0, state.shown);
  let family = null;
  for (const p of wanted) {
    if (label(p) !== family) { family = label(p); rows.push({ key: `family ${family}`, label: family }); }
    rows.push({ key: `pipeline ${p.name}`, pipeline: p });
  }
  const body = $("pipelines").tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const made = rows.map((row) => {
    const found = known.get(row.key) || (row.pipeline ? pipelineRow(row) : familyRow(row));
    if (row.pipeline) updateRow(found, row.pipeline);
    return found;
  });
  if (made.length !== body.rows.length || made.some((row, i) => row !== body.rows[i])) body.replaceChildren(...made);
  const said = all.length === state.pipelines.size ? `${all.length}` : `${all.length} of ${state.pipelines.size}`;
  if ($("pipeline-count").textContent !== said) $("pipeline-count").textContent = said;
  $("more").hidden = all.length <= state.shown;
  if (!$("more").hidden) $("more").textContent = `Show ${Math.min(SHOWN_AT_ONCE, all.length - state.shown)} more of ${all.length}`;
  $("empty").hidden = all.length > 0;
  $("empty").textContent = state.pipelines.size ? "No pipeline matches the filter." : state.streams.size ? "No pipeline yet. Write one above." : "Nothing is declared yet. Begin with CREATE STREAM above.";
}

function familyRow(row) {
  return element("tr", { class: "family", "data-key": row.key }, element("th", { colspan: 10, scope: "colgroup" }, row.label));
}

function pipelineRow(row) {
  const name = row.pipeline.name;
  const button = (action, text) => element("button", { class: "small", type: "button", "data-action": action, "aria-label": `${text} ${name}`, onclick: () => act(action, name) }, text);
  const cells = Object.entries(CELLS).map(([key, title], i) => element("td", { class: i > 1 ? "n" : "", "data-cell": key, "data-label": title }));
  return element("tr", { "data-key": row.key },
    element("td", {}, element("button", { class: "link", type: "button", "aria-label": `details of ${name}`, onclick: () => select(name) }, name)), ...cells,
    element("td", { class: "actions" }, button("start", "Start"), " ", button("stop", "Stop"), " ", button("drop", "Drop")));
}

function updateRow(row, p) {
  const s = p.status;
  const texts = { stream: p.stream, rows_out: count(s.rows_out), late: count(s.late), bad: count(s.bad), missed: count(s.missed_rows), state_bytes: s.state_bytes ? bytes(s.state_bytes) : "", epoch_ms: s.epoch_ms === null || s.epoch_ms === undefined ? "" : s.epoch_ms.toFixed(1) };
  for (const [key, text] of Object.entries(texts)) {
    const cell = row.querySelector(`[data-cell="${key}"]`);
    if (cell.textContent !== text) cell.textContent = text;
  }
  const code = s.error ? (/^\[([A-Z_0-9]+)\]/.exec(s.error) || [null, ""])[1] : "";
  const change = (s.changes || []).at(-1);
  redraw(row.querySelector('[data-cell="state"]'), [s.state, code, change && change.at], () => [
    element("span", { class: `pill ${KINDS[s.state] || ""}` }, s.state),
    ...(KINDS[s.state] === "bad" ? [element("span", { class: "why" }, [code, change ? clock(change.at * 1000) : ""].filter(Boolean).join(" "))] : []),
  ]);
  row.classList.toggle("chosen", state.selected === p.name);
  const runs = ["running", "starting", "created", "retrying"].includes(s.state);
  row.querySelector('[data-action="start"]').hidden = runs;
  row.querySelector('[data-action="stop"]').hidden = !runs;
}

function confirmed(title, text, yes) {
  const dialog = $("confirm");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = yes;
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.returnValue = "no";
    dialog.showModal();
  });
}

async function act(action, name) {
  const path = `/pipelines/${encodeURIComponent(name)}`;
  if (action === "stop" && !(await confirmed(`Stop ${name}?`, "What came before is in its sinks when it stops. Open windows are kept; rows that pass while it is stopped are missed.", "Stop"))) return;
  if (action === "drop" && !(await confirmed(`Drop ${name}?`, "Its state is deleted. What its sinks have stays there.", "Drop"))) return;
  try {
    await (action === "drop" ? api("DELETE", path) : api("POST", `${path}/${action}`));
  } catch (problem) { answer(problem.message, true); $("answer").scrollIntoView({ block: "center" }); }
}

// --- details of one pipeline ---------------------------------------------------------------------

let opener = null; // what had the focus before the details were opened
function select(name) {
  opener = document.activeElement;
  state.selected = name;
  $("detail-body").replaceChildren();
  $("detail").hidden = false;
  drawDetail();
  drawPipelines();
  $("detail").focus();
}

function closeDetail() {
  if ($("detail").hidden) return;
  state.selected = null;
  $("detail").hidden = true;
  drawPipelines();
  if (opener && opener.isConnected) opener.focus();
}

function part(key, title) {
  let found = $("detail-body").querySelector(`[data-part="${key}"]`);
  if (!found) {
    found = element("section", { "data-part": key }, ...(title ? [element("h3", {}, title)] : []), element("div"));
    $("detail-body").append(found);
  }
  return found.lastElementChild;
}

let fetching = false;
async function drawDetail() {
  const p = state.pipelines.get(state.selected);
  if (!p) { closeDetail(); return; }
  const s = p.status;
  $("detail-title").textContent = p.name;
  $("detail-state").textContent = s.state;
  $("detail-state").className = `pill ${KINDS[s.state] || ""}`;
  const change = (s.changes || []).at(-1);
  const detached = Object.entries(s.detached || {});
  redraw(part("failure"), [s.error, change, detached], () => [
    ...(s.error ? [element("div", { class: "failure", role: "alert" }, ...failureParts(s.error, change ? change.at * 1000 : null))] : []),
    ...detached.map(([sink, why]) => element("div", { class: "failure" }, element("b", {}, `sink ${sink}`), ...failureParts(why, null).slice(1))),
  ]);
  const gaps = (s.gaps || []).length, figures = [["rows in", count(s.rows_in)], ["rows out", count(s.rows_out)], ["late", count(s.late)], ["bad", count(s.bad)], ["missed", count(s.missed_rows)], ["groups", count(s.groups)], ["state", bytes(s.state_bytes)], ...(gaps ? [["gaps", gaps]] : [])];
  redraw(part("figures"), figures, () => [element("dl", { class: "figures" }, ...figures.map(([what, value]) => element("div", {}, element("dt", {}, what), element("dd", {}, String(value)))))]);
  redraw(part("sql", "Statement"), p.sql, () => { const box = element("pre", { class: "out" }); box.append(...colored(p.sql)); return [box]; });
  redraw(part("plan"), p.status.instance, () => [planBox(p.name)]);
  const changes = (s.changes || []).slice(-6).reverse();
  redraw(part("changes", "What happened"), changes, () => [element("ol", { class: "timeline" }, ...changes.map((c) => element("li", {}, c.at ? element("time", {}, moment(c.at * 1000)) : null, [c.state, c.reason.split("\n")[0]].filter(Boolean).join(": "))))]);
  if (p.memory_sink) await drawResults(p);
}

function planBox(name) {
  const box = element("pre", { class: "out" }, "…"), details = element("details", {}, element("summary", {}, "Plan"), box);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    try { box.textContent = (await api("GET", `/pipelines/${encodeURIComponent(name)}/explain`)).text; } catch (problem) { box.textContent = problem.message; }
  });
  return details;
}

async function drawResults(p) {
  const target = part("results", "Newest rows");
  if (fetching) return;
  fetching = true;
  try {
    const rows = await api("GET", `/pipelines/${encodeURIComponent(p.name)}/results?limit=30`);
    if (state.selected !== p.name) return;
    const before = Number(target.dataset.total || rows.total);
    target.dataset.total = String(rows.total);
    redraw(target, [rows.total, rows.rows.length], () => [element("p", { class: "hint" }, `newest ${rows.rows.length} of ${count(rows.total)} rows in the memory sink, newest first`),
      resultTable({ ...rows, rows: rows.rows.reverse() }, rows.total - before)]);
  } catch (problem) { redraw(target, problem.message, () => [element("p", { class: "hint" }, problem.message)]); } finally { fetching = false; }
}

function resultTable(result, fresh = 0) {
  const numeric = result.columns.map((c) => /int|float|double|decimal/.test(c.type));
  const times = result.columns.map((c) => /^timestamp/.test(c.type));
  const text = (v, i) => (v === null ? "" : typeof v === "object" ? JSON.stringify(v) : times[i] ? String(v).replace("T", " ").replace("+00:00", "") : String(v));
  const cell = (v, tag, i) => element(tag, { class: numeric[i] ? "n" : "", title: typeof v === "string" && v.length > 40 ? v : null }, tag === "th" ? v : text(v, i));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "rows" }, element("table", { class: "results" },
    element("thead", {}, element("tr", {}, ...result.columns.map((c, i) => cell(c.name, "th", i)))),
    element("tbody", {}, ...result.rows.map((row, n) => element("tr", { class: n < fresh ? "fresh" : "" }, ...row.map((v, i) => cell(v, "td", i)))))));
}

// --- the SQL box ---------------------------------------------------------------------------------

const TOKENS = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.)*"?)|\b(\d+(?:\.\d+)?)\b|\b(create|or|replace|stream|streams|sink|sinks|pipeline|pipelines|into|as|select|from|where|group|by|having|with|watermark|for|interval|window|session_window|start|stop|drop|show|describe|explain|savepoint|emit|on|close|keep|windows|changes|graceful|now|and|not|null|is|in|like|between|case|when|then|else|end|distinct|filter|if|exists|cast)\b/gi;
const CREATES = /^\s*create\s+(or\s+replace\s+)?pipeline\b/i, PLANNED = /^\s*(create\s+(or\s+replace\s+)?pipeline|select|with)\b/i;

function colored(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKENS)) {
    parts.push(text.slice(at, found.index));
    parts.push(element("span", { class: found[1] ? "c" : found[2] ? "s" : found[3] ? "num" : "k" }, found[0]));
    at = found.index + found[0].length;
  }
  return [...parts, text.slice(at)];
}

function highlight() {
  $("highlight").replaceChildren(...colored($("sql").value), "\n");
  $("highlight").scrollTop = $("sql").scrollTop;
}

const written = () => $("sql").value.trim().replace(/;\s*$/, "");
let previewed = "", timer = null;

function typed() {
  highlight();
  clearTimeout(timer);
  $("run").textContent = "Run";
  timer = setTimeout(() => preview(written()), PREVIEW_AFTER_MS);
}

/** Show what a statement would change, or what is wrong with it, without running it. */
async function preview(text) {
  const box = $("preview");
  if (!text) { previewed = ""; state.next.clear(); box.className = ""; box.replaceChildren(); draw(); return; }
  try {
    const planned = PLANNED.test(text) ? (await api("POST", "/explain", { text })).text : null;
    const checked = planned === null ? await api("POST", "/validate", { text }) : null;
    if (written() !== text) return;
    box.className = "";
    box.replaceChildren(...(planned === null ? [element("p", { class: "hint" }, `${checked.statements} ${checked.statements === 1 ? "statement is" : "statements are"} right and can run.`)] : changes(planned)));
    $("run").textContent = CREATES.test(text) ? "Create pipeline" : "Run";
  } catch (problem) {
    if (written() !== text) return;
    state.next.clear();
    box.className = "error";
    box.replaceChildren(element("pre", {}, problem.message));
  }
  previewed = text;
  draw();
}

/** The parts of an EXPLAIN text that say what would change; the columns it needs are marked in the picture. */
function changes(plan) {
  const line = (pattern) => (pattern.exec(plan) || [null, ""])[1];
  const adding = line(/^ *adding this pipeline: (.*)$/m).split("; ").filter(Boolean);
  const stream = line(/^stream (.*)$/m), needs = [...line(/^ *view .*?: SOME \[(.*)\]$/m).matchAll(/\d+ ([^,]+)/g)].map((f) => f[1]);
  state.next.clear();
  if (stream) state.next.set(stream.toLowerCase(), new Set(needs));
  const told = adding.length ? adding : ["nothing is decoded for it yet: the stream does not run"];
  return [element("h3", {}, "What this would change"), element("ul", {}, ...told.map((text) => element("li", {}, text))),
    element("p", { class: "hint" }, `Runs on: ${line(/^host: (.*)$/m)}`), element("details", {}, element("summary", {}, "Plan"), element("pre", { class: "out" }, plan))];
}

function answer(text, failed = false) {
  $("answer").replaceChildren(element("pre", { class: failed ? "out error" : "out" }, text));
}

function busy(working) {
  for (const id of ["run", "explain"]) $(id).disabled = working;
  $("answer").setAttribute("aria-busy", String(working));
}

async function run() {
  const text = written();
  if (!text || $("run").disabled) return;
  clearTimeout(timer);
  busy(true);
  try {
    if (CREATES.test(text) && previewed !== text) { await preview(text); return; } // shown first; the next press creates it
    const { results } = await api("POST", "/sql", { text });
    $("answer").replaceChildren(...results.map((r) => (r.columns ? resultTable(r) : element("pre", { class: "out" }, [r.text, ...r.warnings.map((w) => `warning: ${w}`)].join("\n")))));
    if (CREATES.test(text)) { $("sql").value = ""; typed(); await preview(""); }
  } catch (problem) { answer(problem.message, true); } finally { busy(false); }
}

async function explain() {
  const text = written();
  if (!text || $("explain").disabled) return;
  busy(true);
  try { answer((await api("POST", "/explain", { text })).text); } catch (problem) { answer(problem.message, true); } finally { busy(false); }
}

// --- words and numbers ---------------------------------------------------------------------------

function count(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 100) return `${value.toFixed(1)} s`;
  if (value < 6000) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
}

const clock = (at) => new Date(at).toLocaleTimeString();
const moment = (at) => new Date(at).toLocaleString();

const THEMES = { system: "◐ system", light: "☀ light", dark: "☾ dark" };
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function theme(wanted) {
  const dark = wanted === "dark" || (wanted === "system" && prefersDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  localStorage.setItem("theme", wanted);
  $("theme").textContent = THEMES[wanted];
  $("theme").setAttribute("aria-label", `Colours: ${wanted}. Press for the next.`);
  draw();
}

theme(localStorage.getItem("theme") in THEMES ? localStorage.getItem("theme") : "system");
prefersDark.addEventListener("change", () => theme(localStorage.getItem("theme")));
$("theme").addEventListener("click", () => { const names = Object.keys(THEMES); theme(names[(names.indexOf(localStorage.getItem("theme")) + 1) % names.length]); });
$("sql").addEventListener("input", typed);
$("sql").addEventListener("scroll", () => { $("highlight").scrollTop = $("sql").scrollTop; });
$("sql").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  else if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); explain(); }
  else if (event.key === "Escape") $("sql").blur();
});
$("run").addEventListener("click", run);
$("explain").addEventListener("click", explain);
$("filter").addEventListener("input", () => { state.shown = SHOWN_AT_ONCE; drawPipelines(); });
$("more").addEventListener("click", () => { state.shown += SHOWN_AT_ONCE; drawPipelines(); });
$("close").addEventListener("click", closeDetail);
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") { closeDetail(); return; }
  if (/^(input|textarea)$/i.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); $("filter").focus(); }
  else if (event.key === "n") { event.preventDefault(); $("sql").focus(); $("sql").scrollIntoView({ block: "center" }); }
});
document.addEventListener("visibilitychange", draw);
window.addEventListener("resize", draw);
highlight();
follow();
