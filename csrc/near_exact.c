/* Polynomials that nearly vanish at given roots of unity: a ridge regression, by a QR factorisation, or for
 * many roots by elimination.
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
            for (int t = 0; t < LANES; t++) {
                x[2 * i] -= re[t];
                x[2 * i + 1] -= im[t];
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

/* ------------------------------------------------------------------------ elimination
 *
 * Equations with a Cauchy-like matrix, solved for as many unknowns as pays.
 *
 * Eliminating row p and column q of C[i][k] = g_i h_k / (x_i - y_k) leaves a matrix of the same form, with
 *
 *     g_i *= (x_i - x_p) / (x_i - y_q),    h_k *= (y_k - y_q) / (y_k - x_p)
 *
 * (Gohberg, Kailath and Olshevsky 1995). So a step takes O(s + c), and entries have the high relative
 * precision of products, however small they are. Each node is the sum of two doubles; differences of nodes
 * use both.
 *
 * Invariant: before step t, rows and columns 0 .. t-1 are those of the pivots, in order, with g and h as of
 * their own step; b is what is left of the right-hand side. Row t of the upper triangle, divided by its
 * pivot, has the columns in their order at step t. Arrays end in LANES padding numbers. */

#define MARGIN 64.0   /* assumed: the solution's size, relative to that of the parts found so far */
#define LARGER 4.0    /* steps end once the rounding is so many times the least error so far */
#define NOTHING 1e-18 /* a pivot so small, relative to the first, is mere rounding */
#define SHORT 1e-2    /* conjugate gradients end at this relative residual, */
enum { LAST = 64 };   /* or after so many steps */

typedef struct {
    double *high, *low, *weight; /* nodes, and g or h */
    int64_t size;
} side;

static FGC_INLINE vector apart(const side *a, int64_t i, double high, double low)
{
    return (load(a->high + i) - high) + (load(a->low + i) - low);
}

static double distance(const side *a, int64_t i, const side *b, int64_t k)
{
    return (a->high[i] - b->high[k]) + (a->low[i] - b->low[k]);
}

static FGC_INLINE void exchange(double *v, int64_t i, int64_t k)
{
    const double kept = v[i];
    v[i] = v[k];
    v[k] = kept;
}

static void exchange_nodes(side *a, int64_t i, int64_t k)
{
    exchange(a->high, i, k);
    exchange(a->low, i, k);
    exchange(a->weight, i, k);
}

static FGC_INLINE double largest_lane(vector top)
{
    double most = 0;
    for (int t = 0; t < LANES; t++)
        most = greater(most, top[t]);
    return most;
}

/* Return the first index of v[begin .. end-1] with magnitude `most` or more, or the last index. */
static int64_t find(const double *v, int64_t begin, int64_t end, double most)
{
    int64_t at = begin;
    while (at + LANES < end && !any_at_least(magnitude(load(v + at)), most))
        at += LANES;
    while (at + 1 < end && !(fabs(v[at]) >= most))
        at++;
    return at;
}

/* Compute one row or column of the matrix from `begin` on: over[i] = 1 / (a_i - node), and the entries.
 * Returns the largest magnitude of an entry. */
static double line(const side *a, int64_t begin, double high, double low, double factor,
                   double *over, double *entry)
{
    vector top = {0};
    for (int64_t i = begin; i < a->size; i += LANES) {
        const vector inverse = reciprocal(apart(a, i, high, low));
        const vector each = factor * load(a->weight + i) * inverse;
        store(over + i, inverse);
        store(entry + i, each);
        top = larger(top, magnitude(each));
    }
    return largest_lane(top);
}

/* Multiply the weights from `begin` on by (a_i - high - low) over[i], after a step. Returns the largest
 * magnitude. */
static double update(side *a, int64_t begin, double high, double low, const double *over)
{
    vector top = {0};
    for (int64_t i = begin; i < a->size; i += LANES) {
        const vector each = load(a->weight + i) * (apart(a, i, high, low) * load(over + i));
        store(a->weight + i, each);
        top = larger(top, magnitude(each));
    }
    return largest_lane(top);
}

