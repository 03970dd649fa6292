// The folder of runs, as the server's page names it; null in a page without a server.
export const RUNS_FOLDER = document.querySelector('meta[name="attnlab-runs"]')?.content ?? null;

// A run's folder, as it is typed.
export function folderOf(name) {
  return typed(`${RUNS_FOLDER}/${name}`);
}

// What a command is told of the folder, unless it is the usual one.
export const OUT_OF_RUNS = RUNS_FOLDER === "runs" ? "" : ` --out ${folderOf("NAME")}`;

// The command of a training that a job would be asked for.
export function trainingCommand({ experiment, settings, seed, seeds, sweep = false }) {
  const words = ["attnlab", sweep ? "sweep" : "run", experiment, "--seed", typed(String(seed))];
  if (String(seeds) !== "1" || sweep) words.push("--seeds", typed(String(seeds)));
  const told = Object.entries(settings).map(([name, value]) => typed(`${name}=${value}`));
  return [...words, ...(told.length ? ["--set", ...told] : [])].join(" ");
}

// A word of a command, in quotes where a shell would read it as something else.
export function typed(word) {
  return /^[\w.,:@%+/=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
