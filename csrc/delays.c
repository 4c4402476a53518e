/* Random delays of workers, with their works.
 *
 * The number of (key, round, worker) is SplitMix64's (Steele, Lea, Flood 2014) at a counter, so that
 * rounds can be drawn in any pieces, on any thread. Its upper 52 bits make an exponential, by minus the
 * logarithm; its lower 32 draw apart what would come at the same moment. All backends round alike: this
 * file is compiled without fused multiply-adds. */
#include <math.h>
#include <string.h>

#include "sieve.h"
#include "vector.h"

static const uint64_t STEP = 0x9E3779B97F4A7C15u;
static const double LN2_HIGH = 0.6931471805592082, LN2_LOW = 7.371002565167799e-13; /* 13 bits are 0 */

#define MIXED(name, type)                                                                          \
    static FGC_INLINE type name(type z)                                                            \
    {                                                                                              \
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;                                                   \
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;                                                   \
        return z ^ z >> 31;                                                                        \
    }
MIXED(mixed, uint64_t)
MIXED(mixed_words, words)

static FGC_INLINE double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static FGC_INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static const uint64_t ONE = 0x3FF0000000000000u; /* the bits of 1.0 */

/* -log u for u = 1 - (r + 1/2) 2^-52, r the upper bits: u = 2^e m with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 s + s^3 P(s^2), s = (m - 1) / (m + 1). */
static FGC_INLINE double exponential(uint64_t random)
{
    const double u = 2 - from_bits(random >> 12 | ONE) - 0x1p-53;
    const uint64_t above = bits_of(u) + (ONE - 0x3FE6A09E667F3BCDu); /* sqrt(1/2) to 1 */
    const uint64_t e = above >> 52;
    const double exponent = from_bits(e | 0x4330000000000000u) - (0x1p52 + 1023);
    const double m = from_bits(bits_of(u) + ONE - (e << 52));
    const double s = (m - 1) / (m + 1), z = s * s;
    double p = 0.14616449685043406;
    p = p * z + 0.15331721600556042;
    p = p * z + 0.18182889125261723;
    p = p * z + 0.2222221113479508;
    p = p * z + 0.28571428625975487;
    p = p * z + 0.39999999999899505;
    p = p * z + 0.666666666666667;
    return -(exponent * LN2_HIGH + (2 * s + (s * z * p + exponent * LN2_LOW)));
}

/* e^x, 0 <= x <= 700: 2^k e^r with |r| <= log(2) / 2, and e^r = 1 + r + r^2 Q(r). */
static FGC_INLINE double power_of_e(double x)
{
    const double shifted = x * 1.4426950408889634 + 0x1.8p52, k = shifted - 0x1.8p52;
    const double r = x - k * LN2_HIGH - k * LN2_LOW;
    double q = 2.5100375832561234e-08;
    q = q * r + 2.7620075879983367e-07;
    q = q * r + 2.7557268480310024e-06;
    q = q * r + 2.4801521322368692e-05;
    q = q * r + 0.00019841269863040545;
    q = q * r + 0.0013888888917196719;
    q = q * r + 0.008333333333330065;
    q = q * r + 0.041666666666624164;
    q = q * r + 0.16666666666666669;
    q = q * r + 0.5000000000000001;
    const double p = 1 + (r + r * r * q);
    return from_bits(bits_of(p) + (bits_of(shifted) << 52));
}

/* 1 to 1 + 2^-40, by the lower bits. */
static FGC_INLINE double apart(uint64_t random)
{
    return 1 + (from_bits((random << 32) >> 12 | ONE) - 1) * 0x1p-40;
}

