/* Products of differences and Lagrange bases: the arithmetic of barycentric interpolation.
 *
 * A product over thousands of nodes leaves the range of a double, so it is kept as mantissa and
 * exponent. Loops are plain, and inner ones run over a block of points or over all nodes: compilers
 * vectorise them. */
#include <math.h>
#include <stdlib.h>

#include "vector.h"

enum { BLOCK = 64 };

/* Factors multiplied between two normalisations. Smaller differences count as none, so that such a
 * run stays within a double. */
enum { RUN = 4 };
#define NEAREST 0x1p-250

static FGC_INLINE double power_of_two(int64_t e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The exponent of a normal number. */
static FGC_INLINE int64_t exponent_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int64_t)(bits >> 52 & 0x7ff) - 1023;
}

static FGC_INLINE double largest(double a, double b) { return a > b ? a : b; }

typedef struct {
    double re[BLOCK], im[BLOCK];
    int64_t exponent[BLOCK], hit[BLOCK];
} products;

/* Multiplies by the differences to `count` nodes, and normalises. */
static FGC_INLINE void run(const double *nodes, int64_t first, const int count, const double *zr,
                           const double *zi, products *out, const int complex)
{
    for (int t = 0; t < BLOCK; t++) {
        double re = out->re[t], im = out->im[t];
        int64_t hit = out->hit[t];
        for (int u = 0; u < count; u++) {
            const int64_t j = first + u;
            double dr = zr[t] - nodes[complex ? 2 * j : j];
            double di = complex ? zi[t] - nodes[2 * j + 1] : 0;
            const int is_node = largest(fabs(dr), fabs(di)) < NEAREST;
            hit = is_node ? j : hit;
            dr = is_node ? 1 : dr;
            di = is_node ? 0 : di;
            const double before = re;
            re = complex ? re * dr - im * di : re * dr;
            im = complex ? before * di + im * dr : 0;
        }
        const int64_t e = exponent_of(complex ? largest(fabs(re), fabs(im)) : re);
        const double scale = power_of_two(-e);
        out->re[t] = re * scale;
        out->im[t] = im * scale;
        out->exponent[t] += e;
        out->hit[t] = hit;
    }
}

/* Of one block of points, all of it. */
static FGC_INLINE void block_products(const double *nodes, int64_t m, const double *zr,
                                      const double *zi, products *out, const int complex)
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
}

/* The block of points from `done` on, in planar layout, the rest of it filled with the last. */
static FGC_INLINE void load_block(const double *points, int64_t p, int64_t done, double *zr,
                                  double *zi, const int complex)
{
    for (int64_t t = 0; t < BLOCK; t++) {
        const int64_t i = done + t < p ? done + t : p - 1;
        zr[t] = points[complex ? 2 * i : i];
        zi[t] = complex ? points[2 * i + 1] : 0;
    }
}

static FGC_INLINE void all_products(const double *nodes, int64_t m, const double *points, int64_t p,
                                    double *mantissa, int64_t *exponent, int64_t *hit,
                                    const int complex)
{
    double zr[BLOCK], zi[BLOCK];
    products of;
    for (int64_t done = 0; done < p; done += BLOCK) {
        load_block(points, p, done, zr, zi, complex);
        block_products(nodes, m, zr, zi, &of, complex);
        for (int64_t t = 0; t < BLOCK && done + t < p; t++) {
            const int64_t i = done + t;
            mantissa[complex ? 2 * i : i] = of.re[t];
            if (complex)
                mantissa[2 * i + 1] = of.im[t];
            exponent[i] = of.exponent[t];
            hit[i] = of.hit[t];
        }
    }
}

void FGC_AT_LEVEL(fgc_lagrange_products)(const double *nodes, int64_t m, const double *points,
                                         int64_t p, int complex, double *mantissa,
                                         int64_t *exponent, int64_t *hit)
{
    if (complex)
        all_products(nodes, m, points, p, mantissa, exponent, hit, 1);
    else
        all_products(nodes, m, points, p, mantissa, exponent, hit, 0);
}

/* A power of two's exponent, as near e as a double has it. */
static FGC_INLINE int64_t within(int64_t e) { return e < -1022 ? -1022 : e > 1023 ? 1023 : e; }

/* Nodes and weights in planar layout, and a row to add up in, all of full vectors. */
typedef struct {
    double *xr, *xi, *wr, *wi, *re, *im;
    const int64_t *exponent; /* of the weights, or NULL: all have `common` */
    int64_t common, m, padded;
} line;

