// Numbers of several lanes at once: R is float or double (IS_DOUBLE), W the number of lanes, VECTOR_BYTES their bytes.
#include <cmath>
#include <cstdint>
#include <cstring>
#define HAS_512 (VECTOR_BYTES == 64 && __AVX512F__ && __AVX512DQ__ && __GNUC__ && !__clang__)

#if IS_DOUBLE
typedef double R;
typedef int64_t I;
#else
typedef float R;
typedef int32_t I;
#endif
typedef R V __attribute__((vector_size(W * sizeof(R))));
typedef I M __attribute__((vector_size(W * sizeof(R))));  // truth: all bits or none

#define INLINE static inline __attribute__((always_inline))

INLINE V splat(R x) { return x - V{}; }
INLINE M bits_of(V x) { M y; memcpy(&y, &x, sizeof y); return y; }
INLINE V of_bits(M x) { V y; memcpy(&y, &x, sizeof y); return y; }
INLINE V choose(M m, V a, V b) { return m ? a : b; }  // a where m is true, b elsewhere

// The larger; where b is NaN, NaN.
INLINE V larger(V a, V b) {
#if HAS_512 && IS_DOUBLE
  return __builtin_ia32_maxpd512_mask(a, b, b, -1, 4);
#elif HAS_512
  return __builtin_ia32_maxps512_mask(a, b, b, -1, 4);
#else
  return a > b ? a : b;
#endif
}

// The smaller; where one is NaN, b.
INLINE V smaller(V a, V b) {
#if HAS_512 && IS_DOUBLE
  return __builtin_ia32_minpd512_mask(a, b, b, -1, 4);
#elif HAS_512
  return __builtin_ia32_minps512_mask(a, b, b, -1, 4);
#else
  return a < b ? a : b;
#endif
}

const uint32_t ALL_LANES = (uint64_t(1) << W) - 1;

// One bit for each lane: where a > b.
INLINE uint32_t lanes_above(V a, V b) {
#if HAS_512 && !IS_DOUBLE
  return __builtin_ia32_cmpps512_mask(a, b, 30, -1, 4);
#elif __AVX__ && VECTOR_BYTES == 32 && !IS_DOUBLE
  M above = a > b;
  return __builtin_ia32_movmskps256(of_bits(above));
#else
  M above = a > b;
  uint32_t bits = 0;
  for (int i = 0; i < W; ++i) bits |= uint32_t(above[i] & 1) << i;
  return bits;
#endif
}
