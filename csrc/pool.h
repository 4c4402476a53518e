/* Threads that share the pieces of one job: see pool.c. */
#ifndef FASTGC_POOL_H
#define FASTGC_POOL_H

#include "fastgc.h"

/* One piece of a job. Any thread may do it, at any time until the job is over; it must not start a job. */
typedef void (*fgc_job)(void *data, int piece);

/* The most pieces there are. */
enum { FGC_PIECES = 1024 };

/* Do pieces 0 .. pieces-1, each once, and return when all are done. `work`: about how many nanoseconds
 * they take one thread. */
void fgc_pool_run(fgc_job job, void *data, int pieces, int64_t work);

/* The other threads that would be called to so much work, if they are free; with none, or fewer, there is
 * nothing to be gained by pieces. */
int fgc_pool_helpers(int pieces, int64_t work);

#endif
