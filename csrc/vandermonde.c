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
 * that some of its steps must leave alone. */
#include <stdlib.h>

#include "vector.h"

enum { GROUP = 4 }; /* columns that share their reciprocals */

/* Nodes in the order of elimination, with LANES readable doubles before and after. */
typedef struct {
    const double *re, *im;
    int64_t vectors;
} points;

typedef struct {
    double *re[GROUP], *im[GROUP];
} columns;

typedef struct {
    number last[GROUP][LANES];
} carry;

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
                             const int careful, const int complex)
{
    number f[LANES];
    if (factor == OVER_DIFFERENCE)
        differences(x, i, first, f, careful, complex);
    else
        for (int t = 0; t < LANES; t++)
            f[t] = (number){spread(x.re[first + t]),
                            complex ? spread(x.im[first + t]) : (vector){0}};
    for (int col = 0; col < count; col++) {
        number v = get(c.re[col] + i, c.im[col] + i, complex);
        FGC_UNROLL
        for (int step = 0; step < LANES; step++) {
            const int t = ascending ? step : LANES - 1 - step;
            number *const last = &kept->last[col][t];
            number neighbour = {{0}, {0}}, before = v, result;
            if (factor == OVER_DIFFERENCE && !ascending) {
                before = over(v, f[t], careful, complex);
                if (head)
                    before = choose(after(t), before, v, complex);
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
            if (factor == TIMES_NODE)
                neighbour = times(f[t], neighbour, complex);
            result = minus(before, neighbour, complex);
            if (factor == OVER_DIFFERENCE && ascending)
                result = over(result, f[t], careful, complex);
            v = head ? choose(ascending ? after(t) : after(t - 1), result, before, complex) : result;
        }
        put(c.re[col] + i, c.im[col] + i, v, complex);
    }
}

static FGC_INLINE void sweep(points x, columns c, int count, lanes valid, const what factor,
                             const int ascending, const int careful, const int complex)
{
    const int64_t end = x.vectors * LANES;
    for (int64_t panel = 0; panel < end; panel += LANES) {
        carry kept;
        for (int col = 0; col < count; col++)
            for (int t = 0; t < LANES; t++)
                kept.last[col][t] = (number){{0}, {0}};
        if (ascending) {
            steps(x, c, count, panel, panel, &kept, factor, 1, 1, careful, complex);
            for (int64_t i = panel + LANES; i < end; i += LANES)
                steps(x, c, count, i, panel, &kept, factor, 1, 0, careful, complex);
            /* What went beyond the end would grow from panel to panel. */
            for (int col = 0; col < count; col++) {
                const number zero = {{0}, {0}};
                double *const re = c.re[col] + end - LANES, *const im = c.im[col] + end - LANES;
                put(re, im, choose(valid, get(re, im, complex), zero, complex), complex);
            }
        } else {
            const int64_t first = end - LANES - panel;
            for (int64_t i = end - LANES; i > first; i -= LANES)
                steps(x, c, count, i, first, &kept, factor, 0, 0, careful, complex);
            steps(x, c, count, first, first, &kept, factor, 0, 1, careful, complex);
        }
    }
}

static FGC_INLINE void solve(points x, columns c, int count, lanes valid, const int transpose,
                             const int careful, const int complex)
{
    if (transpose) {
        sweep(x, c, count, valid, TIMES_NODE, 1, 0, complex);
        sweep(x, c, count, valid, OVER_DIFFERENCE, 0, careful, complex);
    } else {
        sweep(x, c, count, valid, OVER_DIFFERENCE, 1, careful, complex);
        sweep(x, c, count, valid, TIMES_NODE, 0, 0, complex);
    }
}

static double power_of_two(int64_t exponent)
{
    double value;
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t exponent_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int64_t)(bits >> 52 & 0x7ff) - 1023;
}

static inline double above(double a, double b) { return a > b ? a : b; }

