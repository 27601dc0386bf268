"use strict";
// The live page of a hub. It reads the REST API and nothing else; everything it shows is what really happened.

const $ = (id) => document.getElementById(id);
const SHOWN_AT_ONCE = 100; // rows of the pipeline table: the page stays quick with hundreds
const KEPT_SAMPLES = 180;
const state = { streams: new Map(), pipelines: new Map(), history: new Map(), shown: SHOWN_AT_ONCE, selected: null, last: null };

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

function login() {
  const dialog = $("login");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { sessionStorage.setItem("token", $("token").value); resolve(); }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
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
    } catch (problem) { /* the hub is away: shown below, and tried again */ }
    connection("not connected, trying again", "bad");
    await new Promise((wake) => setTimeout(wake, 1000));
  }
}

function connection(text, kind) { const pill = $("connection"); pill.textContent = text; pill.className = `pill ${kind}`; }

// --- samples -------------------------------------------------------------------------------------

async function sample(found) {
  state.last = found.id;
  await declarations(found);
  for (const [name, status] of Object.entries(found.streams)) {
    const known = state.streams.get(name);
    if (!known) continue;
    known.status = status;
    const past = state.history.get(name) || [];
    const own = Object.values(found.pipelines).filter((p) => p.stream.toLowerCase() === name.toLowerCase());
    past.push({
      rows: status.rows_per_s, mb: status.mb_per_s, epoch: status.epoch_ms || 0, lag: status.lag_bytes,
      watermark: status.watermark ? Math.max(0, found.at - Date.parse(status.watermark) / 1000) : 0,
      state: own.reduce((sum, p) => sum + p.state_bytes, 0),
      bad: Object.values(status.bad).reduce((a, b) => a + b, 0), late: own.reduce((sum, p) => sum + p.late, 0),
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
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

function draw() { drawStreams(); drawPipelines(); if (state.selected) drawDetail(); }

function drawStreams() {
  const box = $("streams");
  for (const card of [...box.children]) if (!state.streams.has(card.dataset.stream)) card.remove();
  for (const stream of state.streams.values()) {
    let card = [...box.children].find((c) => c.dataset.stream === stream.name);
    if (!card) { card = streamCard(stream); box.append(card); }
    updateStream(card, stream);
  }
  if (!state.streams.size && !box.children.length) box.replaceChildren();
}

function streamCard(stream) {
  const stage = (key, title) => element("div", { class: "stage", "data-stage": key }, element("h3", {}, title), element("div", { class: "facts" }));
  const columns = element("div", { class: "columns", role: "list", "aria-label": `columns of ${stream.name}` },
    ...stream.columns.map((c) => element("span", { class: "column", role: "listitem", "data-column": c.name }, c.name)));
  const decode = stage("decode", "Decoded columns");
  decode.append(columns);
  const chart = (key, title) => element("div", { class: "chart" }, element("span", { class: "dim" }, `${title} `), element("b", { "data-figure": key }),
    element("canvas", { "data-chart": key, role: "img", "aria-label": `${title} over the last minutes`, width: 320, height: 56 }));
  return element("section", { class: "card", "data-stream": stream.name, "aria-label": `stream ${stream.name}` },
    element("div", { class: "row" }, element("h2", {}, `stream ${stream.name}`), element("span", { class: "pill", "data-state": "" })),
    element("p", { class: "problem", hidden: "" }), element("p", { class: "warning", hidden: "" }),
    element("div", { class: "flow" }, stage("source", "Source"), decode, stage("ring0", "Filter and aggregate (Ring 0)"), stage("ring1", "State (Ring 1)"), stage("sinks", "Sinks")),
    element("div", { class: "charts" }, chart("rows", "rows/s"), chart("mb", "MB/s"), chart("epoch", "epoch ms"), chart("watermark", "watermark lag s"),
      chart("lag", "waiting bytes"), chart("state", "state bytes"), chart("bad", "bad records"), chart("late", "late rows")));
}

const pipelinesOf = (stream) => [...state.pipelines.values()].filter((p) => p.stream.toLowerCase() === stream.name.toLowerCase());

function updateStream(card, stream) {
  const status = stream.status;
  const pill = card.querySelector("[data-state]");
  pill.textContent = status.state;
  pill.className = `pill ${status.problem ? "bad" : status.running ? "good" : ""}`;
  const problem = card.querySelector(".problem");
  problem.hidden = !status.problem;
  problem.textContent = status.problem;
  const warning = card.querySelector(".warning"), told = [status, ...pipelinesOf(stream).map((p) => p.status)].flatMap((s) => s.warnings || []);
  warning.hidden = !told.length;
  warning.textContent = told.map((w) => `warning: ${w}`).join("\n");
  const askers = new Map();
  for (const [name, columns] of Object.entries(status.subscribers))
    for (const column of columns.includes("*") ? stream.columns.map((c) => c.name) : columns)
      askers.set(column, [...(askers.get(column) || []), name]);
  const lit = new Set(status.decoding_columns);
  for (const chip of card.querySelectorAll(".column")) {
    const name = chip.dataset.column, on = lit.has(name), by = askers.get(name) || [];
    chip.classList.toggle("lit", on);
    const who = by.slice(0, 8).join(", ") + (by.length > 8 ? ` and ${by.length - 8} more` : "");
    chip.title = on ? `${name}: decoded for ${who || "the watermark"}` : `${name}: not decoded`;
    chip.setAttribute("aria-label", chip.title);
  }
  const own = pipelinesOf(stream);
  const families = new Set(own.filter((p) => p.family).map((p) => p.family));
  const facts = {
    source: [stream.source, `${stream.format}, epoch ${status.epoch}`, ...stream.addresses, `${count(status.rows)} rows`, ...(status.losses || [])],
    decode: [`${lit.size} of ${stream.columns.length}`],
    ring0: [`${own.length} pipelines`, `${families.size} shared passes at most`],
    ring1: [bytes(own.reduce((sum, p) => sum + p.status.state_bytes, 0)), `${count(own.reduce((sum, p) => sum + p.status.groups, 0))} groups`,
      status.watermark ? `watermark ${status.watermark.slice(0, 19).replace("T", " ")}` : "no watermark"],
    sinks: [`${count(own.reduce((sum, p) => sum + p.status.rows_out, 0))} rows`, [...new Set(own.flatMap((p) => p.sinks))].slice(0, 6).join(", ")],
  };
  for (const [key, lines] of Object.entries(facts)) {
    const target = card.querySelector(`[data-stage="${key}"] .facts`);
    const wanted = lines.filter(Boolean);
    if (target.dataset.text === wanted.join("\n")) continue;
    target.dataset.text = wanted.join("\n");
    target.replaceChildren(...wanted.map((line, i) => element("div", { class: i ? "dim" : "big" }, line)));
  }
  const past = state.history.get(stream.name) || [];
  for (const canvas of card.querySelectorAll("canvas")) {
    const key = canvas.dataset.chart, values = past.map((p) => p[key]);
    const newest = values.length ? values[values.length - 1] : 0;
    card.querySelector(`[data-figure="${key}"]`).textContent = key === "state" || key === "lag" ? bytes(newest) : count(newest);
    line(canvas, values);
  }
}

function line(canvas, values) {
  const pen = canvas.getContext("2d"), { width, height } = canvas;
  const style = getComputedStyle(document.documentElement);
  pen.clearRect(0, 0, width, height);
  if (values.length < 2) return;
  const top = Math.max(...values, 1e-9);
  pen.beginPath();
  values.forEach((value, i) => {
    const x = width - (values.length - 1 - i) * (width / (KEPT_SAMPLES - 1)), y = height - 3 - (value / top) * (height - 8);
    if (i) pen.lineTo(x, y); else pen.moveTo(x, y);
  });
  pen.strokeStyle = style.getPropertyValue("--water");
  pen.lineWidth = 2;
  pen.stroke();
}

const KINDS = { running: "good", failed: "bad", starting: "warn", stopping: "warn", retrying: "warn", dead: "bad" };

function drawPipelines() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...state.pipelines.values()].filter((p) => {
    const text = `${p.name} ${p.status.state} ${p.stream} ${p.family || "stateless"}`.toLowerCase();
    return words.every((w) => text.includes(w));
  });
  all.sort((a, b) => (a.family || "").localeCompare(b.family || "") || a.name.localeCompare(b.name));
  const rows = [], wanted = all.slice(0, state.shown);
  let family = null;
  for (const p of wanted) {
    const label = p.family || "stateless";
    if (label !== family) { family = label; rows.push({ key: `family ${label}`, label }); }
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
  $("pipeline-count").textContent = `${all.length} of ${state.pipelines.size}`;
  $("more").hidden = all.length <= state.shown;
}

function familyRow(row) {
  return element("tr", { class: "family", "data-key": row.key }, element("td", { colspan: 10 }, row.label));
}

function pipelineRow(row) {
  const name = row.pipeline.name;
  const button = (action, text) => element("button", { class: "small", type: "button", "data-action": action, "aria-label": `${text} ${name}`, onclick: () => act(action, name) }, text);
  const cells = ["state", "stream", "rows_out", "late", "bad", "missed", "state_bytes", "epoch_ms"].map((key, i) => element("td", { class: i > 1 ? "n" : "", "data-cell": key }));
  return element("tr", { "data-key": row.key },
    element("td", {}, element("button", { class: "link", type: "button", onclick: () => select(name) }, name)), ...cells,
    element("td", {}, button("start", "Start"), " ", button("stop", "Stop"), " ", button("drop", "Drop")));
}

function updateRow(row, p) {
  const s = p.status;
  const texts = { stream: p.stream, rows_out: count(s.rows_out), late: count(s.late), bad: count(s.bad), missed: count(s.missed_rows), state_bytes: bytes(s.state_bytes), epoch_ms: s.epoch_ms === null ? "" : s.epoch_ms.toFixed(1) };
  for (const [key, text] of Object.entries(texts)) {
    const cell = row.querySelector(`[data-cell="${key}"]`);
    if (cell.textContent !== text) cell.textContent = text;
  }
  const cell = row.querySelector('[data-cell="state"]');
  if (cell.textContent !== s.state) cell.replaceChildren(element("span", { class: `pill ${KINDS[s.state] || ""}`, title: s.error }, s.state));
  const runs = ["running", "starting", "created"].includes(s.state);
  row.querySelector('[data-action="start"]').hidden = runs;
  row.querySelector('[data-action="stop"]').hidden = !runs;
}

// --- actions -------------------------------------------------------------------------------------

function confirmed(text) {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.returnValue = "no";
    dialog.showModal();
  });
}

async function act(action, name) {
  const path = `/pipelines/${encodeURIComponent(name)}`;
  if (action === "stop" && !(await confirmed(`Stop ${name}? Its open windows are kept; rows that pass meanwhile are missed.`))) return;
  if (action === "drop" && !(await confirmed(`Drop ${name}? Its state is deleted.`))) return;
  try {
    await (action === "drop" ? api("DELETE", path) : api("POST", `${path}/${action}`));
  } catch (problem) { answer(problem.message, true); }
}

function answer(text, failed = false) {
  $("answer").replaceChildren(element("pre", { class: failed ? "out error" : "out" }, text));
}

function resultTable(result) {
  const cells = (row, tag) => row.map((v) => element(tag, {}, v === null ? "" : typeof v === "object" ? JSON.stringify(v) : String(v)));
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...cells(result.columns.map((c) => c.name), "th"))),
    element("tbody", {}, ...result.rows.map((row) => element("tr", {}, ...cells(row, "td"))))));
}

