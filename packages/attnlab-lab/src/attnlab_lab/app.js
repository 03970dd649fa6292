// The page: starts the engine, reads the link, and shows a room.
//
// A room is { root, show() }, and what it needs of
//   heading               { title, subtitle }; such a room does not show the session's model, which then is not trained
//   key(event)            whether it took a key; undo(), redo() of its own, where it has a heading
//   link(), follow(own)   what it keeps in the link, by its keys in link.js; begun with page.link.own
//   leave()               it is shown no more

import { followColors } from "attnlab/draw/map/shades.js";
import { make, makeButton } from "attnlab/draw/report/elements.js";
import { mountTheme } from "attnlab/draw/report/theme.js";
import { startEngine } from "./parts/client.js";
import { writeEdits } from "./parts/edits.js";
import { firstInput, GROUPS, readLink, WITHIN, writeLink } from "./parts/link.js";
import { filesOf, offer, onDrop, readFiles } from "./parts/model.js";
import { linkIn } from "./parts/picture.js";
import { makeSession, wantedEdits } from "./parts/session.js";
import { slowly } from "./parts/slowly.js";
import { makeAnatomy } from "./rooms/anatomy.js";
import { makeBench } from "./rooms/bench.js";
import { makeDesign } from "./rooms/design.js";
import { makePlay } from "./rooms/play.js";
import { WORDS } from "./words.js";

const ROOM_MAKERS = { play: makePlay, bench: makeBench, design: makeDesign, anatomy: makeAnatomy };
const WITHOUT_MODEL = ["design", "anatomy", "runs", "populations", "sweeps", "models", "programs", "course"];
const byId = (id) => document.getElementById(id);

// more: rooms of a served page; join: adds to the page's engine those that its server has.
export function openPage({ more = {}, join = (local) => local } = {}) {
  const makers = { ...ROOM_MAKERS, ...more };
  const status = make("p", { class: "status", id: "status", role: "status", "aria-live": "polite" });
  const count = (waiting) => {
    document.body.dataset.busy = waiting > 0;
  };
  const call = join(startEngine(byId("engine").textContent, count), count);
  const page = {
    link: null, hash: null, main: null, room: null, roomName: "", status, call, say, notice, again, openSaved,
    keepLink, keepLater: slowly(keepLink), linkNow: () => writeLink(linkNow()),
  };
  const { lab, deeds } = makeSession(call, (words, isShown = false) => {
    if (words && !page.room.heading) say(words, isShown);
    show();
  });
  // What goes wrong in the engine is told, whatever was asked of it.
  const fail = (error) => notice(error.isAnswer ? WORDS.refused(error.message) : WORDS.failed(error.message));
  const guard = (deed) => (...args) => Promise.resolve(deed(...args)).catch(fail);
  const session = { lab, ...Object.fromEntries(Object.entries(deeds).map(([name, deed]) => [name, guard(deed)])) };
  const { start } = session;
  session.start = (...args) => {
    say(""); // what was said of another model
    return start(...args);
  };

  page.save = guard(save);

  // To everyone, or, if the page shows it anyway, to those who listen.
  function say(words, isShown = false) {
    status.classList.toggle("unseen", isShown);
    status.textContent = words;
  }

  function notice(words) {
    byId("notice").textContent = words;
    byId("notice").hidden = words === "";
  }

  function show() {
    const { title, subtitle } = page.room.heading ?? headingOf(lab);
    byId("title").textContent = title;
    byId("subtitle").textContent = subtitle;
    page.room.show();
    keepLink();
    document.body.dataset.state = stateOf(lab);
  }

  // What a link says of the page as it is.
  function linkNow() {
    const isHalfway = lab.step > 0 && !lab.isDone && !lab.isRunning;
    const at = lab.awaited ? lab.awaited.at : isHalfway ? lab.step : null;
    Object.assign(page.link.own, page.room.link?.());
    if (page.room.heading) return { ...page.link, room: page.roomName }; // the model is another room's
    const { present, embed, predict, hide, own } = page.link;
    const { settings, input } = lab;
    return { room: page.roomName, settings, input, edits: wantedEdits(lab), at, hide, present, embed, predict, own };
  }

  function keepLink() {
    if (location.hash !== page.hash) return; // a link was just followed, and is read in a moment
    const now = linkNow();
    const link = writeLink(now);
    const [before, after] = [page.main, mainOf(now)];
    const isStep = before?.room === after.room && before.name && after.name && before.name !== after.name;
    if (link !== location.hash) history[isStep ? "pushState" : "replaceState"](null, "", link);
    Object.assign(page, { hash: location.hash, main: after });
    for (const anchor of document.querySelectorAll("[data-room]")) {
      anchor.href = writeLink({ ...now, room: anchor.dataset.room });
    }
  }

  async function save() {
    filesOf(await call("save", lab.model.id), lab.settings).forEach(offer);
    say(WORDS.saved);
  }

  async function openSaved(files) {
    try {
      const { file, ...settings } = await readFiles(files);
      const opened = await call("open", file);
      notice("");
      session.start({ ...settings, file: true }, { input: firstInput(settings), opened });
      if (WITHOUT_MODEL.includes(page.roomName)) enter("bench");
    } catch (error) {
      notice(WORDS.notOpened(error.message));
    }
  }

  // A picture of such a page brings its link; anything else may be a model.
  async function openDropped(files) {
    const [{ name }] = files;
    const isPicture = files.length === 1 && /\.(png|svg)$/i.test(name);
    const link = isPicture && await linkIn(files[0]);
    if (link) location.hash = link;
    else if (isPicture) notice(WORDS.badPicture(name));
    else openSaved(files);
  }

  function again() {
    const settings = { ...lab.settings, seed: lab.settings.seed + 1, run: undefined };
    session.start(settings, { input: lab.input });
  }

  function readPage() {
    try {
      notice("");
      return readLink(location.hash);
    } catch (error) {
      notice(error.message);
      return readLink("");
    }
  }

  // A new link: another model is trained; another input or other edits are put to the one there is.
  function follow() {
    const link = readPage();
    Object.assign(page, { hash: location.hash, main: mainOf(link) });
    const isOther = !lab.model || JSON.stringify(link.settings) !== JSON.stringify(lab.settings);
    const needsModel = !WITHOUT_MODEL.includes(link.room);
    page.link = { ...link, own: { ...page.link?.own, ...link.own } };
    Object.assign(document.body.dataset, { present: link.present, embed: link.embed });
    if (isOther && needsModel) {
      if (link.settings.file) notice(WORDS.fileIsGone);
      delete link.settings.file;
      session.start(link.settings, link);
    } else if (needsModel) {
      if (link.input !== lab.input) session.setInput(link.input);
      if (writeEdits(link.edits) !== writeEdits(wantedEdits(lab))) session.setEdits(link.edits);
    }
    enter(link.room);
    for (const part of document.querySelectorAll("[data-part]")) part.hidden = link.hide.includes(part.dataset.part);
  }

  function enter(name) {
    if (page.roomName !== name) {
      if (page.room) say("");
      page.room?.leave?.();
      page.roomName = name;
      document.body.dataset.asks = false;
      document.body.dataset.rests = WITHOUT_MODEL.includes(name);
      document.dispatchEvent(new Event("visibilitychange"));
      page.room = makers[name](session, page);
      byId("content").replaceChildren(page.room.root);
      showRooms(name);
    } else page.room.follow?.(page.link.own);
    show();
  }

  byId("rooms").append(...makeRooms());
  document.querySelector(".top").append(...Object.values(WITHIN).map((names) =>
    make("nav", { class: "within", "aria-label": WORDS.rooms[names[0]] }, ...names.map(makeRoomLink))));
  byId("tools").prepend(makeButton(WORDS.copyLink, async () => {
    keepLink();
    try {
      await navigator.clipboard.writeText(location.href);
      say(WORDS.linkCopied);
    } catch {
      say(WORDS.linkShown);
    }
  }));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches('input[type="text"], select')) return;
    const { undo, redo } = page.room.heading ? page.room : session;
    if (event.key === "z") undo?.();
    else if (event.key === "Z") redo?.();
    else if (event.key === "?") openKeys();
    else if (!page.room.key?.(event)) return;
    event.preventDefault();
  });
  window.addEventListener("hashchange", follow);
  onDrop(openDropped);
  mountTheme();
  followColors(document.body, (colors) => {
    lab.colors = colors;
    page.room?.show();
  });
  follow();
}

