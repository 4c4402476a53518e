/* Vandermonde systems by Björck and Pereyra's algorithms, and Leja's order of the nodes.
 *
 * For a column c and nodes x, first with k ascending and then with k descending:
 *     V^T a = c:  c[i] -= x[k] c[i-1],                        i > k, and then
 *                 c[i] /= x[i] - x[i-k-1], i > k;  c[i] -= c[i+1],  i >= k
 *     V a = c:    c[i] = (c[i] - c[i-1]) / (x[i] - x[i-k-1]),  i > k, and then
 *                 c[i] -= x[k] c[i+1],                        i >= k
 *
 * LANES steps k, a panel, are done in one pass over c. Each step keeps the last vector that it was given,
 * so that the neighbours i-1 or i+1 come from registers. Only the panel's first vector has elements that
 * some of its steps must leave alone.
 *
 * On request, a running error bound (Higham, "Accuracy and Stability", 3.3) is computed beside c: e[i]
 * bounds the error of c[i], in units of 2^-53. Each step passes on the errors of its terms, in moduli, and
 * adds its own roundings: as many as the least careful way to compute it has.
 *
 * Nodes are divided by a power of two; a solution's digits do not depend on it. In an order that is given,
 * or Leja's, their mean distance becomes about 1: the products of distances that the steps divide by then
 * stay in a double's range for thousands of nodes. A system that leaves the range all the same is not solved
 * here: overflow leaves numbers that are not finite, and underflow sets a flag of the processor. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#include "vector.h"

enum { GROUP = 4 }; /* columns that share their reciprocals */

/* Keep the compiler from moving reads and writes of memory across this point. */
#define KEEP_ORDER __asm__ volatile("" : : : "memory")

/* The most roundings of a product, and of a quotient together with the difference that is its divisor.
 * Each is relative to the result's modulus. UNIT covers second orders and the bounds' own roundings. */
#define IN_PRODUCT (complex ? 3.0 : 1.0)
#define IN_QUOTIENT (complex ? 12.0 : 6.0)
#define UNIT (0x1p-53 * 1.001)

/* An order is accurate if each number's bound, relative to the number, is at most ACCURATE per node. An
 * error of HARMLESS relative to the largest number does not matter. Nodes are on one ray from 0 if their
 * angles differ by at most RAY. */
#define ACCURATE 0x1p-48
#define HARMLESS 0x1p-32
#define RAY 0x1p-20

/* Limits of what `leja` returns: the logarithm (base 2) of a node's mean distance from those before it.
 * Below CLUSTERED, nodes are in clusters or of many scales, and Leja's order may lose every digit. If most
 * values at the nodes are 0 it may below SPREAD, or for real nodes of size up to 1, below FILLED. A circle
 * of radius 1 has 0, an interval of length 2 has -1 if nodes fill it as Chebyshev's do. */
#define CLUSTERED -3.5
#define SPREAD -0.5
#define FILLED -1.1

/* A column with at most so many values that differ from 0 has an order of its own: see `part`. */
#define FEW 3

/* Nodes in the order of elimination, with LANES readable doubles before and after them. */
typedef struct {
    const double *re, *im;
    int64_t vectors;
} points;

typedef struct {
    double *re[GROUP], *im[GROUP], *error[GROUP];
} columns;

typedef struct {
    number last[GROUP][LANES];
    vector error[GROUP][LANES];
} carry;

/* Clear the processor's underflow flag, and read it. KEEP_ORDER has results that are stored before the
 * read computed before it. */
static FGC_INLINE void forget_underflow(void)
{
#if defined(__SSE2__)
    const unsigned state = _mm_getcsr();
    if (state & _MM_EXCEPT_UNDERFLOW)
        _mm_setcsr(state & ~(unsigned)_MM_EXCEPT_UNDERFLOW);
#else
    feclearexcept(FE_UNDERFLOW);
#endif
    KEEP_ORDER;
}

static FGC_INLINE int underflowed(void)
{
    KEEP_ORDER;
#if defined(__SSE2__)
    return (_mm_getcsr() & _MM_EXCEPT_UNDERFLOW) != 0;
#else
    return fetestexcept(FE_UNDERFLOW) != 0;
#endif
}

/* Return x 2^e; x itself if e is 0. */
static FGC_INLINE double scaled(double x, int64_t e)
{
    if (!e)
        return x;
    if (-1022 <= e && e <= 1023)
        return x * power_of_two(e);
    return ldexp(x, (int)(e < -5000 ? -5000 : e > 5000 ? 5000 : e));
}

/* Return a bound of the modulus: between 1 and sqrt(2) times it. */
static FGC_INLINE vector about(number a, const int complex)
{
    return complex ? magnitude(a.re) + magnitude(a.im) : magnitude(a.re);
}

static FGC_INLINE vector modulus(number a, const int complex)
{
    if (!complex)
        return magnitude(a.re);
    const vector squares = square(a, 1);
    vector sums = about(a, 1);
    for (int t = 0; t < LANES; t++) /* squares of the smallest numbers underflow: take the bound */
        sums[t] = squares[t] < 0x1p-900 ? sums[t] : sqrt(squares[t]);
    return sums;
}

/* d[t] = 1 / (x[i] - x[i-k-1]) for the vector at i and the panel's steps k = first + t. Inverting the
 * product of two differences and multiplying is cheaper than inverting both. */
static FGC_INLINE void differences(points x, int64_t i, int64_t first, number *d, const int complex)
{
    const number at = get(x.re + i, x.im + i, complex);
    FGC_UNROLL
    for (int t = 0; t < LANES; t++) {
        const int64_t j = i - first - t - 1;
        d[t] = minus(at, get(x.re + j, x.im + j, complex), complex);
    }
    enum { STEP = LANES > 1 ? 2 : 1 };
    FGC_UNROLL
    for (int t = 0; t < LANES; t += STEP) {
        number *const a = d + t, *const b = d + t + STEP - 1;
        const vector u = complex ? square(*a, 1) : a->re, v = complex ? square(*b, 1) : b->re;
        const vector both = reciprocal(STEP > 1 ? u * v : u);
        const vector over_a = STEP > 1 ? both * v : both, over_b = STEP > 1 ? both * u : both;
        *a = complex ? (number){a->re * over_a, -a->im * over_a} : (number){over_a, a->im};
        if (STEP > 1)
            *b = complex ? (number){b->re * over_b, -b->im * over_b} : (number){over_b, b->im};
    }
}

