// The widget of a notebook: carries edits and answers between the page in its frame and the kernel. JupyterLab shows the
// page by itself, which is then found by the frame's name; where a widget is shown, as in marimo, it makes the frame.

import { make } from "../../report/elements.js";

function initialize({ model }) {
  const name = model.get("frame");
  const pages = new Set();
  let teller = null; // the page whose edits are just taken over
  const tell = (page) => page.postMessage({
    attnlab: name, hasModel: model.get("has_model"), edits: model.get("edits"), result: model.get("result"),
  }, "*");
  const tellAll = () => pages.forEach((page) => page !== teller && tell(page));
  const hear = ({ source, data }) => {
    if (data?.attnlab !== name) return;
    pages.add(source);
    if (!data.edits) tell(source);
    else {
      teller = source;
      model.set("edits", data.edits);
      teller = null;
      model.save_changes();
    }
  };
  window.addEventListener("message", hear);
  model.on("change:edits", tellAll);
  model.on("change:result", tellAll);
  document.querySelectorAll(`iframe[name="${name}"]`).forEach((frame) => tell(frame.contentWindow));
  return () => window.removeEventListener("message", hear);
}

function render({ model, el }) {
  el.append(make("iframe", {
    name: model.get("frame"), srcdoc: model.get("page"), sandbox: "allow-scripts", title: "attention",
    style: `width:100%;height:${model.get("height")}px;border:0`,
  }));
}

export const widget = { initialize, render };
