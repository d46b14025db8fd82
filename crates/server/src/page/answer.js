// How an answer is shown: as paragraphs and blocks of code, or token by token with probabilities. Everything is text nodes.

import { bar, byId, copyButton, el } from "./dom.js";

/** The blocks of a text: code between fences, and paragraphs between empty lines. */
function blocks(text) {
  const found = [];
  let lines = [];
  let fence = null;
  const close = () => {
    const content = lines.join("\n");
    if (fence || content.trim()) found.push({ code: fence !== null, language: fence?.language ?? "", text: content });
    lines = [];
    fence = null;
  };
  for (const line of text.split("\n")) {
    const mark = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line);
    if (fence) {
      if (mark && mark[1].startsWith(fence.mark) && line.trim() === mark[1]) close();
      else lines.push(line);
    } else if (mark) {
      close();
      fence = { mark: mark[1], language: mark[2] };
    } else if (line.trim() === "") {
      close();
    } else {
      lines.push(line);
    }
  }
  close();
  return found;
}

/** A paragraph's words, with `code` and **strong** ones set apart. */
function words(text) {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part, index) => {
    if (index % 2 === 0) return part;
    return part.startsWith("`") ? el("code", {}, part.slice(1, -1)) : el("strong", {}, part.slice(2, -2));
  });
}

function shown(block) {
  if (block.code) {
    const code = el("code", {}, block.text);
    const head = el("figcaption", {}, el("span", {}, block.language || "text"), copyButton(() => code.textContent));
    return el("figure", { class: "code" }, head, el("pre", { tabIndex: 0 }, code));
  }
  const heading = /^#{1,6} (.*)$/.exec(block.text);
  return heading ? el("p", { class: "heading" }, words(heading[1])) : el("p", {}, words(block.text));
}

/** A view of a text that grows: only blocks that have changed are made anew. */
export class Prose {
  constructor() {
    this.element = el("div", { class: "prose" });
    this.made = [];
  }

  set(text) {
    const wanted = blocks(text);
    const source = ({ code, language, text }) => `${code}|${language}|${text}`;
    wanted.forEach((block, index) => {
      const now = source(block);
      if (this.made[index]?.source === now) return;
      const node = shown(block);
      if (this.made[index]) this.made[index].node.replaceWith(node);
      else this.element.append(node);
      this.made[index] = { source: now, node };
    });
    this.made.splice(wanted.length).forEach(({ node }) => node.remove());
  }
}

/** What stands beside an answer: what was thought, folded, and calls as code. */
export class Aside {
  constructor() {
    this.thought = el("div", { class: "thought" });
    this.fold = el("details", { hidden: true }, el("summary", {}, "Thoughts"), this.thought);
    this.calls = el("div");
    this.element = el("div", {}, this.fold, this.calls);
  }

  set({ reasoning, calls }) {
    this.fold.hidden = !reasoning;
    if (this.thought.textContent !== (reasoning ?? "")) this.thought.textContent = reasoning ?? "";
    const wanted = calls ?? [];
    const text = ({ name, arguments: given }) => `${name}(${given})`;
    this.calls.replaceChildren(...wanted.map((call) => shown({ code: true, language: "call", text: text(call) })));
  }
}

const percent = (logprob) => {
  const value = Math.exp(logprob) * 100;
  return value >= 99.95 ? "100%" : value >= 0.1 ? `${value.toFixed(1)}%` : "<0.1%";
};

/** A token's text with what cannot be seen spelled. */
const spelled = (token) => JSON.stringify(token).slice(1, -1).replaceAll("\\\"", "\"");

/** A view of tokens, each with what else could have stood in its place. */
export class Tokens {
  constructor() {
    this.element = el("div", {
      class: "tokens",
      tabIndex: 0,
      role: "group",
      "aria-label": "The answer's tokens; left and right arrows go from one to the next",
      onmouseover: ({ target }) => this.point(this.spans.indexOf(target.closest?.(".token"))),
      onmouseleave: () => this.leave(),
      onclick: ({ target }) => this.point(this.spans.indexOf(target.closest?.(".token"))),
      onblur: () => this.leave(),
      onkeydown: (event) => this.move(event),
    });
    this.spans = [];
    this.entries = [];
    this.waiting = [];
    this.at = -1;
  }

  /** Adds text and the tokens that it came with; tokens whose text is held back wait for it. */
  add(text, entries) {
    this.waiting.push(...entries);
    if (!text) return;
    if (this.waiting.length === 0) {
      this.element.append(text);
      return;
    }
    const span = el("span", { class: "token" }, text);
    span.style.setProperty("--doubt", String(1 - Math.min(...this.waiting.map(({ logprob }) => Math.exp(logprob)))));
    this.spans.push(span);
    this.entries.push(this.waiting);
    this.waiting = [];
    this.element.append(span);
  }

  move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || this.spans.length === 0) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(this.spans.length - 1, this.at + step)));
  }

  point(index) {
    if (index < 0) return;
    this.leave();
    this.at = index;
    const span = this.spans[index];
    span.classList.add("at");
    const tip = byId("tip");
    tip.replaceChildren(...this.entries[index].map(choices));
    tip.hidden = false;
    const place = span.getClientRects()[0] ?? span.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = tip;
    const above = place.top - height - 6;
    tip.style.left = `${Math.max(8, Math.min(place.left, window.innerWidth - width - 8))}px`;
    tip.style.top = `${above > 8 ? above : place.bottom + 6}px`;
  }

  leave() {
    this.spans[this.at]?.classList.remove("at");
    byId("tip").hidden = true;
  }
}

function choices(entry) {
  const others = entry.others.length > 0 ? entry.others : [entry];
  const list = others.some(({ token }) => token === entry.token) ? others : [...others, entry];
  const row = ({ token, logprob }) => {
    const own = token === entry.token ? "own" : "";
    return el("li", { class: own }, el("code", {}, spelled(token)), bar(Math.exp(logprob)), el("span", {}, percent(logprob)));
  };
  return el("ol", {}, list.map(row));
}
