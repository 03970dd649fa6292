// The widget of a notebook: carries what is shared, and answers, between the page in its frame and the kernel. JupyterLab
// shows the page by itself, which is then found by the frame's name; where a widget is shown, as in marimo, it makes the
// frame.

import { make } from "../../report/elements.js";

const KEYS = ["seed", "input", "edits"]; // as in notebook.js

function initialize({ model }) {
  const name = model.get("frame");
  const pages = new Set();
  let teller = null; // the page whose change is just taken over
  const tell = (page) => page.postMessage({
    attnlab: name, hasModel: model.get("has_model"), prompt: model.get("prompt"), seeds: model.get("seeds"),
    result: model.get("result"), ...Object.fromEntries(KEYS.map((key) => [key, model.get(key)])),
  }, "*");
  const meet = (page) => {
    pages.add(page);
    tell(page);
  };
  const tellAll = () => pages.forEach((page) => page !== teller && tell(page));
  const hear = ({ source, data }) => {
    if (data?.attnlab !== name) return;
    const changed = KEYS.filter((key) => data[key] !== undefined);
    if (!changed.length) return meet(source);
    teller = source;
    changed.forEach((key) => model.set(key, data[key]));
    teller = null;
    model.save_changes();
  };
  window.addEventListener("message", hear);
  for (const key of [...KEYS, "result"]) model.on(`change:${key}`, tellAll);
  document.querySelectorAll(`iframe[name="${name}"]`).forEach((frame) => meet(frame.contentWindow));
  return () => window.removeEventListener("message", hear);
}

function render({ model, el }) {
  el.append(make("iframe", {
    name: model.get("frame"), srcdoc: model.get("page"), sandbox: "allow-scripts", title: "attention",
    style: `width:100%;height:${model.get("height")}px;border:0`,
  }));
}

export const widget = { initialize, render };