static double largest_part(const double *x, int64_t len)
{
    double largest = 0;
    for (int64_t i = 0; i < len; i++)
        largest = above(x[i] < 0 ? -x[i] : x[i], largest);
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
    const int64_t padded = (m + LANES - 1) / LANES * LANES;
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
                all[t] = above(all[t], all[t + w]);
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

static void *aligned(void *memory) { return (void *)(((uintptr_t)memory + 63) & ~(uintptr_t)63); }

static int64_t padded_size(int64_t m) { return (m + LANES - 1) / LANES * LANES; }

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

static FGC_INLINE fgc_status solve_all(const double *nodes, const double *b, const int64_t *order,
                                       double *out, int64_t m, int64_t width, int transpose,
                                       int forced, double *work, const int complex)
{
    const int parts = 1 + complex;
    const int64_t padded = padded_size(m), vectors = padded / LANES;
    double *const re = work + LANES, *const im = complex ? re + padded + LANES : re;
    double *const column = im + padded;
    const double largest = largest_part(nodes, parts * m);
    const lanes valid = ~after((int)(m - 1 - (vectors - 1) * LANES));
    int finite = 1;

    for (int64_t i = -LANES; i < padded; i++) {
        /* Beyond the end, distinct nodes: there, zeros are divided by their differences. */
        const double beyond = (double)(i - m + 2) * (largest > 0 ? 2 * largest : 1.0);
        const int inside = i >= 0 && i < m;
        if (inside && (uint64_t)order[i] >= (uint64_t)m)
            return FGC_NOT_FINITE;
        re[i] = inside ? nodes[parts * order[i]] : i < m ? 0 : beyond;
        finite &= re[i] - re[i] == 0;
        if (complex) {
            im[i] = inside ? nodes[2 * order[i] + 1] : 0;
            finite &= im[i] - im[i] == 0;
        }
    }
    if (!finite && !forced)
        return FGC_NOT_FINITE;
    const points x = {re, im, vectors};

    for (int64_t done = 0; done < width; done += GROUP) {
        const int count = width - done < GROUP ? (int)(width - done) : GROUP;
        columns c;
        for (int col = 0; col < GROUP; col++) {
            c.re[col] = column + parts * col * padded;
            c.im[col] = complex ? c.re[col] + padded : c.re[col];
        }
        /* Fast reciprocals are good for differences and products of them in the middle of a
         * double's range, and not finite otherwise: then, once more with care. */
        int good = 0;
        for (int careful = largest > 0x1p240; careful < 2 && !good; careful++) {
            for (int64_t i = 0; i < padded; i++) {
                const double *row = b + parts * (width * (i < m ? transpose ? i : order[i] : 0) + done);
                for (int col = 0; col < count; col++) {
                    c.re[col][i] = i < m ? row[parts * col] : 0;
                    if (complex)
                        c.im[col][i] = i < m ? row[2 * col + 1] : 0;
                }
            }
            /* Constants for the inlined function. */
            if (careful && transpose)
                solve(x, c, count, valid, 1, 1, complex);
            else if (careful)
                solve(x, c, count, valid, 0, 1, complex);
            else if (transpose && count == 1)
                solve(x, c, 1, valid, 1, 0, complex);
            else if (transpose)
                solve(x, c, count, valid, 1, 0, complex);
            else if (count == 1)
                solve(x, c, 1, valid, 0, 0, complex);
            else
                solve(x, c, count, valid, 0, 0, complex);
            good = all_finite(column, parts * count * padded);
        }
        finite &= good;
        if (!good && !forced)
            return FGC_NOT_FINITE;
        for (int64_t i = 0; i < m; i++) {
            double *const row = out + parts * (width * (transpose ? order[i] : i) + done);
            for (int col = 0; col < count; col++) {
                row[parts * col] = c.re[col][i];
                if (complex)
                    row[2 * col + 1] = c.im[col][i];
            }
        }
    }
    return finite ? FGC_OK : FGC_NOT_FINITE;
}

fgc_status FGC_AT_LEVEL(fgc_solve_vandermonde)(const double *nodes, const double *b,
                                               const int64_t *order, double *out, int64_t m,
                                               int64_t width, int flags)
{
    const int complex = flags & FGC_COMPLEX, transpose = !!(flags & FGC_TRANSPOSE);
    const int forced = !!(flags & FGC_FORCED);
    const int64_t room = padded_size(m) + LANES;
    /* An order, nodes, columns; the columns' place also serves to find the order. */
    void *const memory = malloc((size_t)((3 + 2 * GROUP) * room + 8) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    int64_t *const own = aligned(memory);
    double *const work = (double *)(own + room - LANES);
    if (!order && complex)
        leja(nodes, m, own, work, 1);
    else if (!order)
        leja(nodes, m, own, work, 0);
    if (!order)
        order = own;
    const fgc_status status =
        complex ? solve_all(nodes, b, order, out, m, width, transpose, forced, work, 1)
                : solve_all(nodes, b, order, out, m, width, transpose, forced, work, 0);
    free(memory);
    return status;
}
