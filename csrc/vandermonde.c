/* Vandermonde systems by Björck and Pereyra's algorithms, and Leja's order of the nodes.
 *
 * With k ascending and then descending, for a column c and nodes x,
 *     V^T a = c:  c[i] -= x[k] c[i-1],                        i > k, and then
 *                 c[i] /= x[i] - x[i-k-1], i > k;  c[i] -= c[i+1],  i >= k
 *     V a = c:    c[i] = (c[i] - c[i-1]) / (x[i] - x[i-k-1]),  i > k, and then
 *                 c[i] -= x[k] c[i+1],                        i >= k
 *
 * LANES steps k, a panel, are done in one pass over c: each step keeps the vector it was last given,
 * so that the neighbours i-1 or i+1 come from registers. Only the panel's first vector has elements
 * that some of its steps must leave alone.
 *
 * A running error bound (Higham, "Accuracy and Stability", 3.3) goes along where it is asked for: e[i]
 * bounds what c[i] lacks, in units of 2^-53. Each step passes on what its terms lack, in moduli, and
 * adds its own roundings, of which there are as many as in the least careful way to do it. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "vector.h"

enum { GROUP = 4 }; /* columns that share their reciprocals */

/* Roundings, at most: of a product; of a quotient, its divisor's difference included. Each is of a
 * result's modulus. Second orders, and the bounds' own roundings, are in UNIT. */
#define IN_PRODUCT (complex ? 3.0 : 1.0)
#define IN_QUOTIENT (complex ? 12.0 : 6.0)
#define UNIT (0x1p-53 * 1.001)

/* When an order is as good as any: bounds relative to each number, per node. And what is no matter:
 * bounds relative to the largest number; angles between nodes on one ray from 0. */
#define ACCURATE 0x1p-48
#define HARMLESS 0x1p-32
#define RAY 0x1p-20

/* Parts of nodes from which on products of their differences leave the range of fast reciprocals. */
#define LARGE 0x1p240

/* Nodes in the order of elimination, with LANES readable doubles before and after. */
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

/* At most sqrt(2) times the modulus, and no less. */
static FGC_INLINE vector about(number a, const int complex)
{
    return complex ? magnitude(a.re) + magnitude(a.im) : magnitude(a.re);
}

static FGC_INLINE vector modulus(number a, const int complex)
{
    if (!complex)
        return magnitude(a.re);
    double squares[LANES], sums[LANES];
    store(squares, square(a, 1));
    store(sums, about(a, 1));
    for (int t = 0; t < LANES; t++) /* of the smallest numbers squares would say too little */
        sums[t] = squares[t] < 0x1p-900 ? sums[t] : sqrt(squares[t]);
    return load(sums);
}

/* x[i] - x[i-k-1] for the vector at i and the panel's steps k = first ..., or their reciprocals.
 * Inverting a product of two and multiplying is cheaper than inverting both. */
