// What a summary says of the rows of a block: see summary.py for the words.

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

// List the keys of each lane whose scores reach `least`, of those that equal it only the first; return how long the
// longest list is. The others are filled up with -1.
static Int list_keys(const Work &w, Space &s, int v, V least) {
  const int KEYS = std::min(GROUP, 64 / W);  // whose lanes are the bits of one number
  Int most = s.room_of_list, longest = 0, groups = 0, count[W] = {}, equal[W] = {};
  for (Int tile = s.first_tile; tile < s.last_tile; ++tile)
    for (int g = 0; s.is_seen[tile] && g < GROUPS; ++g) {
      s.reaching[groups] = I(tile * GROUPS + g);
      groups += lanes_above(least, s.groups[(tile * GROUPS + g) * VECTORS + v]) != ALL_LANES;
    }
  for (Int i = 0; i < most; ++i) s.listed[i] = M{} - 1;
  for (Int g = 0; g < groups; ++g)
    for (Int key = s.reaching[g] * GROUP, end = key + GROUP; key < end; key += KEYS) {
      const V *scores = s.scores + key * VECTORS + v;
      uint64_t found = 0;
      for (int k = 0; k < KEYS; ++k)
        found |= uint64_t(ALL_LANES & ~lanes_above(least, scores[k * VECTORS])) << k * W;
      for (; found; found &= found - 1) {
        int k = __builtin_ctzll(found) / W, lane = __builtin_ctzll(found) % W;
        if (((const R *)(scores + k * VECTORS))[lane] == ((const R *)&least)[lane] && equal[lane]++ >= w.top) continue;
        if (count[lane] < most) ((I *)s.listed)[count[lane]++ * W + lane] = I(key + k);
      }
    }
  for (int lane = 0; lane < W; ++lane) longest = std::max(longest, count[lane]);
  return longest;
}

// The `top` largest scores of each row. No more than `top` groups of keys can have a largest one above the last of
// these: so the `top` largest maxima of groups are found first, by values alone; then the keys that reach the least of
// them are listed, few more than `top`; and only these are put in order. Of equal ones the first are taken.
static void pass_top(const Work &w, Space &s) {
  Int top = w.top;
  for (int v = 0; v < VECTORS; ++v) {
    V *best = s.top_scores + v * top;
    M *places = s.top_keys + v * top;
    for (Int i = 0; i < top; ++i) best[i] = splat(NOTHING), places[i] = M{} - 1;
    for (Int tile = s.first_tile; tile < s.last_tile; ++tile)
      for (int g = 0; s.is_seen[tile] && g < GROUPS; ++g) {
        V in = s.groups[(tile * GROUPS + g) * VECTORS + v];
        for (Int i = 0; i < top; ++i) {
          V old = best[i];
          best[i] = larger(old, in);
          in = smaller(old, in);
        }
      }
    Int listed = list_keys(w, s, v, larger(best[top - 1], splat(-FLT_MAX)));
    for (Int i = 0; i < top; ++i) best[i] = splat(NOTHING);
    for (Int i = 0; i < listed; ++i) {
      M key = s.listed[i];
      insert(best, places, top, choose(key < 0, splat(NOTHING), picked(s.scores + v, key)), key);
    }
  }
}

// Sums over a row, in double: of e = 2^(s - largest), e · (s - largest), e · j and e · j², with j the distance of a
// key from the row's first top key, so that the squares of far keys do not swallow what little there is beside it.
struct Sums {
  double total[LANES], energy[LANES], first_moment[LANES], second_moment[LANES];
};

// Each lane's number from the lane that is named.
INLINE V swapped(V x, M lanes) {
#if __GNUC__ && !__clang__
  return __builtin_shuffle(x, lanes);
#else
  V y;
  for (int i = 0; i < W; ++i) y[i] = x[lanes[i]];
  return y;
#endif
}

// Turn W vectors, one for each cell of keys, whose lanes are rows, into one for each run of `reach` rows (a power of
// two), whose lanes are cells, by adding up a run's rows, or by taking the largest. Run r ends up in x[r * reach].
template <class Join>
INLINE void turn(V *x, int reach, Join join) {
  M lane;
  for (int i = 0; i < W; ++i) lane[i] = i;
  for (int step = 1; step < W; step *= 2) {
    M is_first = (lane & step) == 0, other = lane ^ step;
    for (int i = 0; i < W; i += std::min(step, reach)) {
      if (i & step) continue;
      V a = x[i], b = x[i + step];
      if (step < reach) {
        x[i] = join(choose(is_first, a, b), swapped(choose(is_first, b, a), other));
      } else {
        x[i] = choose(is_first, a, swapped(b, other));
        x[i + step] = choose(is_first, swapped(a, other), b);
      }
    }
  }
}

// The map's cells: sums of weights, and the largest as a logarithm, of the block's rows in each cell of queries.
template <int REACH>
static void pool_runs(const Work &w, Space &s, Int head, Int row, Int rows, const R *inverse, const R *log_sum) {
  R *mean[LANES], *max[LANES];  // where the cells of each row begin
  for (Int lane = 0; lane < rows; lane += REACH) {
    Int at = (head * w.query_cells + (row + lane) / w.query_cell) * w.key_cells;
    mean[lane] = w.map_mean + at, max[lane] = w.map_max + at;
  }
  for (int v = 0; v < VECTORS; ++v) {
    V share = ((const Loose *)inverse)[v], level = ((const Loose *)log_sum)[v];
    for (Int c = s.first_cell; c < s.last_cell; c += W) {
      V sum[W], most[W];
      Int count = std::min(Int(W), s.last_cell - c);
      for (Int i = 0; i < W; ++i) {
        const Int at = (c + std::min(i, count - 1)) * VECTORS + v;
        sum[i] = s.cell_sums[at] * share;
        most[i] = s.cell_largest[at] - level;
      }
      turn(sum, REACH, [](V a, V b) { return a + b; });
      turn(most, REACH, larger);
      for (Int lane = 0; lane < W && v * W + lane < rows; lane += REACH) {
        R *means = mean[v * W + lane] + c, *tops = max[v * W + lane] + c;
        if (count == W) {
          *(Loose *)means += sum[lane];
          *(Loose *)tops = larger(most[lane], *(Loose *)tops);
        } else {
          for (Int i = 0; i < count; ++i) means[i] += sum[lane][i], tops[i] = std::max(tops[i], most[lane][i]);
        }
      }
    }
  }
}

static void pool(const Work &w, Space &s, Int head, Int row, Int rows, const R *inverse, const R *log_sum) {
  Int reach = w.query_cell % W == 0 ? W : w.query_cell;  // rows that go into one cell
  auto runs = reach == W ? pool_runs<W> : reach == 2 ? pool_runs<2> : reach == 4 ? pool_runs<4> : pool_runs<1>;
  runs(w, s, head, row, rows, inverse, log_sum);
}

// What is said of each row of the block.
static void describe(const Work &w, Space &s, Int head, Int row, Int rows, const Sums &sums) {
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
