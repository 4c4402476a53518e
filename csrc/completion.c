/* When the messages of a simulated round suffice.
 *
 * Every backend rounds alike, so that their whole numbers agree even where times tie: this file is
 * compiled without fused multiply-adds, once. */
#include <math.h>
#include <stdlib.h>

#include "levels.h"

typedef struct {
    const fgc_completion_plan *plan;
    double *arrival;                    /* of each message */
    double *key, *spare;                /* what is selected from, and what lies beyond a pivot */
    int64_t *weight, *spare_weight;     /* FGC_CELLS: of the keys */
    int64_t *order, *bound;             /* FGC_BLOCKS: the messages by block, block b's from bound[b] */
    int64_t *parent;                    /* FGC_TILING: of each point, in a forest of components */
    int64_t *heap, *next, waiting;      /* workers by the arrival of their next message */
    uint64_t random;
} fgc_rounds;

/* A key near the one sought, of which `part` of the keys are smaller. At random: no order of arrivals
 * is bad for long. */
static double choose_pivot(fgc_rounds *r, const double *key, int64_t count, double part)
{
    enum { SAMPLE = 8 };
    double sample[SAMPLE];
    const int64_t size = count < 4 * SAMPLE ? 1 : SAMPLE;
    for (int64_t i = 0; i < size; i++) {
        r->random = r->random * 6364136223846793005u + 1442695040888963407u;
        const double x = key[(r->random >> 32) * (uint64_t)count >> 32];
        int64_t at = i;
        for (; at && sample[at - 1] > x; at--)
            sample[at] = sample[at - 1];
        sample[at] = x;
    }
    return sample[(int64_t)(part * (double)size)];
}

/* The smallest t such that the `count` keys up to t weigh `need` > 0, or each 1 if `weight` is NULL;
 * together they weigh `whole`. The arrays are overwritten. Splits without branches, for they would
 * be mispredicted. */
static FGC_INLINE double select_key(fgc_rounds *r, double *key, double *spare, int64_t *weight,
                                    int64_t *spare_weight, int64_t count, int64_t whole,
                                    int64_t need)
{
    if (need > whole)
        return INFINITY;
    for (;;) {
        const double pivot =
            choose_pivot(r, key, count, ((double)need - 0.5) / (double)whole);
        int64_t less = 0, more = 0, below = 0, above = 0;
        for (int64_t j = 0; j < count; j++) {
            const double x = key[j];
            key[less] = x;
            spare[more] = x;
            if (weight) {
                const int64_t w = weight[j];
                weight[less] = w;
                spare_weight[more] = w;
                below += x < pivot ? w : 0;
                above += x > pivot ? w : 0;
            }
            less += x < pivot;
            more += x > pivot;
        }
        if (!weight) {
            below = less;
            above = more;
        }
        if (need <= below) {
            count = less;
            whole = below;
        } else if (need <= whole - above) {
            return pivot;
        } else {
            need -= whole - above;
            count = more;
            whole = above;
            double *const other = key;
            key = spare;
            spare = other;
            int64_t *const other_weight = weight;
            weight = spare_weight;
            spare_weight = other_weight;
        }
    }
}

static double blocks_ready(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    double ready = 0;
    for (int64_t b = 0; b < plan->groups; b++) {
        if (!plan->need[b])
            continue;
        const int64_t lo = r->bound[b], hi = r->bound[b + 1];
        int64_t later = 0; /* than other blocks allow anyway */
        for (int64_t j = lo; j < hi; j++) {
            const double x = r->arrival[r->order[j]];
            r->key[later] = x;
            later += x > ready;
        }
        const int64_t lacking = plan->need[b] - (hi - lo - later);
        if (lacking > 0)
            ready = select_key(r, r->key, r->spare, NULL, NULL, later, later, lacking);
    }
    return ready;
}

static double cells_ready(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    int64_t whole = 0;
    for (int64_t c = 0; c < plan->groups; c++) {
        r->key[c] = INFINITY;
        r->weight[c] = plan->need[c];
        whole += plan->need[c];
    }
    const int64_t messages = plan->first[plan->workers];
    for (int64_t m = 0; m < messages; m++) {
        double *const earliest = r->key + plan->group[m];
        *earliest = r->arrival[m] < *earliest ? r->arrival[m] : *earliest;
    }
    if (plan->total <= 0)
        return 0;
    return select_key(r, r->key, r->spare, r->weight, r->spare_weight, plan->groups, whole,
                      plan->total);
}

/* ------------------------------------------------------------------ messages in order of arrival */

static double next_arrival(const fgc_rounds *r, int64_t at)
{
    return r->arrival[r->next[r->heap[at]]];
}

static void sift_down(fgc_rounds *r, int64_t at)
{
    const int64_t worker = r->heap[at];
    const double arrival = r->arrival[r->next[worker]];
    for (int64_t child; (child = 2 * at + 1) < r->waiting; at = child) {
        if (child + 1 < r->waiting && next_arrival(r, child + 1) < next_arrival(r, child))
            child++;
        if (arrival <= next_arrival(r, child))
            break;
        r->heap[at] = r->heap[child];
    }
    r->heap[at] = worker;
}

