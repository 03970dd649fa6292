// A population as the server tells it: its members, each with the kinds of its heads, and the attention of all.

const FIRST = "A".charCodeAt(0);
const letterOf = (group) => String.fromCharCode(FIRST + group);

export function groupOf(letter) {
  return letter.charCodeAt(0) - FIRST;
}

export function readPopulation(told) {
  const attentions = told.attentions.map(readAttention);
  const rowOf = new Map(told.looked.map((member, row) => [member, row]));
  const members = told.names.map((name, index) => {
    const row = rowOf.get(index) ?? null;
    return {
      name, index, row, loss: told.loss[index], solvedAt: told.solvedAt[index], fault: told.faults[index],
      figures: Object.fromEntries(Object.entries(told.figures).map(([figure, all]) => [figure, all[index]])),
      kind: row === null ? "" : told.kinds[row], distance: row === null ? null : told.distances[row],
      percentile: row === null ? null : told.percentiles[row],
    };
  });
  return { ...told, attentions, members };
}

function readAttention({ groups, ...told }) {
  const letters = groups.map((own) => own.map(letterOf));
  return { ...told, letters, rows: told.queries.length, columns: told.keys.length };
}

// One map among the maps of an attention, or among the means of its groups.
export function mapAt(values, { rows, columns }, number) {
  return values.subarray(number * rows * columns, (number + 1) * rows * columns);
}

// The letters of an attention's groups, each with its number of heads and of seeds that have one.
export function groupsOf({ letters }) {
  const known = [...new Set(letters.flat())].sort();
  return known.map((letter) => ({
    letter, heads: letters.flat().filter((each) => each === letter).length,
    seeds: letters.filter((own) => own.includes(letter)).length,
  }));
}

// How many members have each kind, the most first.
export function kindsOf(members) {
  const counts = new Map();
  for (const { kind } of members) if (kind) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts].sort(([one, many], [other, more]) => more - many || (one < other ? -1 : 1));
}

export function listMembers({ members }, order, only) {
  const isKept = ({ kind, solvedAt }) => !only || (only === "unsolved" ? solvedAt === null : kind === only);
  const keys = { seed: ({ index }) => index, typical: ({ distance }) => distance, loss: ({ loss }) => loss };
  const keyOf = keys[order] ?? (({ figures }) => figures[order]);
  const sorted = members.filter(isKept).map((member) => [keyOf(member) ?? Infinity, member]);
  return sorted.sort(([one], [other]) => (one === other ? 0 : one - other)).map(([, member]) => member);
}
