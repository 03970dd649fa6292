// The rows of softmax(QKᵀ) one block at a time, and what is said of each: see summary.py for the words.
//
// The lanes of a vector are queries. A block of LANES queries passes over the keys twice: once for the scores, their
// largest in each group of keys and in each row; then, with the largest known, for the sums of 2^(s - largest). Scores
// are in units of log 2 (the queries are multiplied by log2 e), so that the exponential is one of base 2.
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
  const R *query, *key;
  const void *mask;
  const Int *query_at, *key_at, *mask_at;  // where each head begins, in elements
  Int heads, queries, keys, width;
  Int query_step, key_step, mask_query_step, mask_key_step;
  Int mask_kind;  // 0 none, 1 one byte each (may attend), 2 added
  Int left, right, mask_offset, offset;  // keys from position - left to position + right may be looked at
  Int query_cell, key_cell, query_cells, key_cells, top, threads;
  double factor;  // scale · log2 e
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
  V *cell_sums, *cell_largest;  // [key cell][VECTORS]
  R *query;  // [width][LANES]
  std::vector<R> row_of_query;  // [width]
  std::vector<char> is_seen;  // of each tile: a key in it may be looked at
  V *top_scores;  // [VECTORS][top]
  M *top_keys, *top_groups;
  Int first_tile, last_tile, first_cell, last_cell;  // what the block reaches; the last ones are not in it
  V row_largest[VECTORS];
  R position[LANES];
  std::unique_ptr<char[]> memory;

  explicit Space(const Work &w) {
    Int tiles = (w.keys + TILE - 1) / TILE, row = LANES * sizeof(R);
    memory.reset(new char[64 + row * (tiles * (TILE + GROUPS) + 2 * w.key_cells + w.width + 3 * w.top)]);
    char *at = (char *)(((uintptr_t)memory.get() + 63) / 64 * 64);
    auto take = [&](Int rows) { V *here = (V *)at; at += rows * row; return here; };
    scores = take(tiles * TILE);
    groups = take(tiles * GROUPS);
    cell_sums = take(w.key_cells);
    cell_largest = take(w.key_cells);
    query = (R *)take(w.width);
    row_of_query.resize(w.width);
    is_seen.resize(tiles);
    top_scores = take(w.top);
    top_keys = (M *)take(w.top);
    top_groups = (M *)take(w.top);
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

static void apply_mask(const Work &w, R *scores, const void *mask, Int rows, Int first, Int end) {
  for (Int r = 0; r < rows; ++r)
    for (Int k = first; k < end; ++k) {
      Int at = r * w.mask_query_step + k * w.mask_key_step;
      R &score = scores[(k - first) * LANES + r];
      if (w.mask_kind == 1) {
        if (!((const char *)mask)[at]) score = NOTHING;
      } else {
        R bias = ((const R *)mask)[at];
        score = bias == NOTHING ? NOTHING : R(score + bias * R(1.4426950408889634));
      }
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
    if (sight == SOME) apply_mask(w, (R *)scores, mask, rows, first, end);
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

// Put x among the `top` best of each lane, which are sorted; what is equal stays behind what was there.
INLINE void insert(V *best, M *places, Int top, V x, M place) {
  if (!lanes_above(x, best[top - 1])) return;
  V in = x;  // what comes into the next place: first x, then what it pushed down
  for (Int i = 0; i < top; ++i) {
    V old = best[i];
    M old_place = places[i];
    best[i] = x > old ? in : old;
    places[i] = x > old ? place : old_place;
    in = x > old ? old : in;
    place = x > old ? old_place : place;
  }
}

// Each lane's score of a key of its own; of the first key where that is negative.
INLINE V picked(const V *scores, M key) {
  M at = (key < 0 ? M{} : key) * LANES;
  V x;
  for (int lane = 0; lane < W; ++lane) x[lane] = ((const R *)scores)[at[lane] + lane];  // quicker than a gather
  return x;
}

// The `top` largest scores of each row, all lanes at once. They lie in the `top` groups with the largest maxima: first
// these groups, put in order again, then the keys in them. So of equal ones the first are taken.
static void pass_top(const Work &w, Space &s) {
  Int top = w.top;
  V *best = s.top_scores;
  M *places = s.top_keys, *found = s.top_groups;
  for (int v = 0; v < VECTORS; ++v, best += top, places += top) {
    for (Int i = 0; i < top; ++i) best[i] = splat(NOTHING), found[i] = M{} - 1;
    for (Int tile = s.first_tile; tile < s.last_tile; ++tile)
      for (int g = 0; s.is_seen[tile] && g < GROUPS; ++g)
        insert(best, found, top, s.groups[(tile * GROUPS + g) * VECTORS + v], M{} + I(tile * GROUPS + g));
    for (Int i = 1; i < top; ++i)
      for (Int j = i; j > 0; --j) {
        M a = found[j - 1], b = found[j];
        found[j - 1] = a < b ? a : b;
        found[j] = a < b ? b : a;
      }
    for (Int i = 0; i < top; ++i) best[i] = splat(NOTHING), places[i] = M{} - 1;
    for (Int i = 0; i < top; ++i)
      for (int j = 0; j < GROUP; ++j) {
        M key = found[i] * GROUP + j;
        insert(best, places, top, choose(found[i] < 0, splat(NOTHING), picked(s.scores + v, key)), key);
      }
  }
}

// Sums over a row, in double: of e = 2^(s - largest), e · (s - largest), e · j and e · j², with j the distance of a
// key from the row's first top key, so that the squares of far keys do not swallow what little there is beside it.
struct Sums {
  double total[LANES], energy[LANES], first_moment[LANES], second_moment[LANES];
};

// Second pass.
static void pass_sums(const Work &w, Space &s, Sums &sums) {
  memset(&sums, 0, sizeof sums);
  V largest[VECTORS], centre[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    largest[v] = choose(s.row_largest[v] == NOTHING, V{}, s.row_largest[v]);
    centre[v] = __builtin_convertvector(s.top_keys[v * w.top], V);
  }
  bool by_groups = w.key_cell % GROUP == 0;
  s.first_cell = s.first_tile * TILE / w.key_cell;
  s.last_cell = std::min(w.key_cells, (s.last_tile * TILE + w.key_cell - 1) / w.key_cell);
  for (Int c = s.first_cell * VECTORS; c < s.last_cell * VECTORS; ++c)
    s.cell_sums[c] = V{}, s.cell_largest[c] = splat(NOTHING);
  for (Int tile = s.first_tile; tile < s.last_tile; ++tile) {
    if (!s.is_seen[tile]) continue;
    V total[VECTORS] = {}, energy[VECTORS] = {}, first_moment[VECTORS] = {}, second_moment[VECTORS] = {};
    Int end = std::min(w.keys, (tile + 1) * TILE);
    for (Int key = tile * TILE, stop; key < end; key = stop) {
      Int cell = key / w.key_cell;
      stop = std::min(end, (cell + 1) * w.key_cell);
      V sum[VECTORS] = {}, j[VECTORS];
      V *sums_here = s.cell_sums + cell * VECTORS, *most = s.cell_largest + cell * VECTORS;
      for (int v = 0; v < VECTORS; ++v) j[v] = R(key) - centre[v];
      for (Int k = key; k < stop; ++k)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) {
          V x = larger(splat(-200), s.scores[k * VECTORS + v] - largest[v]), e = power_of_two(x), moment = e * j[v];
          sum[v] += e;
          energy[v] += e * x;
          first_moment[v] += moment;
          second_moment[v] += moment * j[v];
          j[v] += R(1);
        }
      for (int v = 0; v < VECTORS; ++v) {
        total[v] += sum[v];
        sums_here[v] += sum[v];
        if (by_groups)
          for (Int g = key / GROUP; g * GROUP < stop; ++g) most[v] = larger(most[v], s.groups[g * VECTORS + v]);
        else
          for (Int k = key; k < stop; ++k) most[v] = larger(most[v], s.scores[k * VECTORS + v]);
      }
    }
    for (int v = 0; v < VECTORS; ++v)
      for (int i = 0; i < W; ++i) {
        int lane = v * W + i;
        sums.total[lane] += total[v][i];
        sums.energy[lane] += energy[v][i];
        sums.first_moment[lane] += first_moment[v][i];
        sums.second_moment[lane] += second_moment[v][i];
      }
  }
}

// The map's cells: sums of weights, and the largest as a logarithm, of the block's rows in each cell of queries.
static void pool(const Work &w, Space &s, Int head, Int row, Int rows, const R *inverse, const R *log_sum) {
  V share[VECTORS], level[VECTORS];
  for (int v = 0; v < VECTORS; ++v) share[v] = ((const Loose *)inverse)[v], level[v] = ((const Loose *)log_sum)[v];
  R *mean = w.map_mean + head * w.query_cells * w.key_cells, *max = w.map_max + head * w.query_cells * w.key_cells;
  for (Int c = s.first_cell; c < s.last_cell; ++c) {
    V sum[VECTORS], most[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
      sum[v] = s.cell_sums[c * VECTORS + v] * share[v];
      most[v] = s.cell_largest[c * VECTORS + v] - level[v];
    }
    for (Int lane = 0; lane < rows;) {
      Int cell = (row + lane) / w.query_cell, stop = std::min(rows, (cell + 1) * w.query_cell - row);
      R &mean_here = mean[cell * w.key_cells + c], &max_here = max[cell * w.key_cells + c], total = 0, top = NOTHING;
      for (; lane < stop; ++lane) {
        total += ((R *)sum)[lane];
        top = ((R *)most)[lane] > top ? ((R *)most)[lane] : top;
      }
      mean_here += total;
      max_here = top > max_here ? top : max_here;
    }
  }
}

static void block(const Work &w, Space &s, Int head, Int row, Int rows) {
  pass_scores(w, s, head, row, rows);
  pass_top(w, s);
  Sums sums;
  pass_sums(w, s, sums);
  R inverse[LANES], level[LANES], largest[LANES], sinks[3][LANES];
  memcpy(largest, s.row_largest, sizeof largest);
  for (Int i = 0; i < LANES; ++i) {
    bool is_dead = i >= rows || sums.total[i] == 0;
    double total = is_dead ? 1 : sums.total[i], log_total = std::log2(total);
    Int at = head * w.queries + row + i, position = row + i + w.offset, wanted[3] = {0, position, position - 1};
    inverse[i] = is_dead ? 0 : R(1 / total);
    level[i] = is_dead ? R(INFINITY) : R(largest[i] + log_total);
    if (is_dead) largest[i] = 0;
    for (int n = 0; n < 3; ++n) {
      Int key = wanted[n];
      bool is_there = key >= 0 && key < w.keys && key / TILE >= s.first_tile && key / TILE < s.last_tile;
      sinks[n][i] = is_there && s.is_seen[key / TILE] ? ((R *)s.scores)[key * LANES + i] : NOTHING;
    }
    if (i >= rows) continue;
    double mean = sums.first_moment[i] / total;
    w.entropy[at] = R(0.6931471805599453 * std::max(0.0, log_total - sums.energy[i] / total));
    w.largest[at] = inverse[i];
    w.distance[at] = is_dead ? 0 : R(position - s.top_keys[i / W * w.top][i % W] - mean);
    w.spread[at] = R(std::sqrt(std::max(0.0, sums.second_moment[i] / total - mean * mean)));
    w.log_sum[at] = is_dead ? NOTHING : R(0.6931471805599453 * (double(s.row_largest[i / W][i % W]) + log_total));
  }
  R *outputs[3] = {w.first, w.own, w.previous}, weights[LANES];
  auto weigh = [&](int v, V score) {
    V x = larger(splat(-200), score - ((Loose *)largest)[v]);
    ((Loose *)weights)[v] = power_of_two(x) * ((Loose *)inverse)[v];
  };
  for (int n = 0; n < 3; ++n) {
    for (int v = 0; v < VECTORS; ++v) weigh(v, ((Loose *)sinks[n])[v]);
    memcpy(outputs[n] + head * w.queries + row, weights, rows * sizeof(R));
  }
  for (Int t = 0; t < w.top; ++t) {
    for (int v = 0; v < VECTORS; ++v) weigh(v, s.top_scores[v * w.top + t]);
    for (Int i = 0; i < rows; ++i) {
      Int at = (head * w.queries + row + i) * w.top + t;
      w.top_weights[at] = weights[i];
      w.top_keys[at] = weights[i] > 0 ? s.top_keys[i / W * w.top + t][i % W] : -1;
    }
  }
  pool(w, s, head, row, rows, inverse, level);
}

// Some whole rows of the map, so that no two threads write into one cell.
static void rows_of_map(const Work &w, Space &s, Int head, Int first, Int end) {
  Int from = (head * w.query_cells + first / w.query_cell) * w.key_cells;
  Int to = (head * w.query_cells + (end - 1) / w.query_cell + 1) * w.key_cells;
  for (Int i = from; i < to; ++i) w.map_mean[i] = 0, w.map_max[i] = NOTHING;
  for (Int row = first; row < end; row += LANES) block(w, s, head, row, std::min(Int(LANES), end - row));
  for (Int row = first; row < end; row += w.query_cell) {
    Int high = std::min(w.query_cell, end - row);
    R *mean = w.map_mean + (head * w.query_cells + row / w.query_cell) * w.key_cells;
    R *max = w.map_max + (head * w.query_cells + row / w.query_cell) * w.key_cells;
    for (Int c = 0; c < w.key_cells; ++c)
      mean[c] /= R(high * std::min(w.key_cell, w.keys - c * w.key_cell));
    for (Int c = 0; c < w.key_cells; c += W) {
      V x = splat(NOTHING);
      size_t bytes = std::min(Int(W), w.key_cells - c) * sizeof(R);
      memcpy(&x, max + c, bytes);
      x = power_of_two(larger(splat(-200), x));
      memcpy(max + c, &x, bytes);
    }
  }
}

// 0 when all is done, 1 when memory ran out.
extern "C" int summarise_rows(const Work *work) {
  const Work &w = *work;
  Int rows = w.query_cell * std::max(Int(1), Int(256) / w.query_cell), units = (w.queries + rows - 1) / rows;
  std::atomic<Int> next{0};
  std::atomic<int> failed{0};
  auto run = [&] {
#if __SSE__
    unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8040);  // the smallest numbers are zeros, for they are slow
#endif
    try {
      Space s(w);
      for (Int unit; !failed && (unit = next++) < w.heads * units;) {
        Int first = unit % units * rows;
        rows_of_map(w, s, unit / units, first, std::min(w.queries, first + rows));
      }
    } catch (const std::bad_alloc &) {
      failed = 1;
    }
#if __SSE__
    _mm_setcsr(control);
#endif
  };
  std::vector<std::thread> others;
  try {
    for (Int i = 1; i < std::min(w.threads, w.heads * units); ++i) others.emplace_back(run);
  } catch (...) {  // fewer threads do the same
  }
  run();
  for (auto &other : others) other.join();
  return failed;
}
