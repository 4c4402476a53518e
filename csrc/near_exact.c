/* Polynomials that nearly vanish at given roots of unity: one ridge regression, by a QR factorisation.
 * fastgc/kernels/numpy/near_exact.py defines the polynomial, and computes it in few lines.
 *
 * The stragglers' equations T x = b, s rows, stand on top of mu I: the solution x minimises
 * |T x - b|^2 + mu^2 |x|^2. Householder's reflections (Golub and Van Loan, chapter 5) make both together
 * triangular. Rejected: the normal equations, of T^T T + mu^2 I, take less work, but mu is of the order
 * of rounding, and they lose its square.
 *
 * Invariant: before reflector j, the rows below j + s are still those of mu I, with zeros in columns
 * 0 .. j, and the rows above j are done. So reflector j changes rows j .. j + s only, of which the last has
 * nothing but mu in column j: O(s c^2) products in all, not O((s + c) c^2).
 *
 * Columns lie in strips of STRIP, each a row-major array, so that a strip's rows stay in a cache while a
 * block of STRIP reflectors works on it. A block's reflectors are applied to each other strip together, as
 * w = v^T a and a -= v w (`inner` and `outer`, products of matrices). In between, w is corrected for the
 * products of reflectors with each other (`overlap`). */
#include <math.h>
#include <stdlib.h>

#include "vector.h"

/* TALL x WIDE accumulators fill the vector registers. */
enum { WIDE = 3, STRIP = WIDE * LANES, TALL = LANES >= 8 ? 8 : LANES == 4 ? 4 : 3 };

enum { CHUNK = 64 }; /* rows of two strips that stay in the nearest cache */

typedef struct {
    double *strips; /* strip p: rows of STRIP numbers from strips + p height STRIP on */
    int64_t s, c, height;
} equations;

static FGC_INLINE double *strip_of(const equations *a, int64_t p)
{
    return a->strips + p * a->height * STRIP;
}

/* Vectors of strip p that are in use: there are c columns of unknowns and two right-hand sides. */
static FGC_INLINE int vectors_of(const equations *a, int64_t p)
{
    const int64_t left = a->c + 2 - p * STRIP;
    return left >= STRIP ? WIDE : (int)((left + LANES - 1) / LANES);
}

/* w[j] += sum over rows i of v[i][j] a[i], j = 0 .. TALL-1. Called with at most CHUNK rows: shorter sums
 * have smaller rounding errors. */
static FGC_INLINE void inner_tile(const double *v, const double *a, int64_t rows, double *w,
                                  const int wide)
{
    vector sum[TALL][WIDE];
    for (int j = 0; j < TALL; j++)
        for (int k = 0; k < wide; k++)
            sum[j][k] = (vector){0};
    for (int64_t i = 0; i < rows; i++) {
        vector row[WIDE];
        for (int k = 0; k < wide; k++)
            row[k] = load(a + i * STRIP + k * LANES);
        FGC_UNROLL
        for (int j = 0; j < TALL; j++) {
            const vector factor = spread(v[i * STRIP + j]);
            for (int k = 0; k < wide; k++)
                sum[j][k] += factor * row[k];
        }
    }
    for (int j = 0; j < TALL; j++)
        for (int k = 0; k < wide; k++)
            store(w + j * STRIP + k * LANES, load(w + j * STRIP + k * LANES) + sum[j][k]);
}

/* w = v^T a, for all columns of v. */
static FGC_INLINE void inner(const double *v, const double *a, int64_t rows, double *w,
                             const int wide)
{
    memset(w, 0, STRIP * STRIP * sizeof *w);
    for (int64_t i = 0; i < rows; i += CHUNK)
        for (int j = 0; j < STRIP; j += TALL)
            inner_tile(v + i * STRIP + j, a + i * STRIP, rows - i < CHUNK ? rows - i : CHUNK,
                       w + j * STRIP, wide);
}

