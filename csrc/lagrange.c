/* Products of differences and Lagrange bases: the arithmetic of barycentric interpolation.
 *
 * A product over thousands of nodes leaves the range of a double, so it is kept as mantissa and
 * exponent. Loops are plain, and inner ones run over a block of points or over all nodes: compilers
 * vectorise them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "levels.h"

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

static FGC_INLINE double larger(double a, double b) { return a > b ? a : b; }

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
            const int is_node = larger(fabs(dr), fabs(di)) < NEAREST;
            hit = is_node ? j : hit;
            dr = is_node ? 1 : dr;
            di = is_node ? 0 : di;
            const double before = re;
            re = complex ? re * dr - im * di : re * dr;
            im = complex ? before * di + im * dr : 0;
        }
        const int64_t e = exponent_of(complex ? larger(fabs(re), fabs(im)) : re);
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

/* x 2^e, in two steps since one factor alone may be out of range. */
static FGC_INLINE int64_t within(int64_t e) { return e < -1022 ? -1022 : e > 1023 ? 1023 : e; }

/* Adds l_j(z) to row[j] (re, then im a line further), z being no node. */
static FGC_INLINE void add_row(const double *restrict xr, const double *restrict xi,
                               const double *restrict wr, const double *restrict wi,
                               const int64_t *restrict we, int64_t m, double zr, double zi,
                               double pr, double pi, int64_t pe, double *restrict row_re,
                               double *restrict row_im, const int complex)
{
    for (int64_t j = 0; j < m; j++) {
        const int64_t e = pe + we[j], half = e >> 1;
        const double a = power_of_two(within(half)), b = power_of_two(within(e - half));
        const double dr = zr - xr[j];
        if (!complex) {
            row_re[j] += pr * wr[j] / dr * a * b;
            continue;
        }
        const double di = zi - xi[j], inverse = 1 / (dr * dr + di * di);
        const double qr = (pr * dr + pi * di) * inverse, qi = (pi * dr - pr * di) * inverse;
        row_re[j] += (qr * wr[j] - qi * wi[j]) * a * b;
        row_im[j] += (qr * wi[j] + qi * wr[j]) * a * b;
    }
}

static FGC_INLINE void rows(const double *nodes, const double *weights, const int64_t *we,
                            int64_t m, const double *points, int64_t p, double *out, int sum,
                            double *work, const int complex)
{
    double *const xr = work, *const xi = xr + m, *const wr = xi + m, *const wi = wr + m;
    double *const row_re = wi + m, *const row_im = row_re + m;
    double zr[BLOCK], zi[BLOCK];
    products of;
    memset(row_re, 0, (size_t)(2 * m) * sizeof(double));
    for (int64_t j = 0; j < m; j++) {
        xr[j] = nodes[complex ? 2 * j : j];
        wr[j] = weights[complex ? 2 * j : j];
        xi[j] = complex ? nodes[2 * j + 1] : 0;
        wi[j] = complex ? weights[2 * j + 1] : 0;
    }
    for (int64_t i = 0; i < p; i++) {
        const int64_t t = i % BLOCK;
        if (t == 0) {
            load_block(points, p, i, zr, zi, complex);
            block_products(nodes, m, zr, zi, &of, complex);
        }
        if (of.hit[t] >= 0)
            row_re[of.hit[t]] += 1;
        else
            add_row(xr, xi, wr, wi, we, m, zr[t], zi[t], of.re[t], of.im[t], of.exponent[t],
                    row_re, row_im, complex);
        if (sum && i + 1 < p)
            continue;
        double *const to = out + (sum ? 0 : i * m) * (complex ? 2 : 1);
        for (int64_t j = 0; j < m; j++) {
            to[complex ? 2 * j : j] = row_re[j];
            if (complex)
                to[2 * j + 1] = row_im[j];
        }
        memset(row_re, 0, (size_t)(2 * m) * sizeof(double));
    }
}

fgc_status FGC_AT_LEVEL(fgc_lagrange_basis)(const double *nodes, const double *weights,
                                            const int64_t *weight_exponent, int64_t m,
                                            const double *points, int64_t p, int complex, int sum,
                                            double *out)
{
    double *const work = malloc((size_t)(6 * m) * sizeof(double));
    if (!work)
        return FGC_NO_MEMORY;
    if (complex)
        rows(nodes, weights, weight_exponent, m, points, p, out, sum, work, 1);
    else
        rows(nodes, weights, weight_exponent, m, points, p, out, sum, work, 0);
    free(work);
    return FGC_OK;
}
