// The tasks beside chat: a form for each, and what its answer looks like.

import { ask } from "./api.js";
import { asks, bar, button, copyButton, el, fit } from "./dom.js";

const lines = (text) => text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
const three = (number) => number.toFixed(3);

/** Names with scores, as bars. */
function scores(rows, most = 1) {
  const row = ([name, score, after]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, bar(score / most)), el("td", { class: "number" }, three(score)), after && el("td", {}, after));
  return el("table", { class: "scores" }, el("tbody", {}, rows.map(row)));
}

const labels = (entry) => scores(entry.labels.map(({ label, score }) => [label, score]));

/** Each input with what was found in it. */
const each = (texts, data, show) =>
  data.map((entry) => el("section", { class: "found" }, el("h4", {}, texts[entry.index]), show(entry, texts[entry.index])));

/** A text with parts of it marked; places are counted in code points. */
function marked(text, parts) {
  const letters = [...text];
  const pieces = [];
  let at = 0;
  for (const { start, end, label, title } of [...parts].sort((a, b) => a.start - b.start)) {
    if (start < at) continue;
    pieces.push(letters.slice(at, start).join(""), el("mark", { title }, letters.slice(start, end).join(""), label && el("small", {}, label)));
    at = end;
  }
  return el("p", { class: "marked" }, pieces, letters.slice(at).join(""));
}

/** How alike vectors are, each with each. */
function likeness(texts, vectors) {
  const length = (vector) => Math.hypot(...vector) || 1;
  const cosine = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0) / (length(a) * length(b));
  const cell = (value) => {
    const cell = el("td", { class: "number heat" }, value.toFixed(2));
    cell.style.setProperty("--share", String(Math.max(0, value)));
    return cell;
  };
  const head = el("tr", {}, el("td"), texts.map((_, index) => el("th", { scope: "col" }, index + 1)));
  const rows = vectors.map((vector, index) =>
    el("tr", {}, el("th", { scope: "row", title: texts[index] }, `${index + 1}  ${texts[index]}`), vectors.map((other) => cell(cosine(vector, other)))));
  return el("div", { class: "wide-table" }, el("table", { class: "likeness" }, el("thead", {}, head), el("tbody", {}, rows)));
}

/**
 * The tasks by the names that models list. A field is entered as lines, a longer text or a short one, or chosen;
 * `body` makes a request of what was entered, `show` elements of the answer.
 */
