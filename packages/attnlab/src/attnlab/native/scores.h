// The scores of a block of queries, and what the passes over them work with: see attention.cpp.
//
// The lanes of a vector are queries. Scores are in units of log 2 (the queries are multiplied by log2 e), so that the
// exponential is one of base 2.
#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>
#include <cfloat>
#if __SSE__
#include <xmmintrin.h>
#endif

typedef int64_t Int;
typedef R Loose __attribute__((vector_size(W * sizeof(R)), aligned(4), may_alias));

const int VECTORS = 2, LANES = VECTORS * W;  // queries of a block
const int GROUP = 8, TILE = 64, GROUPS = TILE / GROUP;  // keys
const int AT_ONCE = VECTOR_BYTES == 64 ? 8 : 4;  // keys whose products are in registers
const R NOTHING = -INFINITY, LN2 = R(0.6931471805599453);

struct Work {
  const R *query, *key, *value;
  const void *mask;
  const Int *query_at, *key_at, *value_at, *mask_at, *output_at;  // where each head begins, in elements
  Int heads, queries, keys, width, value_width;
  Int query_step, key_step, value_step, output_step, mask_query_step, mask_key_step;
  Int mask_kind;  // 0 none, 1 one byte each (may attend), 2 added
  Int left, right, mask_offset, offset;  // keys from position - left to position + right may be looked at
  Int query_cell, key_cell, query_cells, key_cells, top, threads;
  double factor;  // scale · log2 e
  R *output;  // null where only a summary is wanted
  // Of the summary; entropy is null where only the output is wanted.
  R *entropy, *largest, *distance, *spread, *first, *own, *previous, *log_sum, *top_weights, *map_mean, *map_max;
  Int *top_keys;
};

// 2^x for x <= 0; exactly 1 for 0, exactly 0 below -200, NaN for NaN.
INLINE V power_of_two(V x) {
#if HAS_512
  V r = __builtin_ia32_reduceps512_mask_round(x, 1, x, -1, 4);  // x less the whole number below
  V p = splat(1.8671305697e-03f);
  p = p * r + 9.0170292536e-03f;
  p = p * r + 5.5799913880e-02f;
  p = p * r + 2.4016444994e-01f;
  p = p * r + 6.9315131182e-01f;
  return __builtin_ia32_scalefps512_mask(p * r + R(1), x, x, -1, 4);
#else
  M is_tiny = x < R(-126);
  V n = (x + R(12582912)) - R(12582912), r = x - n;
  V p = splat(1.3264727219e-03f);
  p = p * r + 9.6715128124e-03f;
  p = p * r + 5.5507337448e-02f;
  p = p * r + 2.4022242083e-01f;
  p = p * r + 6.9314697760e-01f;
  M whole = __builtin_convertvector(is_tiny ? V{} : n, M);
  V found = (p * r + R(1)) * of_bits((whole + 127) << 23);
  return is_tiny ? V{} : found;
#endif
}

struct Space {  // what one thread works with
  V *scores, *groups;  // [key][VECTORS], [group][VECTORS]
  V *powers, *output;  // [TILE][VECTORS], [value_width][VECTORS]
  V *cell_sums, *cell_largest;  // [key cell][VECTORS]
  R *query;  // [width][LANES]
  std::vector<R> row_of_query;  // [width]
  std::vector<char> is_seen;  // of each tile: a key in it may be looked at
  V *top_scores;  // [VECTORS][top]
  M *top_keys, *listed;  // [VECTORS][top], [room_of_list]
  Int room_of_list;
  std::vector<I> reaching;  // groups with a key for the list
  Int first_tile, last_tile, first_cell, last_cell;  // what the block reaches; the last ones are not in it
  Int limit;  // from this key on, nothing can be seen
  V row_largest[VECTORS];
  R position[LANES];
  std::unique_ptr<char[]> memory;

