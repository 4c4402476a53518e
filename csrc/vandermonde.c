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
 * (overflow leaves numbers that are not finite, and underflow sets a flag of the processor) and solved again
 * by `wide` steps: each vector of c then has an exponent of its own. */
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

/* An order is accurate if each number's bound, relative to the number, is at most ACCURATE per node. */
#define ACCURATE 0x1p-40

/* The least of what `leja` returns, the logarithm (base 2) of a node's mean distance from those before it,
 * for which Leja's order is trusted. Below, nodes are in clusters or of many scales, and it may lose every
 * digit. A circle of radius 1 has 0, an interval of length 2 has -1 if nodes fill it as Chebyshev's do. */
#define CLUSTERED -3.5

/* Sums of Lagrange's polynomials are trusted if their terms are at most 2^CANCELS times as large. */
#define CANCELS 12

/* Nodes in the order of elimination, with LANES readable doubles before and after them. */
typedef struct {
    const double *re, *im;
    int64_t vectors;
} points;

/* Of wide steps, the vector at i is to be multiplied by 2^power[i / LANES]: NOTHING if it is 0. */
typedef struct {
    double *re, *im, *error;
    int64_t *power;
} column;

typedef struct {
    number last[LANES];
    vector error[LANES];
    int64_t power;
} carry;

#define NOTHING (-((int64_t)1 << 50))

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

/* In wide steps, what underflows is an error of less than TINY units, for any vector. */
#define TINY 0x1p-960

/* Multiply a vector by 2^e; if e < -1022 by 0, which is an underflow unless the vector is 0. */
static FGC_INLINE void scale_vector(number *v, vector *error, int64_t e, const int bounded, const int complex)
{
    const vector by = spread(power_of_two(e < -1022 ? -1022 : e));
    if (bounded)
        *error = e < -1022 ? (*error + about(*v, complex)) * TINY : *error * by + TINY;
    for (int again = 0; again < 1 + (e < -1022); again++) {
        v->re *= by;
        if (complex)
            v->im *= by;
    }
}

/* Give a vector and what was kept of its neighbour one power, which it returns: the vector's own, unless the
 * neighbour's is larger by more than REACH. Products of a panel's factors with 2^REACH do not overflow. */
static FGC_INLINE int64_t meet(carry *kept, number *v, vector *e, int64_t own, const int bounded,
                               const int complex)
{
    enum { REACH = 400 };
    const int64_t its = kept->power, power = own > its - REACH ? own : its - REACH;
    scale_vector(v, e, own - power, bounded, complex);
    for (int t = 0; t < LANES; t++)
        scale_vector(&kept->last[t], &kept->error[t], its - power, bounded, complex);
    kept->power = power;
    return power;
}

/* Scale a vector so that its largest part lies in [1, 2). Returns its power, which was `power`. */
static FGC_INLINE int64_t normalise(number *v, vector *e, int64_t power, const int bounded, const int complex)
{
    double size = largest_of_lanes(larger(magnitude(v->re), magnitude(complex ? v->im : v->re)));
    if (bounded && size == 0)
        size = largest_of_lanes(*e);
    if (size == 0 || power < NOTHING / 2) {
        *e = (vector){0};
        return NOTHING;
    }
    const int64_t found = exponent_of(size), up = found < 1022 ? found : 1022;
    const vector by = spread(power_of_two(-up));
    v->re *= by;
    if (complex)
        v->im *= by;
    if (bounded)
        *e = *e * by + TINY;
    return power + up;
}

/* Do the panel's steps on the vector at i. `head`: it is the panel's first vector, of which each step
 * leaves some elements alone. */
