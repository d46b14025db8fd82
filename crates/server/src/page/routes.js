// Every route of the server as it describes them itself, and a form to try each.

import { ask, send } from "./api.js";
import { asks, button, copyButton, el, fit } from "./dom.js";

/** The most letters of an answer that are shown. */
const SHOWN = 200_000;

/** What a field of a request may hold, to begin with. */
const EXAMPLES = {
  prompt: "The sky is blue because",
  messages: [{ role: "user", content: "Why is the sky blue?" }],
  max_tokens: 64,
  max_completion_tokens: 64,
  input: "The house is wonderful.",
  inputs: "The house is wonderful.",
  query: "Where does it rain?",
  documents: ["It rains in Spain.", "The sun shines."],
  texts: ["It rains in Spain.", "The sun shines."],
  labels: ["weather", "sports"],
  question: "Where does it rain?",
  context: "It rains in Spain.",
  ids: [1, 2, 3],
  tools: [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } } }],
  response_format: { type: "json_object" },
  stream: true,
  id: 0,
  options: { num_predict: 64 },
};
const OBJECTS = { "/similarity": { source_sentence: "It rains.", sentences: ["It pours.", "The sun shines."] } };

/** A value that a schema allows. */
function value(schema) {
  if (schema.oneOf) return value(schema.oneOf[0]);
  if (schema.type === "integer" || schema.type === "number") return schema.minimum > 0 ? schema.minimum : Math.min(1, schema.maximum ?? 1);
  if (schema.type === "array") return schema.items ? [value(schema.items)] : [];
  if (schema.type === "object") return Object.fromEntries((schema.required ?? []).map((name) => [name, EXAMPLES[name] ?? value(schema.properties[name])]));
  return { string: "", boolean: true }[schema.type] ?? null;
}

/** What ends an answer that would go on to the end of the context. */
const ENDS = ["max_tokens", "max_completion_tokens"];

/** A type in words. */
function type(schema) {
  if (schema.oneOf) return schema.oneOf.map(type).join(" or ");
  if (schema.type === "array") return schema.items ? `list of ${type(schema.items)}` : "list";
  const range = schema.minimum !== undefined && schema.maximum < 1e9 ? ` ${schema.minimum} to ${schema.maximum}` : "";
  return { string: "text", boolean: "true or false", integer: "whole number", number: "number", object: "object" }[schema.type] + range;
}

const pretty = (body) => JSON.stringify(body, null, 2);

/** One route: its form, and its last answer. */
class Route {
  constructor(method, path, { summary, requestBody }) {
    Object.assign(this, { method, path, running: null });
    this.schema = requestBody?.content["application/json"].schema;
    this.out = el("div", { class: "out" });
    this.stopper = button("Stop", () => this.stop(), { class: "stop", hidden: true });
    this.body = this.schema && el("textarea", { class: "code", rows: 6, spellcheck: false, oninput: () => fit(this.body) });
    const form = el("form", asks(() => this.ask()),
      el("h3", { class: "call" }, el("span", { class: `method ${method}` }, method.toUpperCase()), path), el("p", { class: "about" }, summary),
      this.body && el("label", {}, "Body", this.body),
      el("div", { class: "row" }, copyButton(() => this.command(), "Copy as curl"), this.stopper, el("button", { type: "submit", class: "main" }, "Send")),
      this.schema?.properties && this.fields());
    this.element = el("div", { class: "task route" }, form, this.out);
  }

  /** The fields of the body; a click puts one into it. */
  fields() {
    const { properties, required } = this.schema;
    const row = ([name, schema]) => {
      const add = button(name, () => this.add(name, schema), { title: "Put it into the body" });
      return el("tr", {}, el("th", { scope: "row" }, add), el("td", {}, type(schema), required.includes(name) ? el("b", {}, ", required") : null));
    };
    return el("table", { class: "fields" }, el("tbody", {}, Object.entries(properties).map(row)));
  }

  example(name, schema, models) {
    if (name === "model") return models[0]?.id ?? "";
    return OBJECTS[this.path] && name === "inputs" ? OBJECTS[this.path] : EXAMPLES[name] ?? value(schema);
  }

  offer(models) {
    this.models = models;
    if (!this.body || this.body.value) return;
    const { properties, required } = this.schema;
    if (!properties) {
      this.body.value = pretty(value(this.schema));
      return;
    }
    const offered = [...(models.length > 1 ? ["model"] : []), ...required, ...ENDS, ...(properties.stream ? ["options"] : [])];
    const names = [...new Set(offered)].filter((name) => properties[name]);
    this.body.value = pretty(Object.fromEntries(names.map((name) => [name, this.example(name, properties[name], models)])));
  }