/* b_i -= entry_i y for i in begin .. size-1. Returns the sum of squares of these b_i. */
static double reduce(double *re, double *im, const double *entry, double y_re, double y_im,
                     int64_t begin, int64_t size)
{
    vector sum = {0}, other = {0};
    for (int64_t i = begin; i < size; i += LANES) {
        const vector v = load(entry + i);
        const vector a = load(re + i) - v * y_re, b = load(im + i) - v * y_im;
        store(re + i, a);
        store(im + i, b);
        sum += a * a;
        other += b * b;
    }
    return sum_of_lanes(sum + other);
}

/* out = the sum of v_i w_i, with v real and w = re + i im complex. */
static void dot(const double *v, const double *re, const double *im, int64_t size, double *out)
{
    enum { CHAINS = 4 };
    vector sum[CHAINS] = {{0}}, other[CHAINS] = {{0}};
    int64_t i = 0;
    for (; i + CHAINS * LANES <= size; i += CHAINS * LANES)
        for (int k = 0; k < CHAINS; k++) {
            const vector each = load(v + i + k * LANES);
            sum[k] += each * load(re + i + k * LANES);
            other[k] += each * load(im + i + k * LANES);
        }
    for (; i + LANES <= size; i += LANES) {
        sum[0] += load(v + i) * load(re + i);
        other[0] += load(v + i) * load(im + i);
    }
    out[0] = sum_of_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
    out[1] = sum_of_lanes((other[0] + other[1]) + (other[2] + other[3]));
    for (; i < size; i++) {
        out[0] += v[i] * re[i];
        out[1] += v[i] * im[i];
    }
}

static double energy(const double *v, int64_t size)
{
    double total[2];
    dot(v, v, v, size, total);
    return total[0];
}

/* re, im += factor w. */
static void add(double *re, double *im, const double *factor, const double *w, int64_t size)
{
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const vector each = load(w + i);
        store(re + i, load(re + i) + factor[0] * each);
        store(im + i, load(im + i) + factor[1] * each);
    }
    for (; i < size; i++) {
        re[i] += factor[0] * w[i];
        im[i] += factor[1] * w[i];
    }
}

/* Find the shortest solution. For any o, the vector with z - W o on the pivots and o elsewhere is a
 * solution. The shortest has o = W^T v with (1 + W W^T) v = z; conjugate gradients find v. On return z
 * holds z - W o, and `other` holds o. W has `count` columns of `rank` numbers, `stride` apart, which is
 * `rank` rounded up. In z, imaginary parts come `stride` after the real ones. `work` holds 8 stride
 * numbers. */
static void shorten(const double *columns, int64_t count, int64_t rank, int64_t stride, double *z,
                    double *other, double *work)
{
    const int64_t both = 2 * stride;
    double *const v = work, *const residual = v + both, *const direction = residual + both,
                  *const image = direction + both;
    memset(v, 0, (size_t)both * sizeof *v);
    memcpy(residual, z, (size_t)both * sizeof *residual);
    memcpy(direction, z, (size_t)both * sizeof *direction);
    const double first = energy(z, both);
    double size = first, by[2];
    for (int step = 0; step < LAST && size > SHORT * SHORT * first; step++) {
        memcpy(image, direction, (size_t)both * sizeof *image);
        for (int64_t l = 0; l < count; l++) {
            const double *const column = columns + l * stride;
            dot(column, direction, direction + stride, rank, by);
            add(image, image + stride, by, column, rank);
        }
        dot(direction, image, image, both, by);
        const double along = size / by[0], before = size;
        for (int64_t k = 0; k < both; k++) {
            v[k] += along * direction[k];
            residual[k] -= along * image[k];
        }
        size = energy(residual, both);
        const double kept = size / before;
        for (int64_t k = 0; k < both; k++)
            direction[k] = residual[k] + kept * direction[k];
    }
    for (int64_t l = 0; l < count; l++) {
        const double *const column = columns + l * stride;
        dot(column, v, v + stride, rank, other + 2 * l);
        by[0] = -other[2 * l];
        by[1] = -other[2 * l + 1];
        add(z, z + stride, by, column, rank);
    }
}

