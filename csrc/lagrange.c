/* Products of differences and Lagrange bases: the arithmetic of barycentric interpolation.
 *
 * A product over thousands of nodes leaves the range of a double, so it is kept as mantissa and
 * exponent. Loops are plain, and inner ones run over a block of points or over all nodes, so that
 * compilers vectorise them. */
#include <math.h>
#include <stdlib.h>

#include "vector.h"

enum { BLOCK = 64 };

/* RUN factors are multiplied between two normalisations. A product of RUN differences between NEAREST and
 * FARTHEST stays within a double. For points nearer to a node than NEAREST, the product is computed again,
 * factor by factor. */
enum { RUN = 4 };
#define NEAREST 0x1p-250
#define FARTHEST 0x1p239

typedef struct {
    double re[BLOCK], im[BLOCK];
    int64_t exponent[BLOCK], hit[BLOCK];
} products;

static FGC_INLINE scalar less(scalar a, scalar b, const int complex)
{
    return (scalar){a.re - b.re, complex ? a.im - b.im : 0};
}

static FGC_INLINE scalar product_of(scalar a, scalar b, const int complex)
{
    return (scalar){complex ? a.re * b.re - a.im * b.im : a.re * b.re, complex ? a.re * b.im + a.im * b.re : 0};
}

/* Divide a difference that is nearer to 0 than NEAREST by a power of two. Returns the exponent, else 0. */
static FGC_INLINE int64_t bring_up(scalar *d, const int complex)
{
    const double size = larger_part(*d, complex);
    if (!(size < NEAREST))
        return 0;
    int e = 0;
    (void)frexp(size, &e);
    *d = (scalar){ldexp(d->re, -e), complex ? ldexp(d->im, -e) : 0};
    return e;
}

/* Multiply by a difference, and normalise. Returns the exponent. */
static FGC_INLINE int64_t multiply(scalar *by, scalar d, const int complex)
{
    *by = product_of(*by, d, complex);
    const int64_t e = exponent_of(larger_part(*by, complex));
    by->re *= power_of_two(-e);
    by->im *= power_of_two(-e);
    return e;
}

/* Multiply by the differences to `count` nodes, and normalise. */
static FGC_INLINE void run(const double *nodes, int64_t first, const int count, const double *zr,
                           const double *zi, products *out, const int complex)
{
    for (int t = 0; t < BLOCK; t++) {
        scalar by = {out->re[t], out->im[t]};
        int64_t hit = out->hit[t];
        for (int u = 0; u < count; u++) {
            const int64_t j = first + u;
            scalar d = less((scalar){zr[t], zi[t]}, number_at(nodes, j, complex), complex);
            const int is_node = greater(fabs(d.re), fabs(d.im)) < NEAREST;
            hit = is_node ? j : hit;
            d.re = is_node ? 1 : d.re;
            d.im = is_node ? 0 : d.im;
            by = product_of(by, d, complex);
        }
        const int64_t e = exponent_of(larger_part(by, complex));
        const double scale = power_of_two(-e);
        out->re[t] = by.re * scale;
        out->im[t] = by.im * scale;
        out->exponent[t] += e;
        out->hit[t] = hit;
    }
}

/* Count the nodes that are nearer to a point than NEAREST. */
static FGC_INLINE int64_t near_nodes(const double *nodes, int64_t m, scalar z, const int complex)
{
    int64_t count = 0;
    for (int64_t j = 0; j < m; j++)
        count += larger_part(less(z, number_at(nodes, j, complex), complex), complex) < NEAREST;
    return count;
}

/* Compute the product at one point factor by factor, as some factors are small. */
static void careful_product(const double *nodes, int64_t m, scalar z, products *out, int t, const int complex)
{
    scalar by = {1, 0};
    int64_t exponent = 0, hit = -1;
    for (int64_t j = 0; j < m; j++) {
        scalar d = less(z, number_at(nodes, j, complex), complex);
        if (d.re == 0 && d.im == 0) {
            hit = j;
            continue;
        }
        const int64_t up = bring_up(&d, complex);
        hit = up && hit == -1 ? -2 : hit;
        exponent += up + multiply(&by, d, complex);
    }
    out->re[t] = by.re;
    out->im[t] = by.im;
    out->exponent[t] = exponent;
    out->hit[t] = hit;
}