  add(name, schema) {
    try {
      const body = JSON.parse(this.body.value || "{}");
      body[name] ??= this.example(name, schema, this.models);
      this.body.value = pretty(body);
      fit(this.body);
      this.body.focus();
    } catch (error) {
      this.say(el("p", { class: "error", role: "alert" }, `the body is no JSON: ${error.message}`));
    }
  }

  /** Its path, with the first model's name where one stands in it. */
  address() {
    return this.path.replace("{name}", encodeURI(this.models[0]?.id ?? ""));
  }

  /** The same for a command line. */
  command() {
    const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;
    return `curl ${quoted(location.origin + this.address())}${this.body ? ` -d ${quoted(this.body.value)}` : ""}`;
  }

  say(...children) {
    this.out.replaceChildren(...children);
  }

  stop() {
    this.running?.abort();
  }

  async ask() {
    this.stop();
    let body;
    try {
      body = this.body && JSON.parse(this.body.value);
    } catch (error) {
      this.say(el("p", { class: "error", role: "alert" }, `the body is no JSON: ${error.message}`));
      return;
    }
    const running = (this.running = new AbortController());
    const begun = performance.now();
    const head = el("p", { class: "notes", role: "status" }, "waiting");
    const text = el("pre");
    this.stopper.hidden = false;
    this.say(head, el("figure", { class: "code" }, text));
    window.dispatchEvent(new CustomEvent("work-begins"));
    try {
      const response = await send(this.address(), body, running.signal);
      const kind = response.headers.get("content-type") ?? "";
      const said = () => `${response.status} ${response.statusText}, ${Math.round(performance.now() - begun)} ms, ${kind}`;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let whole = "";
      for (;;) {
        const { value: piece } = await reader.read();
        if (piece === undefined) break;
        whole += piece;
        head.textContent = said();
        if (!kind.startsWith("application/json") && whole.length < SHOWN) text.textContent = whole;
      }
      head.textContent = said();
      head.classList.toggle("error", !response.ok);
      const shown = kind.startsWith("application/json") ? pretty(JSON.parse(whole)) : whole;
      text.textContent = shown.length > SHOWN ? `${shown.slice(0, SHOWN)}\n… and ${shown.length - SHOWN} more letters` : shown;
    } catch (error) {
      head.textContent = error.name === "AbortError" ? "stopped" : error.message;
      head.classList.add("error");
    }
    if (this.running === running) {
      this.running = null;
      this.stopper.hidden = true;
      window.dispatchEvent(new CustomEvent("work-ends"));
    }
  }
}

/** The panel: a list of the routes, and the one that is open. */
export class Routes {
  constructor(element) {
    this.list = el("nav", { class: "list paths", "aria-label": "Routes" });
    this.place = el("div", { class: "place" });
    this.models = [];
    this.routes = null;
    element.append(this.list, this.place);
  }

  offer(models) {
    this.models = models;
    this.routes?.forEach((route) => route.offer(models));
  }

  /** Reads what there is, once. */
  async load() {
    if (this.routes) return;
    try {
      const { paths } = await ask("/openapi.json");
      const one = ([path, methods]) => Object.entries(methods).map(([method, described]) => new Route(method, path, described));
      this.routes = Object.entries(paths).flatMap(one).sort((a, b) => Number(a.method < b.method) - Number(a.method > b.method));
      this.offer(this.models);
      this.show(this.routes.find(({ path }) => path === "/v1/chat/completions") ?? this.routes[0]);
    } catch (error) {
      this.place.replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
    }
  }

  show(open) {
    const twice = ({ path }) => this.routes.filter((route) => route.path === path).length > 1;
    const choose = (route) => button(twice(route) ? `${route.method.toUpperCase()} ${route.path}` : route.path, () => {
      this.show(route);
      this.list.querySelector("[aria-current]").focus();
    }, { title: route.method.toUpperCase(), "aria-current": route === open ? "true" : undefined });
    this.list.replaceChildren(...this.routes.map(choose));
    this.place.replaceChildren(open.element);
    if (open.body) fit(open.body);
  }

  stop() {
    this.routes?.forEach((route) => route.stop());
  }
}