void FGC_AT_LEVEL(fgc_draw)(const fgc_delays *delays, int64_t first, int64_t rounds, double *wait,
                            double *whole)
{
    const int64_t n = delays->workers, period = delays->repeats * n;
    const double onset = delays->onset;
    for (int64_t at = 0; at < rounds * n; at += period) {
        const int64_t count = rounds * n - at < period ? rounds * n - at : period;
        const uint64_t counter = delays->key + ((uint64_t)first * n + at) * STEP;
        const double *const shift = delays->shift, *const scale = delays->scale;
        const double *const power = delays->power, *const load = delays->load;
        const double *const work = delays->work;
        double *const begin = wait + at, *const factor = whole + at;
        if (delays->given) {
            memcpy(begin, delays->given + at, (size_t)count * sizeof *begin);
            for (int64_t i = 0; i < count; i++)
                factor[i] = apart(mixed(counter + (uint64_t)(i + 1) * STEP));
        } else {
            for (int64_t i = 0; i < count; i++) {
                const uint64_t random = mixed(counter + (uint64_t)(i + 1) * STEP);
                begin[i] = exponential(random);
                factor[i] = apart(random);
            }
            if (delays->powers)
                for (int64_t i = 0; i < count; i++) {
                    const double x = begin[i], e = power_of_e(x * power[i]);
                    begin[i] = power[i] > 0 ? e : x;
                }
            for (int64_t i = 0; i < count; i++)
                begin[i] = shift[i] + scale[i] * begin[i];
        }
        for (int64_t i = 0; i < count; i++) {
            const double time = begin[i], by = factor[i];
            begin[i] = time * onset * by;
            factor[i] = (time * load[i] + work[i]) * by;
        }
    }
}

/* -------------------------------------------------------------------------------------- sieves */

/* The least random number, nearly, whose h is not below this one, from 0 to DEEP. */
static uint64_t random_of(double h)
{
    return h < 0.5 ? (uint64_t)(-expm1(-h) * 0x1p64) : -(uint64_t)(exp(-h) * 0x1p64);
}

/* Whether those at places j-1 and j in the order of the sieve are late by the same law. */
static int alike(const fgc_sieve *s, int64_t j)
{
    const fgc_delays *d = s->delays;
    const int64_t i = s->worker[j], k = s->worker[j - 1];
    return d->shift[i] == d->shift[k] && d->scale[i] == d->scale[k] && d->power[i] == d->power[k];
}

/* And whether they work as long. */
static int same_work(const fgc_sieve *s, int64_t j)
{
    const fgc_delays *d = s->delays;
    const int64_t i = s->worker[j], k = s->worker[j - 1];
    return d->load[i] == d->load[k] && d->work[i] == d->work[k];
}

/* h of a worker's delay, if that is possible, else 0. */
static double hazard_of(const fgc_delays *d, int64_t i, double delay)
{
    double h = (delay - d->shift[i]) / d->scale[i];
    if (d->power[i] > 0)
        h = h > 1 ? log(h) / d->power[i] : 0;
    return h > 0 ? h : 0;
}

void FGC_AT_LEVEL(fgc_start_sieve)(fgc_sieve *s)
{
    s->alike = s->same_work = 1;
    for (int64_t j = 0; j < s->workers; j++) {
        s->step[j] = (uint64_t)(s->worker[j] + 1) * STEP;
        s->alike &= j == 0 || alike(s, j);
        s->same_work &= j == 0 || same_work(s, j);
    }
}

/* In times there is room for whatever rounding does, and for the factor between 1 and 1 + 2^-40: a part
 * in 2^36. In random numbers, for the lower 12 bits, of which h does not depend, and the half above. */
void FGC_AT_LEVEL(fgc_set_sieve)(const fgc_sieve *s, double low, double high)
{
    enum { DEEP = 16, ROOM = 1 << 13 };
    const fgc_delays *d = s->delays;
    for (int64_t j = 0; j < s->workers; j++) {
        const int64_t i = s->worker[j];
        if (j && alike(s, j) && same_work(s, j)) {
            s->early[j] = s->early[j - 1];
            s->late[j] = s->late[j - 1];
            continue;
        }
        s->early[j] = 0;
        s->late[j] = UINT64_MAX;
        if (!(d->scale[i] > 0))
            continue;
        const double soon = (low * (1 - 0x1p-36) - d->work[i]) / (d->onset + d->load[i]);
        const double h = hazard_of(d, i, soon);
        const uint64_t random = random_of(h < DEEP ? h : DEEP);
        s->early[j] = random > ROOM ? random - ROOM : 0;
        const double end = hazard_of(d, i, high * (1 + 0x1p-36) / d->onset);
        if (d->onset > 0 && end < DEEP)
            s->late[j] = random_of(end) + ROOM;
    }
}