/* a -= v w, for the first `count` columns of v; `rows` is a multiple of TALL. */
static FGC_INLINE void outer(const double *v, double *a, int64_t rows, const double *w, int count,
                             const int wide)
{
    for (int64_t i = 0; i < rows; i += TALL) {
        vector rest[TALL][WIDE];
        for (int t = 0; t < TALL; t++)
            for (int k = 0; k < wide; k++)
                rest[t][k] = load(a + (i + t) * STRIP + k * LANES);
        for (int j = 0; j < count; j++) {
            vector row[WIDE];
            for (int k = 0; k < wide; k++)
                row[k] = load(w + j * STRIP + k * LANES);
            FGC_UNROLL
            for (int t = 0; t < TALL; t++) {
                const vector factor = spread(v[(i + t) * STRIP + j]);
                for (int k = 0; k < wide; k++)
                    rest[t][k] -= factor * row[k];
            }
        }
        for (int t = 0; t < TALL; t++)
            for (int k = 0; k < wide; k++)
                store(a + (i + t) * STRIP + k * LANES, rest[t][k]);
    }
}

/* Apply all reflectors of a block to another strip; overlap[i][j] = v_i . v_j. */
static FGC_INLINE void reflect(const double *v, double *a, int64_t rows, const double *overlap,
                               const double *tau, int count, const int wide)
{
    double w[STRIP * STRIP];
    inner(v, a, rows, w, wide);
    for (int j = 0; j < count; j++)
        for (int k = 0; k < wide; k++) {
            vector sum = load(w + j * STRIP + k * LANES);
            for (int i = 0; i < j; i++)
                sum -= spread(overlap[i * STRIP + j]) * load(w + i * STRIP + k * LANES);
            store(w + j * STRIP + k * LANES, spread(tau[j]) * sum);
        }
    outer(v, a, rows, w, count, wide);
}

/* Apply reflector j - 1, if there is one, to rows j .. j + s - 1 of its strip, and prepare reflector j in
 * the same pass: w = the sum of these rows, each times its element j. */
static FGC_INLINE void pass(double *a, int64_t s, int j, const double *factor, double *w,
                            const int first, const int wide)
{
    enum { CHAINS = 4 };
    const int was = j ? j - 1 : 0;
    vector sum[CHAINS][WIDE], f[WIDE];
    for (int k = first; k < wide; k++)
        f[k] = load(factor + k * LANES);
#define ROW(t)                                                                                     \
    do {                                                                                           \
        double *const row = a + (i + t) * STRIP;                                                   \
        const vector v = spread(row[was]), x = spread(row[j] - row[was] * factor[j]);              \
        for (int k = first; k < wide; k++) {                                                       \
            const vector rest = load(row + k * LANES) - v * f[k];                                  \
            store(row + k * LANES, rest);                                                          \
            sum[t][k] += x * rest;                                                                 \
        }                                                                                          \
    } while (0)
    memset(w, 0, STRIP * sizeof *w);
    for (int64_t i = j, end; i < j + s; i = end) {
        end = i + CHAINS * CHUNK < j + s ? i + CHAINS * CHUNK : j + s;
        for (int k = first; k < wide; k++)
            for (int t = 0; t < CHAINS; t++)
                sum[t][k] = (vector){0};
        for (; i + CHAINS <= end; i += CHAINS) {
            ROW(0);
            ROW(1);
            ROW(2);
            ROW(3);
        }
        for (; i < end; i++)
            ROW(0);
        for (int k = first; k < wide; k++)
            store(w + k * LANES,
                  load(w + k * LANES) + (sum[0][k] + sum[1][k] + (sum[2][k] + sum[3][k])));
    }
#undef ROW
}

/* Find the reflectors 1 - tau v v^T of a strip's first `count` columns. Each v replaces its column; the
 * rows of the triangle, which belong in the same place, go to `triangle`. */