static FGC_INLINE void steps(points x, column c, int64_t i, int64_t first, carry *kept, const what factor,
                             const int ascending, const int head, const int bounded, const int wide,
                             const int complex)
{
    number f[LANES];
    vector size[LANES];
    if (factor == OVER_DIFFERENCE)
        differences(x, i, first, f, complex);
    else
        for (int t = 0; t < LANES; t++)
            f[t] = (number){spread(x.re[first + t]), complex ? spread(x.im[first + t]) : (vector){0}};
    for (int t = 0; bounded && t < LANES; t++)
        size[t] = modulus(f[t], complex);
    number v = get(c.re + i, c.im + i, complex);
    vector e = bounded ? load(c.error + i) : (vector){0};
    const int64_t power = wide ? meet(kept, &v, &e, c.power[i / LANES], bounded, complex) : 0;
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
            sum += about(result, complex) + (wide ? TINY : 0);
            e = head ? pick(ascending ? after(t) : after(t - 1), sum, known) : sum;
        }
    }
    if (wide)
        c.power[i / LANES] = normalise(&v, &e, power, bounded, complex);
    put(c.re + i, c.im + i, v, complex);
    if (bounded)
        store(c.error + i, e);
}

/* Do all steps k of one kind, ascending or descending, panel by panel. `valid`: the lanes of the last
 * vector that hold elements. */
static FGC_INLINE void sweep(points x, column c, lanes valid, const what factor, const int ascending,
                             const int bounded, const int wide, const int complex)
{
    const int64_t end = x.vectors * LANES;
    for (int64_t panel = 0; panel < end; panel += LANES) {
        carry kept;
        kept.power = NOTHING;
        for (int t = 0; t < LANES; t++)
            kept.last[t] = (number){{0}, {0}}, kept.error[t] = (vector){0};
        if (ascending) {
            steps(x, c, panel, panel, &kept, factor, 1, 1, bounded, wide, complex);
            for (int64_t i = panel + LANES; i < end; i += LANES)
                steps(x, c, i, panel, &kept, factor, 1, 0, bounded, wide, complex);
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
                steps(x, c, i, first, &kept, factor, 0, 0, bounded, wide, complex);
            steps(x, c, first, first, &kept, factor, 0, 1, bounded, wide, complex);
        }
    }
}

/* Solve in place: first the ascending steps, then the descending ones. */
static FGC_INLINE void solve(points x, column c, lanes valid, const int transpose, const int bounded,
                             const int wide, const int complex)
{
    sweep(x, c, valid, transpose ? TIMES_NODE : OVER_DIFFERENCE, 1, bounded, wide, complex);
    sweep(x, c, valid, transpose ? OVER_DIFFERENCE : TIMES_NODE, 0, bounded, wide, complex);
}

/* Functions of their own, of constants: all in one take 1.3 times as long to compile. */
#define SOLVE(name, transpose, bounded)                                                                      \
    static FGC_NOINLINE void name(points x, column c, lanes valid, int wide, int complex)                    \
    {                                                                                                        \
        if (wide)                                                                                            \
            BY_TYPE(solve, x, c, valid, transpose, bounded, 1);                                              \
        else                                                                                                 \
            BY_TYPE(solve, x, c, valid, transpose, bounded, 0);                                              \
    }
SOLVE(solve_plainly, 0, 0)
SOLVE(solve_bounded, 0, 1)
SOLVE(transposed_plainly, 1, 0)
SOLVE(transposed_bounded, 1, 1)

/* Many columns, without bounds. A vector holds one row of LANES columns, so that neighbours are whole
 * vectors. WIDE such vectors are solved at once, PANEL steps in one pass, and the last vectors that each
 * step was given stay in registers. Factors are the same for all columns. */
enum { WIDE = 2, PANEL = LANES < 4 ? 4 : LANES, HALF_PANEL = PANEL / 2 };

typedef struct {
    const double *re, *im; /* nodes in order, with PANEL readable doubles before and after */
    double *row;           /* row i: the real parts of WIDE vectors, and then their imaginary parts */
    int64_t m;
} table;

/* Do step t of the panel on a row. Its factor is at t if it is a node, and at panel - 1 - t if it is the reciprocal
 * of a difference. */