typedef enum { TIMES_NODE, OVER_DIFFERENCE } what;

/* Do the panel's steps on the vector at i of each column. `head`: it is the panel's first vector, of which
 * each step leaves some elements alone. */
static FGC_INLINE void steps(points x, columns c, int count, int64_t i, int64_t first, carry *kept,
                             const what factor, const int ascending, const int head,
                             const int bounded, const int complex)
{
    number f[LANES];
    vector size[LANES];
    if (factor == OVER_DIFFERENCE)
        differences(x, i, first, f, complex);
    else
        for (int t = 0; t < LANES; t++)
            f[t] = (number){spread(x.re[first + t]),
                            complex ? spread(x.im[first + t]) : (vector){0}};
    for (int t = 0; bounded && t < LANES; t++)
        size[t] = modulus(f[t], complex);
    for (int col = 0; col < count; col++) {
        number v = get(c.re[col] + i, c.im[col] + i, complex);
        vector e = bounded ? load(c.error[col] + i) : (vector){0};
        FGC_UNROLL
        for (int step = 0; step < LANES; step++) {
            const int t = ascending ? step : LANES - 1 - step;
            number *const last = &kept->last[col][t];
            number neighbour = {{0}, {0}}, before = v, result;
            vector *const last_error = &kept->error[col][t];
            vector other = {0}, known = e, sum = {0};
            if (factor == OVER_DIFFERENCE && !ascending) {
                before = times(v, f[t], complex);
                if (bounded)
                    known = e * size[t] + IN_QUOTIENT * about(before, complex);
                if (head) {
                    before = choose(after(t), before, v, complex);
                    known = pick(after(t), known, e);
                }
            }
            if (ascending)
                neighbour.re = from_last(last->re, before.re);
            else
                neighbour.re = from_second(before.re, last->re);
            if (complex && ascending)
                neighbour.im = from_last(last->im, before.im);
            else if (complex)
                neighbour.im = from_second(before.im, last->im);
            *last = before;
            if (bounded) {
                other = ascending ? from_last(*last_error, known) : from_second(known, *last_error);
                *last_error = known;
                sum = known + other;
                if (factor == TIMES_NODE)
                    sum = known + size[t] * (other + IN_PRODUCT * about(neighbour, complex));
            }
            if (factor == TIMES_NODE)
                neighbour = times(f[t], neighbour, complex);
            result = minus(before, neighbour, complex);
            if (factor == OVER_DIFFERENCE && ascending)
                result = times(result, f[t], complex);
            v = head ? choose(ascending ? after(t) : after(t - 1), result, before, complex) : result;
            if (bounded) {
                if (factor == OVER_DIFFERENCE && ascending)
                    sum = sum * size[t] + IN_QUOTIENT * about(result, complex);
                sum += about(result, complex);
                e = head ? pick(ascending ? after(t) : after(t - 1), sum, known) : sum;
            }
        }
        put(c.re[col] + i, c.im[col] + i, v, complex);
        if (bounded)
            store(c.error[col] + i, e);
    }
}

/* Do all steps k of one kind, ascending or descending, panel by panel. `valid`: the lanes of the last
 * vector that hold elements. */
static FGC_INLINE void sweep(points x, columns c, int count, lanes valid, const what factor,
                             const int ascending, const int bounded, const int complex)
{
    const int64_t end = x.vectors * LANES;
    for (int64_t panel = 0; panel < end; panel += LANES) {
        carry kept;
        for (int col = 0; col < count; col++)
            for (int t = 0; t < LANES; t++)
                kept.last[col][t] = (number){{0}, {0}}, kept.error[col][t] = (vector){0};
        if (ascending) {
            steps(x, c, count, panel, panel, &kept, factor, 1, 1, bounded, complex);
            for (int64_t i = panel + LANES; i < end; i += LANES)
                steps(x, c, count, i, panel, &kept, factor, 1, 0, bounded, complex);
            /* Numbers beyond the end would grow from panel to panel. */
            for (int col = 0; col < count; col++) {
                const number zero = {{0}, {0}};
                double *const re = c.re[col] + end - LANES, *const im = c.im[col] + end - LANES;
                put(re, im, choose(valid, get(re, im, complex), zero, complex), complex);
                double *const error = c.error[col] + end - LANES;
                if (bounded)
                    store(error, pick(valid, load(error), zero.re));
            }
        } else {
            const int64_t first = end - LANES - panel;
            for (int64_t i = end - LANES; i > first; i -= LANES)
                steps(x, c, count, i, first, &kept, factor, 0, 0, bounded, complex);
            steps(x, c, count, first, first, &kept, factor, 0, 1, bounded, complex);
        }
    }
}

/* Solve in place: first the ascending steps, then the descending ones. */
static FGC_INLINE void solve(points x, columns c, int count, lanes valid, const int transpose,
                             const int bounded, const int complex)
{
    if (transpose) {
        sweep(x, c, count, valid, TIMES_NODE, 1, bounded, complex);
        sweep(x, c, count, valid, OVER_DIFFERENCE, 0, bounded, complex);
    } else {
        sweep(x, c, count, valid, OVER_DIFFERENCE, 1, bounded, complex);
        sweep(x, c, count, valid, TIMES_NODE, 0, bounded, complex);
    }
}

/* Many columns, without bounds. A vector holds one row of LANES columns, so that neighbours are whole
 * vectors. WIDE such vectors are solved at once, PANEL steps in one pass, and the last vectors that each
 * step was given stay in registers. Factors are the same for all columns. */
enum { WIDE = 2, PANEL = LANES < 4 ? 4 : LANES, HALF_PANEL = PANEL / 2 };

typedef struct {
    const double *re, *im; /* nodes in order, with PANEL readable doubles before and after */
    double *row;           /* row i: the real parts of WIDE vectors, and then their imaginary parts */
    int64_t m;
} table;

/* Do steps from .. to-1 of the panel on a row. The factor of step t is at t if it is a node, and at
 * panel - 1 - t if it is the reciprocal of a difference. */
