// Decoding of the wire form. A source is { manifest, tile(name) }, where tile resolves to the compressed bytes of a tile;
// the manifest lists everything. A map is { rows, columns, values, error(i, j) }; masked cells are NaN, never 0.

export function openEmbedded(page) {
  return {
    manifest: JSON.parse(page.getElementById("manifest").textContent),
    tile: async (name) => bytesOf(page.getElementById(`tile.${name}`).textContent),
  };
}

function bytesOf(text) {
  return Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

async function readTile(source, name) {
  const stream = new Blob([await source.tile(name)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// `place` is { variant, group, layer, head, kind }, all numbers.
export async function readMap(source, place) {
  const { levels } = source.manifest;
  const group = source.manifest.groups[place.group];
  const { rows, columns } = group;
  const mask = await readMask(source, group.layers[place.layer].masks[place.variant][place.head], rows, columns);
  const values = new Float32Array(rows * columns).fill(NaN);
  const largest = new Float32Array(rows);
  const squares = Float32Array.from({ length: levels + 1 }, (_, code) => (code / levels) ** 2);
  const name = `${place.variant}.${place.group}.${place.layer}.${place.head}.${place.kind}`;
  const height = group.band_rows;
  for (let first = 0, band = 0; first < rows; first += height, band++) {
    const bytes = await readTile(source, `${name}.${band}`);
    const last = Math.min(first + height, rows);
    largest.set(new Float32Array(bytes.buffer.slice(0, 4 * (last - first))), first);
    let at = 4 * (last - first);
    for (let i = first; i < last; i++) {
      for (let j = 0; j < columns; j++) {
        if (!mask(i, j)) values[i * columns + j] = largest[i] * squares[bytes[at++]];
      }
    }
    if (at !== bytes.length) throw new Error(`tile ${name}.${band} holds ${bytes.length} bytes, expected ${at}`);
  }
  // The bound of attnlab.draw.view.quantize: M (c + 1/4) / N², with c = N √(w / M).
  const error = (i, j) => {
    const value = values[i * columns + j];
    return largest[i] > 0 ? Math.sqrt(value * largest[i]) / levels + largest[i] / (4 * levels ** 2) : 0;
  };
  return { rows, columns, values, error };
}

async function readMask(source, mask, rows, columns) {
  if (mask === null) return () => false;
  if (mask === "causal") return (i, j) => j > i;
  const bits = await readTile(source, `mask.${mask}`);
  const stride = Math.ceil(columns / 8);
  return (i, j) => ((bits[i * stride + (j >> 3)] >> (7 - (j & 7))) & 1) === 1;
}

// The second minus the first; a masked cell counts as zero weight.
export function subtract(first, second) {
  const { rows, columns } = first;
  const values = second.values.map((value, k) => {
    if (Number.isNaN(value) && Number.isNaN(first.values[k])) return NaN;
    return (value || 0) - (first.values[k] || 0);
  });
  return { rows, columns, values, isDifference: true, error: (i, j) => (first.error(i, j) || 0) + (second.error(i, j) || 0) };
}

// Thumbnails of a group: one for every layer, head and variant, and of the difference where two are compared.
export async function readThumbs(source, index) {
  const group = source.manifest.groups[index];
  const { rows, columns } = group.thumb;
  const bytes = await readTile(source, `thumbs.${index}`);
  const each = source.manifest.variants === 2 ? 3 : 1;
  const starts = [];
  group.layers.reduce((start, layer, i) => (starts[i] = start) + layer.heads, 0);
  return (layer, head, variant) => {
    const at = ((starts[layer] + head) * each + variant) * rows * columns;
    return bytes.subarray(at, at + rows * columns);
  };
}
