// The one error that the engine throws on purpose, and checks that throw it.

/** What was expected, what came and what to do, in one sentence that a page may show as it is. */
export class EngineError extends Error {
  name = "EngineError";
}

/** Return a value that is one of the known ones. */
export function requireKnown(what, value, known) {
  if (known.includes(value)) return value;
  throw new EngineError(`there is no ${what} ${JSON.stringify(value)}; there are ${known.join(", ")}.`);
}

/** Return an object. */
export function requireObject(what, value) {
  if (typeof value === "object" && value !== null) return value;
  throw new EngineError(`${what} must be an object; got ${JSON.stringify(value)}.`);
}

/** Return a whole number from low to high. */
export function requireWhole(what, value, low, high) {
  if (Number.isInteger(value) && value >= low && value <= high) return value;
  throw new EngineError(`${what} must be a whole number from ${low} to ${high}; got ${JSON.stringify(value)}.`);
}

/** Return a number from low to high. */
export function requireNumber(what, value, low, high) {
  if (typeof value === "number" && value >= low && value <= high) return value;
  throw new EngineError(`${what} must be a number from ${low} to ${high}; got ${JSON.stringify(value)}.`);
}
