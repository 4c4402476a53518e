/* Decoding vectors of cyclic codes, made from products over their tables (cyclic.c): for one round, or for
 * many rounds. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "levels.h"
#include "pool.h"

static int64_t modulo(int64_t a, int64_t m) { return (a % m + m) % m; }

/* Return sin(pi k / (2 m)) for k >= 0. The angle is reduced in integers. It is computed in extended precision
 * if there is one, as the rounding of pi would bias all factors in the same way. */
static double sine_of(int64_t k, int64_t m)
{
    const long double pi = 3.14159265358979323846264338327950288L;
    k %= 4 * m;
    const int64_t half = k % (2 * m), near = half < m ? half : 2 * m - half;
    const double size = (double)sinl(pi * (long double)near / (long double)(2 * m));
    return k < 2 * m ? size : -size;
}

void fgc_cyclic_tables(int64_t m, int64_t q, double *sine, double *cosecant, double *phase)
{
    const int64_t once = modulo(q, 2 * m); /* 2 sin(pi q t / m) has this period in q */
    for (int64_t t = 0; t < 2 * m + FGC_PAD; t++) {
        if (t < m) /* the angle of t - m: pi q less than that of t */
            sine[t] = (once % 2 ? -2 : 2) * sine_of(2 * once * t, m);
        else
            sine[t] = t < 2 * m ? 2 * sine_of(2 * once * (t - m), m) : 1;
        cosecant[t] = sine[t] == 0 ? 1 : 1 / sine[t];
    }
    for (int64_t u = 0; u < 2 * m; u++) {
        phase[2 * u] = sine_of(2 * u + m, m);
        phase[2 * u + 1] = sine_of(2 * u, m);
    }
}

/* Eight marks that are all set. Marks are read eight at a time: in large codes nearly all workers survive. */
static const uint64_t ALL_EIGHT = UINT64_C(0x0101010101010101);

static int64_t count_marks(const unsigned char *present, int64_t m)
{
    int64_t count = 0, i = 0;
    for (; i + 8 <= m; i += 8) {
        uint64_t eight;
        memcpy(&eight, present + i, sizeof eight);
        count += (int64_t)(eight * ALL_EIGHT >> 56);
    }
    for (; i < m; i++)
        count += present[i];
    return count;
}

/* Phases of a block's entries: the entry of worker j has the angle (turn + j stride) pi / m + quarter pi / 2,
 * and its size is multiplied by `scale`. */
typedef struct {
    int64_t turn, stride;
    int quarter;
    double scale;
} phases;

/* Return the phases of products over `count` workers of block b. `sum` is the sum of their indices in it.
 *
 * Locator: the factors 2 sin(theta) exp(i (theta - pi/2)) of all stragglers, and 1/m.
 * Lookup: the inverse factors of all survivors except the entry's own worker, whose theta is 0. */
static phases phases_of(const fgc_cyclic *code, fgc_method method, int64_t b, int64_t count, int64_t sum)
{
    const int64_t m = code->start[b + 1] - code->start[b];
    const int64_t circle = 2 * m; /* phases are multiples of pi / m */
    const int64_t sign = method == FGC_LOOKUP ? -1 : 1;
    const int64_t factors = method == FGC_LOOKUP ? count - 1 : count;
    return (phases){.turn = modulo(-sign * code->q[b] * (sum % circle), circle),
                    .stride = modulo(sign * code->q[b] * count, circle),
                    .quarter = (int)modulo(-sign * factors, 4),
                    .scale = method == FGC_LOOKUP ? 1.0 : 1.0 / (double)m};
}

/* Write (re, im) to value[] for `len` workers of block b, from worker lo of the block on. size[] has their
 * entries without phases. */
static void turn(const fgc_cyclic *code, int64_t b, const phases *by, int64_t lo, int64_t len,
                 const double *size, double *value)
{
    const int64_t m = code->start[b + 1] - code->start[b];
    fgc_turn(code->phase + code->phase_offset[b], m, (by->turn + lo * by->stride) % (2 * m), by->stride,
             by->quarter, by->scale, size, len, value);
}

/* Compute the vector's entries in block b, by the lookup or the locator. present[] marks the block's
 * survivors, and value[] receives (re, im) for each worker; both begin at its first worker. */
