// A conversation with a model, in a pane of its own.

import { events } from "./api.js";
import { Aside, Prose, Tokens } from "./answer.js";
import { button, copyButton, el, fit, remember } from "./dom.js";

/** The settings of a request: their names there, and how they are entered. */
const NUMBERS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, hint: "model's own" },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: 0.01, hint: "model's own" },
  { name: "max_tokens", label: "Max tokens", min: 1, step: 1, hint: "until the context is full" },
  { name: "seed", label: "Seed", min: 0, step: 1, hint: "a fresh one" },
];

/** Other likely tokens that are shown beside each. */
const OTHERS = 5;

/** What an answer must be. */
const FORMATS = [["", "any text"], ["json_object", "a JSON object"], ["json_schema", "JSON of a schema"]];

const FIRST = {
  model: "",
  system: "",
  temperature: "",
  top_p: "",
  max_tokens: "1024",
  seed: "",
  format: "",
  schema: "",
  probabilities: false,
};

let panes = 0;

export class Pane {
  constructor(index) {
    this.id = `pane-${(panes += 1)}`;
    this.stored = remember(() => localStorage, `attend.settings.${index}`);
    this.kept = remember(() => sessionStorage, `attend.chat.${index}`);
    this.settings = { ...FIRST, ...this.stored.get() };
    this.messages = this.kept.get() ?? [];
    this.models = [];
    this.running = null;
    this.build();
    this.draw();
  }

  build() {
    const change = (name, value) => {
      this.settings[name] = value;
      this.stored.set(this.settings);
      this.summarize();
    };
    this.select = el("select", { "aria-label": "Model", onchange: () => change("model", this.select.value) });
    this.summary = el("span", { class: "summary" });
    const settings = `${this.id}-settings`;
    this.opener = button("Settings", () => {
      this.form.hidden = !this.form.hidden;
      this.opener.setAttribute("aria-expanded", String(!this.form.hidden));
    }, { "aria-expanded": "false", "aria-controls": settings });
    const system = el("textarea", {
      rows: 2,
      value: this.settings.system,
      placeholder: "What the model is to know or to be; empty: as its template has it",
      oninput: ({ target }) => change("system", target.value),
    });
    const number = ({ name, label, hint, ...range }) =>
      el("label", {}, label, el("input", {
        type: "number",
        name,
        ...range,
        value: this.settings[name],
        placeholder: hint,
        oninput: ({ target }) => change(name, target.validity.valid ? target.value : ""),
      }));
    const schema = el("textarea", {
      rows: 3,
      name: "schema",
      value: this.settings.schema,
      spellcheck: false,
      placeholder: '{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}',
      oninput: ({ target }) => change("schema", target.value),
    });
    const schemaField = el("label", { class: "wide", hidden: this.settings.format !== "json_schema" }, "JSON schema", schema);
    const format = el("select", {
      name: "format",
      onchange: ({ target }) => {
        change("format", target.value);
        schemaField.hidden = target.value !== "json_schema";
      },
    }, FORMATS.map(([value, label]) => el("option", { value, selected: value === this.settings.format }, label)));
    const probabilities = el("input", {
      type: "checkbox",
      name: "probabilities",
      checked: this.settings.probabilities,
      onchange: ({ target }) => change("probabilities", target.checked),
    });
    this.form = el("div", { class: "settings", id: settings, hidden: true },
      el("label", { class: "wide" }, "System prompt", system),
      NUMBERS.map(number),
      el("label", {}, "Answer", format),
      schemaField,
      el("label", { class: "wide check" }, probabilities, "Show how likely each token of the next answers was"));
    const head = el("div", { class: "pane-head" }, this.select, this.summary, this.opener);
    this.log = el("div", { class: "log", role: "log", "aria-label": "Conversation", tabIndex: -1 });
    this.element = el("section", { class: "pane", "aria-label": "A conversation" }, head, this.form, this.log);
    this.summarize();
  }

  /** Says which settings are not the usual ones. */
  summarize() {
    const { system, temperature, top_p, seed, format } = this.settings;
    const said = { temperature, "top-p": top_p, seed };
    const parts = Object.entries(said).filter(([, value]) => value !== "").map(([name, value]) => `${name} ${value}`);
    if (format) parts.unshift(FORMATS.find(([value]) => value === format)?.[1] ?? format);
    if (system) parts.unshift("system prompt");
    if (this.model()?.chat === false) parts.unshift("no chat template: goes on with the text");
    this.summary.textContent = parts.join(", ");
  }

  /** The models that can be chosen. */
  offer(models) {
    this.models = models;
    const wanted = this.settings.model;
    this.select.replaceChildren(...models.map(({ id }) => el("option", { value: id }, id)));
    if (models.some(({ id }) => id === wanted)) this.select.value = wanted;
    this.select.disabled = models.length < 2;
    this.summarize();
    if (this.messages.length === 0) this.draw();
  }

