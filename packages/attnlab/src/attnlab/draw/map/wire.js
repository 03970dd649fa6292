// The wire form of numbers, as attnlab.draw.wire writes it: { shape, kind, levels, zero, is_deflated, content }.

const MISSING = 255; // the code of NaN
const EXACT = { float32: Float32Array, float64: Float64Array };

// An array by rows: { rows, columns, values, error(i, j) }, where NaN is masked or missing, and an error is at most so large.
export async function unpack({ shape, kind, levels, zero, is_deflated: isDeflated, content }) {
  const bytes = await (isDeflated ? inflate(bytesOf(content)) : bytesOf(content));
  const columns = shape.at(-1);
  const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  if (kind in EXACT) return { rows, columns, values: new EXACT[kind](bytes.buffer), error: () => 0 };
  const largest = new Float32Array(bytes.buffer.slice(0, 4 * rows));
  const codes = bytes.subarray(4 * rows);
  if (codes.length !== rows * columns) throw new Error(`expected ${rows * columns} codes, got ${codes.length}`);
  const shares = Float32Array.from({ length: MISSING }, (_, code) => ((code - zero) / levels) * Math.abs((code - zero) / levels));
  const values = new Float32Array(codes.length).fill(NaN);
  codes.forEach((code, k) => {
    if (code !== MISSING) values[k] = largest[Math.floor(k / columns)] * shares[code];
  });
  // The bound of attnlab.draw.wire: M (c + 1/4) / N², with c = N √(w / M).
  const error = (i, j) => Math.sqrt(values[i * columns + j] * largest[i]) / levels + largest[i] / (4 * levels ** 2);
  return { rows, columns, values, error };
}

// A JSON value with the numbers of each array in its place.
export async function unpackAll(value) {
  if (value === null || typeof value !== "object") return value;
  if (value.content !== undefined && value.shape) return (await unpack(value)).values;
  if (Array.isArray(value)) return typeof value[0] === "object" ? Promise.all(value.map(unpackAll)) : value;
  return Object.fromEntries(await Promise.all(Object.entries(value).map(async ([name, inner]) => [name, await unpackAll(inner)])));
}

function bytesOf(text) {
  return Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
