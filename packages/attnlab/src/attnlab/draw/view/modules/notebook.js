// The page in the frame of a notebook. If the widget of widget.js answers, the page is live: what is typed, chosen and
// edited is told to the kernel, and what its model makes of that is shown. Without a kernel it is as in a file.

// What page and kernel agree on, each of them free to change it: the seed that is chosen, the input that is asked, the
// edits as JSON. A result of the kernel names the three that it answers.
const SHARED = ["seed", "input", "edits"];
const SILENT = { error: "There is no answer yet. If the kernel was restarted, run the cell again." };
const PATIENCE = 8000; // milliseconds until it is said

// makeParts(offer, change) is called once, when a kernel is there, and returns the parts of the page that are live. The
// offer is { hasModel, prompt, seeds }, where the prompt says what can be typed, if anything can; change({ input, … })
// tells the kernel; a part has take(state, result), where the result is null as long as the kernel computes.
export function listenToNotebook(makeParts) {
  const { name } = window;
  if (window.parent === window || !name.startsWith("attnlab-")) return;
  const tell = (message) => window.parent.postMessage({ attnlab: name, ...message }, "*");
  let state = null;
  let latest = null; // the answer to it
  let timer = null;
  let parts = null;
  const show = (result) => {
    clearTimeout(timer);
    latest = result;
    if (!result) timer = setTimeout(() => show(SILENT), PATIENCE);
    parts.forEach((part) => part.take(state, result));
  };
  const change = (changes) => {
    const next = { ...state, ...changes };
    if (isEqual(next, state)) return parts.forEach((part) => part.take(state, latest));
    state = next;
    tell(changes);
    return show(null);
  };
  window.addEventListener("message", ({ source, data }) => {
    if (source !== window.parent || data?.attnlab !== name) return;
    state = sharedOf(data);
    parts ??= makeParts(data, change);
    show(isEqual(sharedOf(data.result), state) ? data.result : null); // or it answers earlier ones
  });
  tell({});
}

function sharedOf(message) {
  return Object.fromEntries(SHARED.map((key) => [key, message[key]]));
}

function isEqual(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