/* Compute the products of one block of points over all nodes. */
static FGC_INLINE void block_products(const double *nodes, int64_t m, const double *zr, const double *zi,
                                      products *out, const int complex)
{
    for (int t = 0; t < BLOCK; t++) {
        out->re[t] = 1;
        out->im[t] = 0;
        out->exponent[t] = 0;
        out->hit[t] = -1;
    }
    int64_t j = 0;
    for (; j + RUN <= m; j += RUN)
        run(nodes, j, RUN, zr, zi, out, complex);
    for (; j < m; j++)
        run(nodes, j, 1, zr, zi, out, complex);
    for (int t = 0; t < BLOCK; t++) {
        const int64_t hit = out->hit[t];
        if (hit < 0)
            continue;
        const scalar z = {zr[t], zi[t]}, d = less(z, number_at(nodes, hit, complex), complex);
        if (d.re != 0 || d.im != 0 || near_nodes(nodes, m, z, complex) > 1)
            careful_product(nodes, m, z, out, t, complex);
    }
}

/* Load the block of points from `done` on, in planar layout; the last point fills up the block. */
static FGC_INLINE void load_block(const double *points, int64_t p, int64_t done, double *zr, double *zi,
                                  const int complex)
{
    for (int64_t t = 0; t < BLOCK; t++) {
        const int64_t i = done + t < p ? done + t : p - 1;
        const scalar z = number_at(points, i, complex);
        zr[t] = z.re;
        zi[t] = z.im;
    }
}

static FGC_INLINE void all_products(const double *nodes, int64_t m, const double *points, int64_t p,
                                    double *mantissa, int64_t *exponent, int64_t *hit, const int complex)
{
    double zr[BLOCK], zi[BLOCK];
    products of;
    for (int64_t done = 0; done < p; done += BLOCK) {
        load_block(points, p, done, zr, zi, complex);
        block_products(nodes, m, zr, zi, &of, complex);
        for (int64_t t = 0; t < BLOCK && done + t < p; t++) {
            const int64_t i = done + t;
            put_number(mantissa, i, (scalar){of.re[t], of.im[t]}, complex);
            exponent[i] = of.exponent[t];
            hit[i] = of.hit[t];
        }
    }
}

void FGC_AT_LEVEL(fgc_lagrange_products)(const double *nodes, int64_t m, const double *points, int64_t p,
                                         int complex, double *mantissa, int64_t *exponent, int64_t *hit)
{
    BY_TYPE(all_products, nodes, m, points, p, mantissa, exponent, hit);
}

/* Return the exponent nearest to e that a power of two has in a double. */
static FGC_INLINE int64_t within(int64_t e) { return e < -1022 ? -1022 : e > 1023 ? 1023 : e; }

/* Return whether one scale holds all weights without loss, as nearly always; *most = the largest exponent. */
static int are_alike(const int64_t *exponent, int64_t m, int64_t *most)
{
    int64_t least = exponent[0];
    *most = least;
    for (int64_t j = 1; j < m; j++) {
        least = exponent[j] < least ? exponent[j] : least;
        *most = exponent[j] > *most ? exponent[j] : *most;
    }
    return *most - least < 400;
}

/* Nodes and weights in planar layout, and a row of sums, all of full vectors. */
typedef struct {
    double *xr, *xi, *wr, *wi, *re, *im;
    const int64_t *exponent; /* of the weights, or NULL: all have `common` */
    int64_t common, m, padded;
} line;

/* `work` has room for six times m numbers, rounded up to full vectors. */
static line new_line(int64_t m, double *work)
{
    const int64_t padded = padded_size(m);
    return (line){.xr = work,
                  .xi = work + padded,
                  .wr = work + 2 * padded,
                  .wi = work + 3 * padded,
                  .re = work + 4 * padded,
                  .im = work + 5 * padded,
                  .m = m,
                  .padded = padded};
}

