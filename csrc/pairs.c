/* Numbers of twice a double's precision, as pairs: high + low, where high is the sum rounded to a double.
 *
 * Each sum and product of doubles must be rounded by itself. So this file is compiled without contraction
 * (see CMakeLists.txt), which would fuse products into sums whose rounding error is computed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef struct {
    vector high, low;
} pair;

/* a b + c rounded once, if the processor can. */
#if defined(__AVX512F__)
#define FUSED(a, b, c) _mm512_fmadd_pd(a, b, c)
#elif defined(__FMA__)
#define FUSED(a, b, c) _mm256_fmadd_pd(a, b, c)
#elif defined(__aarch64__)
#define FUSED(a, b, c) vfmaq_f64(c, a, b)
#endif

/* Return the sum and its rounding error (Knuth). */
static FGC_INLINE pair two_sum(vector a, vector b)
{
    const vector sum = a + b, rest = sum - a;
    return (pair){sum, (a - (sum - rest)) + (b - rest)};
}

/* The same if a is 0, or no smaller than b in modulus (Dekker). */
static FGC_INLINE pair quick_two_sum(vector a, vector b)
{
    const vector sum = a + b;
    return (pair){sum, b - (sum - a)};
}

#ifndef FUSED
/* Split a double into halves of 26 bits, whose products are exact (Veltkamp). */
static FGC_INLINE pair halves(vector a)
{
    const vector large = a * 134217729.0, high = large - (large - a);
    return (pair){high, a - high};
}
#endif

/* Return the product and its rounding error (Dekker). */
static FGC_INLINE pair two_product(vector a, vector b)
{
    const vector product = a * b;
#ifdef FUSED
    return (pair){product, FUSED(a, b, -product)};
#else
    const pair x = halves(a), y = halves(b);
    return (pair){product, ((x.high * y.high - product) + x.high * y.low + x.low * y.high) +
                               x.low * y.low};
#endif
}

/* Return a b + c, rounded once or twice. */
static FGC_INLINE vector fused(vector a, vector b, vector c)
{
#ifdef FUSED
    return FUSED(a, b, c);
#else
    return a * b + c;
#endif
}

/* Keep the compiler from computing anything further before this vector is known. Otherwise it mixes rows,
 * and runs out of sixteen registers (1.3 times the time). */
#if defined(__x86_64__)
#define KEEP_ORDER(vector) __asm__("" : "+v"(vector))
#else
#define KEEP_ORDER(vector) ((void)0)
#endif

/* sum += a v, not normalised: high parts are added up without error (Ogita, Rump and Oishi, "Accurate sum
 * and dot product", 2005). v's low parts are read only if `paired`. Some processors have separate units for
 * sums and for products, and here are more sums: one is written as a product (0.93 times the time). */
static FGC_INLINE void add_product(pair *sum, pair a, pair v, const int paired)
{
    const vector product = a.high * v.high, high = sum->high + product, added = high - sum->high;
    const vector lost = sum->high - (high - added);
#ifdef FUSED
    vector low = FUSED(a.high, v.high, -added); /* product less `added`, rounded once */
#else
    vector low = (product - added) + two_product(a.high, v.high).low;
#endif
    low = fused(a.low, v.high, low);
    if (paired)
        low = fused(a.high, v.low, low);
    sum->high = high;
    sum->low += lost;
#ifdef FUSED
    vector one = spread(1);
    ROUND(one); /* hides from the compiler that this is a sum */
    sum->low = FUSED(low, one, sum->low);
#else
    sum->low += low;
#endif
    KEEP_ORDER(sum->low);
}

/* Return a double as a pair. */
static FGC_INLINE pair widened(vector x) { return (pair){x, spread(0)}; }

static FGC_INLINE pair negative(pair x) { return (pair){-x.high, -x.low}; }

/* Return x + y, within a few roundings of the larger one's low part. */
static FGC_INLINE pair sum_of(pair x, pair y)
{
    const pair sum = two_sum(x.high, y.high);
    return quick_two_sum(sum.high, sum.low + (x.low + y.low));
}

static FGC_INLINE pair product_of(pair x, pair y)
{
    const pair product = two_product(x.high, y.high);
    return quick_two_sum(product.high,
                         fused(x.high, y.low, fused(x.low, y.high, product.low)));
}

/* Return the quotient, by long division. */
static FGC_INLINE pair quotient_of(pair x, pair y)
{
    pair quotient = widened(x.high / y.high);
    for (int step = 0; step < 2; step++) {
        const pair left = sum_of(x, negative(product_of(quotient, y)));
        quotient = quick_two_sum(quotient.high, quotient.low + left.high / y.high);
    }
    return quotient;
}

