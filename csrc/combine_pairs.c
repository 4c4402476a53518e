/* Linear combinations of long vectors of pairs: encoding and decoding in twice a double's precision. */
#include <string.h>

#include "pairs.h"

/* GROUP rows at a time, and BLOCK reals of each: the sums stay in the nearest cache. */
enum { GROUP = 8, BLOCK = 512, AHEAD_BYTES = 1024 };

/* Vectors of a row at a time, each of which takes four registers for sums. Rows of pairs: always one. */
enum { STRIP = LANES >= 8 ? 2 : 1 };

/* For LANES reals v: the sums of x v and of y v, for coefficients x + iy. */
typedef struct {
    pair x, y;
} sums;

/* Shuffles that turn two vectors of pairs into one of high parts and one of low parts, which take pairs
 * from the first and the second vector in turns; and back, in order. */
#if FGC_VECTOR == 64
#define HIGH_PARTS 0, 8, 2, 10, 4, 12, 6, 14
#define LOW_PARTS 1, 9, 3, 11, 5, 13, 7, 15
#define IN_ORDER 0, 2, 4, 6, 1, 3, 5, 7
#define FIRST_PAIRS 0, 8, 1, 9, 2, 10, 3, 11
#define LAST_PAIRS 4, 12, 5, 13, 6, 14, 7, 15
#define SWAPPED 1, 0, 3, 2, 5, 4, 7, 6
#elif FGC_VECTOR == 32
#define HIGH_PARTS 0, 4, 2, 6
#define LOW_PARTS 1, 5, 3, 7
#define IN_ORDER 0, 2, 1, 3
#define FIRST_PAIRS 0, 4, 1, 5
#define LAST_PAIRS 2, 6, 3, 7
#define SWAPPED 1, 0, 3, 2
#else
#define HIGH_PARTS 0, 2
#define LOW_PARTS 1, 3
#define IN_ORDER 0, 1
#define FIRST_PAIRS 0, 2
#define LAST_PAIRS 1, 3
#define SWAPPED 1, 0
#endif

/* Load LANES elements of a row; pairs come in the order of HIGH_PARTS. */
static FGC_INLINE pair get_lanes(const double *from, const int paired)
{
    const vector first = load(from);
    if (!paired)
        return widened(first);
#if FGC_VECTOR
    const vector second = load(from + LANES);
    return (pair){WINDOW(first, second, HIGH_PARTS), WINDOW(first, second, LOW_PARTS)};
#else
    return (pair){first, from[1]};
#endif
}

/* Add `vectors` vectors of a few rows to the sums, which stay in registers. */
static FGC_INLINE void add_strip(const double *const *row, const double *coef, const int64_t count,
                                 int64_t at, sums *to, const int vectors, const int paired)
{
    enum { AHEAD = AHEAD_BYTES / sizeof(double), LINE = 64 / sizeof(double) };
    const int size = paired ? 2 * LANES : LANES;
    sums sum[STRIP];
    FGC_UNROLL
    for (int t = 0; t < vectors; t++)
        sum[t] = to[t];
    FGC_UNROLL
    for (int64_t r = 0; r < count; r++) {
        const double *const from = row[r] + at * (1 + paired), *const of = coef + 4 * r;
        for (int t = 0; t < vectors * size; t += LINE)
            FGC_PREFETCH(from + t + AHEAD);
        FGC_UNROLL
        for (int t = 0; t < vectors; t++) {
            const pair v = get_lanes(from + t * size, paired);
            add_product(&sum[t].x, (pair){spread(of[0]), spread(of[2])}, v, paired);
            add_product(&sum[t].y, (pair){spread(of[1]), spread(of[3])}, v, paired);
        }
    }
    FGC_UNROLL
    for (int t = 0; t < vectors; t++) { /* normalise: low parts, which are rounded, stay small */
        to[t].x = quick_two_sum(sum[t].x.high, sum[t].x.low);
        to[t].y = quick_two_sum(sum[t].y.high, sum[t].y.low);
    }
}

static FGC_INLINE void add_rows(const double *const *row, const double *coef, const int64_t count,
                                int64_t vectors, sums *to, const int paired)
{
    int64_t t = 0;
    for (; !paired && t + STRIP <= vectors; t += STRIP)
        add_strip(row, coef, count, t * LANES, to + t, STRIP, paired);
    for (; t < vectors; t++)
        add_strip(row, coef, count, t * LANES, to + t, 1, paired);
}

/* Add elements from .. from + present - 1 of all rows to the sums. */
static FGC_INLINE void add_all_rows(const uintptr_t *rows, const double *coef, int64_t count,
                                    int64_t from, int64_t present, sums *to, const int paired)
{
    const int64_t whole = present / LANES, rest = present % LANES;
    const double *row[GROUP];
    double tail[GROUP][2 * LANES] = {{0}};
    for (int64_t r = 0; r < count; r += GROUP) {
        const int64_t these = count - r < GROUP ? count - r : GROUP;
        for (int64_t i = 0; i < these; i++)
            row[i] = (const double *)rows[r + i] + from * (1 + paired);
        if (these == GROUP)
            add_rows(row, coef + 4 * r, GROUP, whole, to, paired);
        else
            add_rows(row, coef + 4 * r, these, whole, to, paired);
        if (!rest)
            continue;
        for (int64_t i = 0; i < these; i++) {
            memcpy(tail[i], row[i] + whole * LANES * (1 + paired),
                   (size_t)(rest * (1 + paired)) * sizeof(double));
            row[i] = tail[i];
        }
        add_rows(row, coef + 4 * r, these, 1, to + whole, paired);
    }
}

