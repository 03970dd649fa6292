// In which order the search of the site shows its results, and what each says: see search_index.py.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 4,
  objPrio: { 0: 5, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: (result) => {
    const [page, title, place, , score, , kind] = result;
    const summaries = window.SUMMARIES ?? {};
    const lists = /^(ARCHITECTURE|changes|evidence|benchmarks|compare|families|genindex|add\/)/;
    const summary = summaries[page + place] || (kind === "object" ? "" : summaries[page]);
    if (summary) result[3] = summary;
    if (kind === "index" && !summaries[page + place]) result[2] = ""; // the page itself, once
    if (kind === "index") return score;
    if (kind === "object") return score - title.split(".").length;
    if (lists.test(page)) return score - 4;
    return page.startsWith("notebooks/") || page.startsWith("reference/") ? score - 1 : score;
  },
};
