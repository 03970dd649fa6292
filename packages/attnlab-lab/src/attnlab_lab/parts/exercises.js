// The exercises by chapter: which are solved, the one that is open, those before and after it; a word finds any of them.

import { make } from "attnlab/draw/report/elements.js";
import { COURSE_WORDS } from "../words_course.js";
import { makeSetting, makeTyped } from "./controls.js";

const SIGNS = { new: "○", begun: "◐", solved: "●" };

// linkTo(name): the address of an exercise; more: what stands beside the links.
export function makeExercises(linkTo, ...more) {
  const place = make("p", { class: "exercise-place", tabindex: -1 });
  const before = make("a", { class: "button" }, COURSE_WORDS.before);
  const after = make("a", { class: "button" }, COURSE_WORDS.after);
  const summary = make("summary", {});
  const goOn = make("p", {});
  const find = makeTyped("find-exercise");
  const none = make("p", { class: "note", role: "status" });
  const list = make("div", { class: "chapters" });
  const all = make("details", { class: "all-exercises" }, summary, goOn, makeSetting(COURSE_WORDS.find, find, none), list);
  const root = make("nav", { "aria-label": COURSE_WORDS.exercises, hidden: true },
    make("div", { class: "bar" }, place, before, after, ...more), all);

  find.addEventListener("input", choose);
  find.addEventListener("keydown", (event) => {
    const first = list.querySelector("section:not([hidden]) li:not([hidden]) a");
    if (event.key === "Enter" && first) first.click();
  });

  // Shows the exercises whose title, name or chapter holds what is typed.
  function choose() {
    const wanted = find.value.trim().toLowerCase();
    for (const chapter of list.children) {
      for (const item of chapter.querySelectorAll("li")) item.hidden = !item.dataset.words.includes(wanted);
      chapter.hidden = !chapter.querySelector("li:not([hidden])");
    }
    none.textContent = list.querySelector("section:not([hidden])") ? "" : COURSE_WORDS.noneFound(find.value.trim());
  }

  return {
    root,
    show(chapters, name) {
      const exercises = chapters.flatMap((chapter) => chapter.exercises);
      const at = exercises.findIndex((exercise) => exercise.name === name);
      const chapter = chapters.find((each) => each.exercises.includes(exercises[at]));
      place.textContent = chapter ? COURSE_WORDS.place(chapter, name) : "";
      lead(before, exercises[at - 1]);
      lead(after, exercises[at + 1]);
      summary.textContent = COURSE_WORDS.solved(countSolved(exercises), exercises.length);
      const open = exercises.find(({ state }) => state !== "solved");
      goOn.hidden = open?.name === name;
      goOn.replaceChildren(...(open ? [COURSE_WORDS.goOn, " ", make("a", { href: linkTo(open.name) }, open.title)] : [COURSE_WORDS.allSolved]));
      list.replaceChildren(...chapters.map((each) => makeChapter(each, name)));
      choose();
      root.hidden = false;
    },
    // Puts the list away, and the focus on the exercise that is open now.
    fold() {
      [all.open, find.value] = [false, ""];
      choose();
      place.focus();
    },
  };

  function lead(link, exercise) {
    link.hidden = !exercise;
    if (!exercise) return;
    link.href = linkTo(exercise.name);
    link.title = exercise.title;
  }

  function makeChapter({ title, exercises }, name) {
    return make("section", {}, make("h2", {}, title), make("p", { class: "note" }, COURSE_WORDS.ofChapter(countSolved(exercises), exercises.length)),
      make("ul", {}, ...exercises.map((each) => makeItem(each, title, name))));
  }

  function makeItem(exercise, chapter, open) {
    const { name, title, state } = exercise;
    const link = make("a", name === open ? { "aria-current": "page" } : { href: linkTo(name) }, title);
    return make("li", { "data-words": `${title} ${name} ${chapter}`.toLowerCase(), "data-state": state },
      make("span", { class: "mark", "aria-hidden": "true" }, SIGNS[state]), make("span", { class: "unseen" }, COURSE_WORDS.states[state]),
      link, make("span", { class: "note" }, COURSE_WORDS.brief(exercise)));
  }
}

function countSolved(exercises) {
  return exercises.filter(({ state }) => state === "solved").length;
}
