// The offline page: the view, with the data inside the page as its source.

import { make } from "../../report/elements.js";
import { mountTheme } from "../../report/theme.js";
import { mount } from "./view.js";
import { openEmbedded } from "./wire.js";

mountTheme();
const place = document.getElementById("view");
mount(place, openEmbedded(document)).catch((error) => {
  place.replaceChildren(make("p", { class: "failures", role: "alert" }, `The maps cannot be shown: ${error.message}`));
  place.dataset.ready = "failed";
});