/* Write W, the inverse of the matrix of the pivots times its other columns: W[k][l] = u_k v_l / (y_l -
 * y_k), where v_l is h_l after the steps, and u_k is the divisor of h_k for a pivot's column. */
static void closed_form(const side *rows, const side *columns, int64_t rank, int64_t stride,
                        double *factor, double *out)
{
    const side pivots = {columns->high, columns->low, NULL, rank};
    for (int64_t k = 0; k < rank; k++)
        factor[k] = distance(columns, k, rows, k) / columns->weight[k];
    enum { AT_ONCE = 4 }; /* factors for a division */
    for (int64_t j = 1, next; j < rank; j = next) {
        next = j + AT_ONCE < rank ? j + AT_ONCE : rank;
        int64_t full = 0;
        for (; full + LANES <= j; full += LANES) {
            vector over = spread(1), under = spread(1);
            for (int64_t i = j; i < next; i++) {
                over *= apart(&pivots, full, rows->high[i], rows->low[i]);
                under *= apart(&pivots, full, columns->high[i], columns->low[i]);
            }
            store(factor + full, load(factor + full) * over * reciprocal(under));
        }
        for (int64_t i = j; i < next; i++)
            for (int64_t k = full; k < i; k++)
                factor[k] *= distance(columns, k, rows, i) / distance(columns, k, columns, i);
    }
    for (int64_t l = rank; l < columns->size; l++) {
        double *const column = out + (l - rank) * stride;
        const double weight = -columns->weight[l];
        int64_t k = 0;
        for (; k + LANES <= rank; k += LANES)
            store(column + k, weight * load(factor + k) *
                                  reciprocal(apart(&pivots, k, columns->high[l], columns->low[l])));
        for (; k < rank; k++)
            column[k] = weight * factor[k] / distance(columns, k, columns, l);
    }
}