static void decode_block(const fgc_cyclic *code, fgc_method method, int64_t b, const unsigned char *present,
                         int64_t *index, double *value)
{
    const int64_t m = code->start[b + 1] - code->start[b];
    const uint64_t no_factors = method == FGC_LOOKUP ? 0 : ALL_EIGHT;
    int64_t count = 0, sum = 0;
    for (int64_t lo = 0; lo < m; lo += 8) {
        const int64_t hi = m - lo < 8 ? m : lo + 8;
        uint64_t eight = ~no_factors;
        if (hi - lo == 8)
            memcpy(&eight, present + lo, sizeof eight);
        if (eight == no_factors)
            continue;
        for (int64_t i = lo; i < hi; i++) {
            index[count] = i;
            const int64_t factor = present[i] == (method == FGC_LOOKUP);
            count += factor;
            sum += factor * i;
        }
    }
    const double *table = (method == FGC_LOOKUP ? code->cosecant : code->sine) + code->offset[b];
    const phases by = phases_of(code, method, b, count, sum);
    /* Fill stragglers' entries, too: nobody reads them, and a branch for each worker costs more. */
    for (int64_t lo = 0; lo < m; lo += FGC_CHUNK) {
        const int64_t len = m - lo < FGC_CHUNK ? m - lo : FGC_CHUNK;
        double product[FGC_CHUNK];
        int64_t exponent[FGC_CHUNK];
        fgc_cyclic_product(table + m + lo, len, index, count, product, exponent);
        if (count > FGC_RUN)
            fgc_cyclic_size(product, exponent, len, product);
        turn(code, b, &by, lo, len, product, value + 2 * lo);
    }
}

/* Compute block b by FGC_SPREAD. Returns whether only some of its survivors were chosen. */
static int spread_block(const fgc_cyclic *code, int64_t b, unsigned char *present, int64_t *index, double *value)
{
    const int64_t m = code->start[b + 1] - code->start[b], need = code->need[b];
    const int64_t count = count_marks(present, m);
    decode_block(code, 2 * count < m ? FGC_LOOKUP : FGC_LOCATOR, b, present, index, value);
    if (count == need)
        return 0;
    double norm = 0;
    for (int64_t i = 0; i < m; i++)
        if (present[i])
            norm += value[2 * i] * value[2 * i] + value[2 * i + 1] * value[2 * i + 1];
    if (norm <= 1 + 1e-9) /* a norm of 1 must not depend on rounding */
        return 0;
    double few[FGC_PAD];
    fgc_keep_spread(code->sine + code->offset[b], m, need, present, m < FGC_PAD ? few : value);
    decode_block(code, 2 * need < m ? FGC_LOOKUP : FGC_LOCATOR, b, present, index, value);
    for (int64_t i = 0; i < m; i++)
        if (!present[i])
            value[2 * i] = value[2 * i + 1] = 0;
    return 1;
}

/* Return how many more survivors all blocks need together. */
static int64_t missing(const fgc_cyclic *code, const unsigned char *present)
{
    int64_t more = 0;
    for (int64_t b = 0; b < code->blocks; b++) {
        const int64_t s = code->start[b];
        const int64_t count = count_marks(present + s, code->start[b + 1] - s);
        if (count < code->need[b])
            more += code->need[b] - count;
    }
    return more;
}

fgc_status fgc_mark(const fgc_cyclic *code, const int64_t *survivors, unsigned char *present, int64_t *where,
                    int64_t f)
{
    const int64_t n = code->workers;
    memset(present, 0, (size_t)n);
    for (int64_t l = 0; l < f; l++) {
        const int64_t i = survivors[l];
        if ((uint64_t)i >= (uint64_t)n || present[i]) {
            *where = l;
            return (uint64_t)i >= (uint64_t)n ? FGC_OUT_OF_RANGE : FGC_DUPLICATE;
        }
        present[i] = 1;
    }
    *where = missing(code, present);
    return *where ? FGC_TOO_FEW : FGC_OK;
}

/* Write (re, im) for each worker, from the survivors' marks. Returns whether only some survivors of some
 * block were chosen. */