const TASKS = {
  embed: {
    title: "Embeddings",
    about: "The vector of each text, and how alike they are (cosine).",
    path: "/v1/embeddings",
    fields: [
      { name: "texts", label: "Texts, one a line", kind: "area", value: "A man is eating.\nSomebody has lunch.\nIt rains in Spain." },
      { name: "role", label: "Read as", kind: "choice", options: { "": "plain texts", query: "queries", document: "documents" } },
    ],
    body: ({ texts, role }) => ({ input: lines(texts), ...(role && { input_type: role }) }),
    show: ({ data }, { texts }) => {
      const vectors = data.map(({ embedding }) => embedding);
      return [likeness(lines(texts), vectors), el("p", { class: "row" }, `${vectors.length} vectors of ${vectors[0].length} numbers`, copyButton(() => JSON.stringify(vectors)))];
    },
  },
  rerank: {
    title: "Rerank",
    about: "Which documents answer a query, the best first.",
    path: "/v1/rerank",
    fields: [
      { name: "query", label: "Query", kind: "line", value: "How do I bake bread?" },
      { name: "documents", label: "Documents, one a line", kind: "area", value: "Mix flour, water and yeast.\nStocks fell on Monday.\nAn oven gets hot." },
    ],
    body: ({ query, documents }) => ({ query, documents: lines(documents) }),
    show: ({ results }, { documents }) => {
      const most = Math.max(...results.map(({ relevance_score: score }) => Math.abs(score)), 1e-9);
      return scores(results.map(({ index, relevance_score: score }) => [lines(documents)[index], score]), Math.max(most, 1));
    },
  },
  classify: {
    title: "Classify",
    about: "The labels of each text.",
    path: "/v1/classify",
    fields: [{ name: "texts", label: "Texts, one a line", kind: "area", value: "What a lovely day." }],
    body: ({ texts }) => ({ input: lines(texts), top: 10 }),
    show: ({ data }, { texts }) => each(lines(texts), data, labels),
  },
  tag: {
    title: "Tag",
    about: "Labels of a text's parts.",
    path: "/v1/tag",
    fields: [{ name: "texts", label: "Texts, one a line", kind: "area", value: "My name is Clara and I live in Berkeley." }],
    body: ({ texts }) => ({ input: lines(texts) }),
    show: ({ data }, { texts }) =>
      data.map(({ index, entities }) =>
        marked(lines(texts)[index], entities.map(({ start, end, entity, score }) => ({ start, end, label: entity, title: `${entity} ${three(score)}` })))),
  },
  fill: {
    title: "Fill",
    about: "The likeliest tokens for each gap, which is the model's mask token: [MASK] or <mask>.",
    path: "/v1/fill",
    fields: [{ name: "texts", label: "Texts, one a line", kind: "area", value: "Paris is the [MASK] of France." }],
    body: ({ texts }) => ({ input: lines(texts) }),
    show: ({ data }, { texts }) =>
      each(lines(texts), data, ({ masks }) => masks.map((mask) => scores(mask.map(({ token, score }) => [token, score])))),
  },
  answer: {
    title: "Answer",
    about: "Answers to a question, as parts of a text.",
    path: "/v1/answer",
    fields: [
      { name: "question", label: "Question", kind: "line", value: "Where does Clara live?" },
      { name: "context", label: "Text", kind: "area", value: "My name is Clara and I live in Berkeley, near the bay." },
    ],
    body: ({ question, context }) => ({ question, context, top: 3 }),
    show: ({ data }, { context }) => {
      const { answers } = data[0];
      return [
        marked(context, answers.slice(0, 1).map(({ start, end, score }) => ({ start, end, title: three(score) }))),
        scores(answers.map(({ text, score }) => [text, score])),
      ];
    },
  },
  "zero-shot": {
    title: "Zero-shot",
    about: "Labels of your own, judged by a model of entailment.",
    path: "/v1/zero-shot",
    fields: [
      { name: "texts", label: "Texts, one a line", kind: "area", value: "The new phone has a brilliant screen." },
      { name: "labels", label: "Labels, with commas between", kind: "line", value: "technology, cooking, politics" },
      { name: "several", label: "Several may hold", kind: "flag" },
    ],
    body: ({ texts, labels, several }) => ({
      input: lines(texts),
      labels: labels.split(",").map((label) => label.trim()).filter((label) => label !== ""),
      multi_label: several,
    }),
    show: ({ data }, { texts }) => each(lines(texts), data, labels),
  },
  translate: {
    title: "Translate",
    about: "Each line in another language. Which codes a model knows is in its documentation; some have but one pair.",
    path: "/v1/translate",
    fields: [
      { name: "texts", label: "Texts, one a line", kind: "area", value: "The house is wonderful." },
      { name: "source", label: "From", kind: "line", value: "" },
      { name: "target", label: "To", kind: "line", value: "" },
    ],
    body: ({ texts, source, target }) => ({
      input: lines(texts),
      ...(source.trim() && { source_lang: source.trim() }),
      ...(target.trim() && { target_lang: target.trim() }),
    }),
    show: ({ data }, { texts }) => each(lines(texts), data, ({ text }) => el("p", { class: "made" }, text)),
  },
  summarize: {
    title: "Summarize",
    about: "The text in fewer words.",
    path: "/v1/summarize",
    fields: [{ name: "text", label: "Text", kind: "area", value: "" }],
    body: ({ text }) => ({ input: text }),
    show: ({ data }) => data.map(({ text }) => el("p", { class: "made" }, text)),
  },
};