async function run(explain) {
  const text = $("sql").value.trim().replace(/;\s*$/, "");
  if (!text) return;
  $("run").disabled = $("explain").disabled = true;
  try {
    if (explain) answer((await api("POST", "/explain", { text })).text);
    else {
      const { results } = await api("POST", "/sql", { text });
      $("answer").replaceChildren(...results.map((r) => (r.columns ? resultTable(r) : element("pre", { class: "out" }, r.text))));
    }
  } catch (problem) { answer(problem.message, true); }
  $("run").disabled = $("explain").disabled = false;
}

function select(name) {
  state.selected = name;
  $("detail").hidden = false;
  drawDetail();
  $("detail").scrollIntoView({ block: "nearest" });
}

let fetching = false;
async function drawDetail() {
  const p = state.pipelines.get(state.selected);
  if (!p) { $("detail").hidden = true; state.selected = null; return; }
  if (fetching) return;
  fetching = true;
  const s = p.status, parts = [element("pre", { class: "out" }, p.sql)];
  if (s.error) parts.push(element("p", { class: "problem" }, s.error));
  const changes = (s.changes || []).slice(-5).map((c) => `${new Date(c.at * 1000).toLocaleString()}  ${c.state}: ${c.reason.split("\n")[0]}`);
  if (changes.length) parts.push(element("pre", { class: "out" }, changes.join("\n")));
  if (p.memory_sink) {
    try {
      const rows = await api("GET", `/pipelines/${encodeURIComponent(p.name)}/results?limit=20`);
      parts.push(element("p", { class: "hint" }, `newest ${rows.rows.length} of ${rows.total} rows`), resultTable({ ...rows, rows: rows.rows.reverse() }));
    } catch (problem) { parts.push(element("p", { class: "problem" }, problem.message)); }
  }
  fetching = false;
  if (state.selected !== p.name) return;
  $("detail-title").textContent = `pipeline ${p.name}`;
  $("detail-body").replaceChildren(...parts);
}

