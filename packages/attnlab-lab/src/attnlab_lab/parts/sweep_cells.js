// The cells of a sweep: one for each combination of the values of its axes, the last axis moving fastest.

// Where a cell lies on each axis.
export function placeOf(axes, cell) {
  return axes.map(({ labels }, axis) => Math.floor(cell / strideOf(axes, axis)) % labels.length);
}

// The cell with another value on one axis.
export function moveAlong(axes, cell, axis, to) {
  return cell + (to - placeOf(axes, cell)[axis]) * strideOf(axes, axis);
}

function strideOf(axes, axis) {
  return axes.slice(axis + 1).reduce((size, { labels }) => size * labels.length, 1);
}

// The axes that a map shows: rows and columns, of one axis the columns alone; the others are chosen.
export function layAxes(axes) {
  const [row, column] = axes.length > 1 ? [0, 1] : [null, 0];
  return { row, column, others: axes.map((_, axis) => axis).slice(column + 1) };
}

// A figure of a cell; NaN where there is none.
export function figureOf({ share, solvedAt, loss, figures }, name) {
  return { share: share?.[0], solvedAt, loss, ...figures }[name] ?? NaN;
}

// The cell nearest to one half, the one worth looking into: there luck decides.
export function closestCall(cells) {
  const away = cells.map(({ share }) => (share ? Math.abs(share[0] - 0.5) : Infinity));
  return away.indexOf(Math.min(...away));
}
