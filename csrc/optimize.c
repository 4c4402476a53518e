/* Steps of optimizers, each in one pass over its vectors. Memory-bound, but for the root and the
 * quotient of AMSGrad in double precision. */
#include <math.h>

#include "levels.h"

/* A gradient may be the very vector that is updated: elements do not depend on each other, but
 * `restrict` would say more than that. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

/* Go through i = 0 .. len-1 and return the sum of the squares of `change`, an expression that may
 * write element i. Sixteen lanes: an order of summation that vectorises without fast-math. The rest
 * is said to be independent, too, or compilers make two loops of it, one for vectors that lie close
 * to each other, whose sums are rounded in other places. */
#define RETURN_SQUARE_SUM(len, i, change)                                                          \
    enum { LANES = 16 };                                                                           \
    double lane[LANES] = {0}, sum = 0;                                                             \
    int64_t first = 0;                                                                             \
    for (; first + LANES <= len; first += LANES) {                                                 \
        INDEPENDENT                                                                                \
        for (int t = 0; t < LANES; t++) {                                                          \
            const int64_t i = first + t;                                                           \
            const double changed = change;                                                         \
            lane[t] += changed * changed;                                                          \
        }                                                                                          \
    }                                                                                              \
    for (int t = 0; t < LANES; t++)                                                                \
        sum += lane[t];                                                                            \
    INDEPENDENT                                                                                    \
    for (int64_t i = first; i < len; i++) {                                                        \
        const double changed = change;                                                             \
        sum += changed * changed;                                                                  \
    }                                                                                              \
    return sum

#define REAL float
#define ROOT sqrtf
#include "optimize.inc"

#define REAL double
#define ROOT sqrt
#include "optimize.inc"