/* Adds l_j(z) = p 2^e w_j / (z - x_j) to the row, whatever the exponents; z is no node. */
static FGC_INLINE void add_any(line l, double zr, double zi, double pr, double pi, int64_t e,
                               const int complex)
{
    for (int64_t j = 0; j < l.m; j++) {
        /* in two steps: one factor alone may be out of range */
        const int64_t whole = e + (l.exponent ? l.exponent[j] : l.common), half = whole >> 1;
        const double a = power_of_two(within(half)), b = power_of_two(within(whole - half));
        const double dr = zr - l.xr[j];
        if (!complex) {
            l.re[j] += pr * l.wr[j] / dr * a * b;
            continue;
        }
        const double di = zi - l.xi[j], inverse = 1 / (dr * dr + di * di);
        const double qr = (pr * dr + pi * di) * inverse, qi = (pi * dr - pr * di) * inverse;
        l.re[j] += (qr * l.wr[j] - qi * l.wi[j]) * a * b;
        l.im[j] += (qr * l.wi[j] + qi * l.wr[j]) * a * b;
    }
}

/* The same where p includes all powers of two; or writes the row. */
static FGC_INLINE void add_scaled(line l, double zr, double zi, double pr, double pi,
                                  const int add, const int complex)
{
    const number p = {spread(pr), spread(pi)}, z = {spread(zr), spread(zi)};
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

static FGC_INLINE void rows(const double *nodes, const double *weights, const int64_t *exponent,
                            int64_t m, const double *points, int64_t p, double *out, int sum,
                            line l, const int complex)
{
    int64_t least = exponent[0], most = exponent[0];
    for (int64_t j = 1; j < m; j++) {
        least = exponent[j] < least ? exponent[j] : least;
        most = exponent[j] > most ? exponent[j] : most;
    }
    /* Nearly always: the weights fit one scale, without loss. */
    const int alike = most - least < 400;
    l.exponent = alike ? NULL : exponent;
    l.common = most;
    for (int64_t j = 0; j < l.padded; j++) {
        const double scale = alike && j < m ? power_of_two(exponent[j] - most) : 1;
        l.xr[j] = j < m ? nodes[complex ? 2 * j : j] : 4; /* no point */
        l.wr[j] = j < m ? weights[complex ? 2 * j : j] * scale : 0;
        l.xi[j] = complex && j < m ? nodes[2 * j + 1] : 0;
        l.wi[j] = complex && j < m ? weights[2 * j + 1] * scale : 0;
        l.re[j] = l.im[j] = 0;
    }
    double zr[BLOCK], zi[BLOCK];
    products of;
    for (int64_t i = 0; i < p; i++) {
        const int64_t t = i % BLOCK;
        if (t == 0) {
            load_block(points, p, i, zr, zi, complex);
            block_products(nodes, m, zr, zi, &of, complex);
        }
        const int64_t e = of.exponent[t] + most;
        const int in_range = of.hit[t] < 0 && alike && e > -400 && e < 400;
        const double scale = in_range ? power_of_two(e) : 0;
        if (!sum && !in_range)
            memset(l.re, 0, (size_t)(2 * l.padded) * sizeof(double)); /* and im, which follows */
        if (of.hit[t] >= 0)
            l.re[of.hit[t]] += 1;
        else if (!in_range)
            add_any(l, zr[t], zi[t], of.re[t], of.im[t], of.exponent[t], complex);
        else if (sum)
            add_scaled(l, zr[t], zi[t], of.re[t] * scale, of.im[t] * scale, 1, complex);
        else
            add_scaled(l, zr[t], zi[t], of.re[t] * scale, of.im[t] * scale, 0, complex);
        if (sum && i + 1 < p)
            continue;
        double *const to = out + (sum ? 0 : i * m) * (complex ? 2 : 1);
        for (int64_t j = 0; j < m; j++) {
            to[complex ? 2 * j : j] = l.re[j];
            if (complex)
                to[2 * j + 1] = l.im[j];
        }
    }
}

fgc_status FGC_AT_LEVEL(fgc_lagrange_basis)(const double *nodes, const double *weights,
                                            const int64_t *weight_exponent, int64_t m,
                                            const double *points, int64_t p, int complex, int sum,
                                            double *out)
{
    line l = {.m = m, .padded = (m + LANES - 1) / LANES * LANES};
    double *const work = malloc((size_t)(6 * l.padded) * sizeof(double));
    if (!work)
        return FGC_NO_MEMORY;
    l.xr = work;
    l.xi = l.xr + l.padded;
    l.wr = l.xi + l.padded;
    l.wi = l.wr + l.padded;
    l.re = l.wi + l.padded;
    l.im = l.re + l.padded;
    if (complex)
        rows(nodes, weights, weight_exponent, m, points, p, out, sum, l, 1);
    else
        rows(nodes, weights, weight_exponent, m, points, p, out, sum, l, 0);
    free(work);
    return FGC_OK;
}