/* Add l_j(z) = p 2^e w_j / (z - x_j) to the row, for exponents of any size; z is no node. */
static void add_any(line l, scalar z, scalar p, int64_t e, const int complex)
{
    for (int64_t j = 0; j < l.m; j++) {
        /* by two powers of two: a single one may be out of range */
        scalar d = less(z, (scalar){l.xr[j], l.xi[j]}, complex);
        const int64_t up = bring_up(&d, complex);
        const int64_t whole = e + (l.exponent ? l.exponent[j] : l.common) - up, half = whole >> 1;
        const double a = power_of_two(within(half)), b = power_of_two(within(whole - half));
        if (!complex) {
            l.re[j] += p.re * l.wr[j] / d.re * a * b;
            continue;
        }
        const double inverse = 1 / (d.re * d.re + d.im * d.im);
        const double qr = (p.re * d.re + p.im * d.im) * inverse;
        const double qi = (p.im * d.re - p.re * d.im) * inverse;
        l.re[j] += (qr * l.wr[j] - qi * l.wi[j]) * a * b;
        l.im[j] += (qr * l.wi[j] + qi * l.wr[j]) * a * b;
    }
}

/* The same if p includes all powers of two. Without `add`, overwrite the row. */
static FGC_INLINE void add_scaled(line l, scalar at, scalar by, const int add, const int complex)
{
    const number p = {spread(by.re), spread(by.im)}, z = {spread(at.re), spread(at.im)};
    for (int64_t j = 0; j < l.padded; j += LANES) {
        number d = minus(z, get(l.xr + j, l.xi + j, complex), complex);
        const vector inverse = reciprocal(complex ? square(d, 1) : d.re);
        if (complex)
            d = (number){d.re * inverse, -d.im * inverse};
        else
            d.re = inverse;
        const number w = get(l.wr + j, l.wi + j, complex);
        const number value = times(times(d, w, complex), p, complex);
        store(l.re + j, add ? load(l.re + j) + value.re : value.re);
        if (complex)
            store(l.im + j, add ? load(l.im + j) + value.im : value.im);
    }
}

/* Write a row of the basis for each point or, with `sum`, one row: their sum. */
static FGC_INLINE void rows(const double *nodes, const double *weights, const int64_t *exponent, int64_t m,
                            const double *points, int64_t p, double *out, int sum, line l, const int complex)
{
    int64_t most;
    const int alike = are_alike(exponent, m, &most);
    l.exponent = alike ? NULL : exponent;
    l.common = most;
    for (int64_t j = 0; j < l.padded; j++) {
        scalar x = {4, 0}, w = {0, 0}; /* padding that equals no point */
        const double scale = alike && j < m ? power_of_two(exponent[j] - most) : 1;
        if (j < m) {
            x = number_at(nodes, j, complex);
            w = number_at(weights, j, complex);
        }
        l.xr[j] = x.re;
        l.xi[j] = x.im;
        l.wr[j] = w.re * scale;
        l.wi[j] = w.im * scale;
        l.re[j] = l.im[j] = 0;
    }
    if (sum && p == 0)
        memset(out, 0, (size_t)(complex ? 2 * m : m) * sizeof(double));
    double zr[BLOCK], zi[BLOCK];
    products of;
    for (int64_t i = 0; i < p; i++) {
        const int64_t t = i % BLOCK;
        if (t == 0) {
            load_block(points, p, i, zr, zi, complex);
            block_products(nodes, m, zr, zi, &of, complex);
        }
        const scalar z = {zr[t], zi[t]}, product = {of.re[t], of.im[t]};
        const int64_t e = of.exponent[t] + most;
        const int in_range = of.hit[t] == -1 && alike && e > -400 && e < 400;
        const double scale = in_range ? power_of_two(e) : 0;
        const scalar scaled = {product.re * scale, product.im * scale};
        if (!sum && !in_range)
            /* clears l.im, too, which follows */
            memset(l.re, 0, (size_t)(2 * l.padded) * sizeof(double));
        if (of.hit[t] >= 0)
            l.re[of.hit[t]] += 1;
        else if (!in_range)
            add_any(l, z, product, of.exponent[t], complex);
        else if (sum)
            add_scaled(l, z, scaled, 1, complex);
        else
            add_scaled(l, z, scaled, 0, complex);
        if (sum && i + 1 < p)
            continue;
        double *const to = out + (sum ? 0 : i * m) * (complex ? 2 : 1);
        for (int64_t j = 0; j < m; j++)
            put_number(to, j, (scalar){l.re[j], l.im[j]}, complex);
    }
}

