// Elements from values. Strings become text, never HTML.

/** An element with properties (`on...` are listeners, `class`, `data-...` and `aria-...` attributes) and children. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "class" || key === "role" || key === "for") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A button that does something. */
export const button = (text, onclick, properties = {}) => el("button", { type: "button", ...properties, onclick }, text);

/** A button that copies what `text` gives, and says so. */
export function copyButton(text, label = "Copy") {
  const copy = button(label, async () => {
    try {
      await navigator.clipboard.writeText(text());
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = label), 1200);
  });
  return copy;
}

/** The listeners of a form that asks when it is sent, and at Ctrl+Enter anywhere in it. */
export const asks = (ask) => ({
  onsubmit: (event) => {
    event.preventDefault();
    ask();
  },
  onkeydown: (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  },
});

/** Grows a text area with its text. */
export function fit(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, window.innerHeight * 0.4)}px`;
}

/** A bar of a share between 0 and 1. */
export function bar(share) {
  const inner = el("span");
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, inner);
}

/** Storage that may be forbidden or full: then nothing is remembered. */
export function remember(storage, name) {
  return {
    get() {
      try {
        return JSON.parse(storage().getItem(name));
      } catch {
        return null;
      }
    },
    set(value) {
      try {
        if (value === null) storage().removeItem(name);
        else storage().setItem(name, JSON.stringify(value));
      } catch {
        // Nothing depends on it.
      }
    },
  };
}
