/* Products over a cyclic table, computed anew or kept current: the arithmetic of decoding vectors. */
#include <math.h>
#include <string.h>

#include "vector.h"

/* Eight independent chains hide the latency of a multiplication. */
enum { CHAINS = 8 };

static FGC_INLINE void block(const double *at, const int64_t *index, int64_t count, double *product, int vectors)
{
    vector acc[CHAINS], factor;
    for (int v = 0; v < vectors; v++)
        memcpy(&acc[v], product + v * LANES, sizeof acc[v]);
    for (int64_t j = 0; j < count; j++)
        for (int v = 0; v < vectors; v++) {
            memcpy(&factor, at - index[j] + v * LANES, sizeof factor);
            acc[v] *= factor;
        }
    for (int v = 0; v < vectors; v++)
        memcpy(product + v * LANES, &acc[v], sizeof acc[v]);
}

/* Move the binary exponents of product[0 .. len-1] to exponent[]; zero stays zero. */
static FGC_INLINE void normalise(int64_t len, double *product, int64_t *exponent)
{
    for (int64_t i = 0; i < len; i++) {
        const int64_t biased = (int64_t)(bits_of(product[i]) >> 52 & 0x7ff);
        const int64_t e = biased ? biased - 1023 : 0;
        product[i] *= power_of_two(-e);
        exponent[i] += e;
    }
}

/* The factors of one index are one contiguous slice of the table, so nothing is gathered. */
void FGC_AT_LEVEL(fgc_cyclic_product)(const double *table, int64_t len, const int64_t *index, int64_t count,
                                      double *product, int64_t *exponent)
{
    const int64_t padded = (len + LANES - 1) / LANES * LANES;
    for (int64_t i = 0; i < padded; i++)
        product[i] = 1.0;
    if (count > FGC_RUN)
        memset(exponent, 0, (size_t)padded * sizeof *exponent);
    for (int64_t done = 0; done < count; done += FGC_RUN) {
        const int64_t run = count - done < FGC_RUN ? count - done : FGC_RUN;
        int64_t i = 0;
        for (; i + CHAINS * LANES <= padded; i += CHAINS * LANES)
            block(table + i, index + done, run, product + i, CHAINS);
        for (; i + 2 * LANES <= padded; i += 2 * LANES)
            block(table + i, index + done, run, product + i, 2);
        for (; i < padded; i += LANES)
            block(table + i, index + done, run, product + i, 1);
        if (done + FGC_RUN < count)
            normalise(padded, product, exponent);
    }
}

void FGC_AT_LEVEL(fgc_cyclic_size)(const double *product, const int64_t *exponent, int64_t len, double *size)
{
    for (int64_t i = 0; i < len; i++) {
        /* by two powers of two, neither of which leaves the range unless the result does */
        const int64_t most = 2 * 1022;
        int64_t e = exponent[i] < most ? exponent[i] : most;
        e = e > -most ? e : -most;
        size[i] = product[i] * power_of_two(e / 2) * power_of_two(e - e / 2);
    }
}

/* For large m, phases lie far apart in a table that does not fit a cache. So only one phase in STEPS is
 * looked up; the others are its products with the phases 0 .. STEPS-1 strides ahead. */
void FGC_AT_LEVEL(fgc_turn)(const double *phase, int64_t m, int64_t turn, int64_t stride, int quarter,
                            double scale, const double *size, int64_t len, double *value)
{
    enum { STEPS = 16 };
    const int64_t circle = 2 * m;
    double re[STEPS], im[STEPS];
    int64_t t = 0;
    for (int r = 0; r < STEPS; r++) {
        re[r] = phase[2 * t];
        im[r] = phase[2 * t + 1];
        t += stride;
        t -= t >= circle ? circle : 0;
    }
    const int64_t leap = t;
    for (int64_t i = 0; i < len; i += STEPS) {
        const double x = scale * phase[2 * turn], y = scale * phase[2 * turn + 1];
        const double bx = quarter == 0 ? x : quarter == 1 ? -y : quarter == 2 ? -x : y;
        const double by = quarter == 0 ? y : quarter == 1 ? x : quarter == 2 ? -y : -x;
        turn += leap;
        turn -= turn >= circle ? circle : 0;
        if (i + STEPS <= len)
            for (int r = 0; r < STEPS; r++) {
                value[2 * (i + r)] = size[i + r] * (bx * re[r] - by * im[r]);
                value[2 * (i + r) + 1] = size[i + r] * (bx * im[r] + by * re[r]);
            }
        else
            for (int r = 0; r < len - i; r++) {
                value[2 * (i + r)] = size[i + r] * (bx * re[r] - by * im[r]);
                value[2 * (i + r) + 1] = size[i + r] * (bx * im[r] + by * re[r]);
            }
    }
}

/* Return the first index whose score is at least `least`. The largest score is at least that. */
static FGC_INLINE int64_t first_at_least(const double *score, double least)
{
    int64_t i = 0;
    while (!any_at_least(load(score + i), least))
        i += LANES;
    while (score[i] < least)
        i++;
    return i;
}

/* A worker's score is the product of its distances to the workers kept so far. Each step keeps the first
 * worker whose score is within rounding of the largest: by symmetry many are equally far, and rounding must
 * not decide between them. O(m need). */
void FGC_AT_LEVEL(fgc_keep_spread)(const double *sine, int64_t m, int64_t need, unsigned char *present,
                                   double *score)
{
    enum { KEPT = 2 };
    const int64_t padded = (m + LANES - 1) / LANES * LANES;
    double largest = 1;
    for (int64_t i = 0; i < padded; i++)
        score[i] = i < m ? present[i] : 0;
    for (int64_t step = 0; step < need; step++) {
        int64_t best = 0;
        if (largest > 0)
            best = first_at_least(score, largest * (1 - 1e-9));
        else /* all scores have underflowed */
            while (present[best] != 1)
                best++;
        present[best] = KEPT;
        const double *const distance = sine + m - best;
        const vector scale = spread(largest > 0 ? 1 / largest : 1);
        vector top[2] = {{0}, {0}};
        for (int64_t i = 0; i < padded; i += LANES) {
            const vector s = load(score + i) * (magnitude(load(distance + i)) * scale);
            store(score + i, s);
            top[i / LANES % 2] = larger(s, top[i / LANES % 2]);
        }
        double all[LANES];
        store(all, larger(top[0], top[1]));
        largest = all[0];
        for (int lane = 1; lane < LANES; lane++)
            largest = all[lane] > largest ? all[lane] : largest;
    }
    for (int64_t i = 0; i < m; i++)
        present[i] = present[i] == KEPT;
}
