/* What a round that verifies says of its messages: whether their projections fit each other, and how large a
 * change the checks would miss. See fastgc/coding/verify.py. Numbers may be complex, as (re, im) pairs: then
 * `each` is 2, else 1. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

enum { VALUES = FGC_SIDE * FGC_SIDE, MOST_LIARS = 16 };

/* What is left of a column below this part of it has no digits that could bound anything. */
static const double ROUNDED = 1e-9;

static double square_of(const double *x, int64_t len)
{
    double sum = 0;
    for (int64_t i = 0; i < len; i++)
        sum += x[i] * x[i];
    return sum;
}

/* to = the sum of conj(x[i]) y[i], over i = at[0 .. len-1], or 0 .. len-1 if `at` is NULL. */
static FGC_INLINE void inner(const double *x, const double *y, const int64_t *at, int64_t len, int each,
                             double *to)
{
    double re = 0, im = 0;
    for (int64_t l = 0; l < len; l++) {
        const int64_t i = (at ? at[l] : l) * each, j = i + each - 1;
        re += x[i] * y[i];
        if (each == 2) {
            re += x[j] * y[j];
            im += x[i] * y[j] - x[j] * y[i];
        }
    }
    to[0] = re;
    to[each - 1] = each == 1 ? re : im;
}

/* y[i] += by x[i], over the same i */
static FGC_INLINE void add_times(double *y, const double *by, const double *x, const int64_t *at, int64_t len,
                                 int each)
{
    for (int64_t l = 0; l < len; l++) {
        const int64_t i = (at ? at[l] : l) * each, j = i + each - 1;
        if (each == 1) {
            y[i] += by[0] * x[i];
        } else {
            y[i] += by[0] * x[i] - by[1] * x[j];
            y[j] += by[0] * x[j] + by[1] * x[i];
        }
    }
}

static double modulus(const double *x, int each) { return each == 1 ? fabs(x[0]) : hypot(x[0], x[1]); }

/* Return the size, relative to coefficients, that liars + 1 workers reach, or as many as there are. `of_worker` has
 * that of each, -1 where no message came. */
static double reached(const double *size, const double *norm, const int64_t *sender, int64_t f,
                      int64_t workers, int liars, double *of_worker)
{
    double top[MOST_LIARS + 1];
    int came = 0;
    for (int64_t i = 0; i < workers; i++)
        of_worker[i] = -1;
    for (int64_t i = 0; i < f; i++) /* 0 where that is NaN */
        of_worker[sender[i]] = greater(greater(size[i] / norm[i], 0), of_worker[sender[i]]);
    for (int64_t i = 0; i < workers; i++) {
        if (of_worker[i] < 0)
            continue;
        int at = came <= liars ? came++ : of_worker[i] > top[liars] ? liars : -1;
        for (; at > 0 && top[at - 1] < of_worker[i]; at--)
            top[at] = top[at - 1];
        if (at >= 0)
            top[at] = of_worker[i];
    }
    return came ? top[came - 1] : 0;
}

