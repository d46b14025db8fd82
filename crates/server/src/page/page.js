// The page: panes of chat, the tasks, the server's state, the key and the theme.

import { key } from "./api.js";
import { Pane } from "./chat.js";
import { byId, el, fit, remember } from "./dom.js";
import { watch } from "./live.js";
import { Routes } from "./routes.js";
import { Tasks } from "./tasks.js";

let models = [];
const panes = [new Pane(0)];
const tasks = new Tasks(byId("tasks"));
const routes = new Routes(byId("routes"));
byId("panes").append(panes[0].element);

// Tabs.

const TABS = ["chat", "tasks", "routes"];

function open(name, focus = false) {
  for (const tab of TABS) {
    const selected = tab === name;
    byId(tab).hidden = !selected;
    byId(`tab-${tab}`).setAttribute("aria-selected", String(selected));
    byId(`tab-${tab}`).tabIndex = selected ? 0 : -1;
  }
  if (focus) byId(`tab-${name}`).focus();
  if (name === "routes") routes.load();
}

for (const name of TABS) {
  byId(`tab-${name}`).addEventListener("click", () => open(name));
  byId(`tab-${name}`).addEventListener("keydown", ({ key }) => {
    const step = { ArrowLeft: TABS.length - 1, ArrowRight: 1 }[key];
    if (step) open(TABS[(TABS.indexOf(name) + step) % TABS.length], true);
  });
}

// Under this address the page begins with the routes.
const atRoutes = location.pathname === "/docs";
if (atRoutes) open("routes");

// Models.

// What a model can do is known once it has been loaded; one that never was may be asked to chat, and is loaded for it.
const writes = ({ tasks, status }) => tasks?.includes("run") || (!tasks && status === "unloaded");

watch((found) => {
  const first = models.length === 0;
  models = found;
  panes.forEach((pane) => pane.offer(models.filter(writes)));
  tasks.offer(models);
  routes.offer(models);
  const silent = models.every(({ status, tasks }) => status === "ready" && !tasks?.includes("run"));
  if (first && models.length > 0 && silent && !atRoutes) open("tasks");
  byId("prompt").placeholder = silent ? "No model here writes on; see Tasks" : "Message";
});

// Writing.

const prompt = byId("prompt");
const busy = () => panes.some(({ running }) => running);

function showBusy() {
  byId("stop").hidden = !busy();
  byId("send").hidden = busy();
}

function stop() {
  panes.forEach((pane) => pane.stop());
  tasks.stop();
  routes.stop();
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value;
  if (!text.trim() || busy()) return;
  prompt.value = "";
  fit(prompt);
  panes.forEach((pane) => pane.send(text));
});

prompt.addEventListener("input", () => fit(prompt));
prompt.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    byId("composer").requestSubmit();
  } else if (event.key === "ArrowUp" && prompt.value === "" && panes.length === 1 && !busy()) {
    event.preventDefault();
    panes[0].editLast();
  }
});

byId("stop").addEventListener("click", () => {
  stop();
  prompt.focus();
});
byId("fresh").addEventListener("click", () => {
  panes.forEach((pane) => pane.clear());
  prompt.focus();
});
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("key-dialog").open) stop();
});
window.addEventListener("work-begins", showBusy);
window.addEventListener("work-ends", showBusy);

byId("compare").addEventListener("click", () => {
  if (panes.length === 1) {
    const second = new Pane(1);
    second.follow(panes[0]);
    second.offer(models.filter(writes));
    panes.push(second);
    byId("panes").append(second.element);
  } else {
    const second = panes.pop();
    second.clear();
    second.element.remove();
  }
  byId("compare").setAttribute("aria-pressed", String(panes.length === 2));
  byId("panes").classList.toggle("two", panes.length === 2);
  showBusy();
  prompt.focus();
});

// The key.

const dialog = byId("key-dialog");

function askForKey() {
  if (dialog.open) return;
  byId("key-value").value = key.get() ?? "";
  dialog.showModal();
}

byId("key").addEventListener("click", askForKey);
byId("key-cancel").addEventListener("click", () => dialog.close());
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(byId("key-value").value.trim() || null);
  dialog.close();
  window.dispatchEvent(new CustomEvent("key-changed"));
  if (!byId("routes").hidden) routes.load();
});

// The first request that is refused asks; later ones say so where they are.
let asked = false;
window.addEventListener("key-wanted", () => {
  if (!asked) askForKey();
  asked = true;
});

// The theme.

const theme = remember(() => localStorage, "attend.theme");
const THEMES = { auto: "dark", dark: "light", light: "auto" };

function dress(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  byId("theme").replaceChildren(el("span", { class: "swatch", "aria-hidden": "true" }), name[0].toUpperCase() + name.slice(1));
  byId("theme").setAttribute("aria-label", `Theme: ${name}`);
}

const chosen = () => (theme.get() in THEMES ? theme.get() : "auto");
byId("theme").addEventListener("click", () => {
  theme.set(THEMES[chosen()]);
  dress(chosen());
});
dress(chosen());
