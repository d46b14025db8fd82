// Requests to the server that the page came from.

import { remember } from "./dom.js";

/** The key: in this tab's storage only. */
export const key = remember(() => sessionStorage, "attend.key");

/** What the server refused, in its words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** What the server answers, whatever it is. */
export async function send(path, body, signal) {
  const headers = {};
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (body) headers["Content-Type"] = "application/json";
  const options = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store" };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the server cannot be reached");
  }
  if (response.status === 401) window.dispatchEvent(new CustomEvent("key-wanted"));
  return response;
}

async function good(response) {
  if (response.ok) return response;
  const text = await response.text();
  let message = text.slice(0, 500);
  try {
    const { error } = JSON.parse(text);
    message = error.message ?? error;
  } catch {
    // The text is all there is.
  }
  throw new Refused(response.status, message || `status ${response.status}`);
}

/** The JSON that a route answers. */
export const ask = async (path, body, signal) => (await good(await send(path, body, signal))).json();

/** What a route answers, as text. */
export const text = async (path) => (await good(await send(path))).text();

/** Whether the server is well; it says so with other statuses than 200, too. */
export const health = async () => (await send("/health")).json();

/** The events of a stream, as they come. */
export async function* events(path, body, signal) {
  const response = await good(await send(path, body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return {};
    });
    if (value === undefined) throw new Refused(0, "the connection was lost before the answer was complete");
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (!data) continue;
      const event = JSON.parse(data);
      if (event.error) throw new Refused(response.status, event.error.message);
      yield event;
    }
  }
}