  keep() {
    this.kept.set(this.messages.length > 0 ? this.messages.map(kept) : null);
  }

  clear() {
    this.stop();
    this.messages = [];
    this.keep();
    this.draw();
  }

  /** Takes over another pane's conversation. */
  follow(other) {
    this.messages = other.messages.filter(({ busy }) => !busy).map(kept);
    this.keep();
    this.draw();
  }

  draw() {
    const empty = this.models.length === 0 ? "" : "Ask something. Nothing that is written here leaves this server.";
    this.log.replaceChildren(...this.messages.map((message) => this.view(message)));
    if (this.messages.length === 0) this.log.append(el("p", { class: "empty" }, empty));
    this.log.scrollTop = this.log.scrollHeight;
  }

  view(message) {
    message.body = el("div", { class: "body" });
    message.foot = el("div", { class: "foot" });
    message.element = el("article", { class: `message ${message.role}`, "aria-label": message.role === "user" ? "You" : "Answer" },
      message.body, message.foot);
    if (message.role === "user") {
      message.body.textContent = message.content;
      message.foot.append(button("Edit", () => this.edit(message)), copyButton(() => message.content));
    } else {
      message.aside = new Aside();
      message.aside.set(message);
      message.body.append(message.aside.element);
      if (message.tokens) message.body.append(message.tokens.element);
      else {
        const prose = new Prose();
        prose.set(message.content);
        message.body.append(prose.element);
      }
      this.finish(message);
    }
    return message.element;
  }

  /** What can be done with an answer that is complete. */
  finish(message) {
    message.foot.replaceChildren(
      button("Retry", () => this.retry(message)),
      copyButton(() => message.content),
      el("span", { class: "notes" }, message.notes ?? ""),
    );
    if (message.error) message.body.append(el("p", { class: "error", role: "alert" }, message.error));
  }

  edit(message) {
    const area = el("textarea", { rows: 1, value: message.content, "aria-label": "Edit the message", oninput: () => fit(area) });
    const cancel = () => {
      message.element.replaceWith(this.view(message));
      message.foot.querySelector("button").focus();
    };
    const send = () => {
      const text = area.value;
      if (!text.trim()) return;
      this.cut(message);
      this.send(text);
    };
    area.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      } else if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        send();
      }
    });
    message.body.replaceChildren(area);
    message.foot.replaceChildren(button("Send", send, { class: "main" }), button("Cancel", cancel));
    message.element.classList.add("editing");
    fit(area);
    area.focus();
  }

  /** Edits what was said last. */
  editLast() {
    const last = this.messages.findLast(({ role }) => role === "user");
    if (last) this.edit(last);
  }

  retry(message) {
    this.cut(message);
    this.answer();
  }

  /** Forgets a message and everything behind it. */
  cut(message) {
    this.stop();
    this.messages.splice(this.messages.indexOf(message)).forEach(({ element }) => element.remove());
  }

  send(text) {
    const message = { role: "user", content: text };
    if (this.messages.length === 0) this.log.replaceChildren();
    this.messages.push(message);
    this.log.append(this.view(message));
    return this.answer();
  }

  stop() {
    this.running?.abort();
  }

  model() {
    return this.models.find(({ id }) => id === this.select.value);
  }

  request() {
    const { system, probabilities } = this.settings;
    const model = this.model();
    const body = { model: model?.id, stream: true, stream_options: { include_usage: true } };
    for (const { name } of NUMBERS) if (this.settings[name] !== "") body[name] = Number(this.settings[name]);
    Object.assign(body, responseFormat(this.settings));
    const said = this.messages.filter(({ busy }) => !busy).map(({ role, content }) => ({ role, content }));
    if (system.trim()) said.unshift({ role: "system", content: system });
    if (model?.chat === false) {
      // Without a template there are no roles: the text is gone on with.
      if (probabilities) body.logprobs = OTHERS;
      return ["/v1/completions", { ...body, prompt: said.map(({ content }) => content).join("") }];
    }
    if (probabilities) Object.assign(body, { logprobs: true, top_logprobs: OTHERS });
    return ["/v1/chat/completions", { ...body, messages: said }];
  }

  /** Asks for the next message and shows it while it comes. */
  async answer() {
    this.stop();
    const message = { role: "assistant", content: "", busy: true };
    if (this.settings.probabilities) message.tokens = new Tokens();
    let path, body;
    try {
      [path, body] = this.request();
    } catch (error) {
      message.error = error.message;
      message.busy = false;
    }
    this.messages.push(message);
    this.log.append(this.view(message));
    if (message.error) return this.keep();
    const running = (this.running = new AbortController());
    message.element.classList.add("busy");
    message.element.setAttribute("aria-busy", "true");
    this.log.scrollTop = this.log.scrollHeight;
    window.dispatchEvent(new CustomEvent("work-begins"));
    const prose = message.tokens ? null : new Prose();
    if (prose) message.body.replaceChildren(message.aside.element, prose.element);
    message.foot.replaceChildren(el("span", { class: "notes" }, "reading"));
    const times = { begun: performance.now() };
    const draw = inFrames(() => {
      this.keepInSight(() => {
        prose?.set(message.content);
        message.aside.set(message);
      });
      message.foot.firstChild.textContent = times.first ? "writing" : "reading";
    });
    let end = {};
    try {
      for await (const event of events(path, body, running.signal)) {
        const piece = read(event);
        if (piece.entries.length > 0 || piece.text || piece.reasoning) {
          times.first ??= performance.now();
          times.last = performance.now();
        }
        message.content += piece.text;
        if (piece.reasoning) message.reasoning = (message.reasoning ?? "") + piece.reasoning;
        if (piece.calls) message.calls = added(message.calls ?? [], piece.calls);
        if (message.tokens) this.keepInSight(() => message.tokens.add(piece.text, piece.entries));
        end = { finish: piece.finish ?? end.finish, usage: piece.usage ?? end.usage };
        draw();
      }
    } catch (error) {
      if (error.name === "AbortError") end.finish = "stopped";
      else message.error = error.message;
    }
    draw.end();
    message.notes = notes(end, times);
    message.busy = false;
    message.element.classList.remove("busy");
    message.element.removeAttribute("aria-busy");
    this.keepInSight(() => this.finish(message));
    if (this.running === running) this.running = null;
    this.keep();
    window.dispatchEvent(new CustomEvent("work-ends"));
  }

  /** Changes the log; its end stays in sight if it was. */
  keepInSight(change) {
    const log = this.log;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    change();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }
}