static FGC_INLINE void row_steps(number *v, number (*kept)[WIDE], const double *re, const double *im,
                                 int from, int to, const int panel, const what factor,
                                 const int ascending, const int vectors, const int complex)
{
    FGC_UNROLL
    for (int step = 0; step < to - from; step++) {
        const int t = ascending ? from + step : to - 1 - step;
        const int at = factor == TIMES_NODE ? t : panel - 1 - t;
        const number by = {spread(re[at]), complex ? spread(im[at]) : (vector){0}};
        FGC_UNROLL
        for (int w = 0; w < vectors; w++) {
            number before = v[w], neighbour = kept[t][w];
            if (factor == OVER_DIFFERENCE && !ascending)
                before = times(before, by, complex);
            kept[t][w] = before;
            if (factor == TIMES_NODE)
                neighbour = times(by, neighbour, complex);
            v[w] = minus(before, neighbour, complex);
            if (factor == OVER_DIFFERENCE && ascending)
                v[w] = times(v[w], by, complex);
        }
    }
}

/* Do the panel's steps on row i: all of them if the row is beyond the panel; if it is inside (`head`), only
 * those that change it. */
static FGC_INLINE void wide_row(table x, int64_t i, int64_t first, number (*kept)[WIDE],
                                const int panel, const what factor, const int ascending,
                                const int head, const int vectors, const int complex)
{
    double re[PANEL], im[PANEL], *const row = x.row + i * (1 + complex) * WIDE * LANES;
    const double *by_re = x.re + first, *by_im = x.im + first;
    const int own = (int)(i - first); /* of a head: the step that has the row's number */
    number v[WIDE];
    if (factor == OVER_DIFFERENCE) {
        const number at = {spread(x.re[i]), complex ? spread(x.im[i]) : (vector){0}};
        const int64_t from = i - first - panel; /* the node of the panel's last step */
        for (int t = 0; t < panel; t += LANES) {
            number d = minus(at, get(x.re + from + t, x.im + from + t, complex), complex);
            const vector inverse = reciprocal(complex ? square(d, 1) : d.re);
            d = complex ? (number){d.re * inverse, -d.im * inverse} : (number){inverse, d.im};
            put(re + t, im + t, d, complex);
        }
        by_re = re;
        by_im = im;
    }
    FGC_UNROLL
    for (int w = 0; w < vectors; w++)
        v[w] = get(row + w * LANES, row + (WIDE + w) * LANES, complex);
    if (!head)
        row_steps(v, kept, by_re, by_im, 0, panel, panel, factor, ascending, vectors, complex);
    else if (ascending) {
        row_steps(v, kept, by_re, by_im, 0, own, panel, factor, 1, vectors, complex);
        for (int w = 0; w < vectors; w++)
            kept[own][w] = v[w];
    } else {
        for (int w = 0; factor == OVER_DIFFERENCE && w < vectors; w++)
            v[w] = minus(v[w], kept[own][w], complex);
        row_steps(v, kept, by_re, by_im, 0, own + (factor == TIMES_NODE), panel, factor, 0, vectors,
                  complex);
    }
    FGC_UNROLL
    for (int w = 0; w < vectors; w++)
        put(row + w * LANES, row + (WIDE + w) * LANES, v[w], complex);
}

/* The same as `sweep`, for a table: each panel goes over all rows that it changes. */
static FGC_INLINE void wide_sweep(table x, const what factor, const int ascending,
                                  const int vectors, const int complex)
{
    const int panel = complex && PANEL > 4 ? HALF_PANEL : PANEL; /* steps whose vectors fit in registers */
    const int64_t steps = (x.m + panel - 1) / panel * panel;
    for (int64_t done = 0; done < steps; done += panel) {
        const int64_t first = ascending ? done : steps - panel - done;
        const int64_t beyond = first + panel < x.m ? first + panel : x.m;
        number kept[PANEL][WIDE];
        for (int t = 0; t < panel; t++)
            for (int w = 0; w < vectors; w++)
                kept[t][w] = (number){{0}, {0}};
        for (int64_t i = first; ascending && i < beyond; i++)
            wide_row(x, i, first, kept, panel, factor, 1, 1, vectors, complex);
        for (int64_t i = beyond; ascending && i < x.m; i++)
            wide_row(x, i, first, kept, panel, factor, 1, 0, vectors, complex);
        for (int64_t i = x.m; !ascending && i-- > beyond;)
            wide_row(x, i, first, kept, panel, factor, 0, 0, vectors, complex);
        for (int64_t i = beyond; !ascending && i-- > first;)
            wide_row(x, i, first, kept, panel, factor, 0, 1, vectors, complex);
    }
}

static FGC_INLINE void solve_rows(table x, int transpose, const int vectors, const int complex)
{
    if (transpose) {
        wide_sweep(x, TIMES_NODE, 1, vectors, complex);
        wide_sweep(x, OVER_DIFFERENCE, 0, vectors, complex);
    } else {
        wide_sweep(x, OVER_DIFFERENCE, 1, vectors, complex);
        wide_sweep(x, TIMES_NODE, 0, vectors, complex);
    }
}

static double largest_part(const double *x, int64_t len)
{
    double largest = 0;
    for (int64_t i = 0; i < len; i++)
        largest = greater(x[i] < 0 ? -x[i] : x[i], largest);
    return largest;
}

/* Find Leja's order. Nodes not yet chosen are kept together, each with the product of its distances to
 * the chosen ones. The last bits of a product hold its node's position, so that the largest product
 * tells where it is. Differences are scaled by powers of two, at no cost, to keep the largest product
 * near 1.
 *
 * Every operation is that of the other backends and rounds as theirs does: most sets of nodes are
 * symmetric, many nodes are then equally far, and all backends must choose the same one.
 *
 * For each node but the first there is the mean logarithm of its distances to the nodes before it.
 * Returns the least of these means. */
