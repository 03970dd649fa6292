// Attention, a block of rows at a time: softmax(QKᵀ)V, what a summary says of its weights, or both in one pass.
//
// A block of LANES queries passes over the keys twice: once for the scores, their largest in each group of keys and in
// each row; then, with the largest known, for 2^(s - largest), which are summed up and gather the values. A row's
// output is the same to the bit whatever block it is in, whatever thread computes it, with a summary and without.

// Add the values of some keys to the output, each times its 2^(s - largest): COUNT channels of them.
template <int COUNT>
INLINE void add_channels(const V *powers, const R *value, Int value_step, Int keys, V *output) {
  V sum[COUNT][VECTORS] = {};
  for (Int k = 0; k < keys; ++k) {
    V e[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) e[v] = powers[k * VECTORS + v];
#pragma GCC unroll 8
    for (int i = 0; i < COUNT; ++i) {
      V y = splat(value[k * value_step + i]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sum[i][v] += e[v] * y;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < COUNT; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) output[i * VECTORS + v] += sum[i][v];
}

static void add_values(const Work &w, Space &s, const R *value, Int keys) {
  Int i = 0;
  for (; i + AT_ONCE <= w.value_width; i += AT_ONCE)
    add_channels<AT_ONCE>(s.powers, value + i, w.value_step, keys, s.output + i * VECTORS);
  for (; i < w.value_width; ++i) add_channels<1>(s.powers, value + i, w.value_step, keys, s.output + i * VECTORS);
}

// Second pass.
template <bool HAS_OUTPUT, bool IS_TOLD>
static void pass_sums(const Work &w, Space &s, Int head, Sums &sums) {
  memset(&sums, 0, sizeof sums);
  V largest[VECTORS], centre[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    largest[v] = choose(s.row_largest[v] == NOTHING, V{}, s.row_largest[v]);
    if (IS_TOLD) centre[v] = __builtin_convertvector(s.top_keys[v * w.top], V);
  }
  bool by_groups = w.key_cell % GROUP == 0;
  if (IS_TOLD) {
    s.first_cell = s.first_tile * TILE / w.key_cell;
    s.last_cell = std::min(w.key_cells, (s.last_tile * TILE + w.key_cell - 1) / w.key_cell);
    for (Int c = s.first_cell * VECTORS; c < s.last_cell * VECTORS; ++c)
      s.cell_sums[c] = V{}, s.cell_largest[c] = splat(NOTHING);
  }
  if (HAS_OUTPUT) std::fill(s.output, s.output + w.value_width * VECTORS, V{});
  for (Int tile = s.first_tile; tile < s.last_tile; ++tile) {
    if (!s.is_seen[tile]) continue;
    V total[VECTORS] = {}, energy[VECTORS] = {}, first_moment[VECTORS] = {}, second_moment[VECTORS] = {};
    Int end = std::min(std::min(w.keys, (tile + 1) * TILE), s.limit), start = tile * TILE;
    Int cell = IS_TOLD ? start / w.key_cell : 0;
    for (Int key = start, stop; key < end; key = stop, ++cell) {
      stop = IS_TOLD ? std::min(end, (cell + 1) * w.key_cell) : end;
      V sum[VECTORS] = {}, j[VECTORS];
      if (IS_TOLD)
        for (int v = 0; v < VECTORS; ++v) j[v] = R(key) - centre[v];
      for (Int k = key; k < stop; ++k)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) {
          V x = larger(splat(-200), s.scores[k * VECTORS + v] - largest[v]), e = power_of_two(x);
          if (HAS_OUTPUT) s.powers[(k - start) * VECTORS + v] = e, total[v] += e;
          if (IS_TOLD) {
            V moment = e * j[v];
            sum[v] += e;
            energy[v] += e * x;
            first_moment[v] += moment;
            second_moment[v] += moment * j[v];
            j[v] += R(1);
          }
        }
      if (!IS_TOLD) continue;
      V *sums_here = s.cell_sums + cell * VECTORS, *most = s.cell_largest + cell * VECTORS;
      for (int v = 0; v < VECTORS; ++v) {
        if (!HAS_OUTPUT) total[v] += sum[v];
        sums_here[v] += sum[v];
        if (by_groups)
          for (Int g = key / GROUP; g * GROUP < stop; ++g) most[v] = larger(most[v], s.groups[g * VECTORS + v]);
        else
          for (Int k = key; k < stop; ++k) most[v] = larger(most[v], s.scores[k * VECTORS + v]);
      }
    }
    if (HAS_OUTPUT) add_values(w, s, w.value + w.value_at[head] + start * w.value_step, end - start);
    for (int v = 0; v < VECTORS; ++v)
      for (int i = 0; i < W; ++i) {
        int lane = v * W + i;
        sums.total[lane] += total[v][i];
        if (!IS_TOLD) continue;
        sums.energy[lane] += energy[v][i];
        sums.first_moment[lane] += first_moment[v][i];
        sums.second_moment[lane] += second_moment[v][i];
      }
  }
}

static void write_output(const Work &w, Space &s, Int head, Int row, Int rows, const Sums &sums) {
  R *output = w.output + w.output_at[head] + row * w.output_step, inverse[LANES];
  for (Int lane = 0; lane < LANES; ++lane) inverse[lane] = sums.total[lane] == 0 ? 0 : R(1 / sums.total[lane]);
  for (Int i = 0; i < w.value_width; ++i)
    for (int v = 0; v < VECTORS; ++v) s.output[i * VECTORS + v] *= ((const Loose *)inverse)[v];
  for (Int lane = 0; lane < rows; ++lane)
    for (Int i = 0; i < w.value_width; ++i) output[lane * w.output_step + i] = ((R *)s.output)[i * LANES + lane];
}

static void block(const Work &w, Space &s, Int head, Int row, Int rows) {
  Sums sums;
  pass_scores(w, s, head, row, rows);
  if (w.entropy) pass_top(w, s);
  if (!w.output)
    pass_sums<false, true>(w, s, head, sums);
  else if (w.entropy)
    pass_sums<true, true>(w, s, head, sums);
  else
    pass_sums<true, false>(w, s, head, sums);
  if (w.output) write_output(w, s, head, row, rows, sums);
  if (w.entropy) describe(w, s, head, row, rows, sums);
}

// Some rows; with a summary whole rows of the map, so that no two threads write into one cell.
static void some_rows(const Work &w, Space &s, Int head, Int first, Int end) {
  if (w.entropy) {
    Int from = (head * w.query_cells + first / w.query_cell) * w.key_cells;
    Int to = (head * w.query_cells + (end - 1) / w.query_cell + 1) * w.key_cells;
    for (Int i = from; i < to; ++i) w.map_mean[i] = 0, w.map_max[i] = NOTHING;
  }
  for (Int row = first; row < end; row += LANES) block(w, s, head, row, std::min(Int(LANES), end - row));
  for (Int row = first; w.entropy && row < end; row += w.query_cell) {
    Int high = std::min(w.query_cell, end - row);
    R *mean = w.map_mean + (head * w.query_cells + row / w.query_cell) * w.key_cells;
    R *max = w.map_max + (head * w.query_cells + row / w.query_cell) * w.key_cells;
    Int last = w.key_cells - 1;
    R whole = R(high * w.key_cell), rest = R(high * (w.keys - last * w.key_cell));
    for (Int c = 0; c < last; ++c) mean[c] /= whole;
    mean[last] /= rest;
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
extern "C" int attend_rows(const Work *work) {
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
        some_rows(w, s, unit / units, first, std::min(w.queries, first + rows));
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
