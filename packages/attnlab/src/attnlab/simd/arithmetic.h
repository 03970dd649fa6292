// What lanes are computed with, on the vectors of attnlab/native/vectors.h; every operation goes by its name here.

INLINE M is_true(V x) { return x != V{}; }
INLINE V as_number(M m) { return choose(m, splat(1), V{}); }
INLINE M eq(V a, V b) { return a == b; }
INLINE M ne(V a, V b) { return a != b; }
INLINE M lt(V a, V b) { return a < b; }
INLINE M le(V a, V b) { return a <= b; }
INLINE M gt(V a, V b) { return a > b; }
INLINE M ge(V a, V b) { return a >= b; }
INLINE M logical_and(M a, M b) { return a & b; }
INLINE M logical_or(M a, M b) { return a | b; }
INLINE M logical_not(M a) { return ~a; }

INLINE V add(V a, V b) { return a + b; }
INLINE V sub(V a, V b) { return a - b; }
INLINE V mul(V a, V b) { return a * b; }
INLINE V div(V a, V b) { return a / b; }
INLINE V neg(V a) { return -a; }
INLINE V reciprocal(V a) { return R(1) / a; }
INLINE V sqrt(V x) {
  V y;
  for (int i = 0; i < W; ++i) y[i] = std::sqrt(x[i]);
  return y;
}
INLINE V rsqrt(V x) { return R(1) / sqrt(x); }

// NaN stays NaN in all of these.
INLINE V relu(V x) { return x < R(0) ? V{} : x; }
INLINE V abs(V x) { return x < R(0) ? -x : x; }
INLINE V maximum(V a, V b) { return (a > b) | (a != a) ? a : b; }
INLINE V minimum(V a, V b) { return (a < b) | (a != a) ? a : b; }
// The sign of NaN is 0, as in PyTorch.
INLINE V sign(V x) { return x > R(0) ? splat(1) : (x < R(0) ? splat(-1) : V{}); }

#if IS_DOUBLE
const int MANTISSA = 52, BIAS = 1023, TERMS = 13;
const R LEAST = -750.0, MOST = 750.0, ROUNDER = 6755399441055744.0;
const R LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;
#else
const int MANTISSA = 23, BIAS = 127, TERMS = 7;
const R LEAST = -110.0f, MOST = 110.0f, ROUNDER = 12582912.0f;
const R LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;
#endif

const R FACTORIALS[] = {R(1), R(1), R(1.0 / 2), R(1.0 / 6), R(1.0 / 24), R(1.0 / 120), R(1.0 / 720), R(1.0 / 5040),
                        R(1.0 / 40320), R(1.0 / 362880), R(1.0 / 3628800), R(1.0 / 39916800), R(1.0 / 479001600),
                        R(1.0 / 6227020800)};

// x from low to high; NaN stays.
INLINE V clamped(V x, R low, R high) {
#if HAS_512 && IS_DOUBLE
  x = __builtin_ia32_minpd512_mask(splat(high), x, x, -1, 4);
  return __builtin_ia32_maxpd512_mask(splat(low), x, x, -1, 4);
#elif HAS_512
  x = __builtin_ia32_minps512_mask(splat(high), x, x, -1, 4);
  return __builtin_ia32_maxps512_mask(splat(low), x, x, -1, 4);
#else
  x = x < low ? splat(low) : x;
  return x > high ? splat(high) : x;
#endif
}

// x · 2^n for whole n, within BIAS + 60 of 0; what is too small becomes 0 (or nearly), what is too large infinity.
INLINE V scaled(V x, V n) {
#if HAS_512 && IS_DOUBLE
  return __builtin_ia32_scalefpd512_mask(x, n, x, -1, 4);
#elif HAS_512
  return __builtin_ia32_scalefps512_mask(x, n, x, -1, 4);
#else
  M whole = __builtin_convertvector(n, M), half = whole >> 1;  // in two factors, for one may be beyond a number
  return x * of_bits((half + BIAS) << MANTISSA) * of_bits((whole - half + BIAS) << MANTISSA);
#endif
}

// x = n ln 2 + r, and exp(r) - 1 by its series.
INLINE V series_of(V x, V &n) {
  n = (x * R(1.4426950408889634) + ROUNDER) - ROUNDER;
  V r = (x - n * LN2_HIGH) - n * LN2_LOW, series = splat(FACTORIALS[TERMS]);
  for (int k = TERMS - 1; k >= 1; --k) series = series * r + FACTORIALS[k];
  return series * r;
}
INLINE V exp(V x) {
  V n, series = series_of(clamped(x, LEAST, MOST), n);
  return scaled(series + R(1), n);
}

