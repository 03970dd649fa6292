// Steps of one block of W members. `gradient` stands above: it fills G and *loss from P, Q and X.

INLINE M is_finite(V x) { return abs(x) < R(INFINITY); }

// 1 - beta to the power of so many updates, lane by lane; all lanes mostly count alike.
static V correction(double beta, const double *updates) {
  V y;
  for (int i = 0; i < W; ++i) y[i] = i && updates[i] == updates[0] ? y[0] : R(1 - std::pow(beta, updates[i]));
  return y;
}

// A block: parameters and the moments of AdamW, [3][SIZE]; what differs between members, Q; decay and clip of each;
// the updates of each so far; and who is alive: a lane that met a number that is not finite is left alone ever after.
struct Block {
  V *state;
  const V *Q;
  const double *decay, *clip;
  double *updates;
  bool *alive;
  int64_t is_sgd;
};

// Take steps: a batch X of BATCH elements and a rate of each lane for each step, a loss and a norm of each lane out.
// Returns how many places were looked up that were not there.
extern "C" int64_t steps(Block *block, const V *X, const double *rates, V *losses, V *norms, V *T, int64_t count) {
  V *P = block->state, *first = P + SIZE, *second = first + SIZE;
  V *G = T + SCRATCH;
  V decay, most;
  M alive;
  for (int i = 0; i < W; ++i) alive[i] = -block->alive[i], decay[i] = block->decay[i], most[i] = block->clip[i];
  int64_t wrong = 0;
  for (int64_t step = 0; step < count; ++step, X += BATCH, rates += W) {
    V loss;
    gradient(P, block->Q, X, G, &loss, T, &wrong);
    V squares[4] = {V{}, V{}, V{}, V{}};
    for (int64_t i = 0; i < SIZE; ++i) squares[i & 3] += G[i] * G[i];
    V norm = sqrt((squares[0] + squares[1]) + (squares[2] + squares[3]));
    losses[step] = choose(alive, loss, splat(R(NAN)));
    norms[step] = choose(alive, norm, splat(R(NAN)));
    alive &= is_finite(loss) & is_finite(norm);
    for (int i = 0; i < W; ++i) block->updates[i] += alive[i] != 0;
    V factor = most / (norm + R(1e-6));
    factor = factor > R(1) ? splat(1) : factor;
    V rate, keep;
    for (int i = 0; i < W; ++i) rate[i] = R(rates[i]), keep[i] = R(1 - rates[i] * block->decay[i]);
    if (block->is_sgd) {
      for (int64_t i = 0; i < SIZE; ++i) P[i] = choose(alive, P[i] - rate * (factor * G[i]), P[i]);
      continue;
    }
    V one = R(1) / sqrt(correction(0.999, block->updates)), size = rate / correction(0.9, block->updates);
    for (int64_t i = 0; i < SIZE; ++i) {
      V g = factor * G[i];
      V m = first[i] + (g - first[i]) * R(1 - 0.9), v = second[i] * R(0.999) + g * g * R(1 - 0.999);
      V p = P[i] * keep - size * m / (sqrt(v) * one + R(1e-8));
      first[i] = choose(alive, m, first[i]);
      second[i] = choose(alive, v, second[i]);
      P[i] = choose(alive, p, P[i]);
    }
  }
  for (int i = 0; i < W; ++i) block->alive[i] = alive[i] != 0;
  return wrong;
}