static FGC_INLINE void factorise(double *a, int64_t s, double mu, int count, double *tau,
                                 double *triangle, const int wide)
{
    double w[STRIP] = {0}, factor[STRIP] = {0}; /* the first pass subtracts nothing */
    for (int j = 0; j < count; j++) {
        if (j < LANES)
            pass(a, s, j, factor, w, 0, wide);
        else if (j < 2 * LANES)
            pass(a, s, j, factor, w, 1, wide);
        else
            pass(a, s, j, factor, w, 2, wide);
        w[j] += mu * mu; /* from row j + s, which is otherwise zero */
        double *const row = a + j * STRIP, *const kept = triangle + j * STRIP;
        const double norm = sqrt(w[j]), diagonal = row[j] > 0 ? -norm : norm;
        const double v = row[j] - diagonal;
        tau[j] = 1 / (norm * fabs(v));
        for (int k = 0; k < wide * LANES; k++) {
            factor[k] = k > j ? tau[j] * (w[k] - diagonal * row[k]) : 0;
            kept[k] = k > j ? row[k] - v * factor[k] : k == j ? diagonal : 0;
            row[k] = k > j ? 0 : k == j ? v : row[k];
        }
    }
}

static FGC_NOINLINE void factorise_strip(double *a, int64_t s, double mu, int count, double *tau,
                                         double *triangle, int wide)
{
    if (wide == 1) /* constants for the inlined function */
        factorise(a, s, mu, count, tau, triangle, 1);
    else if (wide == 2)
        factorise(a, s, mu, count, tau, triangle, 2);
    else
        factorise(a, s, mu, count, tau, triangle, 3);
}

static FGC_NOINLINE void reflect_strip(const double *v, double *a, int64_t rows,
                                       const double *overlap, const double *tau, int count,
                                       int wide)
{
    if (wide == 1)
        reflect(v, a, rows, overlap, tau, count, 1);
    else if (wide == 2)
        reflect(v, a, rows, overlap, tau, count, 2);
    else
        reflect(v, a, rows, overlap, tau, count, 3);
}

static int64_t rounded(int64_t size, int64_t to) { return (size + to - 1) / to * to; }

/* Fill in the equations. The columns are pairs of a cosine and a sine, and last 1/sqrt(2) if c is odd: an
 * orthogonal basis without its common factor sqrt(2). The right-hand sides are the real and the imaginary
 * part of -z^(-(c+1)/2). */
static void fill(const equations *a, const double *circle, int64_t n, const int64_t *turns, double mu)
{
    const int64_t s = a->s, c = a->c, strips = rounded(c + 2, STRIP) / STRIP;
    for (int64_t p = 0; p < strips; p++) {
        double *const strip = strip_of(a, p);
        const int64_t below = (p + 1) * STRIP < c ? (p + 1) * STRIP : c;
        memset(strip, 0, (size_t)s * STRIP * (p == strips - 1) * sizeof *strip);
        memset(strip + s * STRIP, 0, (size_t)(below + TALL) * STRIP * sizeof *strip);
        for (int64_t j = p * STRIP; j < below; j++)
            strip[(s + j) * STRIP + j - p * STRIP] = mu;
    }
    for (int64_t i = 0; i < s; i++) {
        const int64_t turn = turns[i], back = 2 * turn;
        int64_t u = turn * (c - 1) % (2 * n);
        double *to = strip_of(a, 0) + i * STRIP;
        for (int64_t j = 0, at = 0; j < c; j++) {
            to[at] = j == c - 1 && c % 2 ? 0x1.6a09e667f3bcdp-1 : circle[2 * u + j % 2];
            u -= j % 2 ? back : 0;
            u += u < 0 ? 2 * n : 0;
            if (++at == STRIP) {
                at = 0;
                to += a->height * STRIP;
            }
        }
        u = (2 * n - turn * (c + 1) % (2 * n)) % (2 * n);
        for (int64_t part = 0; part < 2; part++)
            strip_of(a, (c + part) / STRIP)[i * STRIP + (c + part) % STRIP] = -circle[2 * u + part];
    }
}

