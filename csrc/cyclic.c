/* Products over a cyclic table: the arithmetic of both decoding-vector methods. */
#include <string.h>

#include "levels.h"

#if FGC_VECTOR
typedef double vector __attribute__((vector_size(FGC_VECTOR)));
#else
typedef double vector; /* on which the same expressions mean the same */
#endif

/* Eight independent chains hide the latency of a multiplication. */
enum { LANES = sizeof(vector) / sizeof(double), CHAINS = 8 };

static FGC_INLINE void block(const double *at, const int64_t *index, int64_t count,
                             double *product, int vectors)
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

/* product[i] 2^exponent[i] = product over j of table[m + i - index[j]], i = 0 .. m-1.
 *
 * `table` spans offsets -m .. m-1, so that the cyclic reads of one index j are one contiguous slice:
 * no gather. `product` and `exponent` have room for m rounded up to FGC_PAD. Zero factors are
 * allowed and give zero. */
void FGC_AT_LEVEL(fgc_cyclic_product)(const double *table, int64_t m, const int64_t *index,
                                      int64_t count, double *product, int64_t *exponent)
{
    const int64_t padded = (m + LANES - 1) / LANES * LANES;
    for (int64_t i = 0; i < padded; i++) {
        product[i] = 1.0;
        exponent[i] = 0;
    }
    for (int64_t done = 0; done < count; done += FGC_RUN) {
        const int64_t run = count - done < FGC_RUN ? count - done : FGC_RUN;
        const double *at = table + m;
        int64_t i = 0;
        for (; i + CHAINS * LANES <= padded; i += CHAINS * LANES)
            block(at + i, index + done, run, product + i, CHAINS);
        for (; i + 2 * LANES <= padded; i += 2 * LANES)
            block(at + i, index + done, run, product + i, 2);
        for (; i < padded; i += LANES)
            block(at + i, index + done, run, product + i, 1);
        if (done + FGC_RUN >= count)
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