static FGC_INLINE void row_step(number *v, number (*kept)[WIDE], const double *re, const double *im, int t,
                                const int panel, const what factor, const int ascending, const int vectors,
                                const int complex)
{
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

/* Do the panel's steps on row i: all of them if the row is beyond the panel; if it is inside (`head`), only
 * those that change it. */
static FGC_INLINE void wide_row(table x, int64_t i, int64_t first, number (*kept)[WIDE], const int panel,
                                const what factor, const int ascending, const int head, const int vectors,
                                const int complex)
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
    if (!head) {
        FGC_UNROLL
        for (int t = 0; t < panel; t++)
            row_step(v, kept, by_re, by_im, ascending ? t : panel - 1 - t, panel, factor, ascending, vectors,
                     complex);
    } else if (ascending) {
        for (int t = 0; t < own; t++)
            row_step(v, kept, by_re, by_im, t, panel, factor, 1, vectors, complex);
        for (int w = 0; w < vectors; w++)
            kept[own][w] = v[w];
    } else {
        for (int w = 0; factor == OVER_DIFFERENCE && w < vectors; w++)
            v[w] = minus(v[w], kept[own][w], complex);
        for (int t = own + (factor == TIMES_NODE); t-- > 0;)
            row_step(v, kept, by_re, by_im, t, panel, factor, 0, vectors, complex);
    }
    FGC_UNROLL
    for (int w = 0; w < vectors; w++)
        put(row + w * LANES, row + (WIDE + w) * LANES, v[w], complex);
}