/* Solve for x, (real, imaginary) pairs, with the triangle in rows 0 .. c-1. */
static void substitute(const equations *a, double *x)
{
    const int64_t c = a->c;
    for (int64_t i = 0; i < c; i++)
        for (int64_t part = 0; part < 2; part++)
            x[2 * i + part] = strip_of(a, (c + part) / STRIP)[i * STRIP + (c + part) % STRIP];
    for (int64_t p = (c - 1) / STRIP; p >= 0; p--) {
        const double *const strip = strip_of(a, p);
        const int64_t first = p * STRIP, count = c - first < STRIP ? c - first : STRIP;
        for (int64_t j = count - 1; j >= 0; j--) {
            const double *const row = strip + (first + j) * STRIP;
            double re = x[2 * (first + j)], im = x[2 * (first + j) + 1];
            for (int64_t k = j + 1; k < count; k++) {
                re -= row[k] * x[2 * (first + k)];
                im -= row[k] * x[2 * (first + k) + 1];
            }
            x[2 * (first + j)] = re / row[j];
            x[2 * (first + j) + 1] = im / row[j];
        }
        double known[2 * STRIP] = {0};
        for (int64_t k = 0; k < count; k++) {
            known[k] = x[2 * (first + k)];
            known[STRIP + k] = x[2 * (first + k) + 1];
        }
        for (int64_t i = 0; i < first; i++) {
            vector re = {0}, im = {0};
            FGC_UNROLL
            for (int k = 0; k < WIDE; k++) {
                const vector row = load(strip + i * STRIP + k * LANES);
                re += row * load(known + k * LANES);
                im += row * load(known + STRIP + k * LANES);
            }
            double each[2 * LANES];
            store(each, re);
            store(each + LANES, im);
            for (int t = 0; t < LANES; t++) {
                x[2 * i] -= each[t];
                x[2 * i + 1] -= each[LANES + t];
            }
        }
    }
}

fgc_status FGC_AT_LEVEL(fgc_ridge)(const double *circle, int64_t circle_len, const int64_t *turns,
                                   int64_t s, int64_t c, double unit, double *out)
{
    const int64_t n = circle_len / 2;
    const int64_t strips = rounded(c + 2, STRIP) / STRIP, height = s + c + TALL;
    double *const memory = malloc(((size_t)(strips * height * STRIP + 2 * c) + 8) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    const equations a = {aligned(memory), s, c, height};
    double *const x = a.strips + strips * height * STRIP;
    const double mu = unit * sqrt(2 * (double)n); /* 2 unit sqrt(n), without the basis' sqrt(2) */
    fill(&a, circle, n, turns, mu);
    for (int64_t p = 0; p * STRIP < c; p++) {
        const int64_t first = p * STRIP;
        const int count = c - first < STRIP ? (int)(c - first) : STRIP;
        double tau[STRIP], triangle[STRIP * STRIP] = {0}, overlap[STRIP * STRIP];
        double *const v = strip_of(&a, p) + first * STRIP;
        factorise_strip(v, s, mu, count, tau, triangle, vectors_of(&a, p));
        const int64_t rows = rounded(s + count, TALL);
        if (p + 1 < strips)
            inner(v, v, rows, overlap, WIDE);
        for (int64_t q = p + 1; q < strips; q++)
            reflect_strip(v, strip_of(&a, q) + first * STRIP, rows, overlap, tau, count,
                          vectors_of(&a, q));
        memcpy(v, triangle, (size_t)count * STRIP * sizeof *v);
    }
    substitute(&a, x);
    const double scale = 0.5 / (double)n;
    for (int64_t h = 0; h < c / 2; h++) {
        const double *const cosine = x + 4 * h, *const sine = cosine + 2;
        out[2 * h] = scale * (cosine[0] - sine[1]);
        out[2 * h + 1] = scale * (cosine[1] + sine[0]);
        out[2 * (c - 1 - h)] = scale * (cosine[0] + sine[1]);
        out[2 * (c - 1 - h) + 1] = scale * (cosine[1] - sine[0]);
    }
    for (int part = 0; part < 2 && c % 2; part++)
        out[c - 1 + part] = 0x1.6a09e667f3bcdp-1 / (double)n * x[2 * (c - 1) + part];
    free(memory);
    return FGC_OK;
}
