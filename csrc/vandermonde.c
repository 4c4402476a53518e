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
 * stay in a double's range for thousands of nodes. A column that leaves the range all the same is found out
 * (overflow leaves numbers that are not finite, and underflow sets a flag of the processor) and on request
 * solved again by the same steps on numbers with exponents of their own. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#include "vector.h"

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
    double *re, *im, *error;
} column;

typedef struct {
    number last[LANES];
    vector error[LANES];
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

/* Do the panel's steps on the vector at i. `head`: it is the panel's first vector, of which each step
 * leaves some elements alone. */
static FGC_INLINE void steps(points x, column c, int64_t i, int64_t first, carry *kept,
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
    number v = get(c.re + i, c.im + i, complex);
    vector e = bounded ? load(c.error + i) : (vector){0};
    FGC_UNROLL
    for (int step = 0; step < LANES; step++) {
        const int t = ascending ? step : LANES - 1 - step;
        number *const last = &kept->last[t];
        number neighbour = {{0}, {0}}, before = v, result;
        vector *const last_error = &kept->error[t];
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
    put(c.re + i, c.im + i, v, complex);
    if (bounded)
        store(c.error + i, e);
}

/* Do all steps k of one kind, ascending or descending, panel by panel. `valid`: the lanes of the last
 * vector that hold elements. */
static FGC_INLINE void sweep(points x, column c, lanes valid, const what factor, const int ascending,
                             const int bounded, const int complex)
{
    const int64_t end = x.vectors * LANES;
    for (int64_t panel = 0; panel < end; panel += LANES) {
        carry kept;
        for (int t = 0; t < LANES; t++)
            kept.last[t] = (number){{0}, {0}}, kept.error[t] = (vector){0};
        if (ascending) {
            steps(x, c, panel, panel, &kept, factor, 1, 1, bounded, complex);
            for (int64_t i = panel + LANES; i < end; i += LANES)
                steps(x, c, i, panel, &kept, factor, 1, 0, bounded, complex);
            /* Numbers beyond the end would grow from panel to panel. */
            const number zero = {{0}, {0}};
            double *const re = c.re + end - LANES, *const im = c.im + end - LANES;
            put(re, im, choose(valid, get(re, im, complex), zero, complex), complex);
            double *const error = c.error + end - LANES;
            if (bounded)
                store(error, pick(valid, load(error), zero.re));
        } else {
            const int64_t first = end - LANES - panel;
            for (int64_t i = end - LANES; i > first; i -= LANES)
                steps(x, c, i, first, &kept, factor, 0, 0, bounded, complex);
            steps(x, c, first, first, &kept, factor, 0, 1, bounded, complex);
        }
    }
}

/* Solve in place: first the ascending steps, then the descending ones. */
static FGC_INLINE void solve(points x, column c, lanes valid, const int transpose, const int bounded,
                             const int complex)
{
    if (transpose) {
        sweep(x, c, valid, TIMES_NODE, 1, bounded, complex);
        sweep(x, c, valid, OVER_DIFFERENCE, 0, bounded, complex);
    } else {
        sweep(x, c, valid, OVER_DIFFERENCE, 1, bounded, complex);
        sweep(x, c, valid, TIMES_NODE, 0, bounded, complex);
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
static FGC_INLINE double leja_as(const double *nodes, int64_t m, int64_t *order, double *work,
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
    double growth = 1.0;
    int64_t least = 0, nodes_of_least = 1; /* the least mean logarithm, as a fraction */
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
        const int64_t sum = (complex ? e >> 1 : e) - scaled_by;
        const int is_less = sum * nodes_of_least < least * (k + 1);
        least = is_less ? sum : least;
        nodes_of_least = is_less ? k + 1 : nodes_of_least;
        grown = e < -1000 || e > 1000 ? 0 : complex ? -(e >> 1) : -e;
        growth = power_of_two(grown);
        if (k % CLAMP == CLAMP - 1) {
            for (i = (k + 1) / LANES * LANES; i < padded; i += LANES)
                store(product + i, larger(magnitude(load(product + i)), spread(0x1p-500)));
            for (i = m; i < padded; i++) /* where no node is */
                product[i] = 0;
        }
    }
    return (double)least / (double)nodes_of_least;
}

static FGC_NOINLINE double leja(const double *nodes, int64_t m, int64_t *order, double *work, int complex)
{
    return BY_TYPE(leja_as, nodes, m, order, work);
}

fgc_status FGC_AT_LEVEL(fgc_leja_order)(const double *nodes, int64_t m, int complex, int64_t *order)
{
    void *const memory = malloc((size_t)(4 * padded_size(m) + 8) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    (void)leja(nodes, m, order, aligned(memory), complex);
    free(memory);
    return FGC_OK;
}

static FGC_INLINE int all_finite(const double *x, int64_t len)
{
    int finite = 1;
    for (int64_t i = 0; i < len; i++)
        finite &= x[i] - x[i] == 0;
    return finite;
}

/* A system to solve, of which the nodes have been divided by 2^shift: the largest is of size 1. */
typedef struct {
    const double *nodes, *b;
    double *out, *bound;
    int64_t m, width;
    double largest; /* the largest modulus of a node's real or imaginary part */
    int64_t shift;
    int transpose, complex;
} task;

/* An order to take the nodes in. They are divided by 2^more before, in addition to 2^shift. */
typedef struct {
    const int64_t *rows;
    int64_t more;
} ordering;

/* A solution: numbers and, if wanted, bounds of their errors. For V x = b, row i is still to be multiplied
 * by 2^(-shift i), which makes up for the scale of the nodes; for V^T x = b, row i of b has been. */
typedef struct {
    double *x, *error;
    int64_t shift;
} answer;

/* The number of doubles that solve_in_order and solve_widely need. */
static int64_t work_size(int64_t m) { return 6 * (padded_size(m) + LANES); }

/* Solve for a column in one order. Returns whether nothing left a double's range. */
static int solve_in_order(const task *of, ordering by, int64_t col, int bounded, double *work,
                          answer *to)
{
    const int transpose = of->transpose, complex = of->complex;
    const int64_t m = of->m, padded = padded_size(m), shift = of->shift + by.more;
    double *const x = work + LANES, *const y = complex ? x + padded + LANES : x;
    const column c = {y + padded, complex ? y + 2 * padded : y + padded, y + 3 * padded};
    const lanes valid = ~after((int)(m - 1 - (padded - LANES)));
    forget_underflow();
    for (int64_t i = -LANES; i < padded; i++) {
        /* Distinct nodes beyond either end: zeros are divided by their differences, and a difference that
         * shares a reciprocal with one of these must not become infinite. */
        const double beyond = (double)(i < 0 ? i - 1 : i - m + 2) * (of->largest > 0 ? 2 * of->largest : 1.0);
        const int inside = i >= 0 && i < m;
        const scalar node = inside ? number_at(of->nodes, by.rows[i], complex) : (scalar){beyond, 0};
        x[i] = scaled(node.re, -by.more);
        if (complex)
            y[i] = scaled(node.im, -by.more);
    }
    for (int64_t i = 0; i < padded; i++) {
        const int64_t at = of->width * (i < m ? transpose ? i : by.rows[i] : 0) + col;
        const int64_t up = transpose ? -shift * i : 0;
        const scalar value = i < m ? number_at(of->b, at, complex) : (scalar){0, 0};
        c.re[i] = scaled(value.re, up);
        if (complex)
            c.im[i] = scaled(value.im, up);
        if (bounded)
            c.error[i] = i < m && of->bound ? scaled(of->bound[at] / UNIT, up) : 0;
    }
    /* Constants for the inlined function */
    const points nodes = {x, y, padded / LANES};
    if (bounded)
        transpose ? BY_TYPE(solve, nodes, c, valid, 1, 1) : BY_TYPE(solve, nodes, c, valid, 0, 1);
    else
        transpose ? BY_TYPE(solve, nodes, c, valid, 1, 0) : BY_TYPE(solve, nodes, c, valid, 0, 0);
    const int good = !underflowed() && all_finite(c.re, (1 + complex) * padded);
    /* From here on bounds are absolute, and Inf where a bound is not a number. */
    for (int64_t i = 0; good && i < m; i++) {
        const int64_t row = transpose ? by.rows[i] : i;
        put_number(to->x, row, (scalar){c.re[i], complex ? c.im[i] : 0}, complex);
        if (bounded) {
            const double e = c.error[i], rounded = UNIT * e + (e > 0 ? 0x1p-1074 : 0);
            to->error[row] = rounded <= DBL_MAX ? rounded : INFINITY;
        }
    }
    to->shift = transpose ? 0 : shift;
    return good;
}

/* From so many columns on, vectors across columns pay. */
enum { MANY = LANES > 4 ? 4 : 3 };

/* The number of doubles that solve_many needs. */
static int64_t many_size(int64_t m) { return 2 * (m + 2 * PANEL + m * WIDE * LANES); }

static void shift_row(double *row, int64_t size, int64_t e)
{
    for (int64_t i = 0; e && i < size; i++)
        row[i] = scaled(row[i], e);
}

/* Solve for `count` columns, at most as many as WIDE vectors hold. Writes them and returns 1 if nothing
 * left a double's range, else returns 0. */
static int solve_many(const task *of, ordering by, int64_t done, int count, double *work)
{
    const int complex = of->complex, parts = 1 + complex;
    const int64_t m = of->m, size = parts * WIDE * LANES, shift = of->shift + by.more;
    double *const re = work + m * 2 * WIDE * LANES + PANEL, *const im = re + m + 2 * PANEL;
    const table x = {re, im, work, m};
    forget_underflow();
    for (int64_t i = -PANEL; i < m + PANEL; i++) {
        const int inside = i >= 0 && i < m;
        const scalar node = inside ? number_at(of->nodes, by.rows[i], complex) : (scalar){0, 0};
        re[i] = scaled(node.re, -by.more);
        im[i] = scaled(node.im, -by.more);
    }
    for (int64_t i = 0; i < m; i++) {
        const double *const from = of->b + parts * (of->width * (of->transpose ? i : by.rows[i]) + done);
        double *const row = work + i * size;
        for (int col = 0; col < WIDE * LANES; col++) {
            row[col] = col < count ? from[parts * col] : 0;
            if (complex)
                row[WIDE * LANES + col] = col < count ? from[2 * col + 1] : 0;
        }
        if (of->transpose)
            shift_row(row, size, -shift * i);
    }
    if (count <= LANES) /* constants for the inlined function */
        BY_TYPE(solve_rows, x, of->transpose, 1);
    else
        BY_TYPE(solve_rows, x, of->transpose, 2);
    const int good = !underflowed();
    for (int64_t i = 0; !of->transpose && i < m; i++)
        shift_row(work + i * size, size, -shift * i);
    if (!(good && all_finite(work, m * size)))
        return 0;
    for (int64_t i = 0; i < m; i++) {
        double *const to = of->out + parts * (of->width * (of->transpose ? by.rows[i] : i) + done);
        const double *const row = work + i * size;
        for (int col = 0; col < count; col++)
            put_number(to, col, (scalar){row[col], complex ? row[WIDE * LANES + col] : 0}, complex);
    }
    return 1;
}

/* Numbers that neither over- nor underflow: number i is (re + i im) 2^power, with the larger part in
 * [1, 2), and its error is at most error 2^(power - 53). A 0 has the power of its error, or NOTHING. */
typedef struct {
    double *re, *im, *error;
    int64_t *power;
} wide;

#define NOTHING (-((int64_t)1 << 50))

/* No difference of nodes multiplied by 2^UP is subnormal, and none overflows. */
enum { UP = 600 };

static FGC_INLINE scalar scaled_number(scalar x, int64_t e)
{
    return (scalar){scaled(x.re, e), scaled(x.im, e)};
}

static FGC_INLINE double wide_size(wide c, int64_t i, const int complex)
{
    return larger_part((scalar){c.re[i], complex ? c.im[i] : 0}, complex);
}

static FGC_INLINE double bound_of(scalar v, const int complex)
{
    return complex ? fabs(v.re) + fabs(v.im) : fabs(v.re);
}

static FGC_INLINE void set_wide(wide c, int64_t i, scalar v, double error, int64_t power,
                                const int bounded, const int complex)
{
    const double part = larger_part(v, complex);
    const double size = bounded && part == 0 && error < 0x1p900 ? error : part;
    const int64_t up = exponent_of(size);
    const double by = size == 0 ? 1 : power_of_two(-up);
    c.re[i] = v.re * by;
    if (complex)
        c.im[i] = v.im * by;
    if (bounded)
        c.error[i] = error * by;
    c.power[i] = size == 0 ? NOTHING : power + up;
}

/* c[i] -= x 2^power c[j], which is no product if x is NULL: then it stands for 1. */
static FGC_INLINE void subtract_wide(wide c, int64_t i, int64_t j, const scalar *x, int64_t power,
                                     const int bounded, const int complex)
{
    const int64_t own = c.power[i], its = c.power[j] + power, top = own > its ? own : its;
    const double down = power_of_two(own - top < -1022 ? -1022 : own - top);
    const double other = power_of_two(its - top < -1022 ? -1022 : its - top);
    const scalar a = {c.re[j] * other, complex ? c.im[j] * other : 0};
    scalar v = {c.re[i] * down, complex ? c.im[i] * down : 0};
    v.re -= x ? x->re * a.re - x->im * a.im : a.re;
    v.im -= x ? x->re * a.im + x->im * a.re : a.im;
    double error = bounded ? c.error[j] * other : 0;
    if (bounded && x)
        error = bound_of(*x, complex) * (error + IN_PRODUCT * bound_of(a, complex));
    if (bounded)
        error += c.error[i] * down + bound_of(v, complex);
    set_wide(c, i, v, error, top, bounded, complex);
}

/* c[i] /= 2^-UP d */
static FGC_INLINE void divide_wide(wide c, int64_t i, scalar d, const int bounded, const int complex)
{
    const int64_t up = exponent_of(larger_part(d, complex));
    const double by = power_of_two(-up), re = d.re * by, im = d.im * by;
    const double inverse = 1 / (complex ? re * re + im * im : re);
    scalar v = {c.re[i] * inverse, 0};
    if (complex)
        v = (scalar){(c.re[i] * re + c.im[i] * im) * inverse, (c.im[i] * re - c.re[i] * im) * inverse};
    double error = 0;
    if (bounded)
        error = c.error[i] * (complex ? sqrt(inverse) : fabs(inverse)) + IN_QUOTIENT * bound_of(v, complex);
    set_wide(c, i, v, error, c.power[i] - up + UP, bounded, complex);
}

/* Solve for a column in one order, and write it: a number that is too large is Inf. If `bounded`, nothing is
 * written unless bounds prove each number accurate, or too large. Returns whether it has been written. */
static FGC_INLINE int steps_widely(const task *of, const int64_t *order, int64_t col, double *work,
                                   const int bounded, const int complex)
{
    const int64_t m = of->m, room = padded_size(m) + LANES;
    const int transpose = of->transpose;
    double *const re = work, *const im = re + room;
    const wide c = {im + room, im + 2 * room, im + 3 * room, (int64_t *)(im + 4 * room)};
    for (int64_t i = 0; i < m; i++) {
        const scalar x = number_at(of->nodes, order[i], complex);
        re[i] = x.re * power_of_two(UP);
        im[i] = x.im * power_of_two(UP);
        const int64_t at = of->width * (transpose ? i : order[i]) + col;
        const scalar value = number_at(of->b, at, complex);
        const int64_t up = larger_part(value, complex) < 1 ? UP : -UP;
        const double error = of->bound ? scaled(of->bound[at] / UNIT, up) : 0;
        set_wide(c, i, scaled_number(value, up), error, -up - (transpose ? of->shift * i : 0), bounded,
                 complex);
    }
    for (int64_t step = 0; step < 2 * (m - 1); step++) {
        const int down = step >= m - 1;
        const int64_t k = down ? 2 * m - 3 - step : step;
        if (transpose != down) {
            const scalar at = {re[k], im[k]};
            const double size = larger_part(at, complex);
            const int64_t power = size == 0 ? 0 : exponent_of(size);
            const scalar x = scaled_number(at, -power);
            for (int64_t i = k + 1; down && i < m; i++)
                subtract_wide(c, i - 1, i, &x, power - UP, bounded, complex);
            for (int64_t i = m - 1; !down && i > k; i--)
                subtract_wide(c, i, i - 1, &x, power - UP, bounded, complex);
            continue;
        }
        int distinct = 1;
        for (int64_t at = k + 1; at < m; at++) {
            const int64_t i = down ? at : m + k - at;
            const scalar d = {re[i] - re[i - k - 1], im[i] - im[i - k - 1]};
            distinct &= d.re != 0 || d.im != 0;
            if (down)
                divide_wide(c, i, d, bounded, complex);
            subtract_wide(c, down ? i - 1 : i, down ? i : i - 1, NULL, 0, bounded, complex);
            if (!down)
                divide_wide(c, i, d, bounded, complex);
        }
        if (!distinct)
            return 0;
    }
    for (int64_t i = 0; i < m; i++)
        c.power[i] -= transpose ? 0 : of->shift * i;
    for (int64_t i = 0; bounded && i < m; i++) {
        const double size = wide_size(c, i, complex), error = UNIT * c.error[i];
        const int too_large = c.power[i] > 1024 && error < size / 2;
        if (!(too_large || error <= ACCURATE * (double)m * size))
            return 0;
    }
    for (int64_t i = 0; i < m; i++) {
        const int64_t at = of->width * (transpose ? order[i] : i) + col;
        const scalar x = scaled_number((scalar){c.re[i], complex ? c.im[i] : 0}, c.power[i]);
        put_number(of->out, at, x, complex);
        if (of->bound) { /* scaling may underflow: an error of at most 2^-1073 */
            const double size = larger_part(x, complex);
            const int small = c.power[i] > NOTHING / 2 && size < 0x1p-960;
            const double error = scaled(UNIT * c.error[i], c.power[i]) + (small ? 0x1p-1073 : 0);
            of->bound[at] = size <= DBL_MAX ? error : INFINITY;
        }
    }
    return 1;
}

static FGC_NOINLINE int solve_widely(const task *of, const int64_t *order, int64_t col, double *work,
                                     int bounded)
{
    const int complex = of->complex;
    return bounded ? BY_TYPE(steps_widely, of, order, col, work, 1)
                   : BY_TYPE(steps_widely, of, order, col, work, 0);
}

/* Make up for the scale of the nodes, and write a column and its bounds, if all its numbers are then finite
 * or they `may_overflow`. Returns whether it has been written. */
static int write_answer(const task *of, const answer *a, int64_t col, int may_overflow)
{
    const int complex = of->complex;
    const int64_t m = of->m;
    int finite = 1;
    for (int64_t i = 0; a->shift && i < m; i++) {
        const scalar was = number_at(a->x, i, complex), x = scaled_number(was, -a->shift * i);
        const int is_finite = x.re - x.re == 0 && x.im - x.im == 0;
        put_number(a->x, i, x, complex);
        finite &= is_finite;
        if (of->bound) { /* scaling may underflow: an error of at most 2^-1073 */
            const double before = a->error[i], error = scaled(before, -a->shift * i);
            const int small = (larger_part(was, complex) != 0 && larger_part(x, complex) < 0x1p-960) ||
                              (before != 0 && error < 0x1p-1000);
            a->error[i] = is_finite ? error + (small ? 0x1p-1073 : 0) : INFINITY;
        }
    }
    if (!finite && !may_overflow)
        return 0;
    for (int64_t i = 0; i < m; i++) {
        put_number(of->out, of->width * i + col, number_at(a->x, i, complex), complex);
        if (of->bound)
            of->bound[of->width * i + col] = a->error[i];
    }
    return 1;
}

/* Return whether by its bounds all numbers of an answer are good to about their last digits: see
 * ACCURATE. */
static int is_accurate(const answer *a, int64_t m, int complex)
{
    const double limit = ACCURATE * (double)m;
    int all = 1;
    for (int64_t i = 0; i < m; i++)
        all &= a->error[i] <= limit * larger_part(number_at(a->x, i, complex), complex);
    return all;
}

typedef enum { WORSE, BETTER, UNDECIDED } verdict;

/* Compare two answers by the bounds of `a`.
 *
 * BETTER: they prove that the largest relative error of a number is smaller in `a` than in `other`, and
 * also that its largest error is, or is HARMLESS beside the largest number. UNDECIDED: they only prove
 * that the largest error is smaller, and that the other's is not small. WORSE: neither. */
static verdict compare(const answer *a, const answer *other, int64_t m, int complex)
{
    double most = 0, most_relative = 0, least = 0, least_relative = 0, largest = 0;
    for (int64_t i = 0; i < m; i++) {
        const scalar x = number_at(a->x, i, complex), y = number_at(other->x, i, complex);
        const double e = a->error[i], size = larger_part(x, complex);
        const scalar far = {x.re - y.re, x.im - y.im};
        const double proven = larger_part(far, complex) - e; /* the other's error is no less */
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
static void tighten(const answer *a, const answer *by, int64_t m, int complex)
{
    for (int64_t i = 0; i < m; i++) {
        const scalar x = number_at(a->x, i, complex), y = number_at(by->x, i, complex);
        const double far = 1.001 * (fabs(x.re - y.re) + fabs(x.im - y.im) + by->error[i]);
        if (far < a->error[i])
            a->error[i] = far;
    }
}

/* Return whether all nodes lie on one ray from 0, or nearly so. key[i] becomes the larger part of node
 * i. */
static int are_on_ray(const double *nodes, int64_t m, double *key, int complex)
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

/* Write the rising order of the keys, by Shell's sort. Equal keys keep their order. */
static void find_rising(const double *key, int64_t m, int64_t *order)
{
    int rises = 1, falls = 1; /* keys that already rise or fall cost one pass */
    for (int64_t i = 1; i < m; i++) {
        rises &= key[i - 1] <= key[i];
        falls &= key[i - 1] > key[i];
    }
    for (int64_t i = 0; i < m; i++)
        order[i] = falls ? m - 1 - i : i;
    for (int64_t gap = rises || falls ? 0 : m / 4 + 1; gap; gap = gap == 2 ? 1 : gap * 4 / 9)
        for (int64_t i = gap; i < m; i++) {
            const int64_t moved = order[i];
            int64_t at = i;
            for (; at >= gap; at -= gap) {
                const int64_t other = order[at - gap];
                if (key[other] < key[moved] || (key[other] == key[moved] && other < moved))
                    break;
                order[at] = other;
            }
            order[at] = moved;
        }
}

static int is_value(const task *of, int64_t i, int64_t col)
{
    const scalar value = number_at(of->b, of->width * i + col, of->complex);
    return value.re != 0 || value.im != 0;
}

/* Write the order in which the nodes come first at which a column's values are 0. The polynomial is w q,
 * and the roots of w are these nodes. No difference of nodes divides anything but 0 until the few others
 * come. What remains is to expand w, whose roots are in Leja's order (Calvetti and Reichel, "On the
 * evaluation of polynomial coefficients", 2003). Leja's order of all nodes can lose every digit of such
 * a polynomial. */
static void part(const task *of, const int64_t *order, int64_t col, int64_t *to)
{
    int64_t at = 0;
    for (int last = 0; last < 2; last++)
        for (int64_t i = 0; i < of->m; i++)
            if (is_value(of, order[i], col) == last)
                to[at++] = order[i];
}

/* Divide the nodes by 2^shift. Returns whether none of them underflowed. */
static int divide_nodes(task *of, double *to, int64_t shift)
{
    if (!shift)
        return 1;
    forget_underflow();
    for (int64_t i = 0; i < (1 + of->complex) * of->m; i++)
        to[i] = scaled(of->nodes[i], -shift);
    of->nodes = to;
    of->shift += shift;
    of->largest = scaled(of->largest, -shift);
    return !underflowed();
}

/* Return the exponent of the power of two nearest to the largest node. */
static int64_t size_of_nodes(const task *of)
{
    int exponent;
    if (!(0 < of->largest && of->largest <= DBL_MAX))
        return 0;
    const double part = frexp(of->largest, &exponent);
    return part < 0x1.6a09e667f3bcdp-1 ? exponent - 1 : exponent; /* sqrt(2)/2 */
}

/* Return the exponent of the power of two nearest to the geometric mean of the distances from the order's
 * last node, for nodes of size 1. It is about their capacity: 1 for a circle of radius 1, 1/2 for [-1, 1]. */
static int64_t mean_distance(const task *of, const int64_t *order)
{
    const int complex = of->complex;
    const int64_t m = of->m, last = order[m - 1];
    if (m < 2)
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

/* What the choice of an order for each column goes by, and memory for it. */
typedef struct {
    int choosing, widely;
    int on_ray;          /* the nodes lie on one ray from 0 */
    ordering first;      /* Leja's, or the order that is given */
    double apart;        /* what `leja` has returned, or NAN */
    int64_t *leja, *rising, *parted;
    int is_sorted; /* `rising` is the order by modulus; else it has yet to be found by `key` */
    double *key, *work;
    answer risen, other;
} choice;

/* Find Leja's order, if that has not been done. */
static void need_leja(const task *of, choice *by)
{
    if (!isnan(by->apart))
        return;
    by->apart = leja(of->nodes, of->m, by->leja, by->work, of->complex);
    by->first = (ordering){by->leja, mean_distance(of, by->leja)};
}

/* Count the values of a column that differ from 0, where this decides between orders of V x = b; else all
 * count. */
static int64_t count_values(const task *of, const choice *by, int64_t col)
{
    int64_t found = 0;
    if (!by->choosing || of->transpose)
        return of->m;
    for (int64_t i = 0; i < of->m; i++)
        found += is_value(of, i, col);
    return found;
}

static int are_few(int64_t values, int64_t m) { return values <= FEW && 2 * values < m; }

/* Return whether Leja's order is trusted for a column of so many values. If none is chosen, any is. */
static int is_trusted(const task *of, choice *by, int64_t values)
{
    if (!by->choosing)
        return 1;
    need_leja(of, by);
    if (2 * values >= of->m || values <= FEW)
        return by->apart >= CLUSTERED;
    return by->apart >= (of->complex ? SPREAD : FILLED + log2(of->largest));
}

/* Solve for a column in the order that is given, or that is chosen as fastgc.vandermonde.solve says.
 * Returns whether it has been written. */
static int solve_one(const task *of, choice *by, int64_t col)
{
    const int complex = of->complex, bounded = of->bound != NULL;
    const int64_t m = of->m, values = count_values(of, by, col);
    int risen = 0, trusted = 1;
    if (by->choosing && (by->on_ray || !is_trusted(of, by, values))) {
        if (!by->is_sorted)
            find_rising(by->key, m, by->rising);
        by->is_sorted = 1;
        risen = solve_in_order(of, (ordering){by->rising, 0}, col, 1, by->work, &by->risen);
        if (risen && is_accurate(&by->risen, m, complex))
            return write_answer(of, &by->risen, col, by->widely);
        trusted = is_trusted(of, by, values);
        if (!risen && by->widely && (!trusted || bounded) &&
            solve_widely(of, by->rising, col, by->work, 1))
            return 1;
        if (!risen && !trusted)
            return 0;
    }
    ordering then = {by->first.rows, risen ? 0 : by->first.more}; /* two answers have one scale */
    if (are_few(values, m)) {
        part(of, by->first.rows, col, by->parted);
        then.rows = by->parted;
    }
    if (solve_in_order(of, then, col, !trusted || bounded, by->work, &by->other)) {
        const answer *best = &by->other, *rival = &by->risen;
        if (!trusted && !is_accurate(best, m, complex))
            return 0;
        const verdict found = trusted && risen ? compare(rival, best, m, complex) : WORSE;
        if (found == UNDECIDED)
            return 0;
        if (found == BETTER)
            best = &by->risen, rival = &by->other;
        if (risen && bounded)
            tighten(best, rival, m, complex);
        if (write_answer(of, best, col, by->widely && !bounded))
            return 1;
    }
    return trusted && by->widely && solve_widely(of, then.rows, col, by->work, bounded);
}

fgc_status FGC_AT_LEVEL(fgc_solve_vandermonde)(const double *nodes, const double *b,
                                               const int64_t *order, int transpose, double *out,
                                               double *bound, int choose, int widely, int64_t m,
                                               int64_t b_size, int complex)
{
    const int64_t room = padded_size(m) + LANES, width = b_size / m, parts = 1 + complex;
    /* Three orders, keys, the nodes, two answers, and work. */
    const int64_t size = 12 * room + work_size(m), more = width < MANY || bound ? 0 : many_size(m);
    void *const memory = malloc((size_t)(size + more + 16) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    int64_t *const orders = aligned(memory);
    double *const key = (double *)(orders + 3 * room), *const scaled_nodes = key + room;
    double *const x = scaled_nodes + 2 * room, *const error = x + 4 * room, *const work = error + 2 * room;
    double *const many = aligned(work + work_size(m));
    task of = {nodes, b, out, bound, m, width, largest_part(nodes, parts * m), 0, transpose, complex};
    choice by = {!order && choose, widely, 0, {order, 0}, NAN, orders, orders + room, orders + 2 * room, 0,
                 key, work, {x, error, 0}, {x + 2 * room, error + room, 0}};
    int usable = all_finite(nodes, parts * m);
    for (int64_t i = 0; order && i < m; i++)
        usable &= (uint64_t)order[i] < (uint64_t)m;
    if (!usable || !divide_nodes(&of, scaled_nodes, size_of_nodes(&of))) {
        free(memory);
        return FGC_NOT_FINITE;
    }
    by.on_ray = by.choosing && are_on_ray(of.nodes, m, key, complex);
    if (order)
        by.first.more = mean_distance(&of, order);
    else if (!by.on_ray)
        need_leja(&of, &by);
    int64_t tried = 0; /* columns before this one are solved one by one */
    int solved = 1;
    for (int64_t col = 0; solved && col < width;) {
        int64_t count = 0;
        while (more && !by.on_ray && col >= tried && count < WIDE * LANES && col + count < width) {
            const int64_t values = count_values(&of, &by, col + count);
            if (are_few(values, m) || !is_trusted(&of, &by, values))
                break;
            count++;
        }
        if (count >= MANY) { /* fast reciprocals and no bounds first */
            tried = col + count;
            if (solve_many(&of, by.first, col, (int)count, many)) {
                col = tried;
                continue;
            }
        }
        solved = solve_one(&of, &by, col++);
    }
    free(memory);
    return solved ? FGC_OK : FGC_NOT_FINITE;
}
