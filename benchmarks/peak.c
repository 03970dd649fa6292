/* The most fp32 multiply-adds that one core does: many independent chains of FMA that stay in registers.
   Prints FLOP/s. WIDTH is 8 (AVX2) or 16 (AVX-512) floats a vector, given at compile time. */
#include <stdio.h>
#include <time.h>

#define CHAINS 12 /* more than latency times units, fewer than there are registers */

typedef float vector __attribute__((vector_size(WIDTH * sizeof(float))));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    const long steps = 20 * 1000 * 1000;
    double best = 0;
    volatile float sink = 0;
    for (int round = 0; round < 7; round++) {
        vector sum[CHAINS], factor, term;
        for (int lane = 0; lane < WIDTH; lane++) {
            factor[lane] = 0.999f + sink;
            term[lane] = 0.001f;
        }
        for (int chain = 0; chain < CHAINS; chain++) sum[chain] = term * (float)chain;
        double start = now();
        for (long step = 0; step < steps; step++)
            for (int chain = 0; chain < CHAINS; chain++) sum[chain] = sum[chain] * factor + term;
        double rate = 2.0 * WIDTH * CHAINS * (double)steps / (now() - start);
        if (rate > best) best = rate;
        for (int chain = 0; chain < CHAINS; chain++) sink += sum[chain][0] * 0.0f;
    }
    printf("%.6g\n", best);
    return 0;
}
