/* Rounds of which few delays need to be known exactly: when they are ready is known nearly, and so of
 * most workers by their random numbers alone that their messages come before, or that they begin after. */
#ifndef FASTGC_SIEVE_H
#define FASTGC_SIEVE_H

#include "levels.h"

/* Rounds that are sifted at a time. */
enum { FGC_ABREAST = 8 };

typedef struct {
    const fgc_delays *delays;
    int64_t workers;
    int64_t *worker;  /* the order in which they are sifted, */
    uint64_t *step;   /* where their random numbers are in a round's, */
    uint64_t *early;  /* and below which their messages come before, */
    uint64_t *late;   /* or above which they begin after */
    int alike;        /* whether all are late by the same law, */
    int same_work;    /* and work as long */
} fgc_sieve;

/* With `delays`, `workers` and `worker` given. */
void FGC_AT_LEVEL(fgc_start_sieve)(fgc_sieve *s);

/* For rounds that are ready from `low` to `high`. */
void FGC_AT_LEVEL(fgc_set_sieve)(const fgc_sieve *s, double low, double high);

/* FGC_ABREAST rounds from `round` on, of workers lo .. hi-1 in the order of the sieve. What is neither
 * early nor late: the bits of its random number, and of its place, FGC_ABREAST times the worker in that
 * order and the round. Returns how many these are, with room for as many more. `key`: of each place 0 if
 * it is early, Inf if late. `came`: how many of each round are early. */
int64_t FGC_AT_LEVEL(fgc_sift)(const fgc_sieve *s, int64_t round, int64_t lo, int64_t hi,
                               double *random, double *place, double *key,
                               int64_t came[FGC_ABREAST]);

/* When those at such places begin, and how long they work. */
void FGC_AT_LEVEL(fgc_draw_sifted)(const fgc_sieve *s, int64_t count, const double *random,
                                   const double *place, double *begin, double *whole);

#endif