fgc_status FGC_AT_LEVEL(fgc_inspect)(const int64_t *at, int64_t f, fgc_inspection *o, const int64_t *first,
                                     int64_t m, const int64_t *position, int64_t entries,
                                     const double *coefficient, const double *error, int liars, double *sum,
                                     double *bound, uint8_t *failed, double *told)
{
    const fgc_arrivals *const a = o->came;
    const int each = 1 + a->paired;
    const double own = o->own, terms = o->terms;
    const int64_t *const sender = o->from;
    double *const norm = o->norm, *const square = o->notes, *const reach = square + f;
    double *const rounding = square + 2 * f, *const over = square + 3 * f;
    double *const of_worker = calloc((size_t)(o->workers + 4 * f + 1), sizeof *of_worker);
    if (!of_worker)
        return FGC_NO_MEMORY;
    double *const s = of_worker + o->workers, *const t = s + f, *const size = t + f, *const inside = size + f;
    for (int64_t i = 0; i < f; i++) {
        o->from[i] = o->sender[a->numbers[at[i]]];
        norm[i] = o->row_norms[a->numbers[at[i]]];
        size[i] = a->norms[at[i]];
        inside[i] = sqrt(a->energies[at[i]]) * a->unit;
    }
    for (int64_t i = 0; i < f; i++)
        t[i] = greater(inside[i], size[i]); /* the size if the energy is not told */
    const double claims = fmin(reached(t, norm, sender, f, o->workers, liars, of_worker), sqrt(DBL_MAX));
    told[4] = 0;
    for (int64_t i = 0; i < f; i++) {
        const double usual_size = greater(size[i], norm[i] * claims);
        const double most = hypot(inside[i], claims > 0 ? o->lost : 0);
        o->rough[i] = !o->coded && most > o->coarse * usual_size;
        o->unsure[i] = o->rough[i] && most * o->dependent > usual_size;
        told[4] += o->unsure[i];
    }
    const double usually = reached(size, norm, sender, f, o->workers, liars, of_worker);
    double top = 0, largest_norm = 0, largest = 0;
    for (int64_t i = 0; i < f; i++) {
        top = greater(norm[i] * usually, top);
        largest = greater(size[i], largest);
        largest_norm = greater(norm[i], largest_norm);
    }
    top = top != 0 ? top : largest != 0 ? largest : 1;
    for (int64_t i = 0; i < f; i++) {
        const double shrink = size[i] > o->huge * top ? o->huge * top / size[i] : 1;
        s[i] = size[i] / top * shrink;
        const double claimed = inside[i] == inside[i] ? inside[i] : size[i] * o->untold;
        t[i] = greater(claimed, size[i] / sqrt(o->load)) / top * shrink;
        for (int64_t j = 0; j < VALUES * each; j++)
            o->scaled[i * VALUES * each + j] = a->values[at[i] * VALUES * each + j] / top * shrink;
    }
    const double usual = reached(s, norm, sender, f, o->workers, liars, of_worker);
    const double likely = reached(t, norm, sender, f, o->workers, liars, of_worker);
    largest = 0;
    for (int64_t i = 0; i < f; i++)
        largest = greater(s[i], largest);
    for (int64_t i = 0; i < f; i++) {
        const double less = fmin(s[i], norm[i] * usual), within = fmin(t[i], norm[i] * likely);
        rounding[i] = sqrt(own * less * less + terms * within * within);
        over[i] = t[i]; /* what underflow lost is no claim */
        t[i] = inside[i] == inside[i] ? hypot(t[i], o->lost / top) : t[i];
    }
    const double believed = reached(t, norm, sender, f, o->workers, liars, of_worker);
    told[0] = 0;
    for (int64_t i = 0; i < f; i++) {
        over[i] = !o->coded && inside[i] == inside[i] &&
                  fmin(over[i], o->most / top) > o->spread * (norm[i] * believed);
        told[0] += over[i];
        t[i] = o->coded ? fmin(t[i], norm[i] * believed) : t[i];
        const double floor_ = o->least * (usual * largest_norm > 0 ? norm[i] * usual : largest);
        square[i] = own * s[i] * s[i] + terms * t[i] * t[i] + o->underflow / top * (o->underflow / top) +
                    own * floor_ * floor_;
        reach[i] = s[i] + greater(norm[i] * usual, sqrt(o->load) * (norm[i] * likely));
    }
    free(of_worker);
    o->f = f;
    o->m = m;
    o->entries = entries;
    o->first = first;
    o->position = position;
    o->coefficient = coefficient;
    o->error = error;
    o->sum = sum;
    o->size = told[3] = greater(usual, likely);
    told[2] = top;
    told[1] = 0;
    for (int64_t k = 0; k < m; k++) {
        double *const to = sum + k * VALUES * each;
        double within = 0;
        memset(to, 0, sizeof *to * (size_t)(VALUES * each));
        for (int64_t e = first[k]; e < (k + 1 < m ? first[k + 1] : entries); e++) {
            const double *const h = coefficient + each * e;
            add_times(to, h, o->scaled + position[e] * VALUES * each, NULL, VALUES, each);
            within += square_of(h, each) * square[position[e]];
        }
        bound[k] = o->safety * sqrt(within + error[k] * o->size * (error[k] * o->size));
        bound[k] = bound[k] != bound[k] ? INFINITY : greater(bound[k], o->small);
        failed[k] = sqrt(square_of(to, VALUES * each) / VALUES) > bound[k];
        told[1] += failed[k];
    }
    return FGC_OK;
}