/* ------------------------------------------------------------------------ combinations of long vectors */

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
    const vector second = load(from + LANES);
    return (pair){WINDOW(first, second, HIGH_PARTS), WINDOW(first, second, LOW_PARTS)};
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
    if (paired)
        return (pair){WINDOW(v.high, v.high, IN_ORDER), WINDOW(v.low, v.low, IN_ORDER)};
    return v;
}

/* Return LANES of the sums x v + i y v, in order, as high + low, not normalised. */
static FGC_INLINE pair complex_sum(const sums *all, int64_t t, const int paired)
{
    const pair x = in_order(all[t].x, paired);
    const pair y = in_order(all[t].y, paired);
    const pair swapped = {WINDOW(y.high, y.high, SWAPPED), WINDOW(y.low, y.low, SWAPPED)};
    vector sign;
    for (int i = 0; i < LANES; i++)
        sign[i] = i % 2 ? 1 : -1;
    pair sum = two_sum(x.high, sign * swapped.high);
    sum.low += x.low + sign * swapped.low;
    return sum;
}

/* Store LANES pairs as they lie in memory. */
static FGC_INLINE void put_pairs(double *to, pair v)
{
    store(to, WINDOW(v.high, v.low, FIRST_PAIRS));
    store(to + LANES, WINDOW(v.high, v.low, LAST_PAIRS));
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
    return sum_of_lanes(wrong) != 0;
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

/* ------------------------------------------------------------------------ near-exact vectors
 *
 * Vectors of Reed-Solomon codes in twice a double's precision: near-exact ones, by the ridge regression
 * of near_exact.c, and exact ones, by the locator.
 *
 * Columns lie in strips, each one vector wide, which are finished one after the other. A strip's rows,
 * LANES high parts and LANES low ones, stay in a cache while first all earlier reflectors and then its own
 * are applied to it. Rejected: strips twice as wide take 1.2 times the time. */

/* CHUNK terms are added up at a time: shorter sums have smaller rounding errors. */
enum { ROW = 2 * LANES, CHUNK = 16 };

static const double half_root[2] = {0x1.6a09e667f3bcdp-1, -0x1.bdd3413b26456p-55};

static FGC_INLINE pair load_pair(const double *high, const double *low)
{
    return (pair){load(high), load(low)};
}

static FGC_INLINE void store_pair(double *high, double *low, pair x)
{
    store(high, x.high);
    store(low, x.low);
}

static FGC_INLINE pair spread_pair(const double *x) { return (pair){spread(x[0]), spread(x[1])}; }

/* Write the first pair of a vector of pairs. */
static FGC_INLINE void put_first(pair x, double *to)
{
    to[0] = x.high[0];
    to[1] = x.low[0];
}

/* Return v^T a: v has one pair, a strip LANES pairs in each row. */
static FGC_INLINE pair inner(const double *v, const double *a, int64_t rows)
{
    pair sum = widened(spread(0));
    for (int64_t i = 0, end; i < rows; i = end) {
        end = rows - i < CHUNK ? rows : i + CHUNK;
        pair part = widened(spread(0));
        for (int64_t t = i; t < end; t++)
            add_product(&part, spread_pair(v + 2 * t), load_pair(a + t * ROW, a + t * ROW + LANES),
                        1);
        sum = sum_of(sum, part);
    }
    return sum;
}

/* Subtract v times `factor` from the rows of a strip. */
static FGC_INLINE void subtract(const double *v, double *a, int64_t rows, pair factor)
{
    factor = negative(factor);
    for (int64_t i = 0; i < rows; i++) {
        double *const row = a + i * ROW;
        pair rest = load_pair(row, row + LANES);
        add_product(&rest, spread_pair(v + 2 * i), factor, 1);
        store_pair(row, row + LANES, quick_two_sum(rest.high, rest.low));
    }
}

/* Find the reflector 1 - tau v v^T of column j of a strip, and apply it to the strip. The strip's row 0 is
 * the reflector's first row. v is the column but for its first element, so one pass gives the sums that
 * both the norm and the factors need. */
static void find_reflector(double *a, int64_t rows, int64_t j, double *v, double *tau)
{
    double *const column = a + j;
    for (int64_t i = 0; i < rows; i++) {
        v[2 * i] = column[i * ROW];
        v[2 * i + 1] = column[i * ROW + LANES];
    }
    const pair sums = inner(v, a, rows);
    const pair square = {spread(sums.high[j]), spread(sums.low[j])};
    const pair root = widened(spread(sqrt(sums.high[j])));
    const pair left = sum_of(square, negative(product_of(root, root)));
    const pair norm = quick_two_sum(root.high, left.high / (root.high + root.high));
    const int positive = v[0] > 0;
    const pair diagonal = positive ? negative(norm) : norm;
    const pair begin = sum_of(spread_pair(v), negative(diagonal)), one = widened(spread(1));
    const pair size = positive ? begin : negative(begin);
    const pair scale = quotient_of(one, product_of(norm, size));
    const pair first = load_pair(a, a + LANES);
    put_first(begin, v);
    put_first(scale, tau);
    subtract(v, a, rows,
             product_of(scale, sum_of(sums, negative(product_of(diagonal, first)))));
    for (int64_t i = 1; i < rows; i++)
        column[i * ROW] = column[i * ROW + LANES] = 0;
    column[0] = diagonal.high[0];
    column[LANES] = diagonal.low[0];
}

/* Apply to a strip all earlier reflectors, whose v, of `rows` pairs each, and tau are known; then, if the
 * strip has unknowns, find its own. */
static void factorise(double *a, int64_t rows, int64_t c, int64_t first, double *v, double *tau)
{
    for (int64_t j = 0; j < c && j < first + LANES; j++) {
        double *const corner = a + j * ROW, *const of = v + j * 2 * rows;
        if (j < first) {
            const pair sums = inner(of, corner, rows);
            subtract(of, corner, rows, product_of(spread_pair(tau + 2 * j), sums));
        } else
            find_reflector(corner, rows, j - first, of, tau + 2 * j);
    }
}

/* Return the cosine (part 0) or sine (part 1) of the angle pi turn twice / n. */
static const double *wave(const double *circle, int64_t n, int64_t turn, int64_t twice,
                          int64_t part)
{
    return circle + 4 * (turn * twice % (2 * n)) + 2 * part;
}

/* Fill in columns first .. first+LANES-1 of near_exact.c's equations, s rows above mu I: cosines and sines
 * of (c-1)/2, (c-3)/2, ... turns, then a constant if c is odd, then the right-hand sides. */
static void fill(double *a, const double *circle, int64_t n, const int64_t *turns, int64_t s,
                 int64_t c, int64_t first, double mu)
{
    memset(a, 0, (size_t)((s + c) * ROW) * sizeof *a);
    for (int64_t j = first; j < first + LANES && j < c + 2; j++) {
        double *const column = a + j - first;
        for (int64_t i = 0; i < s; i++) {
            double *const to = column + i * ROW;
            const double *from = half_root;
            if (j >= c)
                from = wave(circle, n, 2 * n - turns[i], c + 1, j - c);
            else if (j < c - 1 || c % 2 == 0)
                from = wave(circle, n, turns[i], c - 1 - j / 2 * 2, j % 2);
            to[0] = j < c ? from[0] : -from[0];
            to[LANES] = j < c ? from[1] : -from[1];
        }
        if (j < c)
            column[(s + j) * ROW] = mu;
    }
}

/* Return the sum over the lanes, in all lanes. */
static FGC_INLINE pair total_of(pair x)
{
    pair sum = widened(spread(0));
    for (int t = 0; t < LANES; t++)
        sum = sum_of(sum, (pair){spread(x.high[t]), spread(x.low[t])});
    return sum;
}

/* Solve for y with the triangle, which has `wide` high parts and then `wide` low ones in each row.
 * y[part][0] and y[part][1] are the high and the low parts of the real or imaginary part: at first the
 * right-hand sides, with zeros from c on. */
static void substitute(const double *triangle, int64_t c, int64_t wide, double *y)
{
    for (int64_t i = c - 1; i >= 0; i--) {
        const double *const row = triangle + i * 2 * wide;
        for (int part = 0; part < 2; part++) {
            double *const high = y + part * 2 * wide, *const low = high + wide;
            const pair right = {spread(high[i]), spread(low[i])};
            const pair diagonal = {spread(row[i]), spread(row[wide + i])};
            pair known = widened(spread(0));
            high[i] = low[i] = 0; /* the first vector below has this unknown, too: it must add nothing */
            for (int64_t k = i / LANES * LANES; k < c; k += LANES) {
                add_product(&known, load_pair(row + k, row + wide + k),
                            load_pair(high + k, low + k), 1);
                known = two_sum(known.high, known.low);
            }
            known = total_of(known);
            const pair found = quotient_of(sum_of(right, negative(known)), diagonal);
            high[i] = found.high[0];
            low[i] = found.low[0];
        }
    }
}

/* Cosines and sines at LANES turns. */
typedef struct {
    pair cosine, sine;
} direction;

static FGC_INLINE direction look_up(const double *circle, const int64_t *turns)
{
    double part[4][LANES];
    for (int t = 0; t < LANES; t++)
        for (int k = 0; k < 4; k++)
            part[k][t] = circle[4 * turns[t] + k];
    return (direction){{load(part[0]), load(part[1])}, {load(part[2]), load(part[3])}};
}

/* Write (1 + (cos + i sin) (x + i y)) / n: lane t to number to[t] of `out`, if that is less than `end`. */
static FGC_INLINE void put_values(direction phase, pair x, pair y, int64_t n, const int64_t *to,
                                  int64_t end, double *out)
{
    const pair one = widened(spread(1)), whole = widened(spread((double)n));
    const pair re = sum_of(product_of(phase.cosine, x), negative(product_of(phase.sine, y)));
    const pair im = sum_of(product_of(phase.cosine, y), product_of(phase.sine, x));
    const pair parts[2] = {quotient_of(sum_of(one, re), whole), quotient_of(im, whole)};
    for (int part = 0; part < 2; part++)
        for (int t = 0; t < LANES; t++)
            if (to[t] < end) {
                out[4 * to[t] + part] = parts[part].high[t];
                out[4 * to[t] + 2 + part] = parts[part].low[t];
            }
}

/* Write the polynomial's values at all roots, at each root together with its conjugate: their cosines are
 * the same and their sines differ in sign. */
static void evaluate(const double *circle, int64_t n, int64_t c, const double *y, int64_t wide,
                     double *out)
{
    const double *const part[4] = {y, y + wide, y + 2 * wide, y + 3 * wide};
    for (int64_t i = 0; i <= n / 2; i += LANES) {
        int64_t turn[LANES], back[LANES], own[LANES], other[LANES];
        for (int t = 0; t < LANES; t++) {
            own[t] = i + t <= n / 2 ? i + t : n;
            other[t] = own[t] ? n - own[t] : n;
            turn[t] = own[t] * (c - 1) % (2 * n);
            back[t] = 2 * own[t];
        }
        /* sums over cosines, and over sines, of the real and the imaginary part */
        pair even[2], odd[2];
        for (int p = 0; p < 2; p++)
            even[p] = odd[p] = widened(spread(0));
        for (int64_t j = 0; j + 1 < c; j += 2) {
            const direction d = look_up(circle, turn);
            for (int p = 0; p < 2; p++) {
                const double *const high = part[2 * p] + j, *const low = part[2 * p + 1] + j;
                add_product(&even[p], (pair){spread(high[0]), spread(low[0])}, d.cosine, 1);
                add_product(&odd[p], (pair){spread(high[1]), spread(low[1])}, d.sine, 1);
                if (j % CHUNK == 0) {
                    even[p] = two_sum(even[p].high, even[p].low);
                    odd[p] = two_sum(odd[p].high, odd[p].low);
                }
            }
            for (int t = 0; t < LANES; t++) {
                turn[t] -= back[t];
                turn[t] += turn[t] < 0 ? 2 * n : 0;
            }
        }
        for (int p = 0; p < 2; p++) {
            if (c % 2)
                add_product(&even[p],
                            (pair){spread(part[2 * p][c - 1]), spread(part[2 * p + 1][c - 1])},
                            spread_pair(half_root), 1);
            even[p] = two_sum(even[p].high, even[p].low);
            odd[p] = two_sum(odd[p].high, odd[p].low);
        }
        for (int t = 0; t < LANES; t++)
            turn[t] = own[t] * (c + 1) % (2 * n);
        direction phase = look_up(circle, turn);
        put_values(phase, sum_of(even[0], odd[0]), sum_of(even[1], odd[1]), n, own, n, out);
        phase.sine = negative(phase.sine);
        put_values(phase, sum_of(even[0], negative(odd[0])), sum_of(even[1], negative(odd[1])), n,
                   other, n, out);
    }
}

fgc_status FGC_AT_LEVEL(fgc_ridge_pairs)(const double *circle, int64_t circle_len,
                                         const int64_t *turns, int64_t s, int64_t c, double *out)
{
    const int64_t n = circle_len / 2;
    const int64_t rows = s + 1, wide = padded_size(c + 2);
    const int64_t strip = (s + c) * ROW, vectors = c * 2 * rows, matrix = c * 2 * wide;
    const int64_t size = strip + vectors + 2 * c + matrix + 4 * wide + 8;
    double *const memory = malloc((size_t)size * sizeof *memory);
    if (!memory)
        return FGC_NO_MEMORY;
    double *const a = aligned(memory);
    double *const v = a + strip, *const triangle = v + vectors, *const y = triangle + matrix;
    double *const tau = y + 4 * wide;
    /* 2 unit sqrt(n), without the basis' sqrt(2) */
    const double mu = 0x1p-106 * sqrt(2 * (double)n);
    for (int64_t first = 0; first < c + 2; first += LANES) {
        fill(a, circle, n, turns, s, c, first, mu);
        factorise(a, rows, c, first, v, tau);
        for (int64_t i = 0; i < c; i++) {
            double *const to = triangle + i * 2 * wide + first;
            store_pair(to, to + wide, load_pair(a + i * ROW, a + i * ROW + LANES));
        }
    }
    memset(y, 0, (size_t)(4 * wide) * sizeof *y);
    for (int64_t i = 0; i < c; i++)
        for (int part = 0; part < 4; part++)
            y[part * wide + i] = triangle[(2 * i + part % 2) * wide + c + part / 2];
    substitute(triangle, c, wide, y);
    evaluate(circle, n, c, y, wide, out);
    free(memory);
    return FGC_OK;
}

/* Replace x = m 2^e by m, 1 <= |m.high| < 2, and return e. For 0, m is 0 and e arbitrary. */
static FGC_INLINE lanes take_exponent(pair *x)
{
    const lanes e = (((lanes)x->high >> 52) & 0x7ff) - 1023;
    const vector scale = (vector)((1023 - e) << 52);
    x->high *= scale;
    x->low *= scale;
    return e;
}

fgc_status FGC_AT_LEVEL(fgc_locator_values)(const double *circle, int64_t circle_len,
                                            const int64_t *turns, int64_t s, double *out)
{
    const int64_t n = circle_len / 2;
    const int64_t len = 2 * n + LANES;
    double *const memory = malloc((size_t)(2 * len) * sizeof *memory);
    if (!memory)
        return FGC_NO_MEMORY;
    double *const high = memory, *const low = memory + len;
    for (int64_t t = 0; t < len; t++) { /* 2 sin(pi t / n), of t modulo n */
        high[t] = 2 * circle[4 * (t % n) + 2];
        low[t] = 2 * circle[4 * (t % n) + 3];
    }
    int64_t sum = 0;
    for (int64_t j = 0; j < s; j++)
        sum = (sum + turns[j]) % (2 * n);
    const pair whole = widened(spread((double)n));
    for (int64_t i = 0; i < n; i += LANES) {
        pair size = widened(spread(1));
        lanes exponent = {0}, wrapped = {0}, index = {0};
        for (int t = 0; t < LANES; t++)
            index[t] = i + t;
        for (int64_t j = 0; j < s; j++) {
            const int64_t at = n + i - turns[j];
            size = product_of(size, (pair){load(high + at), load(low + at)});
            wrapped ^= index < turns[j]; /* true is 1 or -1: bit 0 tells */
            if (j % FGC_RUN == FGC_RUN - 1)
                exponent += take_exponent(&size);
        }
        size = quotient_of(size, whole);
        int64_t turn[LANES];
        for (int t = 0; t < LANES; t++) /* the sum of (i + t - turns[j]) mod n, itself modulo 2 n */
            turn[t] = i + t < n ? (s % (2 * n) * (i + t) + 2 * n - sum + n * (wrapped[t] & 1)) % (2 * n)
                                : 0;
        const direction phase = look_up(circle, turn);
        const pair x = product_of(size, phase.cosine), y = product_of(size, phase.sine);
        for (int t = 0; t < LANES && i + t < n; t++) {
            /* multiply by (-i)^s */
            const int swap = s % 2 != 0, minus_re = s % 4 == 2 || s % 4 == 3;
            const int minus_im = s % 4 == 1 || s % 4 == 2;
            for (int k = 0; k < 2; k++) {
                const double cosine = k ? x.low[t] : x.high[t], sine = k ? y.low[t] : y.high[t];
                const double re = swap ? sine : cosine, im = swap ? cosine : sine;
                out[4 * (i + t) + 2 * k] = ldexp(minus_re ? -re : re, (int)exponent[t]);
                out[4 * (i + t) + 2 * k + 1] = ldexp(minus_im ? -im : im, (int)exponent[t]);
            }
        }
    }
    free(memory);
    return FGC_OK;
}
