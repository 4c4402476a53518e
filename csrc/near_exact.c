/* Short vectors that nearly solve equations with a Cauchy-like matrix, for as many unknowns as pays.
 * tests/oracles/near_exact.py computes them in few lines.
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
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "vector.h"

#define MARGIN 64.0   /* assumed: the solution's size, relative to that of the parts found so far */
#define LARGER 4.0    /* steps end once the rounding is so many times the least error so far */
#define NOTHING 1e-18 /* a pivot so small, relative to the first, is mere rounding */
#define WORTH 0.5     /* an exchange makes the logarithm of the determinant so much larger */
#define SHORT 1e-2    /* conjugate gradients end at this relative residual, */
enum { LAST = 64 };   /* or after so many steps */

typedef struct {
    double *high, *low, *weight; /* nodes, and g or h */
    int64_t size;
} side;

/* As malloc. Memory of many pages comes in huge ones if there are any: the first touch of a page takes a
 * microsecond, which is half of the time for thousands of unknowns. */
static void *allocate(size_t bytes)
{
    char *const memory = malloc(bytes);
#ifdef MADV_HUGEPAGE
    enum { MANY = 1 << 22, PAGE = 1 << 12 };
    if (memory && bytes > MANY)
        madvise((void *)(((uintptr_t)memory + PAGE - 1) & ~(uintptr_t)(PAGE - 1)), bytes - PAGE,
                MADV_HUGEPAGE); /* a wish: it may be refused */
#endif
    return memory;
}

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
static double line(const side *a, int64_t begin, double high, double low, double factor, double *over,
                   double *entry)
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
static double reduce(double *re, double *im, const double *entry, double y_re, double y_im, int64_t begin,
                     int64_t size)
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
static void closed_form(const side *rows, const side *columns, int64_t rank, int64_t stride, double *factor,
                        double *out)
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

fgc_status FGC_AT_LEVEL(fgc_cauchy_ridge)(const double *x, const double *y, const double *g, int64_t g_len,
                                          const double *h, int64_t h_len, const double *b, double unit,
                                          double size, double *out)
{
    const int64_t s = g_len, c = h_len, most = s < c ? s : c;
    const int64_t wide = padded_size(s) + LANES, tall = padded_size(c) + LANES;
    double *const memory = allocate(((size_t)(7 * wide + 7 * tall + most * (c + LANES)) + 8) * sizeof(double));
    int64_t *const places = malloc((size_t)(c + most) * sizeof(int64_t));
    if (!memory || !places) {
        free(memory);
        free(places);
        return FGC_NO_MEMORY;
    }
    double *const re = aligned(memory), *const im = re + wide, *const column = im + wide, *const over = column + wide;
    side rows = {over + wide, over + 2 * wide, over + 3 * wide, s};
    double *const row = over + 4 * wide, *const under = row + tall;
    side columns = {under + tall, under + 2 * tall, under + 3 * tall, c};
    double *const z_re = under + 4 * tall, *const z_im = z_re + tall, *const upper = z_im + tall;
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
            const double most_row = line(&columns, t, rows.high[p], rows.low[p], -rows.weight[p], under, row);
            const int64_t better = find(row, t, c, most_row);
            if (better == q)
                break;
            q = better;
            const double most_column =
                line(&rows, t, columns.high[q], columns.low[q], columns.weight[q], over, column);
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
        double *const table = malloc((size_t)(stride * (others + 11) + 2 * others + 8) * sizeof(double));
        if (table) {
            double *const z = aligned(table), *const work = z + 2 * stride, *const W = work + 8 * stride,
                          *const factor = W + others * stride, *const other = factor + stride;
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

fgc_status FGC_AT_LEVEL(fgc_exchange)(const double *table, const double *key, int64_t key_len, double enough,
                                      int64_t c, uint8_t *zero)
{
    const int64_t n = key_len, padded = padded_size(n);
    double *const in = malloc((size_t)(3 * padded) * sizeof *in), *const out = in + padded;
    if (!in)
        return FGC_NO_MEMORY;
    double *const none = memset(out + padded, 0, (size_t)padded * sizeof *none);
    int64_t more = c;
    for (int64_t i = 0; i < padded; i++) {
        const int inside = i < n && zero[i];
        more -= inside;
        in[i] = inside ? key[i] : INFINITY;
        out[i] = i < n && !inside ? key[i] : -INFINITY;
    }
    for (;;) {
        vector best = spread(-INFINITY);
        for (int64_t i = 0; i < padded; i += LANES)
            best = larger(load(out + i), best);
        const double top = largest_of_lanes(best);
        int64_t comes = 0, goes = 0;
        while (out[comes] < top)
            comes++;
        const double *const plus = table + n - comes, *minus = none;
        double low = enough;
        if (!more) {
            best = spread(INFINITY);
            for (int64_t i = 0; i < padded; i += LANES)
                best = smaller(load(in + i) + load(plus + i), best);
            low = least_of_lanes(best);
            while (in[goes] + plus[goes] > low)
                goes++;
            minus = table + n - goes;
        }
        if (!(top > low + WORTH))
            break;
        for (int64_t i = 0; i < padded; i += LANES) {
            const vector change = load(plus + i) - load(minus + i);
            store(in + i, load(in + i) + change);
            store(out + i, load(out + i) + change);
        }
        in[comes] = out[comes]; /* as entry t = 0 of the table is 0 */
        out[comes] = -INFINITY;
        zero[comes] = 1;
        if (more) {
            more--;
        } else {
            out[goes] = in[goes];
            in[goes] = INFINITY;
            zero[goes] = 0;
        }
    }
    free(in);
    return FGC_OK;
}