static FGC_INLINE double leja(const double *nodes, int64_t m, int64_t *order, double *work,
                              const int complex)
{
    enum { CHAINS = 4, CLAMP = 16 };
    const int64_t padded = padded_size(m);
    double *const re = work, *const product = re + padded, *const place = product + padded;
    double *const im = complex ? place + padded : re;
    const double largest = largest_part(nodes, (1 + complex) * m);
    const int64_t size = exponent_of(largest);
    const int64_t up = size < -1022 ? 1022 : size > 1022 ? -1022 : -size;
    const double scale = power_of_two(up);
    int64_t low = 8; /* the same for every LANES */
    while (low < padded)
        low *= 2;
    low -= 1;
    int64_t best = 0;
    double most = -1;
    for (int64_t i = 0; i < padded; i++) {
        const int inside = i < m;
        re[i] = inside ? scale * nodes[(1 + complex) * i] : 0;
        if (complex)
            im[i] = inside ? scale * nodes[2 * i + 1] : 0;
        product[i] = inside;
        memcpy(place + i, &i, sizeof i);
        if (inside) {
            order[i] = i;
            double modulus = re[i] * re[i], other = complex ? im[i] * im[i] : 0;
            ROUND(modulus);
            ROUND(other);
            modulus += other;
            if (modulus > most) {
                most = modulus;
                best = i;
            }
        }
    }
    const lanes keep = (lanes){0} + (INT64_MAX & ~low); /* neither sign nor position */
    double growth = 1.0, least = 0;
    int64_t grown = 0, scaled_by = 0; /* exponents: of growth, and of the scale that products have got */
    for (int64_t k = 0; k + 1 < m; k++) {
        const double x = re[best], y = im[best], moved = product[k];
        const int64_t chosen = order[best];
        re[best] = re[k];
        im[best] = complex ? im[k] : re[k];
        product[best] = moved;
        order[best] = order[k];
        re[k] = x;
        if (complex)
            im[k] = y;
        order[k] = chosen;

        const vector s = spread(growth), sx = spread(growth * x), sy = spread(growth * y);
        vector top[CHAINS];
        for (int v = 0; v < CHAINS; v++)
            top[v] = (vector){0};
        int64_t i = (k + 1) / LANES * LANES;
#define STEP(chain)                                                                                \
    do {                                                                                           \
        const vector dx = load(re + i) * s - sx;                                                   \
        vector p = load(product + i);                                                              \
        if (complex) {                                                                             \
            const vector dy = load(im + i) * s - sy;                                               \
            vector xx = dx * dx, yy = dy * dy;                                                     \
            ROUND(xx);                                                                             \
            ROUND(yy);                                                                             \
            p *= xx + yy;                                                                          \
        } else                                                                                     \
            p *= dx;                                                                               \
        store(product + i, p);                                                                     \
        top[chain] = larger((vector)(((lanes)p & keep) | (lanes)load(place + i)), top[chain]);     \
        i += LANES;                                                                                \
    } while (0)
        while (i + CHAINS * LANES <= padded) {
            STEP(0);
            STEP(1);
            STEP(2);
            STEP(3);
        }
        if (i < padded)
            STEP(0);
        if (i < padded)
            STEP(1);
        if (i < padded)
            STEP(2);
#undef STEP
        double all[LANES];
        store(all, larger(larger(top[0], top[1]), larger(top[2], top[3])));
        for (int w = LANES / 2; w; w /= 2)
            for (int t = 0; t < w; t++)
                all[t] = greater(all[t], all[t + w]);
        const int64_t bits = (int64_t)bits_of(all[0]);
        best = bits & low;
        if (!(bits & ~low) || best <= k || best >= m) /* all products are 0, or not finite */
            best = k + 1;
        const int64_t e = exponent_of(all[0]);
        scaled_by += up + grown;
        const double mean = (double)((complex ? e >> 1 : e) - scaled_by) / (double)(k + 1);
        least = mean < least ? mean : least;
        grown = e < -1000 || e > 1000 ? 0 : complex ? -(e >> 1) : -e;
        growth = power_of_two(grown);
        if (k % CLAMP == CLAMP - 1) {
            for (i = (k + 1) / LANES * LANES; i < padded; i += LANES)
                store(product + i, larger(magnitude(load(product + i)), spread(0x1p-500)));
            for (i = m; i < padded; i++) /* where no node is */
                product[i] = 0;
        }
    }
    return least;
}