function makeRooms() {
  const groups = Object.entries(GROUPS);
  return groups.map(([group, names]) => make("div", { class: "room-group", role: "group", "aria-label": WORDS.groups[group] },
    ...(groups.length > 1 ? [make("span", { class: "group-name", "aria-hidden": "true" }, WORDS.groups[group])] : []),
    ...names.map(makeRoomLink)));
}

function makeRoomLink(name) {
  return make("a", { class: "room-link", "data-room": name, href: "#" }, WORDS.rooms[name]);
}

// The link of the room is marked, and that of the room before it.
function showRooms(name) {
  const within = Object.entries(WITHIN).find(([, names]) => names.includes(name));
  for (const link of document.querySelectorAll(".room-link")) {
    const { room } = link.dataset;
    const isFront = room === within?.[0] && room !== name && !link.closest(".within");
    link.ariaCurrent = room === name ? "page" : isFront ? "true" : null;
  }
  for (const nav of document.querySelectorAll(".within")) nav.hidden = !nav.querySelector("[aria-current=page]");
}

// What a room shows by name; going back leads to the one before.
function mainOf({ room, own }) {
  const key = { runs: "show", populations: "population", sweeps: "sweep", models: "model" }[room];
  return { room, name: own[key] ?? null };
}

function headingOf(lab) {
  const { settings } = lab;
  if (settings.file) return { title: WORDS.fileTitle(settings), subtitle: WORDS.fileSubtitle(lab) };
  if (!settings.run) return { title: WORDS.title(settings), subtitle: WORDS.subtitle(lab) };
  return { title: WORDS.runTitle(settings.run), subtitle: WORDS.runSubtitle(lab) };
}

function stateOf({ isRunning, isDone, now }) {
  if (isRunning) return "trains";
  if (isDone) return "done";
  return now ? "rests" : "starts";
}

function openKeys() {
  const keys = document.querySelector(".keys-part");
  if (!keys) return;
  keys.open = true;
  keys.firstChild.focus();
}
