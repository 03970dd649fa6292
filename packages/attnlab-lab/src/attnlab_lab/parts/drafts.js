// What was typed and not yet checked: the browser's tab keeps it, through another room and a reload.

const keyOf = (exercise) => `course draft of ${exercise}`;

// files: what the exercise's file holds, or will hold after the check that runs; the draft is a change of it.
export function keepDraft(exercise, files, code) {
  try {
    sessionStorage.setItem(keyOf(exercise), JSON.stringify({ files: files.map(plainly), code }));
  } catch {} // a browser that keeps nothing: the room itself still does
}

// null where there is none, or the file was changed by something else since.
export function findDraft(exercise, file) {
  const draft = readDraft(exercise);
  return draft?.files.includes(plainly(file)) ? draft.code : null;
}

// A draft that was typed on since stays.
export function dropDraft(exercise, checked) {
  if (readDraft(exercise)?.code === checked) sessionStorage.removeItem(keyOf(exercise));
}

function readDraft(exercise) {
  try {
    return JSON.parse(sessionStorage.getItem(keyOf(exercise)));
  } catch {
    return null;
  }
}

// A file ends in one line break, whatever was typed.
function plainly(text) {
  return text.trim();
}