fgc_status FGC_AT_LEVEL(fgc_lagrange_basis)(const double *nodes, const double *weights,
                                            const int64_t *weight_exponent, int64_t m, const double *points,
                                            int64_t p, int complex, int out_ndim, double *out)
{
    double *const work = malloc((size_t)(6 * padded_size(m)) * sizeof(double));
    if (!work)
        return FGC_NO_MEMORY;
    const line l = new_line(m, work);
    BY_TYPE(rows, nodes, weights, weight_exponent, m, points, p, out, out_ndim == 1, l);
    free(work);
    return FGC_OK;
}

/* Nodes, and the factors of their inverse distances to a point (weight times value), in planar layout. */
typedef struct {
    double *xr, *xi, *cr, *ci;
    int64_t m, padded;
    int64_t exponent; /* common to all terms of the sum */
    const double *values;
    const line *careful; /* for points very near a node, and for weights and values of any size */
} terms;

typedef struct {
    number product, sum;
    lanes exponent; /* of the product */
    vector nearest; /* the largest inverse distance, squared if complex */
} totals;

static FGC_INLINE totals no_terms(void) { return (totals){{spread(1), {0}}, {{0}, {0}}, {0}, {0}}; }

/* Add one more node in each lane. */
static FGC_INLINE void add_term(totals *of, number z, number x, number c, const int complex)
{
    const number d = minus(z, x, complex);
    const vector inverse = reciprocal(complex ? square(d, 1) : d.re);
    const number by = complex ? (number){d.re * inverse, -d.im * inverse} : (number){inverse, d.im};
    const number term = times(c, by, complex);
    of->product = times(of->product, d, complex);
    of->sum.re += term.re;
    if (complex)
        of->sum.im += term.im;
    of->nearest = larger(complex ? inverse : magnitude(inverse), of->nearest);
}

static FGC_INLINE void normalise(totals *of, const int complex)
{
    vector size = magnitude(of->product.re);
    if (complex)
        size = larger(size, magnitude(of->product.im));
    const lanes e = ((lanes)size >> 52) - 1023;
    const vector scale = (vector)((1023 - e) << 52);
    of->product.re *= scale;
    if (complex)
        of->product.im *= scale;
    of->exponent += e;
}

/* Compute the value at one point by the row of the basis. The point may be a node. */
static void careful_value(const terms *t, scalar z, double *out, const int complex)
{
    const line l = *t->careful;
    for (int64_t j = l.m; j-- > 0;)
        if (z.re == l.xr[j] && (!complex || z.im == l.xi[j])) {
            put_number(out, 0, number_at(t->values, j, complex), complex);
            return;
        }
    scalar by = {1, 0}, sum = {0, 0};
    int64_t e = 0;
    for (int64_t j = 0; j < l.m; j++) {
        scalar d = less(z, (scalar){l.xr[j], l.xi[j]}, complex);
        e += bring_up(&d, complex);
        e += multiply(&by, d, complex);
    }
    for (int64_t j = 0; j < l.m; j++)
        l.re[j] = l.im[j] = 0;
    add_any(l, z, by, e, complex);
    for (int64_t j = 0; j < l.m; j++) {
        const scalar v = number_at(t->values, j, complex);
        sum.re += complex ? l.re[j] * v.re - l.im[j] * v.im : l.re[j] * v.re;
        sum.im += complex ? l.re[j] * v.im + l.im[j] * v.re : 0;
    }
    put_number(out, 0, sum, complex);
}

/* Write the value at point z: product 2^exponent times the sum. If the point is too near a node, or the
 * result is not finite, careful_value computes it. */