/* Rows of checks while they are made orthonormal. */
typedef struct {
    int64_t f, m;
    int each;
    double *basis, *shown, *own; /* own: of the errors of the checks' coefficients; NULL if there are none */
    double *left;                /* an estimate of each row's norm */
    int64_t *part;               /* checks of different parts share no messages */
    int64_t *few;                /* the messages in each check, as it was given */
    int64_t *used, *count; /* f places for each row of norm 1: which of its numbers are not 0; how many */
} rows;

/* Subtract from row k what it has of row q, which has norm 1. `used`: its numbers that are not 0; NULL: all. */
static FGC_INLINE void subtract_used(const rows *r, int64_t k, int64_t q, const int64_t *used)
{
    double by[2], more[2] = {0};
    const int each = r->each;
    double *const row = r->basis + k * r->f * each;
    inner(r->basis + q * r->f * each, row, used, r->count[q], each, by);
    if (r->own)
        inner(r->own + q * r->m * each, r->own + k * r->m * each, NULL, r->m, each, more);
    for (int c = 0; c < each; c++)
        by[c] = -(by[c] + more[c]);
    const double square = square_of(by, each);
    if (square == 0)
        return;
    add_times(row, by, r->basis + q * r->f * each, used, r->count[q], each);
    if (r->own)
        add_times(r->own + k * r->m * each, by, r->own + q * r->m * each, NULL, r->m, each);
    add_times(r->shown + k * VALUES * each, by, r->shown + q * VALUES * each, NULL, VALUES, each);
    r->left[k] = sqrt(greater(r->left[k] * r->left[k] - square, 0));
}

static void subtract(const rows *r, int64_t k, int64_t q)
{
    if (r->count[q] == r->f)
        subtract_used(r, k, q, NULL);
    else
        subtract_used(r, k, q, r->used + q * r->f);
}

static double norm_of(const rows *r, int64_t k)
{
    return sqrt(square_of(r->basis + k * r->f * r->each, r->f * r->each) +
                (r->own ? square_of(r->own + k * r->m * r->each, r->m * r->each) : 0));
}

static void scale_row(const rows *r, int64_t k, double by)
{
    for (int64_t i = k * r->f * r->each; i < (k + 1) * r->f * r->each; i++)
        r->basis[i] *= by;
    for (int64_t i = k * r->m * r->each; r->own && i < (k + 1) * r->m * r->each; i++)
        r->own[i] *= by;
    for (int64_t i = k * VALUES * r->each; i < (k + 1) * VALUES * r->each; i++)
        r->shown[i] *= by;
}