static FGC_INLINE pair in_order(pair v, const int paired)
{
#if FGC_VECTOR
    if (paired)
        return (pair){WINDOW(v.high, v.high, IN_ORDER), WINDOW(v.low, v.low, IN_ORDER)};
#else
    (void)paired;
#endif
    return v;
}

/* Return LANES of the sums x v + i y v, in order, as high + low, not normalised. */
static FGC_INLINE pair complex_sum(const sums *all, int64_t t, const int paired)
{
    const pair x = in_order(all[t].x, paired);
#if FGC_VECTOR
    const pair y = in_order(all[t].y, paired);
    const pair swapped = {WINDOW(y.high, y.high, SWAPPED), WINDOW(y.low, y.low, SWAPPED)};
    vector sign;
    for (int i = 0; i < LANES; i++)
        sign[i] = i % 2 ? 1 : -1;
#else
    const pair swapped = all[t ^ 1].y;
    const vector sign = t % 2 ? 1 : -1;
#endif
    pair sum = two_sum(x.high, sign * swapped.high);
    sum.low += x.low + sign * swapped.low;
    return sum;
}

/* Store LANES pairs as they lie in memory. */
static FGC_INLINE void put_pairs(double *to, pair v)
{
#if FGC_VECTOR
    store(to, WINDOW(v.high, v.low, FIRST_PAIRS));
    store(to + LANES, WINDOW(v.high, v.low, LAST_PAIRS));
#else
    to[0] = v.high, to[1] = v.low;
#endif
}

static FGC_INLINE pair get_pairs(const double *from)
{
    return in_order(get_lanes(from, 1), 1);
}

/* Write LANES sums, or add them to `out`, as pairs or rounded. Returns NaN where a sum is not finite, else
 * 0. */
static FGC_INLINE vector put_sums(pair sum, int fresh, double *out, const int rounded)
{
    if (!fresh) {
        const pair before = rounded ? widened(load(out)) : get_pairs(out);
        const pair both = two_sum(before.high, sum.high);
        sum.high = both.high;
        sum.low += both.low + before.low;
    }
    sum = two_sum(sum.high, sum.low);
    if (rounded)
        store(out, sum.high);
    else
        put_pairs(out, sum);
    return sum.high - sum.high;
}

/* The same for a block, whose last numbers need not fill a vector. Returns whether one is NaN or Inf. */
static FGC_INLINE int finish(const sums *all, int64_t len, int fresh, double *out, const int paired,
                             const int rounded)
{
    const int each = rounded ? 1 : 2;
    vector wrong = {0};
    int64_t t = 0;
    for (; (t + 1) * LANES <= len; t++)
        wrong += put_sums(complex_sum(all, t, paired), fresh, out + t * LANES * each, rounded);
    const size_t rest = (size_t)((len - t * LANES) * each) * sizeof *out;
    if (rest) {
        double last[2 * LANES] = {0};
        memcpy(last, out + t * LANES * each, rest);
        wrong += put_sums(complex_sum(all, t, paired), fresh, last, rounded);
        memcpy(out + t * LANES * each, last, rest);
    }
    double each_wrong[LANES], bad = 0;
    store(each_wrong, wrong);
    for (int i = 0; i < LANES; i++)
        bad += each_wrong[i];
    return bad != 0;
}

int FGC_AT_LEVEL(fgc_combine_part_pairs)(const uintptr_t *rows, const double *coef, int64_t count,
                                    int64_t lo, int64_t hi, int64_t in_len, int64_t out_len,
                                    int flags, double *out)
{
    const int fresh = !(flags & FGC_ACCUMULATE);
    sums all[BLOCK / LANES];
    int bad = 0;
    for (int64_t j = lo, len; j < hi; j += len) {
        len = hi - j < BLOCK ? hi - j : BLOCK;
        const int64_t present = j + len > in_len ? in_len - j : len;
        const int64_t written = j + len > out_len ? out_len - j : len;
        memset(all, 0, (size_t)((len + LANES - 1) / LANES) * sizeof *all);
        if (flags & FGC_PAIRED)
            add_all_rows(rows, coef, count, j, present, all, 1);
        else
            add_all_rows(rows, coef, count, j, present, all, 0);
        if (!(flags & FGC_PAIRED))
            bad |= finish(all, written, fresh, out + 2 * j, 0, 0);
        else if (flags & FGC_ROUNDED)
            bad |= finish(all, written, fresh, out + j, 1, 1);
        else
            bad |= finish(all, written, fresh, out + 2 * j, 1, 0);
    }
    return bad && (flags & FGC_CHECK);
}