// tanh(x) = e / (e + 2) with e = exp(2x) - 1 = 2^n (exp(r) - 1) + 2^n - 1, without loss near 0.
INLINE V tanh(V x) {
  V n, series = series_of(clamped(x + x, R(-40), R(40)), n), one = splat(1);
  V e = scaled(series, n) + (scaled(one, n) - R(1));
  return e / (e + R(2));
}
INLINE V sigmoid(V x) { return R(1) / (R(1) + exp(-x)); }

// log(m 2^e) = e ln 2 + 2 artanh((m - 1) / (m + 1)), m from the root of 1/2 to the root of 2, by its series.
INLINE V log(V x) {
  const R least = IS_DOUBLE ? R(2.2250738585072014e-308) : R(1.17549435e-38f), lift = R(1 << 30) * (1 << 30);
  M is_tiny = x < least;
  V y = is_tiny ? x * lift : x;
  M exponent = (bits_of(y) >> MANTISSA) - BIAS;
  V m = of_bits(bits_of(y) - (exponent << MANTISSA));
  M is_high = m > R(1.4142135623730951);
  m = is_high ? m * R(0.5) : m;
  V e = __builtin_convertvector(exponent - is_high, V) - (is_tiny ? splat(60) : V{});
  V s = (m - R(1)) / (m + R(1)), square = s * s, series = V{};
  for (int k = IS_DOUBLE ? 21 : 9; k >= 1; k -= 2) series = series * square + R(2) / k;
  V found = e * LN2_HIGH + (s * series + e * LN2_LOW);
  found = x == R(0) ? splat(-R(INFINITY)) : found;
  found = x == R(INFINITY) ? x : found;
  return (x != x) | (x < R(0)) ? splat(R(NAN)) : found;
}

// log(1 + x), without loss near 0.
INLINE V log1p(V x) {
  V y = x + R(1);
  return y == R(1) ? x : (y == R(INFINITY) ? y : log(y) * (x / (y - R(1))));
}

// erfc(x) = t exp(-x² + p(t)) for x >= 0, t = 2 / (2 + x), p a Chebyshev series whose coefficients come in ERFC.
INLINE V erfc_of_positive(V x) {
  V t = R(2) / (R(2) + x), y = R(4) * t - R(2), here = V{}, before = V{};
  for (int k = ERFC_TERMS - 1; k >= 1; --k) {
    V next = y * here - before + ERFC[k];
    before = here;
    here = next;
  }
  return t * exp(R(0.5) * (ERFC[0] + y * here) - before - x * x);
}
// Near 0, where the difference from 1 would lose digits, by its series.
INLINE V erf(V x) {
  V y = R(1) - erfc_of_positive(abs(x)), square = x * x, series = V{};
  for (int k = TERMS - 2; k >= 0; --k) series = FACTORIALS[k] / R(2 * k + 1) - square * series;
  return abs(x) < R(0.5) ? x * series * R(1.1283791670955126) : x < R(0) ? -y : y;
}

INLINE V erfc(V x) {
  V upper = erfc_of_positive(abs(x));
  return x < R(0) ? R(2) - upper : upper;
}

// Look-ups whose place each lane chooses; a place that is not there is counted, and 0 is taken instead.
INLINE M places(V ids, int count, int64_t *wrong) {
  M is_right = (ids >= R(0)) & (ids < R(count));
  M inside = __builtin_convertvector(choose(is_right, ids, V{}), M);
  for (int i = 0; i < W; ++i) *wrong += is_right[i] == 0;
  return inside;
}
INLINE V picked(const V *from, M place, int step) {
  V y;
  for (int i = 0; i < W; ++i) y[i] = ((const R *)from)[(int64_t)place[i] * step * W + i];
  return y;
}
INLINE V picked(const R *from, M place, int step) {  // of a table that all lanes share
  V y;
  for (int i = 0; i < W; ++i) y[i] = from[(int64_t)place[i] * step];
  return y;
}
INLINE void add_picked(V *to, M place, int step, V x) {
  for (int i = 0; i < W; ++i) ((R *)to)[(int64_t)place[i] * step * W + i] += x[i];
}
