// Numbers by chance that depend on a seed, a stream and a place alone: Threefry-2x32 with 20 rounds (Salmon et al.
// 2011, "Parallel random numbers: as easy as 1, 2, 3"). No state, so that any number can be had at any time.

import { cos, log, TWO_PI } from "./numbers.js";

const ROTATIONS = [13, 15, 26, 6, 17, 29, 16, 24];

/** Mix two words with a key of two words; return both new words. */
export function threefry(key0, key1, word0, word1) {
  const keys = [key0, key1, 0x1bd11bda ^ key0 ^ key1];
  let x = (word0 + key0) | 0;
  let y = (word1 + key1) | 0;
  for (let round = 0; round < 20; round++) {
    const turn = ROTATIONS[round % 8];
    x = (x + y) | 0;
    y = ((y << turn) | (y >>> (32 - turn))) ^ x;
    if (round % 4 === 3) {
      const block = (round + 1) / 4;
      x = (x + keys[block % 3]) | 0;
      y = (y + keys[(block + 1) % 3] + block) | 0;
    }
  }
  return [x >>> 0, y >>> 0];
}

/** A number from 0 to below 1, of 53 bits; seed and stream are whole numbers below 2^32. */
export function uniform(seed, stream, place) {
  const [high, low] = threefry(seed, stream, place, 0);
  return ((high >>> 5) * 67108864 + (low >>> 6)) / 9007199254740992;
}

/** A number of mean 0 and variance 1 (Box & Muller 1958). */
export function normal(seed, stream, place) {
  const radius = Math.sqrt(-2 * log(1 - uniform(seed, stream, 2 * place)));
  return radius * cos(TWO_PI * uniform(seed, stream, 2 * place + 1));
}

/** A whole number from 0 to below an end. */
export function integer(seed, stream, place, end) {
  return Math.floor(uniform(seed, stream, place) * end);
}
