// Pictures that carry themselves: a JSON value in an iTXt chunk of a PNG, or in the <metadata> of an SVG; as in
// attnlab.draw.carried.

const FIRST_CHUNK = 8; // bytes of a PNG before its first chunk
const CHUNK_HEAD = "attnlab\0\0\0\0\0"; // keyword, not compressed, no language, no translated keyword
const CHECKS = Uint32Array.from({ length: 256 }, (_, i) => {
  let value = i;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

export function withCarried(png, value) {
  const end = png.length - 12; // the last chunk, which is empty
  const text = new TextEncoder().encode(`iTXt${CHUNK_HEAD}${JSON.stringify(value)}`);
  const chunk = new Uint8Array(text.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, text.length - 4);
  chunk.set(text, 4);
  view.setUint32(text.length + 4, checkOf(text));
  return new Blob([png.subarray(0, end), chunk, png.subarray(end)], { type: "image/png" });
}

function checkOf(bytes) {
  const left = bytes.reduce((sum, byte) => (sum >>> 8) ^ CHECKS[(sum ^ byte) & 255], 0xffffffff);
  return ~left >>> 0;
}

// What the bytes of a picture carry, or null.
export function carriedIn(bytes) {
  const text = bytes[0] === 0x89 ? textInPng(bytes) : textInSvg(new TextDecoder().decode(bytes));
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function textInPng(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = FIRST_CHUNK; at + 12 <= bytes.length;) {
    const size = view.getUint32(at);
    const text = new TextDecoder().decode(bytes.subarray(at + 4, at + 8 + size));
    if (text.startsWith(`iTXt${CHUNK_HEAD}`)) return text.slice(4 + CHUNK_HEAD.length);
    at += 12 + size;
  }
  return null;
}

function textInSvg(text) {
  const [, found = null] = /<metadata id="attnlab">(.*?)<\/metadata>/s.exec(text) ?? [];
  return found?.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}