static void swap(double *a, double *b, int64_t len)
{
    for (int64_t i = 0; a != b && i < len; i++) {
        const double kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void swap_numbers(int64_t *a, int64_t *b)
{
    const int64_t kept = *a;
    *a = *b;
    *b = kept;
}

static void swap_rows(const rows *r, int64_t a, int64_t b)
{
    const int64_t f = r->f * r->each, m = r->m * r->each, q = VALUES * r->each;
    swap(r->basis + a * f, r->basis + b * f, f);
    if (r->own)
        swap(r->own + a * m, r->own + b * m, m);
    swap(r->shown + a * q, r->shown + b * q, q);
    swap(r->left + a, r->left + b, 1);
    swap_numbers(r->part + a, r->part + b);
    swap_numbers(r->few + a, r->few + b);
}

/* Return the root of a vertex in a forest, and shorten the way to it. */
static int64_t root_of(int64_t *parent, int64_t v)
{
    while (parent[v] != v)
        v = parent[v] = parent[parent[v]];
    return v;
}

/* Write the basis of fgc_unseen. */
static fgc_status make_orthonormal(const fgc_inspection *o, double *basis, double *shown, int64_t *rank)
{
    const int64_t f = o->f, m = o->m, *const first = o->first, *const position = o->position;
    const int each = 1 + o->came->paired;
    const double *const error = o->error;
    int inexact = 0;
    for (int64_t k = 0; k < m; k++)
        inexact |= error[k] != 0;
    int64_t *const parent = malloc((size_t)(f + 3 * m + m * f + 1) * sizeof *parent);
    double *const own = calloc((size_t)((inexact ? m * m * each : 0) + m + 1), sizeof *own);
    if (!parent || !own) {
        free(parent);
        free(own);
        return FGC_NO_MEMORY;
    }
    const rows r = {.f = f,
                    .m = m,
                    .each = each,
                    .basis = basis,
                    .shown = shown,
                    .left = own,
                    .own = inexact ? own + m : NULL,
                    .part = parent + f,
                    .few = parent + f + m,
                    .count = parent + f + 2 * m,
                    .used = parent + f + 3 * m};
    for (int64_t i = 0; i < f; i++)
        parent[i] = i;
    memset(basis, 0, (size_t)(m * f * each) * sizeof *basis);
    memcpy(shown, o->sum, (size_t)(m * VALUES * each) * sizeof *shown);
    for (int64_t k = 0; k < m; k++) {
        double *const row = basis + k * f * each;
        const int64_t stop = k + 1 < m ? first[k + 1] : o->entries;
        for (int64_t e = first[k]; e < stop; e++) {
            const double unit = sqrt(o->notes[position[e]]);
            for (int c = 0; c < each; c++)
                row[position[e] * each + c] = o->coefficient[each * e + c] * unit;
            parent[root_of(parent, position[e])] = root_of(parent, position[first[k]]);
        }
        if (inexact)
            r.own[(k * m + k) * each] = error[k] * o->size;
        const double size = norm_of(&r, k);
        r.few[k] = stop - first[k];
        r.left[k] = size > 0 && size < INFINITY;
        scale_row(&r, k, 1 / size);
        if (r.left[k] == 0) { /* it says nothing */
            memset(row, 0, (size_t)(f * each) * sizeof *row);
            if (inexact)
                r.own[(k * m + k) * each] = 0;
        }
    }
    for (int64_t k = 0; k < m; k++)
        r.part[k] = root_of(parent, position[first[k]]);
    /* Gram and Schmidt. Rows of the fewest messages are first, as they change few others; among them, the
     * longest. */
    int64_t end = m;
    for (*rank = 0; *rank < end;) {
        const int64_t q = *rank;
        int64_t best = q;
        for (int64_t k = q; k < end; k++)
            if (r.few[k] != r.few[best] ? r.few[k] < r.few[best] : r.left[k] > r.left[best])
                best = k;
        swap_rows(&r, q, best);
        const double size = norm_of(&r, q);
        if (!(size > o->dependent)) {
            swap_rows(&r, q, --end);
            continue;
        }
        scale_row(&r, q, 1 / size);
        for (int64_t k = 0; k < q; k++) /* again: what rounding left of the others */
            if (r.part[k] == r.part[q])
                subtract(&r, q, k);
        scale_row(&r, q, 1 / norm_of(&r, q));
        r.count[q] = 0;
        for (int64_t i = 0; i < f; i++)
            if (basis[(q * f + i) * each] != 0 || basis[(q * f + i) * each + each - 1] != 0)
                r.used[q * f + r.count[q]++] = i;
        ++*rank;
        for (int64_t k = *rank; k < end; k++)
            if (r.part[k] == r.part[q])
                subtract(&r, k, q);
    }
    free(parent);
    free(own);
    return FGC_OK;
}

/* Return how large a message's part with this coefficient, in units of its rounding, may be. */
static double may_be(const double *coefficient, int each, double reach, double unit)
{
    const double size = modulus(coefficient, each);
    return size != 0 ? size * (reach / unit) : 0;
}

/* Return how large a message's part of what a vector decodes may be. */
static double part_of(const fgc_inspection *o, const double *vector, int64_t i)
{
    const int each = 1 + o->came->paired;
    return modulus(vector + i * each, each) * o->norm[i];
}

/* Subtract from a column what it has of q, which has norm 1, and from its rest w times that. */
static FGC_INLINE void account(const double *q, const double *w, int64_t r, int each, double *column,
                               double *rest)
{
    double by[2];
    inner(q, column, NULL, r, each, by);
    for (int k = 0; k < each; k++)
        by[k] = -by[k];
    add_times(column, by, q, NULL, r, each);
    add_times(rest, by, w, NULL, 1, each);
}

/* Let u be such that the check u basis has the vector's coefficients at these messages, as far as it can
 * have. `column` and `rest` hold, of each message, what is left of its column of the basis, and of its
 * coefficient; `length` the column's norm, or INFINITY once it is a pivot. Pivots are taken as in
 * Gram-Schmidt, the longest first: after each, what the check shows bounds what it accounts for, and the
 * messages' sizes bound the rest. Any u would give a bound. A small message beside a huge lie has a column of
 * 1e-10, as exact as others: left out, a lie that it explains would seem to change the gradient. */
static void unseen_set(const fgc_inspection *o, const int64_t *at, int64_t c, int64_t r, const double *basis,
                       const double *shown, const double *vector, double dust, double *column, double *rest,
                       double *length, double *told)
{
    const double *const square = o->notes, *const reach = square + o->f;
    const int each = 1 + o->came->paired;
    double sum[2 * VALUES] = {0}, unit[2] = {0}, left = 0, total = 0;
    int blind = 0; /* whether a message that counts is in no check */
    for (int64_t i = 0; i < c; i++) {
        const double size = sqrt(square[at[i]]);
        int checked = 0;
        for (int64_t k = 0; k < r; k++) {
            double *const to = column + (i * r + k) * each;
            memcpy(to, basis + (k * o->f + at[i]) * each, (size_t)each * sizeof *to);
            checked |= to[0] != 0 || to[each - 1] != 0;
        }
        blind |= !checked && part_of(o, vector, at[i]) > dust;
        for (int k = 0; k < each; k++)
            rest[i * each + k] = vector[at[i] * each + k] != 0 ? vector[at[i] * each + k] * size : 0;
        left += may_be(rest + i * each, each, reach[at[i]], size);
        length[i] = sqrt(square_of(column + i * r * each, r * each));
    }
    double error = o->stretch * left, apart = left; /* apart: of the step that bounds the error best */
    for (int64_t step = 0; step < c && step < r; step++) {
        int64_t p = -1;
        double longest = 0;
        for (int64_t i = 0; i < c; i++) {
            const double size = sqrt(square_of(column + i * r * each, r * each));
            if (size > longest && size > ROUNDED * length[i]) /* else its direction is mere rounding */
                longest = size, p = i;
        }
        if (p < 0)
            break;
        double *const q = column + p * r * each, *const w = rest + p * each;
        for (int64_t i = 0; i < c; i++) /* again: what rounding left of the others */
            if (length[i] == INFINITY)
                account(column + i * r * each, rest + i * each, r, each, q, w);
        longest = sqrt(square_of(q, r * each));
        for (int64_t k = 0; k < r * each; k++)
            q[k] /= longest;
        for (int k = 0; k < each; k++)
            w[k] /= longest;
        total += square_of(w, each);
        for (int64_t k = 0; k < r; k++) { /* w times conj(q) times what the checks show */
            inner(q + k * each, w, NULL, 1, each, unit);
            if (unit[0] != 0 || unit[each - 1] != 0)
                add_times(sum, unit, shown + k * VALUES * each, NULL, VALUES, each);
        }
        left = 0;
        length[p] = INFINITY; /* q and w stay in place of what is left */
        for (int64_t i = 0; i < c; i++)
            if (length[i] != INFINITY) {
                account(q, w, r, each, column + i * r * each, rest + i * each);
                left += may_be(rest + i * each, each, reach[at[i]], sqrt(square[at[i]]));
            }
        double seen = 0;
        for (int k = 0; k < VALUES * each; k += o->real ? each : 1)
            seen += sum[k] * sum[k];
        seen = sqrt(seen / VALUES);
        const double rounding = sqrt(total), bound = greater(rounding, seen) / o->seen + o->stretch * left;
        if (fmin(error, bound) == error) /* no better, or NaN */
            continue;
        error = bound;
        apart = (seen > o->safety * rounding ? seen : 0) + left;
    }
    told[0] = blind || error != error ? INFINITY : error;
    told[1] = apart;
}

/* Take from a gradient's projections what they have of the direction in which the padding of messages shows: checks
 * see it, but it is no part of the gradient. */
static void leave_out_padding(const fgc_arrivals *a, int64_t at, double *sum)
{
    const double *const left = a->left + FGC_SIDE * (at / (2 * FGC_ROW) * 2 + at / 8 % 2);
    const double *const right = a->right + 8 * FGC_SIDE * (at % (2 * FGC_ROW) / 16) + at % 8;
    double way[VALUES], part = 0;
    for (int i = 0; i < VALUES; i++) {
        way[i] = left[i / FGC_SIDE] * right[8 * (i % FGC_SIDE)];
        part += way[i] * sum[2 * i + 1];
    }
    part /= square_of(way, VALUES);
    for (int i = 0; i < VALUES; i++)
        sum[2 * i + 1] -= part * way[i];
}

/* The workers that sent messages, and the messages of each: message[first[w]] .. message[first[w + 1] - 1]. */
typedef struct {
    int64_t *first, *message, *present, count;
    int64_t *chosen, *others, *at; /* room for as many workers and messages as there are */
    unsigned char *named;
} senders;

static int sort_senders(const fgc_inspection *o, senders *by)
{
    const int64_t f = o->f, n = o->workers;
    int64_t *const room = calloc((size_t)(n + 2 + 5 * f), sizeof *room);
    by->named = calloc((size_t)n + 1, 1);
    *by = (senders){room,
                    room + n + 2,
                    room + n + 2 + f,
                    0,
                    room + n + 2 + 2 * f,
                    room + n + 2 + 3 * f,
                    room + n + 2 + 4 * f,
                    by->named};
    if (!room || !by->named)
        return 0;
    for (int64_t i = 0; i < f; i++)
        by->first[o->from[i] + 2]++;
    for (int64_t w = 0; w < n; w++) {
        if (by->first[w + 2])
            by->present[by->count++] = w;
        by->first[w + 2] += by->first[w + 1];
    }
    for (int64_t i = 0; i < f; i++) /* first[w + 1] moves from the first to past the last message of w */
        by->message[by->first[o->from[i] + 1]++] = i;
    return 1;
}

/* Go to the next choice of so many of `count` numbers; return 0 after the last. */
static int next_choice(int64_t *choice, int64_t size, int64_t count)
{
    int64_t j = size - 1;
    while (j >= 0 && choice[j] == count - size + j)
        j--;
    if (j < 0)
        return 0;
    for (choice[j++]++; j < size; j++)
        choice[j] = choice[j - 1] + 1;
    return 1;
}

fgc_status FGC_AT_LEVEL(fgc_unseen)(const fgc_inspection *o, const double *vector, double *basis,
                                    double *shown, int64_t *rank, const int64_t *start, int64_t starts,
                                    const int64_t *worker, int liars, double *told)
{
    const double *const square = o->notes, *const rounding = square + 2 * o->f;
    const int each = 1 + o->came->paired;
    double sum[2 * VALUES] = {0}, found[2], dust = 0;
    if (*rank < 0 && make_orthonormal(o, basis, shown, rank))
        return FGC_NO_MEMORY;
    senders by;
    const int sorted = sort_senders(o, &by);
    double *const work = malloc((size_t)(o->f * (*rank + 2) * each + 1) * sizeof *work);
    memset(told, 0, 6 * sizeof *told);
    for (int64_t i = 0; i < o->f; i++)
        dust = greater(o->dust * part_of(o, vector, i), dust);
    for (int64_t i = 0; i < o->f; i++) {
        const double size = modulus(vector + i * each, each);
        if (size == 0)
            continue;
        add_times(sum, vector + i * each, o->scaled + i * VALUES * each, NULL, VALUES, each);
        told[1] += size * size * square[i];
        told[2] += size * rounding[i] * (size * rounding[i]);
        told[5] += !(part_of(o, vector, i) > dust);
    }
    if (o->padding)
        leave_out_padding(o->came, o->padding, sum);
    for (int k = 0; k < VALUES * each; k += o->real ? each : 1)
        told[0] += sum[k] * sum[k];
    told[0] = sqrt(told[0] / VALUES);
    told[1] = sqrt(told[1]);
    told[2] = sqrt(told[2]);
    for (int64_t s = 0; sorted && work && s + 1 < starts; s++) {
        int64_t known = 0, others = 0, choice[MOST_LIARS];
        for (int64_t l = start[s]; l < start[s + 1]; l++) {
            by.named[worker[l]] = 1;
            if (by.first[worker[l] + 1] > by.first[worker[l]])
                by.chosen[known++] = worker[l];
        }
        for (int64_t l = 0; l < by.count; l++)
            if (!by.named[by.present[l]])
                by.others[others++] = by.present[l];
        int64_t more = liars - (start[s + 1] - start[s]);
        more = more < 0 ? 0 : more < others ? more : others;
        for (int64_t l = 0; l < more; l++)
            choice[l] = l;
        do {
            int64_t c = 0;
            for (int64_t l = 0; l < known + more; l++) {
                const int64_t w = l < known ? by.chosen[l] : by.others[choice[l - known]];
                for (int64_t e = by.first[w]; e < by.first[w + 1]; e++)
                    by.at[c++] = by.message[e];
            }
            double *const rest = work + c * *rank * each;
            unseen_set(o, by.at, c, *rank, basis, shown, vector, dust, work, rest, rest + c * each, found);
            told[3] = greater(found[0], told[3]);
            told[4] = greater(found[1], told[4]);
        } while (next_choice(choice, more, others));
        for (int64_t l = start[s]; l < start[s + 1]; l++)
            by.named[worker[l]] = 0;
    }
    const int enough = sorted && work;
    free(by.first);
    free(by.named);
    free(work);
    return enough ? FGC_OK : FGC_NO_MEMORY;
}

/* A graph: at[p] is the first of the ends at point p, next[x] the one after end x, -1 if there is none. End x
 * is that of edge x / 2, and x ^ 1 the other one. */
typedef struct {
    const int64_t *ends;
    int64_t edges, points;
    int64_t *at, *next, *came, *queue; /* came: the end by which a search reached a point; -1 before */
} graph;

static int make_graph(graph *g, const int64_t *ends, int64_t edges, int64_t points)
{
    int64_t *const room = malloc((size_t)(3 * points + 2 * edges + 1) * sizeof *room);
    *g = (graph){
        ends, edges, points, room, room + points, room + points + 2 * edges, room + 2 * points + 2 * edges};
    for (int64_t p = 0; room && p < points; p++)
        g->at[p] = -1;
    for (int64_t x = 2 * edges - 1; room && x >= 0; x--) { /* so that the first edges are found first */
        g->next[x] = g->at[ends[x]];
        g->at[ends[x]] = x;
    }
    return room != NULL;
}

int64_t FGC_AT_LEVEL(fgc_edge_flow)(const int64_t *ends, int64_t edges, int64_t points, int64_t start,
                                    int64_t stop, int64_t most, uint8_t *reached)
{
    graph g;
    int64_t found = 0;
    signed char *const used = calloc((size_t)edges + 1, 1); /* 1: from first to second end; -1: back */
    if (!used || !make_graph(&g, ends, edges, points)) {
        free(used);
        return -1;
    }
    for (; found < most; found++) { /* Ford and Fulkerson, by shortest paths */
        int64_t head = 0, tail = 0;
        for (int64_t p = 0; p < points; p++)
            g.came[p] = -1;
        g.came[start] = 2 * edges; /* no end */
        for (g.queue[tail++] = start; head < tail && g.came[stop] < 0; head++)
            for (int64_t x = g.at[g.queue[head]]; x >= 0; x = g.next[x]) {
                const int64_t there = ends[x ^ 1];
                if (g.came[there] < 0 && used[x / 2] != (x % 2 ? -1 : 1)) {
                    g.came[there] = x;
                    g.queue[tail++] = there;
                }
            }
        if (g.came[stop] < 0)
            break;
        for (int64_t p = stop; p != start; p = ends[g.came[p]])
            used[g.came[p] / 2] += g.came[p] % 2 ? -1 : 1;
    }
    for (int64_t p = 0; reached && found < most && p < points; p++)
        reached[p] = g.came[p] >= 0;
    free(used);
    free(g.at);
    return found;
}

/* Return the first edge between the points of edge e. */
static int64_t first_copy(const graph *g, int64_t e)
{
    const int64_t u = g->ends[2 * e], v = g->ends[2 * e + 1];
    int64_t x = g->at[u];
    while (g->ends[x ^ 1] != v)
        x = g->next[x];
    return x / 2;
}

fgc_status FGC_AT_LEVEL(fgc_edge_circles)(const int64_t *ends, int64_t edges, int64_t points, int64_t *first,
                                          int64_t *position, double *coefficient, int64_t *told)
{
    graph g;
    int64_t circles = 0, entries = 0;
    int64_t *const depth = malloc((size_t)(points + 1) * sizeof *depth);
    if (!depth || !make_graph(&g, ends, edges, points)) {
        free(depth);
        return FGC_NO_MEMORY;
    }
    for (int64_t p = 0; p < points; p++)
        g.came[p] = -1;
    for (int64_t e = 0; e < edges; e++) { /* from each point that no search has reached */
        int64_t head = 0, tail = 0, root = ends[2 * e];
        if (g.came[root] >= 0)
            continue;
        g.came[root] = 2 * edges;
        depth[root] = 0;
        for (g.queue[tail++] = root; head < tail; head++)
            for (int64_t x = g.at[g.queue[head]]; x >= 0; x = g.next[x]) {
                const int64_t there = ends[x ^ 1];
                if (g.came[there] >= 0)
                    continue;
                g.came[there] = x;
                depth[there] = depth[g.queue[head]] + 1;
                g.queue[tail++] = there;
            }
    }
    for (int64_t e = 0; e < edges; e++) {
        int64_t here = ends[2 * e], there = ends[2 * e + 1], at = e;
        const int64_t copied = first_copy(&g, e);
        double sign = 1, way = 1; /* of edge `at`; whether the walk up began at the first end */
        if (copied == e && (g.came[here] / 2 == e || g.came[there] / 2 == e))
            continue; /* in the forest */
        if (first)
            first[circles] = entries;
        circles++;
        for (;; entries++) {
            if (first) {
                position[entries] = at;
                coefficient[entries] = sign;
            }
            if (copied != e && at == e) { /* the other edge of two */
                sign = ends[2 * copied] == here ? -1 : 1;
                at = copied;
                continue;
            }
            if (copied != e || here == there) {
                entries++;
                break;
            }
            if (depth[here] < depth[there]) { /* one step up, from the deeper of the two */
                const int64_t other = here;
                here = there;
                there = other;
                way = -way;
            }
            at = g.came[here] / 2;
            sign = ends[2 * at + 1] == here ? way : -way;
            here = ends[g.came[here]];
        }
    }
    told[0] = circles;
    told[1] = entries;
    free(depth);
    free(g.at);
    return FGC_OK;
}
