// Functions made of + - * / and square roots alone, which every browser rounds alike, so that a seed gives the same
// bits everywhere; Math.exp and its like may differ from one browser to the next.
//
// Each is within 1e-15 of the true value, relative to it, where nothing else is said.

const LN2 = 0.6931471805599453;
const LN2_HIGH = 0.6931471803691238; // 32 bits: its product with an exponent is exact
const LN2_LOW = 1.9082149292705877e-10;
const HALF_PI = [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32];
const LARGEST_ANGLE = 1e6; // up to which the products with the pieces of π/2 are exact
const SQRT_PI = 1.772453850905516;
const TWO_BY_SQRT_PI = 1.1283791670955126;
const SQRT_HALF = 0.7071067811865476;
export const TWO_PI = 6.283185307179586;

const POWERS = new Float64Array(2046); // of two, from -1022 to 1023
POWERS[1022] = 1;
for (let k = 1; k <= 1023; k++) POWERS[1022 + k] = POWERS[1021 + k] * 2;
for (let k = 1; k <= 1022; k++) POWERS[1022 - k] = POWERS[1023 - k] / 2;

const INVERSE_FACTORIALS = new Float64Array(19);
for (let n = 0, factorial = 1; n <= 18; factorial *= ++n) INVERSE_FACTORIALS[n] = 1 / factorial;

const view = new DataView(new ArrayBuffer(8));

function timesPowerOfTwo(x, k) {
  if (k > 1023) return x * POWERS[2045] * POWERS[k - 1023 + 1022];
  if (k < -1022) return x * POWERS[k + 1000 + 1022] * POWERS[22];
  return x * POWERS[k + 1022];
}

/** A result below the smallest normal number is within one unit of its last place. */
export function exp(x) {
  if (x !== x) return x;
  if (x > 709.782712893384) return Infinity;
  if (x < -745.1332191019412) return 0;
  const k = Math.floor(x / LN2 + 0.5);
  const rest = x - k * LN2_HIGH - k * LN2_LOW; // less than 0.4 either way
  let series = 0; // of e^rest - 1
  for (let n = 13; n > 0; n--) series = (series + INVERSE_FACTORIALS[n]) * rest;
  return timesPowerOfTwo(1 + series, k);
}

/** x = 2^exponent · m with m from √½ to √2: return the exponent and log m. */
function splitLog(x) {
  const isTiny = x < POWERS[0];
  view.setFloat64(0, isTiny ? x * POWERS[1022 + 54] : x);
  const high = view.getUint32(0);
  let exponent = (high >>> 20) - 1023;
  view.setUint32(0, (high & 0xfffff) | (1023 << 20));
  let m = view.getFloat64(0);
  if (m > 2 * SQRT_HALF) {
    m /= 2;
    exponent++;
  }
  const s = (m - 1) / (m + 1); // log m = 2 (s + s³/3 + s⁵/5 + …)
  const square = s * s;
  let sum = 0;
  for (let n = 23; n > 1; n -= 2) sum = (sum + 1 / n) * square;
  return [isTiny ? exponent - 54 : exponent, 2 * (s + s * sum)];
}

export function log(x) {
  if (!(x > 0)) return x === 0 ? -Infinity : NaN;
  if (x === Infinity) return x;
  const [exponent, rest] = splitLog(x);
  return exponent * LN2_HIGH + (exponent * LN2_LOW + rest);
}

/** base^exponent for a base above 0; the bound grows with the exponent: 1e-15 · max(1, |exponent|). */
export function pow(base, exponent) {
  if (!(base > 0 && base < Infinity && Number.isFinite(exponent))) return NaN;
  const [two, rest] = splitLog(base);
  const high = Math.fround(exponent); // its product with a small whole number is exact
  const whole = Math.floor(exponent * two + 0.5);
  if (!(Math.abs(whole) < 2000)) return exp(exponent * log(base)); // nothing or infinity
  const part = high * two - whole + (exponent - high) * two;
  return timesPowerOfTwo(exp(part * LN2 + exponent * rest), whole);
}

/** The sine of an angle to which some quarter turns are added. */
function sineAfter(x, quarters) {
  if (!(Math.abs(x) <= LARGEST_ANGLE)) return NaN;
  const k = Math.floor(x / (HALF_PI[0] + HALF_PI[1]) + 0.5);
  const turns = (k & 3) + quarters;
  const isCosine = (turns & 1) === 1;
  const r = HALF_PI.reduce((rest, piece) => rest - k * piece, x); // at most π/4 either way
  const square = r * r;
  let sum = 0;
  for (let n = isCosine ? 18 : 17; n > 1; n -= 2) {
    sum = (sum + INVERSE_FACTORIALS[n] * (n & 2 ? -1 : 1)) * square;
  }
  const size = isCosine ? sum + 1 : r + r * sum;
  return turns & 2 ? -size : size;
}

/** For angles up to a million either way; NaN beyond. */
export function sin(x) {
  return sineAfter(x, 0);
}

/** For angles up to a million either way; NaN beyond. */
export function cos(x) {
  return sineAfter(x, 1);
}

/** e^(-x²), whose square is taken in two parts, so that its rounding does not grow. */
function bell(x) {
  const high = Math.fround(x);
  return exp(-high * high) * exp(-(x - high) * (x + high));
}

export function erf(x) {
  if (x !== x) return x;
  const size = Math.min(Math.abs(x), 6);
  let found;
  if (size <= 1.5) {
    let sum = 1; // 2/√π e^(-x²) x (1 + 2x²/3 (1 + 2x²/5 (1 + …
    for (let n = 61; n > 1; n -= 2) sum = 1 + (sum * 2 * size * size) / n;
    found = TWO_BY_SQRT_PI * size * bell(size) * sum;
  } else {
    let fraction = size; // 1 - erf = e^(-x²) / √π / (x + ½ / (x + 1 / (x + 1½ / (x + …
    for (let n = 80; n > 0; n--) fraction = size + n / 2 / fraction;
    found = 1 - bell(size) / (SQRT_PI * fraction);
  }
  return x < 0 ? -found : found;
}

/** Write the softmax of one row; return its largest number and the sum of e^(x - largest). */
export function softmaxInto(out, x, at, width) {
  let highest = -Infinity;
  for (let i = at; i < at + width; i++) if (x[i] > highest) highest = x[i];
  let total = 0;
  for (let i = at; i < at + width; i++) {
    out[i] = x[i] === -Infinity ? 0 : exp(x[i] - highest);
    total += out[i];
  }
  for (let i = at; total > 0 && i < at + width; i++) out[i] /= total;
  return [highest, total];
}
