/* The training loop of jitted_loop.py in C, on the library: prints seconds a round of each repetition, then
 * theta. Arguments: n s p rounds repetitions root. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fastgc.h"

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t state;

static uint64_t draw(void)
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void *room(int64_t bytes)
{
    void *found = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    if (!found)
        exit(1);
    memset(found, 0, (size_t)bytes);
    return found;
}

int main(int argc, char **argv)
{
    int64_t given[6];
    if (argc != 7)
        return 2;
    for (int i = 0; i < 6; i++)
        given[i] = atoll(argv[i + 1]);
    const int64_t n = given[0], s = given[1], p = given[2], rounds = given[3];
    const int64_t f = n - s, w = s + 1, start[] = {0, n}, root[] = {given[5]}, at[] = {0};
    double *sine = room(8 * (2 * n + FGC_PAD)), *cosecant = room(8 * (2 * n + FGC_PAD));
    double *phase = room(32 * n), *work = room(FGC_WORK * n + 8);
    fgc_cyclic_tables(n, root[0], sine, cosecant, phase);

    /* A column of B is n times the vector of its own support; rows are as Python's has them. */
    int64_t need = w, where;
    const fgc_cyclic code = {n, 1, start, &need, root, at, at, sine, cosecant, phase};
    int64_t *order = room(8 * n), *held = room(8 * n * w);
    double *column = room(16 * w), *coefficients = room(16 * n * w), *vector = room(16 * n);
    for (int64_t x = 0; x < n; x++)
        order[x] = x;
    if (fgc_decoding_vector(&code, order, column, &where, work, INFINITY, FGC_LOCATOR, w))
        return 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t x = 0; x < w; x++) {
            held[i * w + x] = (i - x + n) % n;
            for (int part = 0; part < 2; part++)
                coefficients[2 * (i * w + x) + part] = (double)n * column[2 * x + part];
        }
    need = f;

    double *targets = room(8 * n * p), *partials = room(8 * n * p), *messages = room(8 * n * p);
    double *theta = room(8 * p), *gradient = room(8 * p);
    uintptr_t *partial = room(8 * n), *message = room(8 * n);
    const fgc_combination decoding = {FGC_PACKED, FGC_CHECK | FGC_USED, vector, p, p, order};
    for (int64_t t = 0; t < n * p; t++)
        targets[t] = sin((double)t);
    for (int64_t i = 0; i < n; i++) {
        partial[i] = (uintptr_t)(partials + i * p);
        message[i] = (uintptr_t)(messages + i * p);
    }
    for (int64_t repetition = 0; repetition < given[4]; repetition++) {
        memset(theta, 0, (size_t)(8 * p));
        for (int64_t x = 0; x < n; x++)
            order[x] = x;
        state = 0;
        const double begun = seconds();
        for (int64_t r = 0; r < rounds; r++) {
            for (int64_t j = 0; j < n; j++)
                for (int64_t t = 0; t < p; t++)
                    partials[j * p + t] = theta[t] - targets[j * p + t];
            for (int64_t i = 0; i < n; i++) {
                const fgc_combination plan = {FGC_PACKED, FGC_CHECK | FGC_USED,
                                              coefficients + 2 * i * w, p, p, held + i * w};
                if (fgc_combine_double(&plan, partial, messages + i * p, w))
                    return 1;
            }
            for (int64_t i = 0; i < f; i++) { /* the first f of a random order */
                const int64_t j = i + (int64_t)(draw() % (uint64_t)(n - i)), other = order[j];
                order[j] = order[i];
                order[i] = other;
            }
            if (fgc_decoding_vector(&code, order, vector, &where, work, INFINITY, FGC_SPREAD, f) ||
                fgc_combine_double(&decoding, message, gradient, f))
                return 1;
            fgc_sgd_double(theta, NULL, gradient, 0.5 / (double)n, 0, p);
        }
        printf("%.9g ", (seconds() - begun) / (double)rounds);
    }
    for (int64_t t = 0; t < p; t++)
        printf("\n%.17g", theta[t]);
    return 0;
}