/* In vectors of rounds: of a worker all that matters is the same in all of them. */
int64_t FGC_AT_LEVEL(fgc_sift)(const fgc_sieve *s, int64_t round, int64_t lo, int64_t hi,
                               double *random, double *place, double *key,
                               int64_t came[FGC_ABREAST])
{
    enum { PARTS = FGC_ABREAST / LANES };
    uint64_t counter[FGC_ABREAST];
    int64_t index[FGC_ABREAST];
    for (int t = 0; t < FGC_ABREAST; t++) {
        index[t] = t;
        counter[t] = s->delays->key + (uint64_t)(round + t) * (uint64_t)s->workers * STEP;
    }
    lanes at[PARTS], count[PARTS];
    words from[PARTS];
    memcpy(at, index, sizeof at);
    memcpy(from, counter, sizeof from);
    memset(count, 0, sizeof count);
    int64_t kept = 0;
    for (int64_t j = lo; j < hi; j++) {
        FGC_UNROLL
        for (int p = 0; p < PARTS; p++) {
            const words z = mixed_words(from[p] + s->step[j]);
            const lanes early = ALL_BITS(z < s->early[j]), late = ALL_BITS(z > s->late[j]);
            count[p] -= early;
            store(key + j * FGC_ABREAST + p * LANES, pick(late, spread(INFINITY), spread(0)));
            vector bits;
            memcpy(&bits, &z, sizeof bits);
            keep(random + kept, ~(early | late), bits);
            const lanes here = at[p] + j * FGC_ABREAST;
            memcpy(&bits, &here, sizeof bits);
            kept += keep(place + kept, ~(early | late), bits);
        }
    }
    memcpy(came, count, sizeof count);
    return kept;
}

void FGC_AT_LEVEL(fgc_draw_sifted)(const fgc_sieve *s, int64_t count, const double *random,
                                   const double *place, double *begin, double *whole)
{
    enum { CHUNK = 64 };
    const fgc_delays *d = s->delays;
    double shift[CHUNK], scale[CHUNK], power[CHUNK], load[CHUNK], work[CHUNK];
    double time[CHUNK], by[CHUNK];
    const int64_t any = s->worker[0];
    for (int64_t j = 0; j < CHUNK; j++) {
        shift[j] = d->shift[any];
        scale[j] = d->scale[any];
        power[j] = d->power[any];
        load[j] = d->load[any];
        work[j] = d->work[any];
    }
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t some = count - at < CHUNK ? count - at : CHUNK;
        for (int64_t j = 0; j < some && !s->alike; j++) {
            const int64_t i = s->worker[bits_of(place[at + j]) / FGC_ABREAST];
            shift[j] = d->shift[i];
            scale[j] = d->scale[i];
            power[j] = d->power[i];
        }
        for (int64_t j = 0; j < some && !s->same_work; j++) {
            const int64_t i = s->worker[bits_of(place[at + j]) / FGC_ABREAST];
            load[j] = d->load[i];
            work[j] = d->work[i];
        }
        for (int64_t j = 0; j < some; j++) {
            time[j] = exponential(bits_of(random[at + j]));
            by[j] = apart(bits_of(random[at + j]));
        }
        for (int64_t j = 0; j < some && d->powers; j++) {
            const double x = time[j], e = power_of_e(x * power[j]);
            time[j] = power[j] > 0 ? e : x;
        }
        for (int64_t j = 0; j < some; j++)
            time[j] = shift[j] + scale[j] * time[j];
        for (int64_t j = 0; j < some; j++)
            begin[at + j] = time[j] * d->onset * by[j];
        for (int64_t j = 0; j < some; j++)
            whole[at + j] = (time[j] * load[j] + work[j]) * by[j];
    }
}
