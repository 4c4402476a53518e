/* Random projections of messages, in one pass over each, with its sum of squares. */
#include "values.h"
#include "vector.h"

/* Two rows lie in a block, and take turns by eights: so memory is read in order, and each random number is
 * loaded once for both. Measured with 3 * 10^5 doubles from memory: 78 us; 175 with one row after the other,
 * or with numbers loaded twice; 145 row by row; the sum of squares alone takes 50. SUMS columns of numbers are
 * used at a time: as many as there are registers for their sums. AHEAD elements ahead are prefetched. Loops of
 * fixed lengths say that they are to be unrolled: without, GCC at -O2 takes 1.7 times as long in caches. */
enum { SIDE = FGC_SIDE, EIGHT = 8, BLOCK = 2 * FGC_ROW, SUMS = FGC_VECTOR == 64 ? 8 : 4, AHEAD = 512 };

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

#if FGC_VECTOR == 64
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#elif FGC_VECTOR == 32
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#else
#define EVEN 0, 2
#define ODD 1, 3
#endif

/* A vector's sums of products with the columns of `left` and of `right`: those of all elements, or of those in
 * even and of those in odd places; and its sums of squares. */
typedef struct {
    vector part[2][SIDE][SIDE / LANES], square[2];
} sums;

/* Add the sums of a row's products with some columns of `right`, times the row's numbers. */
static FGC_INLINE void add_row(sums *of, const vector *sum, int first, const double *left, int paired)
{
    vector even[SUMS / 2], odd[SUMS / 2];
    for (int i = 0; i < SUMS / 2; i++) { /* pairs of lanes are added up, until each lane is another sum */
        even[i] = WINDOW(sum[2 * i], sum[2 * i + 1], EVEN);
        odd[i] = WINDOW(sum[2 * i], sum[2 * i + 1], ODD);
        even[i] += paired ? (vector){0} : odd[i];
    }
    for (int count = SUMS / 4; count >= SUMS / LANES; count /= 2)
        for (int i = 0; i < count; i++) {
            even[i] = WINDOW(even[2 * i], even[2 * i + 1], EVEN) + WINDOW(even[2 * i], even[2 * i + 1], ODD);
            odd[i] = WINDOW(odd[2 * i], odd[2 * i + 1], EVEN) + WINDOW(odd[2 * i], odd[2 * i + 1], ODD);
        }
    for (int i = 0; i < SIDE; i++)
        for (int t = 0; t < SUMS / LANES; t++) {
            of->part[0][i][first / LANES + t] += left[i] * even[t];
            if (paired)
                of->part[1][i][first / LANES + t] += left[i] * odd[t];
        }
}

/* Add the sums of two rows of so many eights: those with the columns `first` to `first` + SUMS - 1. */
#define PROJECT_BLOCK(kind, read, real)                                                                      \
    static FGC_INLINE void project_columns_##kind(const read *x, int64_t eights, int first,                  \
                                                  const double *left, const double *right, int paired,       \
                                                  sums *of)                                                  \
    {                                                                                                        \
        vector sum[2][SUMS] = {{{0}}}, square[2] = {of->square[0], of->square[1]};                           \
        for (int64_t q = 0; q < eights; q++) {                                                               \
            vector v[2][EIGHT / LANES];                                                                      \
            FGC_UNROLL                                                                                       \
            for (int r = 0; r < 2; r++) {                                                                    \
                eight_##kind(x + EIGHT * (2 * q + r), v[r]);                                                 \
                FGC_PREFETCH(x + EIGHT * (2 * q + r) + AHEAD);                                               \
            }                                                                                                \
            FGC_UNROLL                                                                                       \
            for (int t = 0; t < EIGHT / LANES; t++) {                                                        \
                FGC_UNROLL                                                                                   \
                for (int r = 0; r < 2 && first == 0; r++)                                                    \
                    square[r] += v[r][t] * v[r][t];                                                          \
                FGC_UNROLL                                                                                   \
                for (int j = 0; j < SUMS; j++) {                                                             \
                    vector number = load(right + EIGHT * (SIDE * q + first + j) + LANES * t);                \
                    ROUND(number); /* so that it is kept in a register */                                    \
                    sum[0][j] += v[0][t] * number;                                                           \
                    sum[1][j] += v[1][t] * number;                                                           \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        FGC_UNROLL                                                                                           \
        for (int r = 0; r < 2; r++) {                                                                        \
            of->square[r] = square[r];                                                                       \
            add_row(of, sum[r], first, left + SIDE * r, paired);                                             \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    static FGC_INLINE void project_block_##kind(const read *x, int64_t eights, const double *left,           \
                                                const double *right, int paired, sums *of)                   \
    {                                                                                                        \
        FGC_UNROLL                                                                                           \
        for (int first = 0; first < SIDE; first += SUMS)                                                     \
            project_columns_##kind(x, eights, first, left, right, paired, of);                               \
    }                                                                                                        \
                                                                                                             \
    double FGC_AT_LEVEL(fgc_project_part_##kind)(const read *x, int64_t len, const double *left,             \
                                                 const double *right, int paired, double *out)               \
    {                                                                                                        \
        sums of = {{{{{0}}}}, {{0}}};                                                                        \
        for (; len >= BLOCK; x += BLOCK, len -= BLOCK, left += 2 * SIDE)                                     \
            project_block_##kind(x, BLOCK / EIGHT / 2, left, right, paired, &of);                            \
        if (len > 0) {                                                                                       \
            read last[BLOCK] = {0};                                                                          \
            memcpy(last, x, (size_t)len * sizeof *x);                                                        \
            project_block_##kind(last, (len + 2 * EIGHT - 1) / (2 * EIGHT), left, right, paired, &of);       \
        }                                                                                                    \
        for (int i = 0; i < SIDE * SIDE; i++)                                                                \
            for (int part = 0; part <= paired; part++)                                                       \
                out[paired ? 2 * i + part : i] = of.part[part][i / SIDE][i % SIDE / LANES][i % LANES];       \
        return sum_of_lanes(of.square[0] + of.square[1]);                                                    \
    }
FGC_KINDS(PROJECT_BLOCK)
