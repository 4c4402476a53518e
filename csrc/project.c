/* Random projections of messages, in one pass over each, with its sum of squares. */
#include "values.h"
#include "vector.h"

/* So many elements share their `right` numbers, which then stay in the nearest cache with the row. Measured
 * with 10^4 and 3 * 10^5 doubles, in units of the sum of squares alone: 3.2 and 1.7; with 128, 4.1 and 2.0;
 * with 512, 2.8 and 2.9. */
enum { SIDE = FGC_SIDE, ROW = FGC_ROW, EIGHT = 8 };

/* Read eight elements as vectors of doubles. */
static FGC_INLINE void eight_double(const double *x, vector *v)
{
    for (int t = 0; t < EIGHT / LANES; t++)
        v[t] = load(x + LANES * t);
}

static FGC_INLINE void eight_float(const float *x, vector *v)
{
    for (int t = 0; t < EIGHT / LANES; t++) {
#if defined(__AVX512F__)
        v[t] = (vector)_mm512_cvtps_pd(_mm256_loadu_ps(x + LANES * t));
#elif defined(__AVX__)
        v[t] = (vector)_mm256_cvtps_pd(_mm_loadu_ps(x + LANES * t));
#else
        for (int i = 0; i < LANES; i++)
            v[t][i] = x[LANES * t + i];
#endif
    }
}

#define EIGHT_HALVES(kind)                                                                                   \
    static FGC_INLINE void eight_##kind(const kind *x, vector *v)                                            \
    {                                                                                                        \
        float some[EIGHT];                                                                                   \
        for (int t = 0; t < EIGHT; t++)                                                                      \
            some[t] = value_##kind(x[t]);                                                                    \
        eight_float(some, v);                                                                                \
    }
EIGHT_HALVES(half)
EIGHT_HALVES(bfloat)

/* sum[j] += the products of eight elements with the numbers of column j; *square += their squares. */
static FGC_INLINE void add_eight(const vector *v, const double *right, vector *sum, vector *square)
{
    FGC_UNROLL
    for (int t = 0; t < EIGHT / LANES; t++) {
        *square += v[t] * v[t];
        FGC_UNROLL
        for (int j = 0; j < SIDE; j++)
            sum[j] += v[t] * load(right + EIGHT * j + LANES * t);
    }
}

/* sums[j] = the products of a row's elements with the numbers of column j, added up; paired: those in even
 * places, and in sums[SIDE + j] those in odd places. The sum of squares is added to lanes. */
#define PROJECT_ROW(kind, read, real)                                                                        \
    static FGC_INLINE void project_row_##kind(const read *x, int64_t len, const double *right, int paired,   \
                                              double *sums, vector *squares)                                 \
    {                                                                                                        \
        vector square = *squares, sum[SIDE] = {{0}}, v[EIGHT / LANES];                                       \
        int64_t c = 0;                                                                                       \
        for (; c + EIGHT <= len; c += EIGHT) {                                                               \
            eight_##kind(x + c, v);                                                                          \
            add_eight(v, right + SIDE * c, sum, &square);                                                    \
        }                                                                                                    \
        if (c < len) {                                                                                       \
            read last[EIGHT] = {0};                                                                          \
            memcpy(last, x + c, (size_t)(len - c) * sizeof *x);                                              \
            eight_##kind(last, v);                                                                           \
            add_eight(v, right + SIDE * c, sum, &square);                                                    \
        }                                                                                                    \
        *squares = square;                                                                                   \
        for (int j = 0; j < SIDE; j++) {                                                                     \
            double even = 0, odd = 0;                                                                        \
            for (int t = 0; t < LANES; t += 2) {                                                             \
                even += sum[j][t];                                                                           \
                odd += sum[j][t + 1];                                                                        \
            }                                                                                                \
            sums[j] = paired ? even : even + odd;                                                            \
            sums[SIDE + j] = odd;                                                                            \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    double FGC_AT_LEVEL(fgc_project_part_##kind)(const read *x, int64_t len, const double *left,             \
                                                 const double *right, int paired, double *out)               \
    {                                                                                                        \
        double total[2][SIDE][SIDE] = {{{0}}};                                                               \
        vector square = {0};                                                                                 \
        for (; len > 0; x += ROW, len -= ROW, left += SIDE) {                                                \
            double sums[2 * SIDE];                                                                           \
            project_row_##kind(x, len < ROW ? len : ROW, right, paired, sums, &square);                      \
            for (int part = 0; part <= paired; part++)                                                       \
                for (int i = 0; i < SIDE; i++)                                                               \
                    for (int j = 0; j < SIDE; j++)                                                           \
                        total[part][i][j] += left[i] * sums[SIDE * part + j];                                \
        }                                                                                                    \
        for (int i = 0; i < SIDE * SIDE; i++)                                                                \
            for (int part = 0; part <= paired; part++)                                                       \
                out[paired ? 2 * i + part : i] = total[part][i / SIDE][i % SIDE];                            \
        return sum_of_lanes(square);                                                                         \
    }
FGC_KINDS(PROJECT_ROW)
