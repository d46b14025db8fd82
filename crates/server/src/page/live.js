// The state of the server: what it does at the moment, and the models that it has.

import { ask, health, text } from "./api.js";
import { bar, byId, el } from "./dom.js";

/** Milliseconds between two looks while something runs, and while nothing does. */
const BUSY = 1000;
const IDLE = 5000;

/** The figures of Prometheus' text that the page shows, by model. */
const SHOWN = {
  attend_model_loaded: "loaded",
  attend_model_bytes: "memory",
  attend_requests_running: "running",
  attend_requests_waiting: "waiting",
  attend_kv_tokens: "held",
  attend_kv_tokens_limit: "room",
  attend_kv_bytes: "bytes",
  attend_preemptions_total: "preemptions",
  attend_generated_tokens_total: "generated",
  attend_embedded_tokens_total: "embedded",
  attend_time_to_first_token_seconds_count: "first",
  attend_inter_token_latency_seconds_count: "next",
};

/** The value of a label as the text format writes it. */
const unescaped = (label) => label.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));

export function parse(lines) {
  const models = new Map();
  for (const line of lines.split("\n")) {
    const found = /^([a-z_]+)\{model="((?:[^"\\]|\\.)*)"\} (\S+)$/.exec(line);
    if (!found || !SHOWN[found[1]]) continue;
    const name = unescaped(found[2]);
    if (!models.has(name)) models.set(name, { name });
    models.get(name)[SHOWN[found[1]]] = Number(found[3]);
  }
  return [...models.values()].sort((a, b) => a.name.localeCompare(b.name));
}

const grouped = (number) => Math.round(number).toLocaleString("en");
const mebibytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

/** Looks at the server again and again; `onmodels` is called when the models or what they can do have changed. */
export function watch(onmodels) {
  let before = null;
  // What was told of the models, and whether it still holds.
  let told = "";
  let known = "";
  let timer = 0;
  let looking = false;
  // Which models are in memory.
  let there = "";

  async function models() {
    const { data } = await ask("/v1/models");
    const now = JSON.stringify(data.map(({ id, status, tasks, chat }) => [id, status, tasks, chat]));
    if (now !== told) onmodels(data);
    told = known = now;
  }

  async function look() {
    clearTimeout(timer);
    if (looking) return;
    looking = true;
    let pause = IDLE;
    try {
      const { status } = await health();
      if (status !== "ok") {
        known = "";
        pause = BUSY;
      }
      show(status);
      if (!known) await models();
      if (draw(parse(await text("/metrics")))) pause = BUSY;
    } catch (error) {
      before = null;
      byId("figures").replaceChildren();
      show(error.status === 401 ? "key wanted" : error.status === 0 ? "unreachable" : "failing");
      byId("state").replaceChildren(el("p", {}, error.message));
    }
    looking = false;
    if (!document.hidden) timer = setTimeout(look, pause);
  }

  function show(status) {
    byId("status").textContent = status === "ok" ? "ready" : status;
    byId("dot").dataset.status = status;
  }

  /** Shows the figures; true while there is work. */
  function draw(figures) {
    const present = figures.filter(({ loaded }) => loaded).map(({ name }) => name).join("\n");
    if (present !== there) known = "";
    there = present;
    const sum = (name) => figures.reduce((sum, model) => sum + (model[name] ?? 0), 0);
    const now = { time: performance.now(), tokens: sum("first") + sum("next") };
    const rate = before && now.time > before.time ? ((now.tokens - before.tokens) * 1000) / (now.time - before.time) : 0;
    before = now;
    const [running, waiting, held, room] = ["running", "waiting", "held", "room"].map(sum);
    const share = room > 0 ? held / room : 0;
    const figure = (name, value) => el("span", { class: "figure" }, el("b", {}, value), ` ${name}`);
    byId("figures").replaceChildren(
      figure("running", grouped(running)),
      figure("queued", grouped(waiting)),
      el("span", { class: "figure" }, bar(share), el("b", {}, `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`), " KV"),
      figure("tokens/s", rate >= 10 || rate === 0 ? grouped(rate) : rate.toFixed(1)),
    );
    byId("state").replaceChildren(table(figures));
    return running + waiting > 0;
  }

  const again = () => {
    known = "";
    look();
  };
  document.addEventListener("visibilitychange", () => !document.hidden && look());
  window.addEventListener("key-changed", again);
  for (const name of ["work-begins", "work-ends"]) window.addEventListener(name, look);
  byId("live").addEventListener("click", () => {
    const hidden = (byId("state").hidden = !byId("state").hidden);
    byId("live").setAttribute("aria-expanded", String(!hidden));
  });
  look();
}

function table(models) {
  const columns = [
    ["Model", ({ name }) => name],
    ["Memory", ({ loaded, memory }) => (loaded ? mebibytes(memory ?? 0) : "not loaded")],
    ["Running", ({ running }) => grouped(running ?? 0)],
    ["Queued", ({ waiting }) => grouped(waiting ?? 0)],
    ["KV tokens", ({ held, room }) => `${grouped(held ?? 0)} of ${grouped(room ?? 0)}`],
    ["KV bytes", ({ bytes }) => mebibytes(bytes ?? 0)],
    ["Generated", ({ generated }) => grouped(generated ?? 0)],
    ["Read for tasks", ({ embedded }) => grouped(embedded ?? 0)],
    ["Put back", ({ preemptions }) => grouped(preemptions ?? 0)],
  ];
  const head = el("tr", {}, columns.map(([title]) => el("th", { scope: "col" }, title)));
  const rows = models.map((model) => el("tr", {}, columns.map(([title, value]) => el("td", { "data-title": title }, value(model)))));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, rows));
}
