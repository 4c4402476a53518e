/* Random projections of messages, in one pass over each, with its sum of squares. */
#include "values.h"
#include "vector.h"

/* So many elements share their `right` numbers, which then stay in the nearest cache with the row. Measured
 * with 10^4 and 3 * 10^5 doubles, in units of the sum of squares alone: 3.2 and 1.7; with 128, 4.1 and 2.0;
 * with 512, 2.8 and 2.9. */
enum { SIDE = FGC_SIDE, ROW = FGC_ROW, EIGHT = 8 };

/* sums[j] += the products of a row's elements with the numbers of column j; paired: of those in even places,
 * and in sums[SIDE + j] of those in odd places. Returns the sum of squares in lanes. */
#define PROJECT_ROW(kind, read, real)                                                              \
    static FGC_INLINE vector project_row_##kind(const read *x, int64_t len, const double *right,   \
                                                int paired, double *sums)                          \
    {                                                                                              \
        vector square = {0}, sum[SIDE] = {{0}};                                                    \
        for (int64_t c = 0; c < len; c += EIGHT, right += SIDE * EIGHT) {                          \
            double some[EIGHT] = {0};                                                              \
            if (len - c < EIGHT)                                                                   \
                for (int64_t t = 0; t < len - c; t++)                                              \
                    some[t] = value_##kind(x[c + t]);                                              \
            else                                                                                   \
                for (int t = 0; t < EIGHT; t++)                                                    \
                    some[t] = value_##kind(x[c + t]);                                              \
            for (int t = 0; t < EIGHT; t += LANES) {                                               \
                const vector v = load(some + t);                                                   \
                square += v * v;                                                                   \
                FGC_UNROLL                                                                         \
                for (int j = 0; j < SIDE; j++)                                                     \
                    sum[j] += v * load(right + EIGHT * j + t);                                     \
            }                                                                                      \
        }                                                                                          \
        for (int j = 0; j < SIDE; j++)                                                             \
            for (int t = 0; t < LANES; t++)                                                        \
                sums[paired && t % 2 ? SIDE + j : j] += sum[j][t];                                 \
        return square;                                                                             \
    }                                                                                              \
                                                                                                   \
    double FGC_AT_LEVEL(fgc_project_part_##kind)(const read *x, int64_t len, const double *left,   \
                                                 const double *right, int paired, double *out)     \
    {                                                                                              \
        double total[2][SIDE][SIDE] = {{{0}}};                                                     \
        vector square = {0};                                                                       \
        for (; len > 0; x += ROW, len -= ROW, left += SIDE) {                                      \
            double sums[2 * SIDE] = {0};                                                           \
            square += project_row_##kind(x, len < ROW ? len : ROW, right, paired, sums);           \
            for (int part = 0; part <= paired; part++)                                             \
                for (int i = 0; i < SIDE; i++)                                                     \
                    for (int j = 0; j < SIDE; j++)                                                 \
                        total[part][i][j] += left[i] * sums[SIDE * part + j];                      \
        }                                                                                          \
        for (int i = 0; i < SIDE * SIDE; i++)                                                      \
            for (int part = 0; part <= paired; part++)                                             \
                out[paired ? 2 * i + part : i] = total[part][i / SIDE][i % SIDE];                  \
        return sum_of_lanes(square);                                                               \
    }
FGC_KINDS(PROJECT_ROW)