static FGC_INLINE void put_value(const terms *t, scalar z, scalar product, scalar sum, int64_t exponent,
                                 double nearest, double *out, const int complex)
{
    const scalar v = product_of(product, sum, complex);
    const int64_t whole = within(exponent + t->exponent), rest = exponent + t->exponent - whole;
    const double limit = complex ? 0x1p499 : 0x1p250; /* beyond it, a node is nearer than NEAREST */
    if (!(nearest < limit) || !(v.re - v.re == 0 && v.im - v.im == 0)) {
        careful_value(t, z, out, complex);
        return;
    }
    /* by two powers of two: a single one may be out of range */
    const double a = power_of_two(whole), b = power_of_two(within(rest));
    put_number(out, 0, (scalar){v.re * b * a, v.im * b * a}, complex);
}

enum { POINTS = 2 }; /* vectors of points that many_points handles at once */

/* Compute the values at POINTS vectors of points: each lane is a point, and nodes follow one another. */
static FGC_INLINE void many_points(const terms *t, const double *zr, const double *zi, double *const out,
                                   int64_t count, const int complex)
{
    totals of[POINTS];
    number z[POINTS];
    for (int v = 0; v < POINTS; v++) {
        of[v] = no_terms();
        z[v] = get(zr + v * LANES, zi + v * LANES, complex);
    }
    for (int64_t j = 0; j < t->m; j += RUN) {
        const int64_t end = j + RUN < t->m ? j + RUN : t->m;
        for (int64_t k = j; k < end; k++) {
            const number x = {spread(t->xr[k]), complex ? spread(t->xi[k]) : (vector){0}};
            const number c = {spread(t->cr[k]), complex ? spread(t->ci[k]) : (vector){0}};
            for (int v = 0; v < POINTS; v++)
                add_term(of + v, z[v], x, c, complex);
        }
        for (int v = 0; v < POINTS; v++)
            normalise(of + v, complex);
    }
    double pr[POINTS * LANES], pi[POINTS * LANES], sr[POINTS * LANES], si[POINTS * LANES];
    double nearest[POINTS * LANES];
    int64_t exponent[POINTS * LANES];
    for (int v = 0; v < POINTS; v++) {
        put(pr + v * LANES, pi + v * LANES, of[v].product, complex);
        put(sr + v * LANES, si + v * LANES, of[v].sum, complex);
        store(nearest + v * LANES, of[v].nearest);
        memcpy(exponent + v * LANES, &of[v].exponent, sizeof of[v].exponent);
    }
    for (int64_t i = 0; i < count; i++)
        put_value(t, (scalar){zr[i], zi[i]}, (scalar){pr[i], complex ? pi[i] : 0},
                  (scalar){sr[i], complex ? si[i] : 0}, exponent[i], nearest[i], out + (complex ? 2 * i : i),
                  complex);
}

/* Compute the value at one point: each lane is a node. */
static FGC_INLINE void one_point(const terms *t, scalar at, double *out, const int complex)
{
    const number z = {spread(at.re), complex ? spread(at.im) : (vector){0}};
    totals of = no_terms();
    int64_t j = 0;
    for (int run = 0; j + LANES <= t->m; j += LANES) {
        add_term(&of, z, get(t->xr + j, t->xi + j, complex), get(t->cr + j, t->ci + j, complex), complex);
        if (++run == RUN) {
            normalise(&of, complex);
            run = 0;
        }
    }
    normalise(&of, complex);
    const vector re = of.product.re, im = of.product.im;
    scalar product = {1, 0}, sum = {0, 0};
    double nearest = 0;
    int64_t exponent = 0;
    for (int lane = 0; lane < LANES; lane++) { /* the product stays below 2^(2 LANES) */
        product = product_of(product, (scalar){re[lane], complex ? im[lane] : 0}, complex);
        sum.re += of.sum.re[lane];
        sum.im += complex ? of.sum.im[lane] : 0;
        nearest = greater(of.nearest[lane], nearest);
        exponent += of.exponent[lane];
    }
    for (; j < t->m; j++) {
        const scalar d = less(at, (scalar){t->xr[j], t->xi[j]}, complex);
        const double inverted = 1 / (complex ? d.re * d.re + d.im * d.im : d.re);
        const double br = complex ? d.re * inverted : inverted, bi = complex ? -d.im * inverted : 0;
        sum.re += complex ? t->cr[j] * br - t->ci[j] * bi : t->cr[j] * br;
        sum.im += complex ? t->cr[j] * bi + t->ci[j] * br : 0;
        nearest = greater(fabs(inverted), nearest);
        exponent += multiply(&product, d, complex);
    }
    put_value(t, at, product, sum, exponent, nearest, out, complex);
}

