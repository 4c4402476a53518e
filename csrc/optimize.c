/* Steps of optimizers, each in one pass over its vectors. Memory bounds the speed, except where AMSGrad
 * computes roots and quotients in double precision. */
#include <float.h>
#include <math.h>

#include "vector.h"

/* Tell the compiler that elements do not depend on each other. `restrict` would claim more: a gradient may
 * be the very vector that is updated. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Go through i = 0 .. len-1 and return the sum of the squares of `change`, an expression that may
 * write element i. Sums in sixteen ways vectorise without fast-math. The last elements are marked as
 * independent, too: else compilers make two loops of them, and the one for vectors that lie close to
 * each other rounds sums in other places. */
#define RETURN_SQUARE_SUM(len, i, change)                                                                    \
    enum { WAYS = 16 };                                                                                      \
    double way[WAYS] = {0}, sum = 0;                                                                         \
    int64_t first = 0;                                                                                       \
    for (; first + WAYS <= len; first += WAYS) {                                                             \
        INDEPENDENT                                                                                          \
        for (int t = 0; t < WAYS; t++) {                                                                     \
            const int64_t i = first + t;                                                                     \
            const double changed = change;                                                                   \
            way[t] += changed * changed;                                                                     \
        }                                                                                                    \
    }                                                                                                        \
    for (int t = 0; t < WAYS; t++)                                                                           \
        sum += way[t];                                                                                       \
    INDEPENDENT                                                                                              \
    for (int64_t i = first; i < len; i++) {                                                                  \
        const double changed = change;                                                                       \
        sum += changed * changed;                                                                            \
    }                                                                                                        \
    return sum

typedef float floats __attribute__((vector_size(FGC_VECTOR)));
typedef float narrow __attribute__((vector_size(FGC_VECTOR / 2)));

/* The squares of NEAR vectors are added up in single precision; with more, roundings would count. */
enum { FLOATS = sizeof(floats) / sizeof(float), NEAR = 4, NEAREST = NEAR * FLOATS };

static FGC_INLINE floats load_floats(const float *from)
{
    floats v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* Widen both halves of a vector, and add them up. */
static FGC_INLINE vector fold(floats v)
{
    narrow half[2];
    memcpy(half, &v, sizeof v);
    return __builtin_convertvector(half[0], vector) + __builtin_convertvector(half[1], vector);
}

/* theta -= lr gradient, for the elements of whole blocks; returns how many these are. The squares of a
 * block's changes are added up in single precision, and the results to `sum`. With vectors in the second
 * cache that costs nothing; double precision would take half of the step's time. If squares overflow, or
 * are so small that underflow counts, changes are widened first. */
static FGC_INLINE int64_t blocks_descend_float(float *theta, const float *gradient, float lr, int64_t len,
                                               double *sum)
{
    const double least = NEAREST * (double)FLT_MIN; /* relative to it, underflow loses at most 2^-24 */
    const floats rate = lr - (floats){0};
    vector squares = {0};
    int64_t first = 0;
    for (; first + NEAREST <= len; first += NEAREST) {
        floats next[NEAR], change[NEAR], near = {0};
        FGC_UNROLL
        for (int t = 0; t < NEAR; t++) {
            const floats now = load_floats(theta + first + t * FLOATS);
            next[t] = now - rate * load_floats(gradient + first + t * FLOATS);
            change[t] = next[t] - now;
            near += change[t] * change[t];
        }
        FGC_UNROLL
        for (int t = 0; t < NEAR; t++)
            memcpy(theta + first + t * FLOATS, next + t, sizeof *next);
        const vector wide = fold(near);
        if (any_at_least(wide, least) && !any_at_least(wide, FLT_MAX)) {
            squares += wide;
            continue;
        }
        for (int64_t t = 0; t < NEAR; t++) {
            narrow half[2];
            memcpy(half, change + t, sizeof *change);
            const vector low = __builtin_convertvector(half[0], vector);
            const vector high = __builtin_convertvector(half[1], vector);
            squares += low * low + high * high;
        }
    }
    *sum = sum_of_lanes(squares);
    return first;
}
#define blocks_descend_double(theta, gradient, lr, len, sum) 0 /* squares of doubles cost nothing */

#define REAL float
#define ROOT sqrtf
#include "optimize.inc"

#define REAL double
#define ROOT sqrt
#include "optimize.inc"