/* The same as `sweep`, for a table: each panel goes over all rows that it changes. */
static FGC_INLINE void wide_sweep(table x, const what factor, const int ascending, const int vectors,
                                  const int complex)
{
    /* steps whose vectors fit in registers */
    const int panel = complex && PANEL > 4 ? HALF_PANEL : PANEL;
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
static FGC_INLINE double leja_as(const double *nodes, int64_t m, int64_t *order, double *work, const int complex)
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
    /* exponents: of growth, and of the scale that products have got */
    int64_t grown = 0, scaled_by = 0;
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
#define STEP(chain)                                                                                          \
    do {                                                                                                     \
        const vector dx = load(re + i) * s - sx;                                                             \
        vector p = load(product + i);                                                                        \
        if (complex) {                                                                                       \
            const vector dy = load(im + i) * s - sy;                                                         \
            vector xx = dx * dx, yy = dy * dy;                                                               \
            ROUND(xx);                                                                                       \
            ROUND(yy);                                                                                       \
            p *= xx + yy;                                                                                    \
        } else                                                                                               \
            p *= dx;                                                                                         \
        store(product + i, p);                                                                               \
        top[chain] = larger((vector)(((lanes)p & keep) | (lanes)load(place + i)), top[chain]);               \
        i += LANES;                                                                                          \
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

/* A solution: numbers and, if wanted, bounds of their errors. Those of row i are still to be multiplied by
 * 2^(power[i] - shift i): `power` is NULL where no step was wide, and shift is 0 for V^T x = b, of which row i
 * of b has been multiplied. */
typedef struct {
    double *x, *error;
    int64_t *power, shift;
} answer;

/* The number of doubles that solve_in_order needs. */
static int64_t work_size(int64_t m) { return 7 * (padded_size(m) + LANES); }

/* Solve for a column in one order; by wide steps if there is memory for powers, `wide`. Returns whether nothing
 * left a double's range. In wide steps underflow is an error like others. */
static int solve_in_order(const task *of, ordering by, int64_t col, int bounded, int64_t *wide, double *work,
                          answer *to)
{
    const int transpose = of->transpose, complex = of->complex;
    const int64_t m = of->m, padded = padded_size(m), shift = of->shift + by.more;
    double *const x = work + LANES, *const y = complex ? x + padded + LANES : x;
    const column c = {y + padded, complex ? y + 2 * padded : y + padded, y + 3 * padded,
                      (int64_t *)(y + 4 * padded)};
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
    for (int64_t i = 0; wide && i < padded; i++) {
        int64_t *const top = c.power + i / LANES;
        const int64_t at = of->width * (i >= m ? 0 : transpose ? i : by.rows[i]) + col;
        const double size = i < m ? larger_part(number_at(of->b, at, complex), complex) : 0;
        const double most = i < m && of->bound && size == 0 ? of->bound[at] / UNIT : size;
        const int64_t power = most == 0 ? NOTHING : exponent_of(most) - (transpose ? shift * i : 0);
        *top = i % LANES == 0 || power > *top ? power : *top;
    }
    for (int64_t i = 0; i < padded; i++) {
        const int64_t at = of->width * (i < m ? transpose ? i : by.rows[i] : 0) + col;
        const int64_t up = (transpose ? -shift * i : 0) - (wide ? c.power[i / LANES] : 0);
        const scalar value = i < m ? number_at(of->b, at, complex) : (scalar){0, 0};
        c.re[i] = scaled(value.re, up);
        if (complex)
            c.im[i] = scaled(value.im, up);
        if (bounded)
            c.error[i] = i < m && of->bound ? scaled(of->bound[at] / UNIT, up) : 0;
    }
    const points nodes = {x, y, padded / LANES};
    if (bounded)
        (transpose ? transposed_bounded : solve_bounded)(nodes, c, valid, wide != NULL, complex);
    else
        (transpose ? transposed_plainly : solve_plainly)(nodes, c, valid, wide != NULL, complex);
    const int good = (wide || !underflowed()) && all_finite(c.re, (1 + complex) * padded);
    /* From here on bounds are absolute, and Inf where a bound is not a number. */
    for (int64_t i = 0; good && i < m; i++) {
        const int64_t row = transpose ? by.rows[i] : i;
        put_number(to->x, row, (scalar){c.re[i], complex ? c.im[i] : 0}, complex);
        if (wide)
            wide[row] = c.power[i / LANES];
        if (bounded) {
            const double e = c.error[i], rounded = UNIT * e + (e > 0 ? 0x1p-1074 : 0);
            to->error[row] = rounded <= DBL_MAX ? rounded : INFINITY;
        }
    }
    to->power = wide;
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

static FGC_INLINE scalar scaled_number(scalar x, int64_t e)
{
    return (scalar){scaled(x.re, e), scaled(x.im, e)};
}

/* Make up for the scale of the nodes, and write a column and its bounds, if all its numbers are then finite
 * or they `may_overflow`. Returns whether it has been written. */
static int write_answer(const task *of, const answer *a, int64_t col, int may_overflow)
{
    const int complex = of->complex;
    const int64_t m = of->m;
    int finite = 1;
    for (int64_t i = 0; (a->shift || a->power) && i < m; i++) {
        const int64_t up = (a->power ? a->power[i] : 0) - a->shift * i;
        const scalar was = number_at(a->x, i, complex), x = scaled_number(was, up);
        const int is_finite = x.re - x.re == 0 && x.im - x.im == 0;
        put_number(a->x, i, x, complex);
        finite &= is_finite;
        if (of->bound) { /* scaling may underflow: an error of at most 2^-1073 */
            const double before = a->error[i], error = scaled(before, up);
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

/* Return whether by its bounds all numbers of an answer are good: see ACCURATE. */
static int is_accurate(const answer *a, int64_t m, int complex)
{
    const double limit = ACCURATE * (double)m;
    int all = 1;
    for (int64_t i = 0; i < m; i++)
        all &= a->error[i] <= limit * larger_part(number_at(a->x, i, complex), complex);
    return all;
}

static FGC_INLINE vector nearest_integers(vector x) { return (x + 0x1.8p52) - 0x1.8p52; }

/* Return 2^e for integers e; the nearest power in a double's range if e is outside. */
static FGC_INLINE vector powers_of_two(vector e)
{
    const vector within = smaller(larger(e, spread(-1022)), spread(1023));
    return (vector)((lanes)(within + (0x1.8p52 + 1023)) << 52);
}

static FGC_INLINE number scaled_lanes(number v, vector e, const int complex)
{
    const vector by = powers_of_two(e);
    return (number){v.re * by, complex ? v.im * by : v.im};
}

/* Sums of numbers and of their moduli, to be multiplied by 2^power. */
typedef struct {
    number sum;
    vector moduli, power;
} total;

#define LOWEST -0x1p60 /* the power of a sum of nothing */

/* Add a term, to be multiplied by 2^power. */
static FGC_INLINE void add_term(total *to, number term, vector power, const int complex)
{
    const vector top = larger(to->power, power);
    const number sum = scaled_lanes(to->sum, to->power - top, complex);
    term = scaled_lanes(term, power - top, complex);
    to->moduli = to->moduli * powers_of_two(to->power - top) + about(term, complex);
    to->sum = (number){sum.re + term.re, complex ? sum.im + term.im : sum.im};
    to->power = top;
}

/* Return a number's exponent as a double, far below all others for 0. */
static double log_size(scalar a, int complex)
{
    const double size = larger_part(a, complex);
    return size == 0 ? -0x1p50 : (double)exponent_of(size);
}

/* Return the products of x - x[j], but for j where it is 0, of which `same` is the number. They are to be
 * multiplied by 2^power. */
static FGC_INLINE number distances(points nodes, int64_t m, number x, lanes *power, lanes *same,
                                   const int complex)
{
    number product = {spread(1), {0}};
    for (int64_t j = 0; j < m; j++) {
        const number other = {spread(nodes.re[j]), complex ? spread(nodes.im[j]) : (vector){0}};
        const number d = minus(x, other, complex);
        const lanes own = complex ? (d.re == 0) & (d.im == 0) : d.re == 0;
        *same -= own;
        product = choose(own, product, times(product, d, complex), complex);
        if (j % 8 == 7 || j == m - 1) {
            const vector size = larger(magnitude(product.re), magnitude(complex ? product.im : product.re));
            const lanes e = ((lanes)size >> 52) - 1023;
            const vector by = (vector)((1023 - e) << 52);
            *power += e;
            product = (number){product.re * by, complex ? product.im * by : product.im};
        }
    }
    return product;
}

/* The number of doubles that solve_by_inverse needs. */
static int64_t inverse_size(int64_t m)
{
    return 10 * (padded_size(m + 1) + 2 * LANES) + m * (int64_t)(sizeof(total) / sizeof(double));
}

/* Solve for a column by the inverse, whose columns are the coefficients of Lagrange's polynomials: for node x
 * it is q = w / (t - x) over its value at x, where w is the product of t - x[j], of which a[k] are the
 * coefficients. Dividing by t - x from the highest power down, q[k-1] = a[k] + x q[k], loses no digits until
 * |a[k] x^k| is largest, at k = split, nor does dividing from the lowest power up to there (Peters and
 * Wilkinson, "Practical problems arising in the solution of polynomial equations", 1971).
 *
 * A vector holds LANES polynomials. Numbers of any size are kept near 1: q[k] is q 2^level, where 2^level is
 * about the largest of the terms that q[k] is the sum of.
 *
 * Each number is a sum of terms whose errors are of the order of rounding. Returns whether they do not cancel:
 * see CANCELS. They do for values of a polynomial of low degree. */
static FGC_INLINE int inverse_steps(const task *of, const int64_t *order, int64_t col, double *work,
                                    int64_t *power, answer *to, const int complex)
{
    const int64_t m = of->m, padded = padded_size(m + 1), room = padded + 2 * LANES;
    const int transpose = of->transpose;
    total *const sums = (total *)work; /* for V x = b, of each power */
    double *const re = (double *)(sums + m) + LANES, *const im = complex ? re + room : re;
    double *const a_re = re + 2 * room, *const a_im = complex ? a_re + room : a_re;
    double *const b_re = a_re + 2 * room, *const b_im = b_re + room, *const b_power = b_im + room;
    double *const a_log = b_power + room;
    int64_t *const a_power = (int64_t *)(a_log + room);
    const scalar none = {0, 0};
    const total empty = {{{0}, {0}}, {0}, spread(LOWEST)};
    for (int64_t i = 0; i < padded; i++) {
        const int64_t at = i < m ? order[i] : 0, row = transpose ? i : at;
        const scalar x = i < m ? number_at(of->nodes, at, complex) : none;
        const scalar given = i < m ? number_at(of->b, of->width * row + col, complex) : none;
        const double log_b = log_size(given, complex);
        const scalar b = scaled_number(given, log_b < -2000 ? 0 : -(int64_t)log_b);
        re[i] = x.re, a_re[i] = i == m;
        if (complex)
            im[i] = x.im, a_im[i] = 0;
        a_power[i / LANES] = i < m ? NOTHING : 0;
        b_re[i] = b.re, b_im[i] = b.im;
        b_power[i] = log_b - (transpose ? (double)(of->shift * i) : 0);
        if (i < m)
            sums[i] = empty;
    }
    const points nodes = {re, im, padded / LANES};
    forget_underflow();
    sweep(nodes, (column){a_re, a_im, NULL, a_power}, (lanes){0}, TIMES_NODE, 0, 0, 1, complex);
    int good = !underflowed();
    for (int64_t k = 0; k <= m; k++)
        a_log[k] = log_size((scalar){a_re[k], complex ? a_im[k] : 0}, complex) + (double)a_power[k / LANES];
    double terms[2] = {-INFINITY, -INFINITY}, largest[2] = {-INFINITY, -INFINITY};
    for (int64_t next = 0; next < m;) {
        int64_t at[LANES], count = 0; /* nodes whose polynomials matter; then the last one again */
        for (; count < LANES && next < m; next++)
            if (transpose || b_re[next] != 0 || b_im[next] != 0)
                at[count++] = next;
        number x = {{0}, {0}}, by = x, q = x;
        vector log_x = {0}, by_power = {0};
        for (int t = 0; count && t < LANES; t++) {
            at[t] = at[t < count ? t : count - 1];
            x.re[t] = re[at[t]], x.im[t] = complex ? im[at[t]] : 0;
            const double modulus = complex ? hypot(x.re[t], x.im[t]) : fabs(x.re[t]);
            log_x[t] = modulus == 0 ? -0x1p40 : t < count ? log2(modulus) : log_x[count - 1];
            good &= modulus == 0 || modulus > 0x1p-1000;
        }
        lanes value_power = {0}, same = {0}, split = {0};
        const number value = distances(nodes, m, x, &value_power, &same, complex);
        for (int t = 0; t < count; t++) {
            const scalar d = {value.re[t], complex ? value.im[t] : 0};
            const scalar b = transpose ? (scalar){1, 0} : (scalar){b_re[at[t]], b_im[at[t]]};
            const double square = complex ? d.re * d.re + d.im * d.im : d.re;
            by.re[t] = complex ? (b.re * d.re + b.im * d.im) / square : b.re / square;
            by.im[t] = (b.im * d.re - b.re * d.im) / square;
            by_power[t] = (transpose ? 0 : b_power[at[t]]) - (double)value_power[t];
            good &= same[t] == 1;
        }
        vector highest = spread(-INFINITY), level = {0}, last = {0};
        for (int64_t k = 0; k <= m; k++) {
            const vector high = a_log[k] + (double)k * log_x;
            split = (lanes)pick(high > highest, (vector)((lanes){0} + k), (vector)split);
            highest = larger(high, highest);
        }
        split &= ~(log_x == -0x1p40); /* for a node at 0, q[k-1] = a[k] */
        /* how far the two divisions go */
        int64_t down = 0, up = 0;
        for (int t = 0; t < count; t++) {
            down = m - split[t] > down ? m - split[t] : down;
            up = split[t] > up ? split[t] : up;
        }
        const vector log_size_x = nearest_integers(log_x);
        x = scaled_lanes(x, -log_size_x, complex);
        const vector inverse = reciprocal(complex ? square(x, 1) : x.re);
        const number over_x = {complex ? x.re * inverse : inverse, -x.im * inverse};
        total of_node = empty; /* for V^T x = b */
        for (int64_t step = 0; step < down + up; step++) {
            const int rises = step >= down;
            const int64_t k = rises ? step - down : m - 1 - step, from = rises ? k : k + 1;
            if (step == 0 || step == down)
                q = empty.sum, level = spread(LOWEST);
            if (rises)
                level = larger(level, spread(a_log[k])) - log_x;
            else
                level = larger(level + log_x, spread(a_log[from]));
            const vector now = nearest_integers(level), before = rises ? now + log_size_x : now;
            number a = {spread(a_re[from]), complex ? spread(a_im[from]) : (vector){0}};
            a = scaled_lanes(a, (double)a_power[from / LANES] - before, complex);
            q = scaled_lanes(q, last - before + (rises ? (vector){0} : log_size_x), complex);
            if (rises)
                q = times(minus(q, a, complex), over_x, complex);
            else
                q = minus(a, times(q, minus(empty.sum, x, complex), complex), complex);
            last = now;
            const lanes known = (lanes){0} + k >= split, wanted = rises ? ~known : known;
            const number b = transpose ? (number){spread(b_re[k]), spread(b_im[k])} : by;
            const vector size = now + (transpose ? spread(b_power[k]) : by_power);
            add_term(transpose ? &of_node : sums + k, choose(wanted, times(q, b, complex), empty.sum, complex),
                     pick(wanted, size, empty.power), complex);
        }
        for (int t = 0; transpose && t < count; t++) {
            const number product = times(of_node.sum, by, complex);
            const vector moduli = of_node.moduli * about(by, complex);
            const scalar found = {product.re[t], complex ? product.im[t] : 0};
            const int64_t row = order[at[t]];
            put_number(to->x, row, found, complex);
            power[row] = (int64_t)(of_node.power[t] + by_power[t]);
            terms[0] = greater(log_size((scalar){moduli[t], 0}, 0) + (double)power[row], terms[0]);
            largest[0] = greater(log_size(found, complex) + (double)power[row], largest[0]);
        }
    }
    for (int64_t k = 0; !transpose && k < m; k++) {
        const double top = largest_of_lanes(sums[k].power);
        const vector less = sums[k].power - top;
        const number sum = scaled_lanes(sums[k].sum, less, complex);
        const double moduli = sum_of_lanes(sums[k].moduli * powers_of_two(less));
        const scalar found = {sum_of_lanes(sum.re), complex ? sum_of_lanes(sum.im) : 0};
        put_number(to->x, k, found, complex);
        power[k] = (int64_t)top;
        for (int scale = 0; scale < 2; scale++) { /* of the nodes as they are, or of size 1 */
            const double more = top - (double)(scale * of->shift * k);
            terms[scale] = greater(log_size((scalar){moduli, 0}, 0) + more, terms[scale]);
            largest[scale] = greater(log_size(found, complex) + more, largest[scale]);
        }
    }
    to->power = power;
    to->shift = transpose ? 0 : of->shift;
    for (int scale = 0; scale < 2 - transpose; scale++)
        good &= terms[scale] <= CANCELS + largest[scale];
    return good && all_finite(to->x, (1 + complex) * m);
}

static FGC_NOINLINE int solve_by_inverse(const task *of, const int64_t *order, int64_t col, int64_t *power,
                                         answer *to)
{
    const int complex = of->complex;
    void *const memory = malloc((size_t)(inverse_size(of->m) + 8) * sizeof(double));
    const int solved = memory && BY_TYPE(inverse_steps, of, order, col, aligned(memory), power, to);
    free(memory);
    return solved;
}

/* Return whether all nodes are real and of one sign. key[i] becomes the modulus of node i. */
static int are_of_one_sign(const double *nodes, int64_t m, double *key)
{
    int above = 0, below = 0;
    for (int64_t i = 0; i < m; i++) {
        key[i] = fabs(nodes[i]);
        above |= nodes[i] > 0;
        below |= nodes[i] < 0;
    }
    return !(above && below);
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
    int choosing, may_overflow;
    int of_one_sign; /* the nodes are real and of one sign */
    ordering first;  /* Leja's, or the order that is given */
    double apart;    /* what `leja` has returned, or NAN */
    int64_t *leja, *rising, *power;
    int is_sorted; /* `rising` is the order by modulus; else it has yet to be found by `key` */
    double *key, *work;
    answer found;
} choice;

/* Find Leja's order, if that has not been done. Returns whether it is trusted: see CLUSTERED. */
static int is_leja_trusted(const task *of, choice *by)
{
    if (isnan(by->apart)) {
        by->apart = leja(of->nodes, of->m, by->leja, by->work, of->complex);
        by->first = (ordering){by->leja, mean_distance(of, by->leja)};
    }
    return !by->choosing || by->apart >= CLUSTERED;
}

/* Return whether few values of a column of V x = b matter, where this decides: as few as if fewer than m / 2
 * were of one size. With at most 8 nodes, Leja's order loses 4 digits at most. */
static int are_few(const task *of, const choice *by, int64_t col)
{
    double sum = 0, squares = 0;
    if (!by->choosing || of->transpose || of->m <= 8)
        return 0;
    for (int64_t i = 0; i < of->m; i++) {
        const double size = larger_part(number_at(of->b, of->width * i + col, of->complex), of->complex);
        sum += size;
        squares += size * size;
    }
    return !(2 * sum * sum >= (double)of->m * squares);
}

/* Solve for a column in one order, by wide steps if numbers leave a double's range otherwise. */
static int solve_at_any_size(const task *of, choice *by, ordering order, int64_t col, int bounded)
{
    return solve_in_order(of, order, col, bounded, NULL, by->work, &by->found) ||
           solve_in_order(of, order, col, bounded, by->power, by->work, &by->found);
}

/* Solve for a column in the order that is given, or that is chosen as fastgc.vandermonde.solve says.
 * Returns whether it has been written. */
static int solve_one(const task *of, choice *by, int64_t col)
{
    const int bounded = of->bound != NULL;
    answer *const found = &by->found;
    if (by->of_one_sign) {
        if (!by->is_sorted)
            find_rising(by->key, of->m, by->rising);
        by->is_sorted = 1;
        if (solve_at_any_size(of, by, (ordering){by->rising, 0}, col, 1) &&
            is_accurate(found, of->m, of->complex))
            return write_answer(of, found, col, by->may_overflow);
    }
    const int trusted = is_leja_trusted(of, by), few = are_few(of, by, col);
    if ((!trusted || few) && !bounded && solve_by_inverse(of, by->first.rows, col, by->power, found))
        return write_answer(of, found, col, by->may_overflow);
    const int prove = !trusted || (few && bounded);
    return solve_at_any_size(of, by, by->first, col, prove || bounded) &&
           (!prove || is_accurate(found, of->m, of->complex)) &&
           write_answer(of, found, col, by->may_overflow);
}

fgc_status FGC_AT_LEVEL(fgc_solve_vandermonde)(const double *nodes, const double *b, const int64_t *order,
                                               int transpose, double *out, double *bound, int choose,
                                               int may_overflow, int64_t m, int64_t b_size, int complex)
{
    const int64_t room = padded_size(m) + LANES, width = b_size / m, parts = 1 + complex;
    /* Two orders, powers, keys, the nodes, an answer, and work. */
    const int64_t size = 9 * room + work_size(m), more = width < MANY || bound ? 0 : many_size(m);
    void *const memory = malloc((size_t)(size + more + 16) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    int64_t *const orders = aligned(memory);
    double *const key = (double *)(orders + 3 * room), *const scaled_nodes = key + room;
    double *const x = scaled_nodes + 2 * room, *const error = x + 2 * room, *const work = error + room;
    double *const many = aligned(work + work_size(m));
    /* clang-format off */
    task of = {nodes, b, out, bound, m, width, largest_part(nodes, parts * m), 0, transpose, complex};
    choice by = {!order && choose, may_overflow, 0, {order, 0}, NAN, orders, orders + room,
                 orders + 2 * room, 0, key, work, {x, error, NULL, 0}};
    /* clang-format on */
    int usable = all_finite(nodes, parts * m);
    for (int64_t i = 0; order && i < m; i++)
        usable &= (uint64_t)order[i] < (uint64_t)m;
    if (!usable || !divide_nodes(&of, scaled_nodes, size_of_nodes(&of))) {
        free(memory);
        return FGC_NOT_FINITE;
    }
    by.of_one_sign = by.choosing && !complex && are_of_one_sign(of.nodes, m, key);
    if (order) {
        by.first.more = mean_distance(&of, order);
        by.apart = 0;
    }
    int64_t tried = 0; /* columns before this one are solved one by one */
    int solved = 1;
    for (int64_t col = 0; solved && col < width;) {
        int64_t count = 0;
        while (more && !by.of_one_sign && is_leja_trusted(&of, &by) && col >= tried && count < WIDE * LANES &&
               col + count < width && !are_few(&of, &by, col + count))
            count++;
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