fgc_status FGC_AT_LEVEL(fgc_leja_order)(const double *nodes, int64_t m, int complex, int64_t *order)
{
    void *const memory = malloc((size_t)(4 * padded_size(m) + 8) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    (void)BY_TYPE(leja, nodes, m, order, aligned(memory));
    free(memory);
    return FGC_OK;
}

/* `len` is a multiple of LANES. */
static FGC_INLINE int all_finite(const double *x, int64_t len)
{
    vector none = {0};
    for (int64_t i = 0; i < len; i += LANES)
        none += load(x + i) - load(x + i);
    return sum_of_lanes(none) == 0;
}

/* A system to solve. */
typedef struct {
    const double *nodes, *b;
    double *out, *bound;
    int64_t m, width;
    double largest; /* the largest modulus of a node's real or imaginary part */
    int64_t shift;  /* nodes have been divided by 2^shift */
    int transpose;
} task;

/* Multiply row i, of `size` numbers, by 2^(-shift i), which makes up for the scale of the nodes. The rows
 * are those of b if `transpose`, else those of x. */
static void shift_rows(const task *of, double *rows, int64_t size)
{
    for (int64_t i = 0; of->shift && i < of->m; i++)
        for (int64_t at = i * size; at < (i + 1) * size; at++)
            rows[at] = scaled(rows[at], -of->shift * i);
}

/* The nodes in one order, and up to GROUP columns solved in it. */
typedef struct {
    const int64_t *order;
    int64_t *place; /* of each row of x: where it is in the columns */
    points x;
    columns c;
    double *column; /* the first column; the others follow */
} attempt;

static FGC_INLINE attempt new_attempt(const task *of, const int64_t *order, int64_t *place,
                                      double *work, const int complex)
{
    const int64_t padded = padded_size(of->m);
    double *const re = work + LANES, *const im = complex ? re + padded + LANES : re;
    attempt a = {order, place, {re, im, padded / LANES}, {{0}, {0}, {0}}, im + padded};
    for (int col = 0; col < GROUP; col++) {
        a.c.re[col] = a.column + (1 + complex) * col * padded;
        a.c.im[col] = complex ? a.c.re[col] + padded : a.c.re[col];
        a.c.error[col] = a.column + ((1 + complex) * GROUP + col) * padded;
    }
    return a;
}

/* The number of doubles that an attempt needs. */
static int64_t attempt_size(int64_t m) { return (2 + 3 * GROUP) * (padded_size(m) + LANES); }

/* Copy the nodes in order. Returns 1, or 0 if a node is not finite, or -1 if the order holds an index
 * outside 0 .. m-1. */
static FGC_INLINE int put_nodes(const task *of, attempt *a, const int complex)
{
    const int64_t m = of->m, padded = padded_size(m);
    double *const re = (double *)a->x.re, *const im = (double *)a->x.im;
    int finite = 1;
    for (int64_t i = -LANES; i < padded; i++) {
        /* Distinct nodes beyond either end: zeros are divided by their differences, and a difference that
         * shares a reciprocal with one of these must not become infinite. */
        const double steps = (double)(i < 0 ? i - 1 : i - m + 2);
        const double beyond = steps * (of->largest > 0 ? 2 * of->largest : 1.0);
        const int inside = i >= 0 && i < m;
        if (inside && (uint64_t)a->order[i] >= (uint64_t)m)
            return -1;
        const scalar x = inside ? number_at(of->nodes, a->order[i], complex) : (scalar){beyond, 0};
        finite &= x.re - x.re == 0 && x.im - x.im == 0;
        re[i] = x.re;
        if (complex)
            im[i] = x.im;
    }
    return finite;
}

/* Solve for `count` columns from `done` on. Returns whether nothing left a double's range. */
static FGC_INLINE int solve_group(const task *of, attempt *a, int64_t done, int count, int bounded,
                                  const int complex)
{
    const int parts = 1 + complex, transpose = of->transpose;
    const int64_t m = of->m, width = of->width, padded = padded_size(m), *const order = a->order;
    const lanes valid = ~after((int)(m - 1 - (a->x.vectors - 1) * LANES));
    const columns c = a->c;
    forget_underflow();
    for (int64_t i = 0; i < padded; i++) {
        const int64_t at = width * (i < m ? transpose ? i : order[i] : 0) + done;
        const double *const row = of->b + parts * at;
        for (int col = 0; col < count; col++) {
            c.re[col][i] = i < m ? row[parts * col] : 0;
            if (complex)
                c.im[col][i] = i < m ? row[2 * col + 1] : 0;
            if (bounded)
                c.error[col][i] = i < m && of->bound ? of->bound[at + col] / UNIT : 0;
        }
    }
    for (int64_t i = 0; of->shift && transpose && i < m; i++) {
        const int64_t shift = -of->shift * i;
        for (int col = 0; col < count; col++) {
            c.re[col][i] = scaled(c.re[col][i], shift);
            if (complex)
                c.im[col][i] = scaled(c.im[col][i], shift);
            if (bounded)
                c.error[col][i] = scaled(c.error[col][i], shift);
        }
    }
    /* Constants for the inlined function */
#define SOLVE(transpose, bounded)                                                                  \
    (count == 1 ? solve(a->x, c, 1, valid, transpose, bounded, complex)                            \
                : solve(a->x, c, count, valid, transpose, bounded, complex))
    if (bounded)
        transpose ? SOLVE(1, 1) : SOLVE(0, 1);
    else
        transpose ? SOLVE(1, 0) : SOLVE(0, 0);
#undef SOLVE
    const int good = !underflowed() && all_finite(a->column, parts * count * padded);
    /* From here on bounds are absolute, and Inf where a bound is not a number. */
    for (int col = 0; bounded && col < count; col++)
        for (int64_t i = 0; i < m; i++) {
            const double e = c.error[col][i], rounded = UNIT * e + (e > 0 ? 0x1p-1074 : 0);
            c.error[col][i] = good && rounded <= DBL_MAX ? rounded : INFINITY;
        }
    return good;
}

static FGC_NOINLINE int solve_real(const task *of, attempt *a, int64_t done, int count, int bounded)
{
    return solve_group(of, a, done, count, bounded, 0);
}

static FGC_NOINLINE int solve_complex(const task *of, attempt *a, int64_t done, int count,
                                      int bounded)
{
    return solve_group(of, a, done, count, bounded, 1);
}

/* From so many columns on, vectors across columns pay. */
enum { MANY = LANES > 4 ? 5 : 3 };

/* The number of doubles that solve_many needs. */
static int64_t many_size(int64_t m) { return 2 * (m + 2 * PANEL + m * WIDE * LANES); }

/* Solve for `count` columns, at most as many as WIDE vectors hold. Writes them and returns 1 if nothing
 * left a double's range, else returns 0. */
static FGC_INLINE int solve_many(const task *of, const int64_t *order, int64_t done, int count,
                                 double *work, const int complex)
{
    const int parts = 1 + complex;
    const int64_t m = of->m, size = parts * WIDE * LANES;
    double *const re = work + m * 2 * WIDE * LANES + PANEL, *const im = re + m + 2 * PANEL;
    const table x = {re, im, work, m};
    forget_underflow();
    for (int64_t i = -PANEL; i < m + PANEL; i++) {
        const int inside = i >= 0 && i < m;
        const scalar node = inside ? number_at(of->nodes, order[i], complex) : (scalar){0, 0};
        re[i] = node.re;
        im[i] = node.im;
    }
    for (int64_t i = 0; i < m; i++) {
        const double *const from = of->b + parts * (of->width * (of->transpose ? i : order[i]) + done);
        double *const row = work + i * size;
        for (int col = 0; col < WIDE * LANES; col++) {
            row[col] = col < count ? from[parts * col] : 0;
            if (complex)
                row[WIDE * LANES + col] = col < count ? from[2 * col + 1] : 0;
        }
    }
    if (of->transpose)
        shift_rows(of, work, size);
    if (count <= LANES) /* constants for the inlined function */
        solve_rows(x, of->transpose, 1, complex);
    else
        solve_rows(x, of->transpose, 2, complex);
    const int good = !underflowed();
    if (!of->transpose)
        shift_rows(of, work, size);
    if (!(good && all_finite(work, m * size)))
        return 0;
    for (int64_t i = 0; i < m; i++) {
        double *const to = of->out + parts * (of->width * (of->transpose ? order[i] : i) + done);
        const double *const row = work + i * size;
        for (int col = 0; col < count; col++)
            put_number(to, col, (scalar){row[col], complex ? row[WIDE * LANES + col] : 0}, complex);
    }
    return 1;
}

static FGC_NOINLINE int solve_many_real(const task *of, const int64_t *order, int64_t done,
                                        int count, double *work)
{
    return solve_many(of, order, done, count, work, 0);
}

static FGC_NOINLINE int solve_many_complex(const task *of, const int64_t *order, int64_t done,
                                           int count, double *work)
{
    return solve_many(of, order, done, count, work, 1);
}

/* Number i of a column. */
static FGC_INLINE scalar of_column(const attempt *a, int col, int64_t i, const int complex)
{
    return (scalar){a->c.re[col][i], complex ? a->c.im[col][i] : 0};
}

/* Return its larger part: at least 0.7 of its modulus. */
static FGC_INLINE double size_of(const attempt *a, int col, int64_t i, const int complex)
{
    return larger_part(of_column(a, col, i, complex), complex);
}

/* Make up for the scale of the nodes, and write a column and its bounds if all its numbers are then finite.
 * Returns whether they are. */
static FGC_INLINE int write_column(const task *of, const attempt *a, int64_t done, int col,
                                   const int complex)
{
    double *const re = a->c.re[col], *const im = a->c.im[col], *const error = a->c.error[col];
    int finite = 1;
    for (int64_t i = 0; of->shift && !of->transpose && i < of->m; i++) {
        const int64_t shift = -of->shift * i;
        const int was = re[i] != 0 || (complex && im[i] != 0), erred = of->bound && error[i] != 0;
        re[i] = scaled(re[i], shift);
        finite &= re[i] - re[i] == 0;
        if (complex) {
            im[i] = scaled(im[i], shift);
            finite &= im[i] - im[i] == 0;
        }
        if (of->bound) { /* scaling may underflow: an error of at most 2^-1073 */
            error[i] = scaled(error[i], shift);
            const int small = (was && size_of(a, col, i, complex) < 0x1p-960) ||
                              (erred && error[i] < 0x1p-1000);
            error[i] += small ? 0x1p-1073 : 0;
        }
    }
    for (int64_t i = 0; finite && i < of->m; i++) {
        const int64_t at = of->width * (of->transpose ? a->order[i] : i) + done + col;
        put_number(of->out, at, of_column(a, col, i, complex), complex);
        if (of->bound)
            of->bound[at] = error[i];
    }
    return finite;
}

/* Return whether all nodes lie on one ray from 0, or nearly so. key[i] becomes the larger part of node
 * i. */
static FGC_INLINE int are_on_ray(const double *nodes, int64_t m, double *key, const int complex)
{
    scalar far = {0, 0};
    for (int64_t i = 0; i < m; i++) {
        const scalar x = number_at(nodes, i, complex);
        key[i] = larger_part(x, complex);
        if (key[i] > larger_part(far, complex))
            far = x;
    }
    for (int64_t i = 0; i < m; i++) {
        const scalar x = number_at(nodes, i, complex);
        if (!complex && (far.re < 0 ? x.re > 0 : x.re < 0))
            return 0;
        const double along = x.re * far.re + x.im * far.im;
        if (complex && !(fabs(x.im * far.re - x.re * far.im) <= RAY * along))
            return 0;
    }
    return 1;
}

/* Write the rising order of the keys. `spare` has room for m indices. */
static void find_rising(const double *key, int64_t m, int64_t *order, int64_t *spare)
{
    /* By merging, so that equal keys keep their order. Keys that already rise or fall cost one pass. */
    int64_t *from = order, *to = spare;
    int rises = 1, falls = 1;
    for (int64_t i = 0; i < m; i++)
        order[i] = i;
    for (int64_t i = 1; i < m; i++) {
        rises &= key[i - 1] <= key[i];
        falls &= key[i - 1] > key[i];
    }
    for (int64_t i = 0; falls && i < m; i++)
        order[i] = m - 1 - i;
    for (int64_t run = 1; !rises && !falls && run < m; run *= 2) {
        for (int64_t first = 0; first < m; first += 2 * run) {
            const int64_t middle = first + run < m ? first + run : m;
            const int64_t end = middle + run < m ? middle + run : m;
            for (int64_t i = first, j = middle, at = first; at < end; at++) {
                const int left = j == end || (i < middle && key[from[i]] <= key[from[j]]);
                to[at] = left ? from[i++] : from[j++];
            }
        }
        int64_t *const other = from;
        from = to;
        to = other;
    }
    if (from != order)
        memcpy(order, from, (size_t)m * sizeof *order);
}

static FGC_INLINE int is_value(const task *of, int64_t i, int64_t col, const int complex)
{
    const scalar value = number_at(of->b, of->width * i + col, complex);
    return value.re != 0 || value.im != 0;
}

/* Count the values of a column that differ from 0, up to `most`. */
static FGC_INLINE int64_t count_values(const task *of, int64_t col, int64_t most, const int complex)
{
    int64_t found = 0;
    for (int64_t i = 0; i < of->m && found < most; i++)
        found += is_value(of, i, col, complex);
    return found;
}

/* Return whether at most FEW values of a column differ from 0, and these are fewer than half. */
static FGC_INLINE int has_few(const task *of, int64_t col, const int complex)
{
    const int64_t found = count_values(of, col, FEW + 1, complex);
    return found <= FEW && 2 * found < of->m;
}

/* Return whether in some column more than FEW values differ from 0, but fewer than half. */
static FGC_INLINE int is_sparse(const task *of, const int complex)
{
    const int64_t half = (of->m + 1) / 2;
    for (int64_t col = 0; half > FEW && col < of->width; col++) {
        const int64_t found = count_values(of, col, half, complex);
        if (FEW < found && found < half)
            return 1;
    }
    return 0;
}

/* Write the order in which the nodes come first at which a column's values are 0. The polynomial is w q,
 * and the roots of w are these nodes. No difference of nodes divides anything but 0 until the few others
 * come. What remains is to expand w, whose roots are in Leja's order (Calvetti and Reichel, "On the
 * evaluation of polynomial coefficients", 2003). Leja's order of all nodes can lose every digit of such
 * a polynomial. */
static FGC_INLINE void part(const task *of, const int64_t *order, int64_t col, int64_t *to,
                            const int complex)
{
    int64_t at = 0;
    for (int last = 0; last < 2; last++)
        for (int64_t i = 0; i < of->m; i++)
            if (is_value(of, order[i], col, complex) == last)
                to[at++] = order[i];
}

/* Return whether by a column's bounds all its numbers are good to about their last digits: see ACCURATE. */
static FGC_INLINE int is_accurate(const attempt *a, int col, int64_t m, const int complex)
{
    const double limit = ACCURATE * (double)m;
    int all = 1;
    for (int64_t i = 0; i < m; i++)
        all &= a->c.error[col][i] <= limit * size_of(a, col, i, complex);
    return all;
}

typedef enum { WORSE, BETTER, UNDECIDED } verdict;

/* Compare two attempts by the bounds of `a`.
 *
 * BETTER: they prove that the largest relative error of a number is smaller in `a` than in `other`, and
 * also that its largest error is, or is HARMLESS beside the largest number. UNDECIDED: they only prove
 * that the largest error is smaller, and that the other's is not small. WORSE: neither. */
static FGC_INLINE verdict compare(const attempt *a, const attempt *other, int col, int64_t m,
                                  const int complex)
{
    double most = 0, most_relative = 0, least = 0, least_relative = 0, largest = 0;
    for (int64_t row = 0; row < m; row++) {
        const int64_t i = a->place[row], j = other->place[row];
        const double e = a->c.error[col][i], size = size_of(a, col, i, complex);
        const double re = fabs(a->c.re[col][i] - other->c.re[col][j]);
        const double im = complex ? fabs(a->c.im[col][i] - other->c.im[col][j]) : 0;
        const double proven = greater(re, im) - e; /* the other's error is no less */
        if (!(e < size || e == 0))
            most_relative = INFINITY;
        else if (e > 0)
            most_relative = greater(e / (size - e), most_relative);
        if (proven > 0)
            least_relative = greater(proven / (1.5 * size + e), least_relative);
        most = greater(e, most);
        least = greater(proven, least);
        largest = greater(size, largest);
    }
    if (most_relative < least_relative && (most <= least || most <= HARMLESS * largest))
        return BETTER;
    return most < least && least > ACCURATE * (double)m * largest ? UNDECIDED : WORSE;
}

/* Lower the bounds of `a`: a number's error is at most its distance from the number in `by`, plus that
 * one's bound. */
static FGC_INLINE void tighten(const attempt *a, const attempt *by, int col, int64_t m,
                               const int complex)
{
    for (int64_t row = 0; row < m; row++) {
        const int64_t i = a->place[row], j = by->place[row];
        double far = fabs(a->c.re[col][i] - by->c.re[col][j]);
        if (complex)
            far += fabs(a->c.im[col][i] - by->c.im[col][j]);
        far = 1.001 * (far + by->c.error[col][j]);
        if (far < a->c.error[col][i])
            a->c.error[col][i] = far;
    }
}

static FGC_INLINE void find_places(const attempt *a, int64_t m, int transpose)
{
    for (int64_t i = 0; i < m; i++)
        a->place[transpose ? a->order[i] : i] = i;
}

/* The orders in which columns are solved: `first`. If `choosing`, also Leja's, for columns of which the
 * bounds do not prove that `first` is accurate. If `parting`, columns of few values have Leja's order in
 * two parts: see `part`. */
typedef struct {
    const int64_t *first;
    int choosing, parting;
    double enough, apart; /* from which return of `leja` its order is trusted; its return, or NAN */
    int64_t *leja, *parted;
} choice;

/* Solve for all columns. If choosing or parting, `work` and `places` have room for two attempts and their
 * places. `many` is the memory of solve_many, or NULL. FGC_OVERFLOW: a column leaves a double's range. */
static FGC_INLINE fgc_status solve_all(const task *of, choice by, int64_t *places, double *work,
                                       double *many, const int complex)
{
    const int64_t m = of->m, room = padded_size(m) + LANES;
    const int bounded = by.choosing || of->bound;
    double *const more = work + attempt_size(m);
    attempt first = new_attempt(of, by.first, places, work, complex), second = first;
    if (put_nodes(of, &first, complex) <= 0)
        return FGC_NOT_FINITE;

    int64_t tried = many ? 0 : of->width; /* columns before this one are solved in groups */
    for (int64_t done = 0, count; done < of->width; done += count) {
        const int64_t left = of->width - done, most = many ? WIDE * LANES : GROUP;
        const int parted = by.parting && has_few(of, done, complex);
        count = parted ? 1 : left < most ? left : most;
        for (int64_t col = 1; by.parting && col < count; col++)
            if (has_few(of, done + col, complex))
                count = col;
        if (!parted && done >= tried && count >= MANY) {
            if ((complex ? solve_many_complex : solve_many_real)(of, by.first, done, (int)count, many))
                continue;
            tried = done + count;
        }
        count = count < GROUP ? count : GROUP;
        int settled = 0, stays[GROUP] = {0};
        if (by.choosing || !parted) {
            if (!(complex ? solve_complex : solve_real)(of, &first, done, (int)count, bounded))
                return FGC_OVERFLOW;
            settled = 1;
            for (int col = 0; col < count; col++)
                settled &= stays[col] = !by.choosing || is_accurate(&first, col, m, complex);
        }
        if (!settled) {
            const int64_t *leja_first = by.choosing ? by.leja : by.first;
            if (by.choosing && isnan(by.apart))
                by.apart = leja(of->nodes, m, by.leja, more, complex);
            if (parted) {
                part(of, leja_first, done, by.parted, complex);
                leja_first = by.parted;
            }
            if (parted || second.order != leja_first) {
                second = new_attempt(of, leja_first, places + room, more, complex);
                put_nodes(of, &second, complex);
                find_places(&first, m, of->transpose);
                find_places(&second, m, of->transpose);
            }
            const int doubtful = by.choosing && !(by.apart >= by.enough);
            const int limits = doubtful || of->bound;
            if (!(complex ? solve_complex : solve_real)(of, &second, done, (int)count, limits))
                return FGC_OVERFLOW;
            for (int col = 0; by.choosing && col < count; col++) {
                if (stays[col])
                    continue;
                const verdict found = doubtful ? is_accurate(&second, col, m, complex) ? WORSE : UNDECIDED
                                               : compare(&first, &second, col, m, complex);
                if (found == UNDECIDED)
                    return FGC_NOT_FINITE;
                stays[col] = found == BETTER;
                if (of->bound)
                    tighten(stays[col] ? &first : &second, stays[col] ? &second : &first, col, m,
                            complex);
            }
        }
        for (int col = 0; col < count; col++)
            if (!write_column(of, stays[col] ? &first : &second, done, col, complex))
                return FGC_OVERFLOW;
    }
    return FGC_OK;
}

/* Divide the nodes by 2^shift. Returns whether none of them underflowed. */
static FGC_INLINE int divide_nodes(task *of, double *to, int64_t shift, const int complex)
{
    if (!shift)
        return 1;
    forget_underflow();
    for (int64_t i = 0; i < (1 + complex) * of->m; i++)
        to[i] = scaled(of->nodes[i], -shift);
    of->nodes = to;
    of->shift += shift;
    of->largest = scaled(of->largest, -shift);
    return !underflowed();
}

/* Return the exponent of the power of two nearest to the largest node. */
static FGC_INLINE int64_t size_of_nodes(const task *of)
{
    int exponent;
    if (!(0 < of->largest && of->largest <= DBL_MAX))
        return 0;
    const double part = frexp(of->largest, &exponent);
    return part < 0x1.6a09e667f3bcdp-1 ? exponent - 1 : exponent; /* sqrt(2)/2 */
}

/* Return the exponent of the power of two nearest to the geometric mean of the distances from the order's
 * last node, for nodes of size 1. It is about their capacity: 1 for a circle of radius 1, 1/2 for [-1, 1]. */
static FGC_INLINE int64_t mean_distance(const task *of, const int64_t *order, const int complex)
{
    const int64_t m = of->m, last = order[m - 1];
    if ((uint64_t)last >= (uint64_t)m || m < 2)
        return 0;
    const scalar x = number_at(of->nodes, last, complex);
    double product = 1, exponent = 0;
    for (int64_t i = 0; i < m; i++) {
        const scalar y = number_at(of->nodes, i, complex);
        const double re = x.re - y.re, im = x.im - y.im;
        const double distance = complex ? re * re + im * im : fabs(re);
        product *= i == last ? 1 : greater(distance, 0x1p-300);
        if (!(0x1p-700 < product && product < 0x1p700)) {
            const double step = product < 1 ? 700 : -700;
            product *= power_of_two((int64_t)step);
            exponent -= step;
        }
    }
    const double mean = (exponent + log2(product)) / (double)((m - 1) * (1 + complex));
    return fabs(mean) < 1000 ? (int64_t)lrint(mean) : 0;
}

static FGC_INLINE fgc_status solve_system(const double *nodes, const double *b, const int64_t *order,
                                          double *out, double *bound, int64_t m, int64_t b_size,
                                          int transpose, int choose, const int complex)
{
    const int64_t room = padded_size(m) + LANES, width = b_size / m;
    const int choosing = !order && choose;
    /* Orders, places, columns, nodes; the memory of the columns also serves to find an order. */
    const int64_t size = choosing ? 5 * room + 2 * attempt_size(m) : 2 * room + attempt_size(m);
    const int64_t more = width < MANY ? 0 : many_size(m) + 8;
    void *const memory = malloc((size_t)(size + more + 16 + 2 * m) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    int64_t *const orders = aligned(memory), *const places = orders + room;
    double *const work = (double *)(orders + (choosing ? 5 : 2) * room) - LANES;
    double *const beyond = aligned((double *)orders + size);
    task of = {nodes, b, out, bound, m, width, largest_part(nodes, (1 + complex) * m), 0, transpose};
    fgc_status status = FGC_NOT_FINITE;
    double *const scaled_nodes = beyond + (more ? more - 8 : 0);
    if (!divide_nodes(&of, scaled_nodes, size_of_nodes(&of), complex))
        goto end;
    choice by = {order ? order : orders, choosing, choosing && !transpose, CLUSTERED, NAN,
                 orders + 3 * room, orders + 4 * room};
    double *const key = work + LANES;
    const int on_ray = choosing && are_on_ray(of.nodes, m, key, complex);
    if (by.parting && is_sparse(&of, complex))
        by.enough = complex ? SPREAD : FILLED + log2(of.largest);
    if (!order && !on_ray) {
        by.apart = leja(of.nodes, m, orders, work, complex);
        by.choosing = choosing && !(by.apart >= by.enough);
        if (by.choosing) { /* `leja` has overwritten the keys */
            memcpy(by.leja, orders, (size_t)m * sizeof *orders);
            (void)are_on_ray(of.nodes, m, key, complex);
        }
    }
    if (by.choosing) {
        find_rising(key, m, orders, places);
        status = solve_all(&of, by, places, work, NULL, complex);
        /* Where the order by modulus leaves a double's range, Leja's alone may not. A column that is alone
         * is not written before it is solved. */
        if (status != FGC_OVERFLOW || width > 1)
            goto end;
        if (isnan(by.apart))
            by.apart = leja(of.nodes, m, by.leja, work, complex);
        if (!(by.apart >= by.enough))
            goto end;
        by.choosing = 0;
        by.first = by.leja;
    }
    if (!divide_nodes(&of, scaled_nodes, mean_distance(&of, by.first, complex), complex))
        goto end;
    /* Fast reciprocals and no bounds first; columns that they cannot solve are solved in groups. */
    status = solve_all(&of, by, places, work, more && !bound ? beyond : NULL, complex);
end:
    free(memory);
    return status == FGC_OVERFLOW ? FGC_NOT_FINITE : status;
}

fgc_status FGC_AT_LEVEL(fgc_solve_vandermonde)(const double *nodes, const double *b,
                                               const int64_t *order, int transpose, double *out,
                                               double *bound, int choose, int64_t m,
                                               int64_t b_size, int complex)
{
    return BY_TYPE(solve_system, nodes, b, order, out, bound, m, b_size, transpose, choose);
}