static int decode_marked(const fgc_cyclic *code, fgc_method method, unsigned char *present, int64_t *index,
                         double *value)
{
    int chosen = 0;
    for (int64_t b = 0; b < code->blocks; b++) {
        const int64_t s = code->start[b];
        if (method == FGC_SPREAD)
            chosen |= spread_block(code, b, present + s, index, value + 2 * s);
        else
            decode_block(code, method, b, present + s, index, value + 2 * s);
    }
    return chosen;
}

/* out[l] = value[survivors[l]], complex. */
static void gather(const double *value, const int64_t *survivors, double *out, int64_t f)
{
    /* halves the time if survivors are in random order and value[] is in no cache */
    enum { AHEAD = 32 };
    for (int64_t l = 0; l < f; l++) {
        if (l + AHEAD < f)
            FGC_PREFETCH(value + 2 * survivors[l + AHEAD]);
        out[2 * l] = value[2 * survivors[l]];
        out[2 * l + 1] = value[2 * survivors[l] + 1];
    }
}

/* Return the index of the last of f complex numbers that is not finite; -1 if all are finite. */
static int64_t last_beyond(const double *out, int64_t f)
{
    int64_t beyond = 0;
    for (int64_t l = 0; l < 2 * f; l++)
        beyond |= !isfinite(out[l]);
    if (beyond)
        for (int64_t l = f; l-- > 0;)
            if (!isfinite(out[2 * l]) || !isfinite(out[2 * l + 1]))
                return l;
    return -1;
}

/* Return the sum of the squares of f complex numbers, in as many partial sums as a SIMD vector holds. */
static double square_sum(const double *out, int64_t f)
{
    double sum[FGC_PAD] = {0};
    int64_t l = 0;
    for (; l + FGC_PAD <= 2 * f; l += FGC_PAD)
        for (int i = 0; i < FGC_PAD; i++)
            sum[i] += out[l + i] * out[l + i];
    for (; l < 2 * f; l++)
        sum[0] += out[l] * out[l];
    double all = 0;
    for (int i = 0; i < FGC_PAD; i++)
        all += sum[i];
    return all;
}

static fgc_status range_status(const double *out, int64_t *where, int64_t f)
{
    const int64_t beyond = last_beyond(out, f);
    if (beyond < 0)
        return FGC_OK;
    *where = beyond;
    return FGC_OVERFLOW;
}

fgc_status fgc_decoding_vector(const fgc_cyclic *code, const int64_t *survivors, double *out, int64_t *where,
                               void *work, double longest, fgc_method method, int64_t f)
{
    const int64_t n = code->workers;
    double *value = work;
    int64_t *index = (int64_t *)(value + 2 * n);
    unsigned char *present = (unsigned char *)(index + n);
    const fgc_status status = fgc_mark(code, survivors, present, where, f);
    if (status)
        return status;
    const int chosen = decode_marked(code, method, present, index, value);
    gather(value, survivors, out, f);
    /* A product of at most FGC_RUN factors does not overflow. */
    if ((method == FGC_LOOKUP ? f : n - f) > FGC_RUN || chosen) {
        const fgc_status range = range_status(out, where, f);
        if (range)
            return range;
    }
    return isinf(longest) || square_sum(out, f) <= longest ? FGC_OK : FGC_IMPRECISE;
}

typedef struct {
    const fgc_cyclic *code;
    unsigned char *masks;
    double *out;
    int64_t *where;
    double longest;
    fgc_method method;
    int64_t rounds, part;
    atomic_int failed;
} decoding;

static void decode_rounds(void *data, int from, int to)
{
    decoding *const it = data;
    const int64_t n = it->code->workers, first = from * it->part;
    const int64_t end = it->rounds < to * it->part ? it->rounds : to * it->part;
    int64_t *index = malloc((size_t)n * sizeof *index);
    if (!index) {
        atomic_store_explicit(&it->failed, 1, memory_order_relaxed);
        return;
    }
    for (int64_t r = first; r < end; r++) {
        unsigned char *const present = it->masks + r * n;
        double *const value = it->out + 2 * r * n;
        it->where[r] = missing(it->code, present);
        if (it->where[r])
            continue;
        decode_marked(it->code, it->method, present, index, value);
        for (int64_t i = 0; i < n; i++)
            if (!present[i])
                value[2 * i] = value[2 * i + 1] = 0;
        if (last_beyond(value, n) >= 0)
            it->where[r] = -1;
        else if (!isinf(it->longest) && !(square_sum(value, n) <= it->longest))
            it->where[r] = -2;
    }
    free(index);
}

