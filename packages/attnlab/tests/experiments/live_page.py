"""A live page without any notebook: the widget's module runs in a blank page."""

import base64
import json

from attnlab.draw.bundle import bundle

CODE = f"{bundle('attnlab/draw/view/modules/widget.js')}export default widget;\n"

# A widget's model as a notebook gives it: what is set is told at once, and kept when it is saved.
MODEL = """([code, given, isRendered]) => {
  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const reviver = (_, value) =>
    value?.bytes === undefined ? value : new DataView(bytesOf(value.bytes).buffer);
  const state = JSON.parse(given, reviver);
  const listeners = {};
  let unsaved = [];
  window.saved = [];
  window.put = (key, text) => {
    state[key] = JSON.parse(text, reviver);
    (listeners[`change:${key}`] ?? []).forEach((hear) => hear());
  };
  const model = {
    get: (key) => state[key],
    set(key, value) {
      unsaved.push([key, value]);
      window.put(key, JSON.stringify(value));
    },
    save_changes() {
      window.saved.push(...unsaved);
      unsaved = [];
    },
    on: (event, hear) => (listeners[event] ??= []).push(hear),
  };
  const file = new Blob([code], { type: "text/javascript" });
  return import(URL.createObjectURL(file)).then(({ default: widget }) => {
    widget.initialize({ model });
    if (isRendered) widget.render({ model, el: document.body });
  });
}"""


class PlainWidget:
    """What anywidget's widget is to `EditableView`: attributes that are observed."""

    def __init__(self, **given):
        vars(self).update({"page": "", "edits": [], "hears": (None, []), **given})

    def observe(self, hear, names):
        vars(self)["hears"] = (hear, names)

    def __setattr__(self, name, value):
        vars(self)[name] = value
        hear, names = self.hears
        if name in names:
            hear(None)


class LivePage:
    """A shown thing in a browser, with its kernel, which answers when it is told to."""

    def __init__(self, page, shown, *, is_rendered=False):
        self.page, self.shown, self.number = page, shown, 0
        page.set_content("" if is_rendered else shown._repr_html_())
        if is_rendered:
            shown._display_()
        state = {name: value for name, value in vars(shown.widget).items() if name != "hears"}
        page.evaluate(MODEL, [CODE, _text(state), is_rendered])
        self.frame = page.frame_locator("iframe")

    def heard(self):
        """Wait for one more change in the page, take it over, and return what it was."""
        self.number += 1
        self.page.wait_for_function("number => window.saved.length >= number", arg=self.number)
        key, value = self.page.evaluate("number => window.saved[number - 1]", self.number)
        setattr(self.shown.widget, key, value)
        return value

    def answer(self):
        """Let the kernel's result come to the page."""
        self.put("result")

    def put(self, *keys):
        for key in keys:
            text = _text(getattr(self.shown.widget, key))
            self.page.evaluate("([key, text]) => window.put(key, text)", [key, text])

    def ask(self, text):
        """Type an input, and let it be answered."""
        field = self.frame.get_by_label("Input", exact=True)
        field.fill(text)
        field.press("Enter")
        assert self.heard() == text
        self.answer()


def _text(value):
    return json.dumps(value, default=lambda each: {"bytes": base64.b64encode(each).decode()})
