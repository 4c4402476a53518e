/* Vectors of Reed-Solomon codes in twice a double's precision: near-exact ones, by the ridge regression
 * of near_exact.c, and exact ones, by the locator.
 *
 * Columns lie in strips, each one vector wide, which are finished one after the other. A strip's rows,
 * LANES high parts and LANES low ones, stay in a cache while first all earlier reflectors and then its own
 * are applied to it. Rejected: strips twice as wide take 1.2 times the time. */
#include <math.h>
#include <stdlib.h>

#include "pairs.h"

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
    double high[LANES], low[LANES];
    store_pair(high, low, x);
    to[0] = high[0];
    to[1] = low[0];
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
    double *const column = a + j, high[LANES], low[LANES];
    for (int64_t i = 0; i < rows; i++) {
        v[2 * i] = column[i * ROW];
        v[2 * i + 1] = column[i * ROW + LANES];
    }
    const pair sums = inner(v, a, rows);
    store_pair(high, low, sums);
    const pair square = {spread(high[j]), spread(low[j])}, root = widened(spread(sqrt(high[j])));
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
    put_first(diagonal, high);
    column[0] = high[0];
    column[LANES] = high[1];
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
    double high[LANES], low[LANES];
    store_pair(high, low, x);
    pair sum = widened(spread(0));
    for (int t = 0; t < LANES; t++)
        sum = sum_of(sum, (pair){spread(high[t]), spread(low[t])});
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
            double found[2];
            known = total_of(known);
            put_first(quotient_of(sum_of(right, negative(known)), diagonal), found);
            high[i] = found[0];
            low[i] = found[1];
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
    for (int part = 0; part < 2; part++) {
        double high[LANES], low[LANES];
        store_pair(high, low, parts[part]);
        for (int t = 0; t < LANES; t++)
            if (to[t] < end) {
                out[4 * to[t] + part] = high[t];
                out[4 * to[t] + 2 + part] = low[t];
            }
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
    lanes bits;
    memcpy(&bits, &x->high, sizeof bits);
    const lanes e = ((bits >> 52) & 0x7ff) - 1023, inverse = (1023 - e) << 52;
    vector scale;
    memcpy(&scale, &inverse, sizeof scale);
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
        int64_t turn[LANES], e[LANES];
        for (int t = 0; t < LANES; t++)
            turn[t] = i + t;
        memcpy(&index, turn, sizeof index);
        for (int64_t j = 0; j < s; j++) {
            const int64_t at = n + i - turns[j];
            size = product_of(size, (pair){load(high + at), load(low + at)});
            wrapped ^= index < turns[j]; /* true is 1 or -1: bit 0 tells */
            if (j % FGC_RUN == FGC_RUN - 1)
                exponent += take_exponent(&size);
        }
        size = quotient_of(size, whole);
        memcpy(e, &exponent, sizeof e);
        memcpy(turn, &wrapped, sizeof turn);
        for (int t = 0; t < LANES; t++) /* the sum of (i + t - turns[j]) mod n, itself modulo 2 n */
            turn[t] = i + t < n ? (s % (2 * n) * (i + t) + 2 * n - sum + n * (turn[t] & 1)) % (2 * n)
                                : 0;
        const direction phase = look_up(circle, turn);
        const pair parts[2] = {product_of(size, phase.cosine), product_of(size, phase.sine)};
        double part[4][LANES];
        for (int k = 0; k < 4; k++)
            store(part[k], k % 2 ? parts[k / 2].low : parts[k / 2].high);
        for (int t = 0; t < LANES && i + t < n; t++) {
            /* multiply by (-i)^s */
            const int swap = s % 2 != 0, minus_re = s % 4 == 2 || s % 4 == 3;
            const int minus_im = s % 4 == 1 || s % 4 == 2;
            for (int k = 0; k < 2; k++) {
                const double cosine = part[k][t], sine = part[2 + k][t];
                const double re = swap ? sine : cosine, im = swap ? cosine : sine;
                out[4 * (i + t) + 2 * k] = ldexp(minus_re ? -re : re, (int)e[t]);
                out[4 * (i + t) + 2 * k + 1] = ldexp(minus_im ? -im : im, (int)e[t]);
            }
        }
    }
    free(memory);
    return FGC_OK;
}