fgc_status FGC_AT_LEVEL(fgc_cauchy_ridge)(const double *x, const double *y, const double *g,
                                          int64_t g_len, const double *h, int64_t h_len,
                                          const double *b, double unit, double size, double *out)
{
    const int64_t s = g_len, c = h_len, most = s < c ? s : c;
    const int64_t wide = padded_size(s) + LANES, tall = padded_size(c) + LANES;
    double *const memory =
        malloc(((size_t)(7 * wide + 7 * tall + most * (c + LANES)) + 8) * sizeof(double));
    int64_t *const places = malloc((size_t)(c + most) * sizeof(int64_t));
    if (!memory || !places) {
        free(memory);
        free(places);
        return FGC_NO_MEMORY;
    }
    double *const re = aligned(memory), *const im = re + wide, *const column = im + wide,
                  *const over = column + wide;
    side rows = {over + wide, over + 2 * wide, over + 3 * wide, s};
    double *const row = over + 4 * wide, *const under = row + tall;
    side columns = {under + tall, under + 2 * tall, under + 3 * tall, c};
    double *const z_re = under + 4 * tall, *const z_im = z_re + tall,
                  *const upper = z_im + tall;
    int64_t *const from = places, *const moved = places + c; /* of columns */
    for (int64_t i = 0; i < wide; i++) {
        rows.high[i] = i < s ? x[i] : 0x1p500;
        rows.low[i] = i < s ? x[s + i] : 0;
        rows.weight[i] = i < s ? g[i] : 0;
        re[i] = i < s ? b[2 * i] : 0;
        im[i] = i < s ? b[2 * i + 1] : 0;
        column[i] = over[i] = 0;
    }
    for (int64_t k = 0; k < tall; k++) {
        columns.high[k] = k < c ? y[k] : 0x1p501;
        columns.low[k] = k < c ? y[c + k] : 0;
        columns.weight[k] = k < c ? h[k] : 0;
        row[k] = under[k] = 0;
    }
    for (int64_t k = 0; k < c; k++)
        from[k] = k;

    double bias = energy(re, s) + energy(im, s), least = INFINITY, first = 0, most_g = 0;
    for (int64_t i = 0; i < s; i++)
        most_g = greater(most_g, fabs(g[i]));
    int64_t t = 0, rank = 0;
    for (;; t++) {
        const double rounding = MARGIN * MARGIN * unit * unit * size;
        if (bias + rounding < least) {
            least = bias + rounding;
            rank = t;
        }
        if (t == most || rounding > LARGER * LARGER * least)
            break;
        int64_t p = find(rows.weight, t, s, most_g), q = -1;
        for (;;) { /* each pivot is larger than the one before */
            const double most_row = line(&columns, t, rows.high[p], rows.low[p], -rows.weight[p],
                                         under, row);
            const int64_t better = find(row, t, c, most_row);
            if (better == q)
                break;
            q = better;
            const double most_column = line(&rows, t, columns.high[q], columns.low[q],
                                            columns.weight[q], over, column);
            if (!(most_column > fabs(column[p])))
                break;
            p = find(column, t, s, most_column);
        }
        const double pivot = column[p];
        first = first > 0 ? first : fabs(pivot);
        if (!(fabs(pivot) > NOTHING * first))
            break;
        exchange_nodes(&rows, t, p);
        exchange(re, t, p);
        exchange(im, t, p);
        exchange(column, t, p);
        exchange(over, t, p);
        exchange_nodes(&columns, t, q);
        exchange(row, t, q);
        exchange(under, t, q);
        moved[t] = from[q];
        from[q] = from[t];
        from[t] = moved[t];
        moved[t] = q;
        re[t] /= pivot;
        im[t] /= pivot;
        size += re[t] * re[t] + im[t] * im[t];
        bias = reduce(re, im, column, re[t], im[t], t + 1, s);
        double *const kept = upper + t * c - t * (t - 1) / 2;
        const double inverse = 1 / pivot;
        for (int64_t k = t + 1; k < c; k++)
            kept[k - t] = row[k] * inverse;
        most_g = update(&rows, t + 1, rows.high[t], rows.low[t], over);
        update(&columns, t + 1, columns.high[t], columns.low[t], under);
    }

    /* Undo the changes to the columns' weights after step `rank`. */
    for (int64_t j = t - 1; j >= rank; j--)
        for (int64_t k = j + 1; k < c; k++)
            columns.weight[k] *= distance(&columns, k, &rows, j) / distance(&columns, k, &columns, j);
    /* Solve for the pivots' columns, and undo the exchanges of columns on the way. */
    memset(z_re, 0, (size_t)tall * sizeof *z_re);
    memset(z_im, 0, (size_t)tall * sizeof *z_im);
    for (int64_t j = rank - 1; j >= 0; j--) {
        const double *const kept = upper + j * c - j * (j - 1) / 2 + 1;
        double known[2];
        dot(kept, z_re + j + 1, z_im + j + 1, c - j - 1, known);
        z_re[j] = re[j] - known[0];
        z_im[j] = im[j] - known[1];
        exchange(z_re, j, moved[j]);
        exchange(z_im, j, moved[j]);
    }
    fgc_status status = FGC_OK;
    if (rank && rank < c) {
        const int64_t stride = padded_size(rank), others = c - rank;
        double *const table =
            malloc((size_t)(stride * (others + 11) + 2 * others + 8) * sizeof(double));
        if (table) {
            double *const z = aligned(table), *const work = z + 2 * stride,
                          *const W = work + 8 * stride, *const factor = W + others * stride,
                          *const other = factor + stride;
            closed_form(&rows, &columns, rank, stride, factor, W);
            memset(z, 0, (size_t)(2 * stride) * sizeof *z);
            for (int64_t k = 0; k < rank; k++) {
                z[k] = z_re[from[k]];
                z[stride + k] = z_im[from[k]];
            }
            shorten(W, others, rank, stride, z, other, work);
            for (int64_t k = 0; k < c; k++) {
                z_re[from[k]] = k < rank ? z[k] : other[2 * (k - rank)];
                z_im[from[k]] = k < rank ? z[stride + k] : other[2 * (k - rank) + 1];
            }
            free(table);
        } else {
            status = FGC_NO_MEMORY;
        }
    }
    for (int64_t k = 0; k < c; k++) {
        out[2 * k] = z_re[k];
        out[2 * k + 1] = z_im[k];
    }
    free(memory);
    free(places);
    return status;
}