static FGC_INLINE void differences(points x, int64_t i, int64_t first, number *d, const int careful,
                                   const int complex)
{
    const number at = get(x.re + i, x.im + i, complex);
    FGC_UNROLL
    for (int t = 0; t < LANES; t++) {
        const int64_t j = i - first - t - 1;
        d[t] = minus(at, get(x.re + j, x.im + j, complex), complex);
    }
    if (careful)
        return;
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

static FGC_INLINE number over(number a, number d, const int careful, const int complex)
{
    return careful ? divide(a, d, complex) : times(a, d, complex);
}

typedef enum { TIMES_NODE, OVER_DIFFERENCE } what;

/* The panel's steps on the vector at i of each column. `head`: it is the panel's own. */
static FGC_INLINE void steps(points x, columns c, int count, int64_t i, int64_t first, carry *kept,
                             const what factor, const int ascending, const int head,
                             const int careful, const int bounded, const int complex)
{
    number f[LANES];
    vector size[LANES];
    if (factor == OVER_DIFFERENCE)
        differences(x, i, first, f, careful, complex);
    else
        for (int t = 0; t < LANES; t++)
            f[t] = (number){spread(x.re[first + t]),
                            complex ? spread(x.im[first + t]) : (vector){0}};
    for (int t = 0; bounded && t < LANES; t++) {
        size[t] = modulus(f[t], complex);
        if (factor == OVER_DIFFERENCE && careful)
            size[t] = 1.0 / size[t];
    }
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
                before = over(v, f[t], careful, complex);
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
                result = over(result, f[t], careful, complex);
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

static FGC_INLINE void sweep(points x, columns c, int count, lanes valid, const what factor,
                             const int ascending, const int careful, const int bounded,
                             const int complex)
{
    const int64_t end = x.vectors * LANES;
    for (int64_t panel = 0; panel < end; panel += LANES) {
        carry kept;
        for (int col = 0; col < count; col++)
            for (int t = 0; t < LANES; t++)
                kept.last[col][t] = (number){{0}, {0}}, kept.error[col][t] = (vector){0};
        if (ascending) {
            steps(x, c, count, panel, panel, &kept, factor, 1, 1, careful, bounded, complex);
            for (int64_t i = panel + LANES; i < end; i += LANES)
                steps(x, c, count, i, panel, &kept, factor, 1, 0, careful, bounded, complex);
            /* What went beyond the end would grow from panel to panel. */
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
                steps(x, c, count, i, first, &kept, factor, 0, 0, careful, bounded, complex);
            steps(x, c, count, first, first, &kept, factor, 0, 1, careful, bounded, complex);
        }
    }
}

static FGC_INLINE void solve(points x, columns c, int count, lanes valid, const int transpose,
                             const int careful, const int bounded, const int complex)
{
    if (transpose) {
        sweep(x, c, count, valid, TIMES_NODE, 1, 0, bounded, complex);
        sweep(x, c, count, valid, OVER_DIFFERENCE, 0, careful, bounded, complex);
    } else {
        sweep(x, c, count, valid, OVER_DIFFERENCE, 1, careful, bounded, complex);
        sweep(x, c, count, valid, TIMES_NODE, 0, 0, bounded, complex);
    }
}

/* Many columns, without bounds: a vector holds one row's numbers of LANES columns, and neighbours are
 * whole vectors. WIDE of them are solved at once, PANEL steps in one pass, with what each step was last
 * given in registers. Factors are the same for all columns. */
enum { WIDE = 2, PANEL = LANES < 4 ? 4 : LANES, HALF_PANEL = PANEL / 2 };

typedef struct {
    const double *re, *im; /* nodes in order, with PANEL readable doubles before and after */
    double *row;           /* row i: the real parts of WIDE vectors, and then their imaginary parts */
    int64_t m;
} table;

/* Steps from .. to-1 of the panel on a row; step t's factor is at place `last - t` or, of nodes, t. */
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

/* The panel's steps on row i: all of them if it is beyond the panel, else (`head`) those that row i has. */
static FGC_INLINE void wide_row(table x, int64_t i, int64_t first, number (*kept)[WIDE],
                                const int panel, const what factor, const int ascending,
                                const int head, const int vectors, const int complex)
{
    double re[PANEL], im[PANEL], *const row = x.row + i * (1 + complex) * WIDE * LANES;
    const double *by_re = x.re + first, *by_im = x.im + first;
    const int own = (int)(i - first); /* the step whose row it is, of a head */
    number v[WIDE];
    if (factor == OVER_DIFFERENCE) {
        const number at = {spread(x.re[i]), complex ? spread(x.im[i]) : (vector){0}};
        const int64_t from = i - first - panel; /* of the panel's last step */
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

static FGC_INLINE void wide_sweep(table x, const what factor, const int ascending,
                                  const int vectors, const int complex)
{
    const int panel = complex && PANEL > 4 ? HALF_PANEL : PANEL; /* as many as registers hold */
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

/* Nodes not yet chosen are kept together, each with the product of its distances to the chosen
 * ones; the position of a node is put in the last bits of its product, so that the largest product
 * tells where it is. Differences are scaled by powers of two, at no cost, to keep the largest near 1.
 * Every operation is that of the other backends, and rounded as theirs: of nodes that are symmetric,
 * as most are, many are equally far, and all must choose the same one. */
static FGC_INLINE void leja(const double *nodes, int64_t m, int64_t *order, double *work,
                            const int complex)
{
    enum { CHAINS = 4, CLAMP = 16 };
    const int64_t padded = padded_size(m);
    double *const re = work, *const product = re + padded, *const place = product + padded;
    double *const im = complex ? place + padded : re;
    const double largest = largest_part(nodes, (1 + complex) * m);
    const int64_t size = exponent_of(largest);
    const double scale = power_of_two(size < -1022 ? 1022 : size > 1022 ? -1022 : -size);
    int64_t low = 8; /* whatever LANES is */
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
        int64_t bits;
        memcpy(&bits, all, sizeof bits);
        best = bits & low;
        if (!(bits & ~low) || best <= k || best >= m) /* all products are 0, or not finite */
            best = k + 1;
        const int64_t e = exponent_of(all[0]);
        growth = e < -1000 || e > 1000 ? 1.0 : power_of_two(complex ? -(e >> 1) : -e);
        if (k % CLAMP == CLAMP - 1) {
            for (i = (k + 1) / LANES * LANES; i < padded; i += LANES)
                store(product + i, larger(magnitude(load(product + i)), spread(0x1p-500)));
            for (i = m; i < padded; i++) /* where no node is */
                product[i] = 0;
        }
    }
}

fgc_status FGC_AT_LEVEL(fgc_leja_order)(const double *nodes, int64_t m, int complex, int64_t *order)
{
    void *const memory = malloc((size_t)(4 * padded_size(m) + 8) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    if (complex)
        leja(nodes, m, order, aligned(memory), 1);
    else
        leja(nodes, m, order, aligned(memory), 0);
    free(memory);
    return FGC_OK;
}

/* `len` is a multiple of LANES. */
static FGC_INLINE int all_finite(const double *x, int64_t len)
{
    vector none = {0};
    for (int64_t i = 0; i < len; i += LANES)
        none += load(x + i) - load(x + i);
    double each[LANES], sum = 0;
    store(each, none);
    for (int t = 0; t < LANES; t++)
        sum += each[t];
    return sum == 0;
}

/* What a solve has to do, and where. */
typedef struct {
    const double *nodes, *b;
    double *out, *bound;
    int64_t m, width;
    double largest; /* part of a node */
    int transpose;
} task;

/* The nodes in one order, and up to GROUP columns solved in it. */
typedef struct {
    const int64_t *order;
    int64_t *place; /* where, in the columns, the number of a row of x is */
    points x;
    columns c;
    double *column; /* the first of the columns, which the others follow */
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

/* Doubles that an attempt needs. */
static int64_t attempt_size(int64_t m) { return (2 + 3 * GROUP) * (padded_size(m) + LANES); }

/* 0 if a node is not finite; -1 if the order reaches outside. */
static FGC_INLINE int put_nodes(const task *of, attempt *a, const int complex)
{
    const int parts = 1 + complex;
    const int64_t m = of->m, padded = padded_size(m);
    double *const re = (double *)a->x.re, *const im = (double *)a->x.im;
    int finite = 1;
    for (int64_t i = -LANES; i < padded; i++) {
        /* Beyond the end, distinct nodes: there, zeros are divided by their differences. */
        const double beyond = (double)(i - m + 2) * (of->largest > 0 ? 2 * of->largest : 1.0);
        const int inside = i >= 0 && i < m;
        if (inside && (uint64_t)a->order[i] >= (uint64_t)m)
            return -1;
        re[i] = inside ? of->nodes[parts * a->order[i]] : i < m ? 0 : beyond;
        finite &= re[i] - re[i] == 0;
        if (complex) {
            im[i] = inside ? of->nodes[2 * a->order[i] + 1] : 0;
            finite &= im[i] - im[i] == 0;
        }
    }
    return finite;
}

/* Solve for the columns done, done+1, ...; whether all is finite. */
static FGC_INLINE int solve_group(const task *of, attempt *a, int64_t done, int count, int bounded,
                                  const int complex)
{
    const int parts = 1 + complex, transpose = of->transpose;
    const int64_t m = of->m, width = of->width, padded = padded_size(m), *const order = a->order;
    const lanes valid = ~after((int)(m - 1 - (a->x.vectors - 1) * LANES));
    const columns c = a->c;
    /* Fast reciprocals are good for differences and products of them in the middle of a
     * double's range, and not finite otherwise: then, once more with care. */
    int good = 0;
    for (int careful = of->largest > LARGE; careful < 2 && !good; careful++) {
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
        /* Constants for the inlined function. */
        if (bounded && careful && transpose)
            solve(a->x, c, count, valid, 1, 1, 1, complex);
        else if (bounded && careful)
            solve(a->x, c, count, valid, 0, 1, 1, complex);
        else if (bounded && transpose && count == 1)
            solve(a->x, c, 1, valid, 1, 0, 1, complex);
        else if (bounded && transpose)
            solve(a->x, c, count, valid, 1, 0, 1, complex);
        else if (bounded && count == 1)
            solve(a->x, c, 1, valid, 0, 0, 1, complex);
        else if (bounded)
            solve(a->x, c, count, valid, 0, 0, 1, complex);
        else if (careful && transpose)
            solve(a->x, c, count, valid, 1, 1, 0, complex);
        else if (careful)
            solve(a->x, c, count, valid, 0, 1, 0, complex);
        else if (transpose && count == 1)
            solve(a->x, c, 1, valid, 1, 0, 0, complex);
        else if (transpose)
            solve(a->x, c, count, valid, 1, 0, 0, complex);
        else if (count == 1)
            solve(a->x, c, 1, valid, 0, 0, 0, complex);
        else
            solve(a->x, c, count, valid, 0, 0, 0, complex);
        good = all_finite(a->column, parts * count * padded);
    }
    /* From here on in the numbers' own unit, and Inf where a bound is no number. */
    for (int col = 0; bounded && col < count; col++)
        for (int64_t i = 0; i < m; i++) {
            const double e = UNIT * c.error[col][i];
            c.error[col][i] = good && e <= DBL_MAX ? e : INFINITY;
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

/* Columns from which on a vector of rows is worth it, and doubles that WIDE of these take. */
enum { MANY = LANES > 4 ? 5 : 3 };

static int64_t many_size(int64_t m) { return 2 * (m + 2 * PANEL + m * WIDE * LANES); }

/* Solve for so many columns, no more than WIDE vectors hold, and write them if all is finite. */
static FGC_INLINE int solve_many(const task *of, const int64_t *order, int64_t done, int count,
                                 double *work, const int complex)
{
    const int parts = 1 + complex;
    const int64_t m = of->m, size = parts * WIDE * LANES;
    double *const re = work + m * 2 * WIDE * LANES + PANEL, *const im = re + m + 2 * PANEL;
    const table x = {re, im, work, m};
    for (int64_t i = -PANEL; i < m + PANEL; i++) {
        const int inside = i >= 0 && i < m;
        re[i] = inside ? of->nodes[parts * order[i]] : 0;
        im[i] = complex && inside ? of->nodes[2 * order[i] + 1] : 0;
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
    if (count <= LANES) /* constants for the inlined function */
        solve_rows(x, of->transpose, 1, complex);
    else
        solve_rows(x, of->transpose, 2, complex);
    if (!all_finite(work, m * size))
        return 0;
    for (int64_t i = 0; i < m; i++) {
        double *const to = of->out + parts * (of->width * (of->transpose ? order[i] : i) + done);
        const double *const row = work + i * size;
        for (int col = 0; col < count; col++) {
            to[parts * col] = row[col];
            if (complex)
                to[2 * col + 1] = row[WIDE * LANES + col];
        }
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

static FGC_INLINE void write_column(const task *of, const attempt *a, int64_t done, int col,
                                    const int complex)
{
    const int parts = 1 + complex;
    for (int64_t i = 0; i < of->m; i++) {
        const int64_t at = of->width * (of->transpose ? a->order[i] : i) + done + col;
        of->out[parts * at] = a->c.re[col][i];
        if (complex)
            of->out[2 * at + 1] = a->c.im[col][i];
        if (of->bound)
            of->bound[at] = a->c.error[col][i];
    }
}

/* Whether all nodes lie on one ray from 0, or nearly so; then their order by modulus, from the
 * smallest on. `spare` has room for m indices and m doubles more. */
static FGC_INLINE int order_on_ray(const double *nodes, int64_t m, int64_t *order, int64_t *spare,
                                   double *key, const int complex)
{
    const int parts = 1 + complex;
    double fr = 0, fi = 0;
    for (int64_t i = 0; i < m; i++) {
        const double re = fabs(nodes[parts * i]), im = complex ? fabs(nodes[2 * i + 1]) : 0;
        key[i] = greater(re, im);
        if (key[i] > greater(fabs(fr), fabs(fi))) {
            fr = nodes[parts * i];
            fi = complex ? nodes[2 * i + 1] : 0;
        }
    }
    for (int64_t i = 0; i < m; i++) {
        const double re = nodes[parts * i], im = complex ? nodes[2 * i + 1] : 0;
        if (!complex && (fr < 0 ? re > 0 : re < 0))
            return 0;
        const double along = re * fr + im * fi;
        if (complex && !(fabs(im * fr - re * fi) <= RAY * along))
            return 0;
        order[i] = i;
    }
    /* Merged, so that equal keys stay as they are; what is in order already costs one look. */
    int64_t *from = order, *to = spare;
    int rises = 1, falls = 1;
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
    return 1;
}

static FGC_INLINE double size_of(const attempt *a, int col, int64_t i, const int complex)
{
    const double re = fabs(a->c.re[col][i]), im = complex ? fabs(a->c.im[col][i]) : 0;
    return greater(re, im); /* at least 0.7 of the modulus */
}

/* Whether a column's bound says that all its numbers are good to about their last digits. */
static FGC_INLINE int is_accurate(const attempt *a, int col, int64_t m, const int complex)
{
    const double limit = ACCURATE * (double)m;
    int all = 1;
    for (int64_t i = 0; i < m; i++)
        all &= a->c.error[col][i] <= limit * size_of(a, col, i, complex);
    return all;
}

/* Whether the bounds of `a` prove that its largest error relative to a number is smaller than that
 * of `other`, and either that so is its largest error, or that it is small beside the largest number. */
static FGC_INLINE int is_better(const attempt *a, const attempt *other, int col, int64_t m,
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
            return 0;
        if (e > 0)
            most_relative = greater(e / (size - e), most_relative);
        if (proven > 0)
            least_relative = greater(proven / (1.5 * size + e), least_relative);
        most = greater(e, most);
        least = greater(proven, least);
        largest = greater(size, largest);
    }
    return most_relative < least_relative && (most <= least || most <= HARMLESS * largest);
}

/* What is near a number of known error has not much more of it. */
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

/* `work` and `orders` have room for two attempts, and for their orders and places, if `choosing`; `many`
 * has that for many columns, or is NULL. */
static FGC_INLINE fgc_status solve_all(const task *of, const int64_t *order, int forced,
                                       int choosing, int64_t *orders, double *work, double *many,
                                       const int complex)
{
    const int64_t m = of->m, room = padded_size(m) + LANES;
    const int bounded = choosing || of->bound;
    int64_t *const leja_order = orders + 2 * room;
    double *const more = work + attempt_size(m);
    attempt first = new_attempt(of, order, orders + room, work, complex), second = first;
    int finite = put_nodes(of, &first, complex);
    if (finite < 0 || (!finite && !forced))
        return FGC_NOT_FINITE;

    int64_t tried = many ? 0 : of->width; /* columns that are for what follows */
    for (int64_t done = 0, count; done < of->width; done += count) {
        const int64_t left = of->width - done;
        count = left < WIDE * LANES ? left : WIDE * LANES;
        if (done >= tried && count >= MANY) {
            if (complex ? solve_many_complex(of, order, done, (int)count, many)
                        : solve_many_real(of, order, done, (int)count, many))
                continue;
            tried = done + count;
        }
        count = left < GROUP ? left : GROUP;
        int good = complex ? solve_complex(of, &first, done, (int)count, bounded)
                           : solve_real(of, &first, done, (int)count, bounded);
        int settled = good || !choosing, other = 0, accurate[GROUP] = {0};
        for (int col = 0; choosing && good && col < count; col++)
            settled &= accurate[col] = is_accurate(&first, col, m, complex);
        if (!settled) {
            if (second.order == order) {
                leja(of->nodes, m, leja_order, more, complex);
                second = new_attempt(of, leja_order, leja_order + room, more, complex);
                put_nodes(of, &second, complex);
                find_places(&first, m, of->transpose);
                find_places(&second, m, of->transpose);
            }
            other = complex ? solve_complex(of, &second, done, (int)count, !!of->bound)
                            : solve_real(of, &second, done, (int)count, !!of->bound);
        }
        finite &= good || other;
        if (!(good || other || forced))
            return FGC_NOT_FINITE;
        for (int col = 0; col < count; col++) {
            const int stays = settled || accurate[col] || (good && !other) ||
                              (good && is_better(&first, &second, col, m, complex));
            const attempt *const best = stays ? &first : &second;
            if (of->bound && good && other && !accurate[col])
                tighten(best, stays ? &second : &first, col, m, complex);
            write_column(of, best, done, col, complex);
        }
    }
    return finite ? FGC_OK : FGC_NOT_FINITE;
}

fgc_status FGC_AT_LEVEL(fgc_solve_vandermonde)(const double *nodes, const double *b,
                                               const int64_t *order, double *out, double *bound,
                                               int64_t m, int64_t b_size, int complex,
                                               int transpose, int forced, int choose)
{
    const int64_t room = padded_size(m) + LANES, width = b_size / m;
    int choosing = !order && choose;
    if (choosing) { /* before there is anything to free */
        const double first = nodes[0], last = nodes[(1 + complex) * (m - 1)];
        choosing = complex || !(first < 0 ? last > 0 : first > 0 && last < 0);
    }
    /* Orders, places, nodes, columns; the columns' place also serves to find an order. */
    const int64_t size = choosing ? 4 * room + 2 * attempt_size(m) : 2 * room + attempt_size(m);
    const int64_t more = width < MANY ? 0 : many_size(m) + 8;
    void *const memory = malloc((size_t)(size + more + 8) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    int64_t *const orders = aligned(memory);
    double *const work = (double *)(orders + (choosing ? 4 : 2) * room) - LANES;
    const task of = {nodes, b, out, bound, m, width, largest_part(nodes, (1 + complex) * m),
                     transpose};
    if (choosing)
        choosing = complex ? order_on_ray(nodes, m, orders, orders + room, work + LANES, 1)
                           : order_on_ray(nodes, m, orders, orders + room, work + LANES, 0);
    if (!order && !choosing && complex)
        leja(nodes, m, orders, work, 1);
    else if (!order && !choosing)
        leja(nodes, m, orders, work, 0);
    if (!order)
        order = orders;
    /* Fast reciprocals alone, and no bounds: the others are for what remains. */
    const int plain = more && !choosing && !bound && of.largest <= LARGE;
    double *const many = plain ? aligned((double *)orders + size) : NULL;
    const fgc_status status =
        complex ? solve_all(&of, order, forced, choosing, orders, work, many, 1)
                : solve_all(&of, order, forced, choosing, orders, work, many, 0);
    free(memory);
    return status;
}