/** An element to enter a field with, and how to read it. */
function field({ label, kind, value, options }) {
  let input;
  if (kind === "area") input = el("textarea", { rows: 4, value, oninput: () => fit(input) });
  else if (kind === "choice") input = el("select", {}, Object.entries(options).map(([value, label]) => el("option", { value }, label)));
  else if (kind === "flag") input = el("input", { type: "checkbox" });
  else input = el("input", { type: "text", value });
  const read = () => (kind === "flag" ? input.checked : input.value);
  const element = kind === "flag" ? el("label", { class: "check" }, input, label) : el("label", {}, label, input);
  return { element, read };
}

/** One task: its form, and its last answer. */
class Task {
  constructor(task) {
    this.task = task;
    this.running = null;
    this.select = el("select");
    this.fields = task.fields.map((description) => ({ name: description.name, ...field(description) }));
    this.run = el("button", { type: "submit", class: "main" }, "Run");
    this.out = el("div", { class: "out", "aria-live": "polite" });
    const form = el("form", asks(() => this.ask()),
      el("p", { class: "about" }, task.about), el("label", {}, "Model", this.select), this.fields.map(({ element }) => element),
      el("div", { class: "row" }, el("span", { class: "hint" }, el("kbd", {}, "Ctrl"), "+", el("kbd", {}, "Enter"), " runs"), this.run));
    this.element = el("div", { class: "task" }, form, this.out);
  }

  offer(models) {
    const before = this.select.value;
    this.select.replaceChildren(...models.map(({ id }) => el("option", { value: id }, id)));
    if (models.some(({ id }) => id === before)) this.select.value = before;
  }

  stop() {
    this.running?.abort();
  }

  async ask() {
    this.stop();
    const running = (this.running = new AbortController());
    const values = Object.fromEntries(this.fields.map(({ name, read }) => [name, read()]));
    this.element.setAttribute("aria-busy", "true");
    window.dispatchEvent(new CustomEvent("work-begins"));
    const begun = performance.now();
    try {
      const answer = await ask(this.task.path, { model: this.select.value, ...this.task.body(values) }, running.signal);
      const took = `${((performance.now() - begun) / 1000).toFixed(2)} s`;
      const tokens = answer.usage ? ` · ${answer.usage.total_tokens} tokens` : "";
      const cut = (answer.data ?? answer.results).some(({ truncated }) => truncated) ? " · a text was cut" : "";
      this.out.replaceChildren(...[this.task.show(answer, values)].flat(), el("p", { class: "notes" }, took + tokens + cut));
    } catch (error) {
      const message = error.name === "AbortError" ? "stopped" : error.message;
      this.out.replaceChildren(el("p", { class: "error", role: "alert" }, message));
    }
    if (this.running === running) {
      this.running = null;
      this.element.removeAttribute("aria-busy");
      window.dispatchEvent(new CustomEvent("work-ends"));
    }
  }
}

/** The panel: a list of the tasks that some model can do, and the one that is open. */
export class Tasks {
  constructor(element) {
    this.list = el("nav", { class: "list", "aria-label": "Tasks" });
    this.place = el("div", { class: "place" });
    this.made = new Map();
    this.open = null;
    element.append(this.list, this.place);
  }

  offer(models) {
    const able = (name) => models.filter(({ tasks }) => tasks?.includes(name));
    const names = Object.keys(TASKS).filter((name) => able(name).length > 0);
    for (const name of names) {
      if (!this.made.has(name)) this.made.set(name, new Task(TASKS[name]));
      this.made.get(name).offer(able(name));
    }
    if (names.length === 0) {
      this.list.replaceChildren();
      this.place.replaceChildren(el("p", { class: "empty" }, "No model here does any of these tasks."));
      return;
    }
    this.show(names, names.includes(this.open) ? this.open : names[0]);
  }

  show(names, open) {
    this.open = open;
    const choose = (name) => button(TASKS[name].title, () => {
      this.show(names, name);
      this.list.querySelector("[aria-current]").focus();
    }, { "aria-current": name === open ? "true" : undefined });
    this.list.replaceChildren(...names.map(choose));
    const { element } = this.made.get(open);
    if (this.place.firstChild !== element) this.place.replaceChildren(element);
  }

  stop() {
    this.made.forEach((task) => task.stop());
  }
}
