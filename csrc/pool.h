/* Threads that share the pieces of one job, and the time: see pool.c. */
#ifndef FASTGC_POOL_H
#define FASTGC_POOL_H

#include "fastgc.h"

/* Do pieces from .. to-1 of a job. Any thread may call it until the job is over. It must not start a
 * job. */
typedef void (*fgc_job)(void *data, int from, int to);

/* The most pieces of a job. */
enum { FGC_PIECES = 1024 };

/* Do pieces 0 .. pieces-1, each once, and return when all are done. A caller that works alone does them in
 * one call. `work`: about how many nanoseconds they take one thread. */
void fgc_pool_run(fgc_job job, void *data, int pieces, int64_t work);

/* Combine rows at these addresses, all of which are read. Sums of squares as for fgc_combine_part, unless
 * `squares` is NULL. Returns FGC_NOT_FINITE by FGC_CHECK, or FGC_NO_MEMORY, with nothing written. */
#define FGC_ROWS(kind, read, real)                                                                             \
    fgc_status fgc_combine_rows_##kind(const fgc_combination *plan, const uintptr_t *rows, const double *coef, \
                                       int64_t count, int flags, real *out, double *squares);
FGC_KINDS(FGC_ROWS)
#undef FGC_ROWS

/* Return the nanoseconds since some moment, which is the same for all processes of this machine. */
int64_t fgc_now(void);

#endif
