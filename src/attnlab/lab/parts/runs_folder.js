// The folder of runs, as the server's page names it; null in a page without a server.
export const RUNS_FOLDER = document.querySelector('meta[name="attnlab-runs"]')?.content ?? null;

// A run's folder, as it is typed.
export function folderOf(name) {
  const path = `${RUNS_FOLDER}/${name}`;
  return /^[\w.,:@%+/=-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