fgc_status fgc_decoding_vectors(const fgc_cyclic *code, unsigned char *masks, double *out, int64_t *where,
                                double longest, fgc_method method, int64_t rounds)
{
    enum { LINE = 8 }; /* entries of where[] in a cache line, which only one thread is to write */
    const int64_t n = code->workers, all = rounds * n, present = count_marks(masks, all);
    const int64_t factors = method == FGC_LOOKUP || 2 * present < all ? present : all - present;
    int64_t part = (rounds + FGC_PIECES / 16 - 1) / (FGC_PIECES / 16);
    part = (part + LINE - 1) / LINE * LINE;
    decoding it = {.code = code,
                   .masks = masks,
                   .out = out,
                   .where = where,
                   .longest = longest,
                   .method = method,
                   .rounds = rounds,
                   .part = part};
    /* Eight factors take a nanosecond; everything else takes two nanoseconds a worker. */
    if (rounds)
        fgc_pool_run(decode_rounds, &it, (int)((rounds + part - 1) / part), factors * n / 8 + 2 * all);
    return it.failed ? FGC_NO_MEMORY : FGC_OK;
}

fgc_status fgc_polar_vector(const fgc_cyclic *code, const int64_t *survivors, const unsigned char *present,
                            const double *size, double *out, int64_t *where, void *work, int64_t f)
{
    const int64_t n = code->workers;
    double *const value = work;
    unsigned char *const odd = (unsigned char *)(value + 2 * n);
    for (int64_t b = 0; b < code->blocks; b++) {
        const int64_t s = code->start[b], m = code->start[b + 1] - s;
        const int64_t q = modulo(code->q[b], m), circle = 2 * m;
        /* The magnitudes are given; this finds the phases. For worker i and each straggler j let
         * x = q i mod m, y = q j mod m, and r = q (i - j) mod m. All sines of pi r / m are positive, so the
         * angles pi r / m add up. Over the stragglers, sum r = lost x - sum y + m #{y > x}. The last term
         * gives a sign, of which only the parity counts: odd[x]. */
        int64_t lost = 0, sum = 0, x = 0;
        memset(odd, 0, (size_t)m);
        for (int64_t i = 0; i < m; i++) {
            if (!present[s + i]) {
                odd[x] = 1;
                lost++;
                sum += x;
            }
            x += q;
            x -= x >= m ? m : 0;
        }
        unsigned char above = 0;
        for (int64_t y = m; y-- > 0;) {
            const unsigned char here = odd[y];
            odd[y] = above;
            above ^= here;
        }
        /* x is q i less a multiple of m. Of this, too, only the parity counts: `wrapped`. */
        const phases by = {.turn = modulo(-sum, circle),
                           .stride = modulo(lost * q, circle),
                           .quarter = (int)modulo(-lost, 4),
                           .scale = 1.0};
        unsigned char wrapped = 0;
        x = 0;
        for (int64_t lo = 0; lo < m; lo += FGC_CHUNK) {
            const int64_t len = m - lo < FGC_CHUNK ? m - lo : FGC_CHUNK;
            double product[FGC_CHUNK];
            for (int64_t i = 0; i < len; i++) {
                const double sign[2] = {1, -1};
                product[i] = sign[odd[x] ^ wrapped] * size[s + lo + i];
                x += q;
                if (x >= m) {
                    x -= m;
                    wrapped ^= (unsigned char)(lost & 1);
                }
            }
            turn(code, b, &by, lo, len, product, value + 2 * (s + lo));
        }
    }
    gather(value, survivors, out, f);
    return range_status(out, where, f);
}

int fgc_survivor_mask(int64_t n, const int64_t *survivors, uint8_t *bits, int64_t f)
{
    unsigned twice = 0;
    memset(bits, 0, (size_t)(n + 7) / 8);
    for (int64_t l = 0; l < f; l++) {
        const uint64_t i = (uint64_t)survivors[l];
        if (i >= (uint64_t)n)
            return 1;
        twice |= bits[i / 8] >> i % 8 & 1;
        bits[i / 8] |= (uint8_t)(1 << i % 8);
    }
    return (int)twice;
}
