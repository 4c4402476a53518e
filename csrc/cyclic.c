/* Products over a cyclic table: the arithmetic of both decoding-vector methods. */
#include <string.h>

#include "levels.h"

/* Factors multiplied between two normalisations. A factor lies between pi/m and m/pi, so that 32
 * of them stay inside a double's range for every m below 2^31. */
enum { RUN = 32 };

static FGC_INLINE void block(const double *at, const int64_t *index, int64_t count,
                             double *product, int vectors)
{
    fgc_vector acc[8], factor;
    for (int v = 0; v < vectors; v++)
        memcpy(&acc[v], product + v * FGC_LANES, sizeof acc[v]);
    for (int64_t j = 0; j < count; j++)
        for (int v = 0; v < vectors; v++) {
            memcpy(&factor, at - index[j] + v * FGC_LANES, sizeof factor);
            acc[v] *= factor;
        }
    for (int v = 0; v < vectors; v++)
        memcpy(product + v * FGC_LANES, &acc[v], sizeof acc[v]);
}

/* product[i] 2^exponent[i] = product over j of table[m + i - index[j]], i = 0 .. m-1.
 *
 * `table` spans offsets -m .. m-1, so that the cyclic reads of one index j are one contiguous slice:
 * no gather. `product` and `exponent` have room for m rounded up to FGC_LANES. Zero factors are
 * allowed and give zero. */
void FGC_AT_LEVEL(fgc_cyclic_product)(const double *table, int64_t m, const int64_t *index,
                                      int64_t count, double *product, int64_t *exponent)
{
    const int64_t padded = (m + FGC_LANES - 1) / FGC_LANES * FGC_LANES;
    for (int64_t i = 0; i < padded; i++) {
        product[i] = 1.0;
        exponent[i] = 0;
    }
    for (int64_t done = 0; done < count; done += RUN) {
        const int64_t run = count - done < RUN ? count - done : RUN;
        const double *at = table + m;
        int64_t i = 0;
        /* Eight independent chains hide the latency of the multiplication. */
        for (; i + 8 * FGC_LANES <= padded; i += 8 * FGC_LANES)
            block(at + i, index + done, run, product + i, 8);
        for (; i + 2 * FGC_LANES <= padded; i += 2 * FGC_LANES)
            block(at + i, index + done, run, product + i, 2);
        for (; i < padded; i += FGC_LANES)
            block(at + i, index + done, run, product + i, 1);
        if (done + RUN >= count)
            return;
        for (i = 0; i < padded; i++) {
            uint64_t bits, scale;
            double factor;
            memcpy(&bits, product + i, sizeof bits);
            const int64_t biased = (int64_t)(bits >> 52 & 0x7ff);
            const int64_t e = biased ? biased - 1023 : 0; /* zero stays zero */
            scale = (uint64_t)(1023 - e) << 52;
            memcpy(&factor, &scale, sizeof factor);
            product[i] *= factor;
            exponent[i] += e;
        }
    }
}