static void start_queue(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    r->waiting = 0;
    for (int64_t i = 0; i < plan->workers; i++) {
        r->next[i] = plan->first[i];
        r->heap[r->waiting] = i;
        r->waiting += plan->first[i] < plan->first[i + 1];
    }
    for (int64_t at = r->waiting / 2; at-- > 0;)
        sift_down(r, at);
}

static int64_t take_next(fgc_rounds *r)
{
    const int64_t worker = r->heap[0], message = r->next[worker]++;
    if (r->next[worker] == r->plan->first[worker + 1])
        r->heap[0] = r->heap[--r->waiting];
    if (r->waiting)
        sift_down(r, 0);
    return message;
}

static int64_t root(int64_t *parent, int64_t point)
{
    while (parent[point] != point)
        point = parent[point] = parent[parent[point]];
    return point;
}

static double tiling_ready(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t k = plan->total;
    double ready = 0;
    for (int64_t point = 0; point <= k; point++)
        r->parent[point] = point;
    start_queue(r);
    while (root(r->parent, 0) != root(r->parent, k)) {
        if (!r->waiting)
            return INFINITY;
        const int64_t m = take_next(r);
        r->parent[root(r->parent, plan->group[m])] = root(r->parent, plan->other[m]);
        ready = r->arrival[m];
    }
    return ready;
}

/* ------------------------------------------------------------------------------------- rounds */

/* Messages by block: a counting sort. */
static void sort_by_block(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t messages = plan->first[plan->workers];
    for (int64_t b = 0; b <= plan->groups; b++)
        r->bound[b] = 0;
    for (int64_t m = 0; m < messages; m++)
        r->bound[plan->group[m] + 1]++;
    for (int64_t b = 0; b < plan->groups; b++)
        r->bound[b + 1] += r->bound[b];
    /* Each block is filled from its end. */
    for (int64_t m = messages; m-- > 0;)
        r->order[--r->bound[plan->group[m] + 1]] = m;
    for (int64_t b = 0; b < plan->groups; b++)
        r->bound[b] = r->bound[b + 1];
    r->bound[plan->groups] = messages;
}

/* `sent`: the part of the work after which the last message that came was sent. Beside a long delay
 * the time since may have lost the digits that tell. */
static int64_t computed(int64_t load, double whole, double since, double sent)
{
    double part = since < 0 ? 0 : 1;
    if (whole > 0 && since < whole)
        part = since > 0 ? since / whole : 0;
    part = part > sent ? part : sent;
    return (int64_t)floor((double)load * part + 1e-9);
}

fgc_status fgc_completion(const fgc_completion_plan *plan, const double *delay, const double *work,
                          double *late, int64_t rounds, double receive, double overhead, int interrupted,
                          double *time, int64_t *messages, int64_t *workers,
                          int64_t *computations)
{
    const int64_t n = plan->workers, all = plan->first[n], groups = plan->groups;
    const int64_t keys = plan->kind == FGC_BLOCKS ? all : groups;
    const int64_t points = plan->kind == FGC_TILING ? plan->total + 1 : 0;
    char *memory = malloc((size_t)(all + 5 * keys + groups + 1 + points + 2 * n) * sizeof(double));
    if (!memory)
        return FGC_NO_MEMORY;
    fgc_rounds r = {.plan = plan, .random = 1};
    r.arrival = (double *)memory;
    r.key = r.arrival + all;
    r.spare = r.key + keys;
    r.weight = (int64_t *)(r.spare + keys);
    r.spare_weight = r.weight + keys;
    r.order = r.spare_weight + keys;
    r.bound = r.order + keys;
    r.parent = r.bound + groups + 1;
    r.heap = r.parent + points;
    r.next = r.heap + n;

    if (plan->kind == FGC_BLOCKS)
        sort_by_block(&r);
    for (int64_t round = 0; round < rounds; round++) {
        const double *const wait = delay + round * n, *const whole = work + round * n;
        for (int64_t i = 0; i < n; i++)
            for (int64_t m = plan->first[i]; m < plan->first[i + 1]; m++)
                r.arrival[m] = late[i] + wait[i] + whole[i] * plan->share[m];

        double ready;
        if (plan->kind == FGC_BLOCKS)
            ready = blocks_ready(&r);
        else
            ready = plan->kind == FGC_CELLS ? cells_ready(&r) : tiling_ready(&r);

        int64_t heard = 0, senders = 0, done = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t sent = 0;
            for (int64_t m = plan->first[i]; m < plan->first[i + 1]; m++)
                sent += r.arrival[m] <= ready;
            heard += sent;
            senders += sent > 0;
            done += computed(plan->loads[i], whole[i], ready - (late[i] + wait[i]),
                             sent ? plan->share[plan->first[i] + sent - 1] : 0);
        }
        double end = ready;
        if (receive > 0) {
            start_queue(&r);
            for (int64_t left = heard; left > 0; left--) {
                const double taken = r.arrival[take_next(&r)] + (double)left * receive;
                end = taken > end ? taken : end;
            }
        }
        time[round] = end;
        messages[round] = heard;
        workers[round] = senders;
        computations[round] = done;
        if (interrupted)
            continue;
        end += overhead;
        for (int64_t i = 0; i < n; i++) {
            double free_at = late[i];
            for (int64_t m = plan->first[i]; m < plan->first[i + 1] && free_at <= end; m++)
                free_at = r.arrival[m];
            late[i] = free_at > end ? free_at - end : 0;
        }
    }
    free(memory);
    return FGC_OK;
}