/** What the request says of the answer's form. */
function responseFormat({ format, schema }) {
  if (!format) return {};
  if (format === "json_object") return { response_format: { type: format } };
  let read;
  try {
    read = JSON.parse(schema);
  } catch (error) {
    throw new Error(`The JSON schema in the settings is not valid JSON: ${error.message}`);
  }
  return { response_format: { type: format, json_schema: { name: "answer", schema: read } } };
}

/** Runs work at most once a frame; `end` runs what is due at once. */
function inFrames(work) {
  let due = 0;
  const run = () => {
    due = 0;
    work();
  };
  const draw = () => (due ||= requestAnimationFrame(run));
  draw.end = () => {
    cancelAnimationFrame(due);
    run();
  };
  return draw;
}

/** What is kept of a message. */
const kept = ({ role, content, notes, reasoning, calls }) => ({ role, content, notes, reasoning, calls });

/** Calls with what a delta says of them. */
function added(calls, deltas) {
  for (const { index, function: { name, arguments: given } } of deltas) {
    calls[index] ??= { name: "", arguments: "" };
    calls[index].name += name ?? "";
    calls[index].arguments += given ?? "";
  }
  return calls;
}

/** An event of either kind of completion in one form. */
function read({ choices, usage }) {
  const choice = choices[0];
  if (!choice) return { text: "", entries: [], usage };
  return {
    text: choice.delta?.content ?? choice.text ?? "",
    reasoning: choice.delta?.reasoning_content,
    calls: choice.delta?.tool_calls,
    entries: choice.logprobs ? entries(choice.logprobs) : [],
    finish: choice.finish_reason,
    usage,
  };
}

function entries({ content, tokens, token_logprobs: logprobs, top_logprobs: tops }) {
  if (content) return content.map(({ token, logprob, top_logprobs: others }) => ({ token, logprob, others }));
  const others = (top) => Object.entries(top ?? {}).map(([token, logprob]) => ({ token, logprob }));
  const sorted = (top) => others(top).sort((a, b) => b.logprob - a.logprob);
  return tokens.map((token, index) => ({ token, logprob: logprobs[index] ?? 0, others: sorted(tops?.[index]) }));
}

/** What an answer cost, in words. */
function notes({ finish, usage }, { begun, first, last }) {
  const parts = [];
  if (usage) {
    const { completion_tokens: made, prompt_tokens: read } = usage;
    parts.push(`${read} tokens read, ${made} written`);
    if (made > 1 && last > first) parts.push(`${(((made - 1) * 1000) / (last - first)).toFixed(1)} tokens/s`);
  }
  if (first) parts.push(`first after ${((first - begun) / 1000).toFixed(2)} s`);
  if (finish === "length") parts.push("cut at the limit");
  if (finish === "abort") parts.push("cut by the server");
  if (finish === "stopped") parts.push("stopped");
  return parts.join(" · ");
}
