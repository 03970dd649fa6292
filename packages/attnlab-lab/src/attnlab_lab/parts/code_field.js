// A field for Python: a plain one, and the editor with colors and line numbers in its place once that is loaded.
//
// The editor is CodeMirror, a file of its own that only the page of a server has. It stands in a shadow root, where
// its styles are adopted and the page's content policy need not allow more. Both fields hold the same text: every
// line break is \n, and nothing else is changed.

import { make } from "attnlab/draw/report/elements.js";
import { AS_TYPED } from "./controls.js";

export const CODE_INDENT = "    ";

// words: { label, hint, plain } (the last is shown where the editor cannot be loaded); changed() is called when
// something is typed, check() on Ctrl and Enter.
export function makeCodeField(words, { changed, check }) {
  const look = { rows: 22, ...AS_TYPED, autocapitalize: "off", "aria-describedby": "answer-hint" };
  const plain = make("textarea", { id: "answer-code", ...look });
  plain.addEventListener("input", changed);
  plain.addEventListener("keydown", (event) => {
    event.stopPropagation(); // no key of the room
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) check();
  });
  const label = make("label", { for: plain.id }, words.label);
  const hint = make("p", { class: "note", id: "answer-hint" }, words.hint);
  const field = { root: make("div", { class: "setting code-field" }, label, plain, hint), code: plain, mark() {} };
  import("./codemirror.js").then(take).catch(() => (hint.textContent = words.plain));
  return {
    root: field.root,
    get code() {
      return field.code.value;
    },
    set code(text) {
      field.code.value = text;
    },
    mark: (line) => field.mark(line),
  };

  function take(codemirror) {
    const { host, view, open, mark } = makeEditor(codemirror, words, { changed, check });
    const { value, selectionStart, selectionEnd } = plain;
    const isFocused = document.activeElement === plain;
    open(value, { anchor: selectionStart, head: selectionEnd });
    label.removeAttribute("for");
    label.addEventListener("click", () => view.focus());
    plain.replaceWith(host);
    if (isFocused) view.focus();
    field.mark = mark;
    field.code = {
      get value() {
        return view.state.doc.toString();
      },
      set value(text) {
        open(text);
      },
    };
  }
}

function makeEditor(codemirror, words, { changed, check }) {
  const { EditorState, EditorView, StateEffect, keymap } = codemirror;
  const host = make("div", { class: "code-editor" });
  const root = host.attachShadow({ mode: "open" });
  const markEffect = StateEffect.define();
  const view = new EditorView({ root, parent: root });
  root.append(make("p", { id: "hint", hidden: true }, words.hint)); // what it is described by must be in its tree
  host.addEventListener("keydown", (event) => event.stopPropagation()); // no key of the room

  const run = (act) => () => {
    act();
    return true;
  };
  const keys = [
    { key: "Ctrl-Enter", run: run(check) },
    { key: "Meta-Enter", run: run(check) },
    { key: "Escape", run: run(() => view.setTabFocusMode(true)) },
    { key: "Tab", run: indent, shift: codemirror.indentLess },
  ];
  const extensions = [
    keymap.of([...keys, ...codemirror.historyKeymap, ...codemirror.defaultKeymap]),
    codemirror.history(),
    codemirror.lineNumbers(),
    codemirror.highlightSpecialChars(),
    codemirror.bracketMatching(),
    codemirror.indentOnInput(),
    codemirror.indentUnit.of(CODE_INDENT),
    codemirror.pythonLanguage,
    codemirror.syntaxHighlighting(highlightOf(codemirror)),
    EditorState.tabSize.of(4),
    EditorView.lineWrapping,
    EditorView.theme(EDITOR_LOOK),
    EditorView.contentAttributes.of({ "aria-label": words.label, "aria-describedby": "hint" }),
    EditorView.updateListener.of((update) => update.docChanged && changed()),
    EditorView.domEventHandlers({
      focus: () => view.setTabFocusMode(false),
      drop: ({ dataTransfer }) => dataTransfer.types.includes("Files"), // the page opens them
      beforeinput: typeOver,
    }),
    markField(codemirror, markEffect),
  ];

  // A text of its own history.
  function open(text, selection) {
    view.setState(EditorState.create({ doc: text, selection, extensions }));
  }

  function mark(line) {
    view.dispatch({ effects: markEffect.of(line) });
  }

  return { host, view, open, mark };

  // Chromium would keep the look of what is typed over in inline styles, which the content policy refuses.
  function typeOver({ inputType, data }) {
    if (inputType !== "insertText" || view.composing || view.state.selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(data), { scrollIntoView: true, userEvent: "input.type" });
    return true;
  }

  function indent(target) {
    if (!target.state.selection.main.empty) return codemirror.indentMore(target);
    target.dispatch(target.state.replaceSelection(CODE_INDENT), { scrollIntoView: true, userEvent: "input" });
    return true;
  }
}

// The line that a check named, which moves with what is typed above it.
function markField({ Decoration, EditorView, StateField }, markEffect) {
  const markOfLine = Decoration.line({ class: "marked" });
  return StateField.define({
    create: () => Decoration.none,
    update(marks, { changes, effects, state: { doc } }) {
      const told = effects.find((effect) => effect.is(markEffect));
      if (!told) return marks.map(changes);
      const isThere = told.value >= 1 && told.value <= doc.lines;
      return isThere ? Decoration.set(markOfLine.range(doc.line(told.value).from)) : Decoration.none;
    },
    provide: (field) => EditorView.decorations.from(field),
  });
}

function highlightOf({ HighlightStyle, tags }) {
  const { comment, keyword, number, string, bool, function: function_, definition, variableName, className } = tags;
  return HighlightStyle.define([
    { tag: comment, color: "var(--muted)", fontStyle: "italic" },
    { tag: [keyword, tags.operatorKeyword, tags.self, tags.meta], color: "var(--hue-2)" },
    { tag: [number, bool, tags.null], color: "var(--hue-1)" },
    { tag: [string, tags.special(string)], color: "var(--hue-3)" },
    { tag: [function_(variableName), function_(definition(variableName))], color: "var(--hue-0)" },
    { tag: [className, definition(className)], color: "var(--hue-4)" },
  ]);
}

const EDITOR_LOOK = {
  "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--surface)", fontSize: "0.8125rem" },
  "&.cm-focused": { outline: "none" }, // its frame shows the focus
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { padding: "0.6rem 0", caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--muted)", borderRight: "1px solid var(--rule)" },
  ".cm-line": { padding: "0 0.8rem 0 0.5rem" },
  ".cm-line.marked": { backgroundColor: "var(--failed-wash)", boxShadow: "inset 3px 0 var(--failed)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--wash)", boxShadow: "0 0 0 1px var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--failed-wash)", boxShadow: "0 0 0 1px var(--failed)" },
  ".cm-specialChar": { color: "var(--failed)" },
};
