// The offline page: the view, with the data inside the page as its source. In a notebook it takes edits, too.

import { make } from "../../report/elements.js";
import { mountTheme } from "../../report/theme.js";
import { listenToNotebook } from "./notebook.js";
import { mount } from "./view.js";
import { openEmbedded } from "./wire.js";

mountTheme();
const place = document.getElementById("view");
const source = openEmbedded(document);
mount(place, source).then((view) => listenToNotebook(view, source)).catch((error) => {
  place.replaceChildren(make("p", { class: "failures", role: "alert" }, `The maps cannot be shown: ${error.message}`));
  place.dataset.ready = "failed";
});