/* Prepare the terms of the first barycentric formula, and compute the values at all points. */
static FGC_INLINE void evaluate(terms *t, line *l, const double *nodes, const double *weights,
                                const int64_t *exponent, const double *points, int64_t p, double scale,
                                double *out, const int complex)
{
    const int64_t m = t->m;
    int64_t most;
    const int plain = are_alike(exponent, m, &most);
    double size = 0;
    for (int64_t j = 0; j < (complex ? 2 * m : m); j++)
        size = greater(fabs(t->values[j]), size);
    const int64_t shift = size > 0 ? exponent_of(size) : 0, down = within(-shift);
    const double half = power_of_two(down), other = power_of_two(within(-shift - down));
    t->exponent = most + shift;
    l->exponent = exponent;
    for (int64_t j = 0; j < m; j++) {
        const double by = plain ? power_of_two(exponent[j] - most) : 1;
        const scalar x = number_at(nodes, j, complex), w = number_at(weights, j, complex);
        scalar v = number_at(t->values, j, complex);
        v = (scalar){v.re * half * other, v.im * half * other};
        const scalar c = product_of(w, v, complex);
        l->xr[j] = x.re;
        l->xi[j] = x.im;
        l->wr[j] = w.re;
        l->wi[j] = w.im;
        t->cr[j] = c.re * by;
        t->ci[j] = c.im * by;
    }
    for (int64_t i = 0; i < p;) {
        double zr[POINTS * LANES], zi[POINTS * LANES];
        const int64_t count = p - i < POINTS * LANES ? p - i : POINTS * LANES;
        for (int64_t k = 0; k < POINTS * LANES; k++) {
            const scalar z = number_at(points, k < count ? i + k : i, complex);
            zr[k] = scale * z.re;
            zi[k] = scale * z.im;
        }
        double *const to = out + (complex ? 2 * i : i);
        if (plain && 4 * count > POINTS * LANES)
            many_points(t, zr, zi, to, count, complex);
        else
            for (int64_t k = 0; k < count; k++) {
                const scalar z = {zr[k], zi[k]};
                if (plain)
                    one_point(t, z, to + (complex ? 2 * k : k), complex);
                else
                    careful_value(t, z, to + (complex ? 2 * k : k), complex);
            }
        i += count;
    }
}

fgc_status FGC_AT_LEVEL(fgc_lagrange_evaluate)(const double *nodes, const double *weights,
                                               const int64_t *weight_exponent, int64_t m,
                                               const double *values, const double *points, int64_t p,
                                               double scale, int complex, double *out)
{
    double farthest = 0, finite = 0;
    for (int64_t i = 0; i < (complex ? 2 * p : p); i++) {
        const double part = scale * points[i];
        finite += part - part;
        farthest = greater(fabs(part), farthest);
    }
    for (int64_t j = 0; j < (complex ? 2 * m : m); j++)
        finite += values[j] - values[j];
    if (!(finite == 0))
        return FGC_NOT_FINITE;
    if (farthest > FARTHEST)
        return FGC_OUT_OF_RANGE;
    const int64_t padded = padded_size(m);
    double *const work = malloc((size_t)(8 * padded) * sizeof(double));
    if (!work)
        return FGC_NO_MEMORY;
    line l = new_line(m, work);
    terms t = {.xr = l.xr, .xi = l.xi, .cr = l.im + padded, .m = m, .values = values, .careful = &l};
    t.ci = t.cr + padded;
    BY_TYPE(evaluate, &t, &l, nodes, weights, weight_exponent, points, p, scale, out);
    free(work);
    return FGC_OK;
}

/* Replace products of differences by their inverses, the weights. Returns 0 if two nodes coincide. */
static int invert(const int64_t *hit, int64_t m, int complex, double *weights, int64_t *exponent)
{
    for (int64_t i = 0; i < m; i++)
        if (hit[i] != i)
            return 0;
    for (int64_t i = 0; i < m; i++) {
        const scalar w = number_at(weights, i, complex);
        const double inverse = 1 / (complex ? w.re * w.re + w.im * w.im : w.re);
        put_number(weights, i, (scalar){complex ? w.re * inverse : inverse, -w.im * inverse}, complex);
        exponent[i] = -exponent[i];
    }
    return 1;
}