  explicit Space(const Work &w) {
    Int tiles = (w.keys + TILE - 1) / TILE, row = LANES * sizeof(R);
    Int rows = tiles * (TILE + GROUPS) + TILE + w.value_width + 2 * w.key_cells + w.width + (2 + GROUP) * w.top;
    memory.reset(new char[64 + row * rows]);
    char *at = (char *)(((uintptr_t)memory.get() + 63) / 64 * 64);
    auto take = [&](Int rows) { V *here = (V *)at; at += rows * row; return here; };
    scores = take(tiles * TILE);
    groups = take(tiles * GROUPS);
    powers = take(TILE);
    output = take(w.value_width);
    cell_sums = take(w.key_cells);
    cell_largest = take(w.key_cells);
    query = (R *)take(w.width);
    row_of_query.resize(w.width);
    is_seen.resize(tiles);
    reaching.resize(tiles * GROUPS + 1);
    top_scores = take(w.top);
    top_keys = (M *)take(w.top);
    room_of_list = VECTORS * GROUP * w.top;
    listed = (M *)take(GROUP * w.top);
  }
};

// The scores of COUNT keys, and the largest of them.
template <int COUNT>
INLINE void products(const R *query, const R *key, Int key_step, Int width, V *scores, V *most) {
  V sum[COUNT][VECTORS] = {};
  for (Int i = 0; i < width; ++i) {
    V x[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) x[v] = ((const V *)query)[i * VECTORS + v];
#pragma GCC unroll 8
    for (int k = 0; k < COUNT; ++k) {
      V y = splat(key[k * key_step + i]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sum[k][v] += x[v] * y;
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < COUNT; ++k)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      scores[k * VECTORS + v] = sum[k][v];
      most[v] = larger(most[v], sum[k][v]);
    }
}

// Of the keys from `limit` on, nothing can be seen.
static void tile_scores(const Work &w, Space &s, const R *key, Int tile, Int limit) {
  Int end = std::min(w.keys - tile * TILE, Int(TILE));
  limit -= tile * TILE;
  for (Int k = 0; k < TILE; k += GROUP) {
    V *scores = s.scores + (tile * TILE + k) * VECTORS, most[VECTORS];
    for (int v = 0; v < VECTORS; ++v) most[v] = splat(NOTHING);
    const R *here = key + (tile * TILE + k) * w.key_step;
    if (k >= limit)
      for (int j = 0; j < GROUP * VECTORS; ++j) scores[j] = splat(NOTHING);
    else if (k + GROUP <= end)
      for (int j = 0; j < GROUP; j += AT_ONCE)
        products<AT_ONCE>(s.query, here + j * w.key_step, w.key_step, w.width, scores + j * VECTORS, most);
    else
      for (Int j = 0; j < GROUP; ++j)
        if (k + j < end)
          products<1>(s.query, here + j * w.key_step, w.key_step, w.width, scores + j * VECTORS, most);
        else
          for (int v = 0; v < VECTORS; ++v) scores[j * VECTORS + v] = splat(NOTHING);
    for (int v = 0; v < VECTORS; ++v) s.groups[(tile * GROUPS + k / GROUP) * VECTORS + v] = most[v];
  }
}

enum Sight { NONE, SOME, ALL };

// How much of a tile the mask lets through.
template <class T, class Blocked>
static Sight sight_of(const Work &w, const T *mask, Int rows, Int first, Int end, Blocked is_blocked) {
  bool any = false, all = true;
  for (Int r = 0; r < (w.mask_query_step ? rows : 1); ++r) {
    const T *row = mask + r * w.mask_query_step;
    Int seen = 0, last = w.mask_key_step ? end : first + 1;
    if (w.mask_key_step == 1)
      for (Int k = first; k < last; ++k) seen += !is_blocked(row[k]);
    else
      for (Int k = first; k < last; ++k) seen += !is_blocked(row[k * w.mask_key_step]);
    any |= seen > 0;
    all &= seen == last - first;
    if (any && !all) return SOME;
  }
  return all ? ALL : NONE;
}

// What is added to a score, for one byte that says whether a key may be looked at, or for a bias.
INLINE R added(char may) { return may ? R(0) : NOTHING; }
INLINE R added(R bias) {
  // A bias that is finite stays so: a row that has no other is not dead.
  return bias == NOTHING ? NOTHING : std::max(R(bias * R(1.4426950408889634)), -FLT_MAX);
}

template <class T>
static void apply_mask(const Work &w, V *scores, const T *mask, Int rows, Int first, Int end) {
  R bias[LANES][TILE + 1];  // one more, so that a column is not all in one place of the cache
  Int count = end - first, high = w.mask_query_step ? rows : 1;
  if (rows < LANES) memset(bias, 0, sizeof bias);
  for (Int r = 0; r < high; ++r) {
    const T *row = mask + r * w.mask_query_step + first * w.mask_key_step;
    if (w.mask_key_step == 1)
      for (Int k = 0; k < count; ++k) bias[r][k] = added(row[k]);
    else
      for (Int k = 0; k < count; ++k) bias[r][k] = added(row[k * w.mask_key_step]);
  }
  for (Int k = 0; k < count; ++k)
    for (int v = 0; v < VECTORS; ++v) {
      V x;
      if (w.mask_query_step)
        for (int lane = 0; lane < W; ++lane) x[lane] = bias[v * W + lane][k];
      else
        x = splat(bias[0][k]);
      scores[k * VECTORS + v] += x;
    }
}

static void apply_band(const Work &w, const Space &s, V *scores, Int first, Int end) {
  for (Int k = first; k < end; ++k)
    for (int v = 0; v < VECTORS; ++v) {
      V distance = ((const Loose *)s.position)[v] - R(k), &score = scores[(k - first) * VECTORS + v];
      M is_in = (distance >= -R(w.right)) & (distance <= R(w.left));
      score = choose(is_in, score, splat(NOTHING));
    }
}

// First pass: scores, the largest of each group and row. Tiles of which nothing can be seen are left out.
static void pass_scores(const Work &w, Space &s, Int head, Int row, Int rows) {
  Int low = row + w.mask_offset, high = low + rows - 1;
  Int from = std::max(Int(0), low - w.left), to = std::min(w.keys, high + w.right + 1);
  s.first_tile = from / TILE;
  s.last_tile = to > from ? (to + TILE - 1) / TILE : s.first_tile;
  s.limit = to;
  for (int i = 0; i < LANES; ++i) s.position[i] = R(low + i);
  V largest[VECTORS];
  for (int v = 0; v < VECTORS; ++v) largest[v] = splat(NOTHING);
  const R *query = w.query + w.query_at[head] + row * w.query_step, *key = w.key + w.key_at[head];
  for (Int lane = 0; lane < LANES; ++lane) {
    for (Int i = 0; i < w.width; ++i)
      s.row_of_query[i] = lane < rows ? R(query[lane * w.query_step + i] * w.factor) : R(0);
    for (Int i = 0; i < w.width; ++i) s.query[i * LANES + lane] = s.row_of_query[i];
  }
  const char *mask = (const char *)w.mask;
  if (w.mask_kind) mask += (w.mask_at[head] + row * w.mask_query_step) * (w.mask_kind == 1 ? 1 : sizeof(R));
  for (Int tile = s.first_tile; tile < s.last_tile; ++tile) {
    Int first = tile * TILE, end = std::min(w.keys, first + TILE);
    bool is_banded = first < high - w.left || end - 1 > low + w.right;
    Sight sight = ALL;
    if (w.mask_kind == 1)
      sight = sight_of(w, mask, rows, first, end, [](char may) { return !may; });
    else if (w.mask_kind == 2) {
      sight = sight_of(w, (const R *)mask, rows, first, end, [](R bias) { return bias == NOTHING; });
      if (sight == ALL) sight = SOME;  // there is something to add
    }
    s.is_seen[tile] = sight != NONE;
    if (sight == NONE) continue;
    tile_scores(w, s, key, tile, to);
    V *scores = s.scores + first * VECTORS, *groups = s.groups + tile * GROUPS * VECTORS;
    if (is_banded) apply_band(w, s, scores, first, end);
    if (sight == SOME && w.mask_kind == 1) apply_mask(w, scores, mask, rows, first, end);
    if (sight == SOME && w.mask_kind == 2) apply_mask(w, scores, (const R *)mask, rows, first, end);
    if (is_banded || sight == SOME)
      for (int g = 0; g < GROUPS * VECTORS; ++g) {
        V most = splat(NOTHING);
        for (int k = 0; k < GROUP; ++k)
          most = larger(most, scores[(g / VECTORS * GROUP + k) * VECTORS + g % VECTORS]);
        groups[g] = most;
      }
    for (int g = 0; g < GROUPS; ++g)
      for (int v = 0; v < VECTORS; ++v) largest[v] = larger(largest[v], groups[g * VECTORS + v]);
  }
  for (int v = 0; v < VECTORS; ++v) s.row_largest[v] = largest[v];
}
