/* When messages suffice, if that is a matter of counting: of rounds that run, and of those simulated. */
#ifndef FASTGC_TALLY_H
#define FASTGC_TALLY_H

#include <stdint.h>

/* Count a message of a block. lacking[block] = how many messages of the block are still needed, and *due =
 * the weight that blocks with enough messages still lack. Returns whether the messages suffice. */
static inline int fgc_count(int64_t block, const int64_t *weight, int64_t *lacking, int64_t *due)
{
    if (--lacking[block] == 0)
        *due -= weight[block];
    return *due <= 0;
}

#endif
