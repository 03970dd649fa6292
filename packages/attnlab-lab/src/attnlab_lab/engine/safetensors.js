// Files of tensors: a header in JSON, then the numbers. All that the header says is checked before memory is taken.

import { sizeOf } from "./arrays.js";
import { EngineError } from "./errors.js";

const BYTES = { F32: 4, F64: 8 };

/** Read a file: a map from names to { shape, data }, all as 64-bit numbers. */
export function readTensors(buffer) {
  const require = (isFine, reason) => {
    if (!isFine) throw new EngineError(`this is no usable safetensors file: ${reason}.`);
  };
  require(buffer instanceof ArrayBuffer && buffer.byteLength >= 8, "expected an ArrayBuffer of at least 8 bytes");
  const long = new DataView(buffer).getBigUint64(0, true);
  require(long <= BigInt(buffer.byteLength - 8), `its header would be longer than the file, ${long} bytes`);
  const begin = 8 + Number(long);
  let header = null;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(buffer, 8, begin - 8)));
  } catch {
    require(false, "its header is no JSON");
  }
  require(header instanceof Object && !Array.isArray(header), "its header is no object");
  const areWhole = (list) => Array.isArray(list) && list.every((each) => Number.isSafeInteger(each) && each >= 0);
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__");
  for (const [name, entry] of entries) {
    const { dtype, shape, data_offsets: place } = entry ?? {};
    require(Object.hasOwn(BYTES, dtype), `${name} is of ${dtype}, and only F32 and F64 are read`);
    require(areWhole(shape) && areWhole(place) && place.length === 2, `${name} has no shape or no place`);
    require(place[1] - place[0] === sizeOf(shape) * BYTES[dtype], `${name} is not as long as its shape says`);
  }
  let end = 0;
  const beginOf = ([, { data_offsets: place }]) => place[0] + place[1]; // an empty tensor comes before its neighbor
  for (const [name, { data_offsets: place }] of entries.sort((one, other) => beginOf(one) - beginOf(other))) {
    require(place[0] === end, `${name} does not begin where the one before it ends`);
    end = place[1];
  }
  require(begin + end === buffer.byteLength, `it should have ${begin + end} bytes, and has ${buffer.byteLength}`);
  const found = new Map();
  for (const [name, { dtype, shape, data_offsets: place }] of entries) {
    const bytes = buffer.slice(begin + place[0], begin + place[1]);
    const numbers = dtype === "F64" ? new Float64Array(bytes) : new Float32Array(bytes);
    found.set(name, { shape, data: Float64Array.from(numbers) });
  }
  return found;
}

/** Write tensors as 64-bit numbers. */
export function writeTensors(tensors) {
  const header = {};
  let end = 0;
  for (const [name, { shape, data }] of tensors) {
    header[name] = { dtype: "F64", shape, data_offsets: [end, end + 8 * data.length] };
    end += 8 * data.length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const begin = 8 + Math.ceil(text.length / 8) * 8;
  const bytes = new Uint8Array(begin + end);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(begin - 8), true);
  bytes.fill(32, 8, begin).set(text, 8);
  for (const [name, { data }] of tensors) {
    new Float64Array(bytes.buffer, begin + header[name].data_offsets[0], data.length).set(data);
  }
  return bytes.buffer;
}
