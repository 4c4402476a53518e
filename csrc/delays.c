/* Random delays of workers.
 *
 * The random number of (key, round, worker) is SplitMix64's (Steele, Lea, Flood 2014) at a counter, so
 * that rounds can be drawn in any pieces, on any thread. Minus the logarithm of its upper 52 bits is
 * exponential; its lower 32 bits put simultaneous messages in random order.
 *
 * Every backend and level rounds alike: this file is compiled without fused multiply-adds. */
#include <string.h>

#include "vector.h"

static const uint64_t STEP = 0x9E3779B97F4A7C15u;
/* log(2) as a sum; the last 13 bits of the high part are 0 */
static const double LN2_HIGH = 0.6931471805592082, LN2_LOW = 7.371002565167799e-13;

static FGC_INLINE uint64_t mixed(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static const uint64_t ONE = 0x3FF0000000000000u; /* the bits of 1.0 */

/* Return -log u for u = 1 - (r + 1/2) 2^-52, where r is the upper 52 bits. With u = 2^e m, m in
 * [sqrt(1/2), sqrt(2)), log m = 2 s + s^3 P(s^2), s = (m - 1) / (m + 1). */
static FGC_INLINE double exponential(uint64_t random)
{
    const double u = 2 - from_bits(random >> 12 | ONE) - 0x1p-53;
    const uint64_t above = bits_of(u) + (ONE - 0x3FE6A09E667F3BCDu); /* moves sqrt(1/2) to 1 */
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

/* Return e^x, 0 <= x <= 700, as 2^k e^r with |r| <= log(2) / 2, and e^r = 1 + r + r^2 Q(r). */
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

/* Return a number from 1 to 1 + 2^-40, by the lower 32 bits. */
static FGC_INLINE double apart(uint64_t random)
{
    return 1 + (from_bits((random << 32) >> 12 | ONE) - 1) * 0x1p-40;
}

void FGC_AT_LEVEL(fgc_draw)(const fgc_delays *delays, int64_t first, int64_t rounds, double *wait, double *whole)
{
    const int64_t n = delays->workers, period = delays->repeats * n;
    const double onset = delays->onset;
    const int64_t from = (first - delays->start) * n; /* where given numbers begin */
    if (delays->whole) {
        memcpy(wait, delays->given + from, (size_t)(rounds * n) * sizeof *wait);
        memcpy(whole, delays->whole + from, (size_t)(rounds * n) * sizeof *whole);
        return;
    }
    for (int64_t at = 0; at < rounds * n; at += period) {
        const int64_t count = rounds * n - at < period ? rounds * n - at : period;
        const uint64_t counter = delays->key + ((uint64_t)first * n + at) * STEP;
        const double *const shift = delays->shift, *const scale = delays->scale;
        const double *const power = delays->power, *const load = delays->load;
        const double *const work = delays->work;
        double *const begin = wait + at, *const factor = whole + at;
        if (delays->given) {
            memcpy(begin, delays->given + from + at, (size_t)count * sizeof *begin);
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