/* Scale all weights by one power of two, so that the largest modulus lies in [1, 2), up to a rounding. */
static void put_together(int64_t m, int complex, double *weights, const int64_t *exponent)
{
    int64_t most = INT64_MIN;
    for (int64_t i = 0; i < m; i++) {
        const double size = complex ? hypot(weights[2 * i], weights[2 * i + 1]) : weights[i];
        const int64_t e = exponent[i] + exponent_of(size);
        most = e > most ? e : most;
    }
    for (int64_t i = 0; i < m; i++) {
        const int64_t e = exponent[i] - most > -4000 ? exponent[i] - most : -4000;
        for (int64_t k = complex ? 2 * i : i; k < (complex ? 2 * i + 2 : i + 1); k++)
            weights[k] = ldexp(weights[k], (int)e);
    }
}

fgc_status FGC_AT_LEVEL(fgc_lagrange_weights)(const double *nodes, int64_t m, int complex, double *scaled,
                                              double *weights, int64_t *exponent, int64_t *shift)
{
    const int64_t parts = complex ? 2 * m : m;
    double size = 0, finite = 0;
    for (int64_t i = 0; i < parts; i++) {
        finite += nodes[i] - nodes[i];
        size = greater(fabs(nodes[i]), size);
    }
    if (!(finite == 0))
        return FGC_NOT_FINITE;
    int64_t *const memory = malloc((size_t)(exponent ? m : 2 * m) * sizeof *memory);
    if (!memory)
        return FGC_NO_MEMORY;
    int64_t *const hit = memory, *const by = exponent ? exponent : hit + m;
    int e = 0;
    (void)frexp(size, &e);
    *shift = -e > 1023 ? 1023 : -e;
    const int64_t whole = within(*shift);
    const double a = power_of_two(whole), b = power_of_two(*shift - whole);
    for (int64_t i = 0; i < parts; i++)
        scaled[i] = nodes[i] * a * b;
    FGC_AT_LEVEL(fgc_lagrange_products)(scaled, m, scaled, m, complex, weights, by, hit);
    const int distinct = invert(hit, m, complex, weights, by);
    if (distinct && !exponent)
        put_together(m, complex, weights, by);
    free(memory);
    return distinct ? FGC_OK : FGC_DUPLICATE;
}

fgc_status FGC_AT_LEVEL(fgc_lagrange_functional)(const double *nodes, int64_t n, const double *points,
                                                 int64_t p, int complex, const int64_t *chosen, double *out,
                                                 int64_t f)
{
    const int64_t parts = complex ? 2 : 1;
    double *const memory = calloc((size_t)f, (size_t)(2 * parts + 2) * sizeof *memory);
    if (!memory)
        return FGC_NO_MEMORY;
    double *const x = memory, *const weights = x + parts * f;
    int64_t *const exponent = (int64_t *)(weights + parts * f), *const hit = exponent + f;
    fgc_status status = FGC_OK;
    for (int64_t i = 0; i < f && !status; i++) {
        if ((uint64_t)chosen[i] >= (uint64_t)n)
            status = FGC_OUT_OF_RANGE;
        else
            memcpy(x + parts * i, nodes + parts * chosen[i], (size_t)parts * sizeof *x);
    }
    if (!status)
        FGC_AT_LEVEL(fgc_lagrange_products)(x, f, x, f, complex, weights, exponent, hit);
    if (!status && !invert(hit, f, complex, weights, exponent))
        status = FGC_DUPLICATE;
    if (!status)
        status = FGC_AT_LEVEL(fgc_lagrange_basis)(x, weights, exponent, f, points, p, complex, 1, out);
    double finite = 0;
    for (int64_t i = 0; i < parts * f && !status; i++)
        finite += out[i] - out[i];
    if (!(finite == 0))
        status = FGC_OVERFLOW;
    free(memory);
    return status;
}