// --- the SQL box ---------------------------------------------------------------------------------

const TOKENS = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.)*"?)|\b(\d+(?:\.\d+)?)\b|\b(create|or|replace|stream|sink|pipeline|into|as|select|from|where|group|by|having|with|watermark|for|interval|window|session_window|start|stop|drop|show|describe|explain|savepoint|emit|on|close|changes|graceful|now|and|not|null|is|in|like|between|case|when|then|else|end|distinct|filter|if|exists)\b/gi;

function highlight() {
  const text = $("sql").value, target = $("highlight"), parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKENS)) {
    parts.push(text.slice(at, found.index));
    parts.push(element("span", { class: found[1] ? "c" : found[2] ? "s" : found[3] ? "num" : "k" }, found[0]));
    at = found.index + found[0].length;
  }
  target.replaceChildren(...parts, text.slice(at), "\n");
  target.scrollTop = $("sql").scrollTop;
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

function theme(wanted) {
  document.documentElement.dataset.theme = wanted;
  localStorage.setItem("theme", wanted);
}

theme(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
$("sql").addEventListener("input", highlight);
$("sql").addEventListener("scroll", highlight);
$("sql").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(false); }
  else if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); run(true); }
});
$("run").addEventListener("click", () => run(false));
$("explain").addEventListener("click", () => run(true));
$("filter").addEventListener("input", drawPipelines);
$("more").addEventListener("click", () => { state.shown += SHOWN_AT_ONCE; drawPipelines(); });
$("close").addEventListener("click", () => { state.selected = null; $("detail").hidden = true; });
highlight();
follow();
