/* Simulated rounds: when their messages suffice. Their delays are drawn by delays.c.
 *
 * A round fills in its arrivals, finds when it is ready by the plan's rule, and counts the messages and
 * computations that are complete by then. Rules of two kinds are told apart:
 *
 * - Thresholds: every block needs so many of its messages, which is one selection a block. Cells are blocks
 *   that need one message if no cell can be left out, as in all repetition codes. If such a block has many
 *   messages, only those that come early are looked at.
 * - Tallies: all other rules take messages in order of arrival, from a heap of workers, until they suffice.
 *   FGC_SPAN goes backwards: the first message, from the latest on, that cannot be spared is the one that
 *   the round waits for. If rows are shorter than messages to spare are many, it goes forwards instead.
 *
 * Every backend and level rounds alike, so that their counts agree even where times tie: this file is
 * compiled without fused multiply-adds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "select.h"
#include "tally.h"

#define OFTEN 32 /* messages a block, from which on a round may do without looking at all of them */

/* A worker's next message: when it comes, its number, and the number after the worker's last. */
typedef struct {
    double at;
    int64_t message, end;
} coming;

/* The state that all rounds of one plan share. Arrays are read and written by whole vectors: beyond the last
 * worker or message is room for one more. Shares there are NaN, and so are arrivals: they never come. */
typedef struct {
    const fgc_completion_plan *plan;
    int single, thresholds;    /* whether every worker sends one message; whether blocks decide */
    int covers;                /* whether each block needs one message at most, and has many */
    double until;              /* covers: until when messages are looked at, at first */
    double *soonest;           /* covers: when the first message of each block comes */
    int64_t together;          /* rounds that are drawn together */
    double *waits, *works;     /* of these rounds: seconds until workers begin, seconds of work, */
    double *begins, *arrivals; /* and when workers begin and messages come, in rows of full vectors */
    double *whole, *begin;     /* the present round's row of these: seconds of work of each worker, when */
    double *arrival;           /* it begins, and when each message comes */
    double *late, *load;       /* when each worker is free; its computations */
    double *share;             /* of its work, after which it sends its message, if it is a single one */
    double *sent;              /* the share of its work after which its last message that came was sent */
    double *work[2];           /* for selections */
    int64_t *order, *bound;    /* messages by group, and where each group begins; FGC_SPAN: by arrival */
    int64_t *need;             /* messages needed of each block */
    window *windows;           /* one for each block, and one for workers */
    coming *heap;              /* workers by the arrival of their next message */
    int64_t waiting;           /* workers in the heap */
    int64_t *lacking;          /* messages that each cell lacks */
    fgc_vertex *vertices;      /* FGC_TILING: points; FGC_EDGES: blocks */
    fgc_tally tally;           /* of all rules but FGC_BLOCKS and FGC_SPAN */
    double *basis;             /* FGC_SPAN: an orthonormal basis of the spared rows, and one row more */
    int64_t held;              /* rows in the basis */
} rounds;

/* ---------------------------------------------------------------------------------- thresholds */

/* Return when every block has the messages that it needs. */
static double blocks_ready(rounds *r)
{
    double ready = 0;
    for (int64_t b = 0; b < r->plan->groups; b++) {
        const int64_t *const order = r->order + r->bound[b], count = r->bound[b + 1] - r->bound[b];
        double at = 0;
        if (r->need[b] == 1) {
            at = INFINITY;
            for (int64_t j = 0; j < count; j++)
                at = r->arrival[order[j]] < at ? r->arrival[order[j]] : at;
        } else if (r->need[b] > 1) {
            double *const key = r->plan->groups > 1 ? r->work[0] : r->arrival;
            for (int64_t j = 0; j < count && r->plan->groups > 1; j++)
                key[j] = r->arrival[order[j]];
            end_keys(key, count);
            at = select_rank(key, count, r->need[b], r->windows + b, r->work);
        }
        ready = at > ready ? at : ready;
    }
    return ready;
}

/* Return when every block has a message. A round needs a few thousand of a million messages, so only those up
 * to a guess are looked at: a quarter more than the last round took, doubled until all blocks have one. Of
 * each worker, the first later arrival is filled in, too. */
static double covered(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    for (;;) {
        double ready = 0;
        for (int64_t b = 0; b < plan->groups; b++)
            r->soonest[b] = INFINITY;
        for (int64_t i = 0; i < plan->workers; i++)
            for (int64_t m = plan->first[i]; m < plan->first[i + 1]; m++) {
                const double at = r->arrival[m] = r->begin[i] + r->whole[i] * plan->share[m];
                if (at > r->until)
                    break;
                double *const soonest = r->soonest + plan->group[m];
                *soonest = at < *soonest ? at : *soonest;
            }
        for (int64_t b = 0; b < plan->groups; b++)
            ready = r->need[b] && r->soonest[b] > ready ? r->soonest[b] : ready;
        if (ready <= r->until) {
            r->until = ready > 0 ? 1.25 * ready : INFINITY;
            return ready;
        }
        r->until *= 2;
    }
}

/* Return when plan->wait workers have sent all their messages; INFINITY if wait is 0. */
static double await_workers(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    if (!plan->wait)
        return INFINITY;
    for (int64_t i = 0; i < plan->workers; i++)
        r->work[0][i] = r->begin[i] + r->whole[i] * plan->share[plan->first[i + 1] - 1];
    end_keys(r->work[0], plan->workers);
    return select_rank(r->work[0], plan->workers, plan->wait, r->windows + plan->groups, r->work);
}

/* ------------------------------------------------------------------ messages in order of arrival */

static void sift_down(rounds *r, int64_t at)
{
    const coming moved = r->heap[at];
    for (int64_t child; (child = 2 * at + 1) < r->waiting; at = child) {
        child += child + 1 < r->waiting && r->heap[child + 1].at < r->heap[child].at;
        if (moved.at <= r->heap[child].at)
            break;
        r->heap[at] = r->heap[child];
    }
    r->heap[at] = moved;
}

static void start_queue(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    r->waiting = 0;
    for (int64_t i = 0; i < plan->workers; i++)
        if (plan->first[i] < plan->first[i + 1])
            r->heap[r->waiting++] = (coming){r->arrival[plan->first[i]], plan->first[i], plan->first[i + 1]};
    for (int64_t at = r->waiting / 2; at-- > 0;)
        sift_down(r, at);
}

/* Take the message that comes next, of all workers. */
static int64_t take_next(rounds *r)
{
    coming *const first = r->heap;
    const int64_t message = first->message++;
    if (first->message < first->end)
        first->at = r->arrival[first->message];
    else
        *first = r->heap[--r->waiting];
    sift_down(r, 0);
    return message;
}

/* Take messages in order of arrival until they suffice. Returns when the last one comes, or INFINITY. */
static double tally_ready(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    if (plan->kind != FGC_EDGES && plan->total <= 0)
        return 0;
    tally_reset(&r->tally);
    start_queue(r);
    while (r->waiting) {
        const double now = r->heap->at;
        if (tally_add(&r->tally, take_next(r)))
            return now;
    }
    return INFINITY;
}

/* Return the sum of a[j] b[j], in as many partial sums at every level: rounding decides nothing elsewhere. */
static double product_of(const double *a, const double *b, int64_t count)
{
    enum { SUMS = 8 };
    double sum[SUMS] = {0};
    int64_t j = 0;
    for (; j + SUMS <= count; j += SUMS)
        for (int t = 0; t < SUMS; t++)
            sum[t] += a[j + t] * b[j + t];
    for (; j < count; j++)
        sum[0] += a[j] * b[j];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* Return whether the first column of the rows so far, and of a further one, is a combination of the others.
 * The row is added to the basis, by Gram-Schmidt. The basis is orthonormal in all columns but the first,
 * which takes part in the same steps. If a row becomes 0 in the others, it must become 0 there, too. */
static int combines(rounds *r, const double *added)
{
    static const double ZERO = 1e-9, SOLVED = 1e-6;
    const int64_t width = r->plan->width;
    double *const row = r->basis + r->held * width;
    memcpy(row, added, (size_t)width * sizeof *row);
    double square = product_of(row + 1, row + 1, width - 1), most = 1;
    /* A pass leaves the rounding errors of what it subtracts. If that was most of the row, a second one
     * takes them away. */
    for (int pass = 0; pass < 2; pass++) {
        const double before = square;
        for (int64_t b = 0; b < r->held; b++) {
            const double *const other = r->basis + b * width;
            const double along = product_of(other + 1, row + 1, width - 1);
            for (int64_t j = 0; j < width; j++)
                row[j] -= along * other[j];
            most = fmax(most, fabs(along * other[0]));
        }
        square = product_of(row + 1, row + 1, width - 1);
        if (square > before / 2)
            break;
    }
    const double size = sqrt(square), first = fabs(row[0]);
    if (r->plan->forwards) { /* the first number is what a row has of the target, the others what it has beside */
        if (first > ZERO * most && size <= SOLVED * first)
            return 0;
    } else if (size <= ZERO && first > SOLVED) {
        return 0;
    }
    if (size > ZERO) {
        for (int64_t j = 0; j < width; j++)
            row[j] /= size;
        r->held++;
    }
    return 1;
}

/* Add the rows of messages as long as the first column is a combination of the others: backwards from the
 * latest, or forwards. Returns the arrival of the first message with which it is none. */
static double span_ready(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    int64_t came = 0;
    r->held = 0;
    start_queue(r);
    while (r->waiting)
        r->order[came++] = take_next(r);
    for (int64_t l = 0; l < came; l++) {
        const int64_t m = r->order[plan->forwards ? l : came - 1 - l];
        for (int64_t way = 0; way < plan->ways; way++)
            if (!combines(r, plan->spare + (m * plan->ways + way) * plan->width))
                return r->arrival[m];
    }
    return plan->forwards ? INFINITY : 0;
}

/* ------------------------------------------------------------------------------------- rounds */

/* Turn to round `at` of those that were drawn together. */
static void turn_to(rounds *r, int64_t at)
{
    const int64_t n = r->plan->workers;
    r->whole = r->works + at * n;
    r->begin = r->begins + at * padded_size(n);
    r->arrival = r->arrivals + at * padded_size(r->plan->first[n]);
}

/* Find out when each worker begins, and when each message comes. */
static void arrive(rounds *r, int64_t at)
{
    turn_to(r, at);
    const fgc_completion_plan *plan = r->plan;
    const double *const wait = r->waits + at * plan->workers, *const whole = r->whole;
    for (int64_t i = 0; i < plan->workers; i += LANES) {
        const vector begin = load(r->late + i) + load(wait + i);
        store(r->begin + i, begin);
        if (r->single)
            store(r->arrival + i, begin + load(whole + i) * load(r->share + i));
    }
    for (int64_t i = 0; i < plan->workers && !r->single && !r->covers; i++)
        for (int64_t m = plan->first[i]; m < plan->first[i + 1]; m++)
            r->arrival[m] = r->begin[i] + whole[i] * plan->share[m];
}

/* Return when the messages suffice. */
static double ready_at(rounds *r, int64_t at)
{
    turn_to(r, at);
    const double latest = await_workers(r);
    const double ready = r->covers                   ? covered(r)
                         : r->thresholds             ? blocks_ready(r)
                         : r->plan->kind == FGC_SPAN ? span_ready(r)
                                                     : tally_ready(r);
    return latest < ready ? latest : ready;
}

/* Count the messages that came by the time `ready`. sent[i] becomes the share of its work after which worker
 * i sent its last message that came, or 0; *senders = the workers of which a message came. */
static int64_t count_messages(const rounds *r, double ready, int64_t *senders)
{
    const fgc_completion_plan *plan = r->plan;
    lanes all = {0};
    for (int64_t i = 0; i < plan->workers && r->single; i += LANES) {
        const lanes came = load(r->arrival + i) <= spread(ready);
        all -= came;
        store(r->sent + i, pick(came, load(r->share + i), spread(0)));
    }
    if (r->single)
        return *senders = sum_of_counts(all);
    int64_t heard = 0;
    *senders = 0;
    for (int64_t i = 0; i < plan->workers; i++) {
        const int64_t first = plan->first[i], end = plan->first[i + 1];
        int64_t came = 0;
        while (first + came < end && r->arrival[first + came] <= ready)
            came++;
        heard += came;
        *senders += came > 0;
        r->sent[i] = came ? plan->share[first + came - 1] : 0;
    }
    return heard;
}

/* Return how many computations are done by the time `ready`. At least the share `sent` of a worker's is done:
 * after it the worker sent its last message that came. Seconds since it began may say less, as a long delay
 * costs them digits. 2^52 is added to counts: their lower bits are then integers, without a branch. */
static int64_t count_computations(const rounds *r, double ready)
{
    lanes all = {0};
    for (int64_t i = 0; i < r->plan->workers; i += LANES) {
        const vector since = spread(ready) - load(r->begin + i), whole = load(r->whole + i);
        const vector part = pick(since > 0, since / whole, spread(0));
        const vector bounded = pick(since < whole, part, pick(since < 0, spread(0), spread(1)));
        const vector done = load(r->load + i) * larger(bounded, load(r->sent + i)) + 1e-9;
        const vector nearest = done + 0x1p52;
        const vector counted = pick(nearest - 0x1p52 > done, nearest - 1, nearest);
        all += (lanes)counted & ((INT64_C(1) << 52) - 1);
    }
    return sum_of_counts(all);
}

/* Return when the master has received `left` messages, each in `receive` seconds. */
static double received(rounds *r, double ready, int64_t left, double receive)
{
    double end = ready;
    start_queue(r);
    for (; left > 0; left--) {
        const double taken = r->arrival[take_next(r)] + (double)left * receive;
        end = taken > end ? taken : end;
    }
    return end;
}

/* Have workers finish the messages that they are at when the next round begins. */
static void finish_messages(rounds *r, double next)
{
    const fgc_completion_plan *plan = r->plan;
    for (int64_t i = 0; i < plan->workers; i++) {
        double free_at = r->late[i];
        for (int64_t m = plan->first[i]; m < plan->first[i + 1] && free_at <= next; m++)
            free_at = r->begin[i] + r->whole[i] * plan->share[m];
        r->late[i] = free_at > next ? free_at - next : 0;
    }
}

/* Give each array its room in `memory`. Returns how many numbers they take together. */
static size_t lay_out(rounds *r, char *memory)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t n = plan->workers, all = plan->first[n], keys = all > n ? all : n;
    const int graph = plan->kind == FGC_TILING || plan->kind == FGC_EDGES;
    uintptr_t at = (uintptr_t)memory;
#define TAKE(array, count) (r->array = (void *)at, at += (size_t)(count) * 8)
    TAKE(waits, r->together * n + LANES);
    TAKE(works, r->together * n + LANES);
    TAKE(begins, r->together * padded_size(n));
    TAKE(arrivals, r->together * padded_size(all));
    TAKE(late, n + LANES);
    TAKE(load, n + LANES);
    TAKE(share, n + LANES);
    TAKE(sent, n + LANES);
    TAKE(work[0], keys + LANES);
    TAKE(work[1], keys + LANES);
    TAKE(soonest, plan->groups);
    TAKE(windows, (plan->groups + 1) * (int64_t)(sizeof(window) / 8));
    TAKE(order, all);
    TAKE(bound, plan->groups + 1);
    TAKE(need, plan->groups);
    TAKE(lacking, plan->groups);
    TAKE(heap, n * (int64_t)(sizeof(coming) / 8));
    TAKE(vertices, graph * (plan->total + 1) * (int64_t)(sizeof(fgc_vertex) / 8));
    TAKE(basis, plan->kind == FGC_SPAN ? plan->width * plan->width : 0);
#undef TAKE
    return (at - (uintptr_t)memory) / 8;
}

/* Sort the messages by group: a counting sort, which fills each group from its end. */
static void sort_by_group(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    for (int64_t m = 0; m < plan->first[plan->workers]; m++)
        r->bound[plan->group[m]]++;
    for (int64_t b = 0; b < plan->groups; b++)
        r->bound[b + 1] += r->bound[b];
    for (int64_t m = plan->first[plan->workers]; m-- > 0;)
        r->order[--r->bound[plan->group[m]]] = m;
}

/* Prepare what is the same in all rounds. Returns memory that the caller frees, or NULL. */
static void *start_rounds(rounds *r, const fgc_completion_plan *plan, int64_t together)
{
    const int64_t n = plan->workers;
    *r = (rounds){.plan = plan, .single = 1, .thresholds = plan->kind == FGC_BLOCKS, .together = together};
    char *const memory = calloc(lay_out(r, NULL), 8);
    if (!memory)
        return NULL;
    lay_out(r, memory);
    r->tally = (fgc_tally){.kind = plan->kind,
                           .groups = plan->kind == FGC_CELLS ? plan->groups : 0,
                           .total = plan->total,
                           .group = plan->group,
                           .other = plan->other,
                           .weight = plan->need,
                           .lacking = r->lacking,
                           .vertices = r->vertices};
    for (int64_t i = 0; i < n; i++) {
        r->load[i] = (double)plan->loads[i];
        r->single &= plan->first[i] == i && plan->first[i + 1] == i + 1;
    }
    for (int64_t i = 0; i < n + LANES; i++)
        r->share[i] = r->single && i < n ? plan->share[i] : NAN;
    if (plan->kind == FGC_BLOCKS)
        memcpy(r->need, plan->need, (size_t)plan->groups * sizeof *r->need);
    if (plan->kind == FGC_CELLS) {
        int64_t all = 0, least = INT64_MAX;
        for (int64_t c = 0; c < plan->groups; c++) {
            all += plan->need[c];
            least = plan->need[c] > 0 && plan->need[c] < least ? plan->need[c] : least;
            r->need[c] = plan->need[c] > 0;
        }
        r->thresholds = all - least < plan->total && plan->total <= all;
    }
    r->covers = r->thresholds && !r->single && plan->first[n] > OFTEN * plan->groups;
    for (int64_t b = 0; b < plan->groups && r->covers; b++)
        r->covers = r->need[b] <= 1;
    r->until = INFINITY;
    if (r->thresholds && !r->covers)
        sort_by_group(r);
    return memory;
}

fgc_status FGC_AT_LEVEL(fgc_completion_part)(const fgc_completion_plan *plan, const fgc_delays *delays,
                                             int64_t first, double *late, int64_t count, double receive,
                                             double overhead, int interrupted, double *time,
                                             int64_t *messages, int64_t *workers, int64_t *computations)
{
    const int64_t n = plan->workers, together = delays->repeats;
    rounds r;
    void *const memory = start_rounds(&r, plan, together);
    if (!memory)
        return FGC_NO_MEMORY;
    memcpy(r.late, late, (size_t)n * sizeof *late);
    for (int64_t start = 0, some; start < count; start += some) {
        some = count - start < together ? count - start : together;
        FGC_AT_LEVEL(fgc_draw)(delays, first + start, some, r.waits, r.works);
        /* Independent rounds take each step together, as the processor begins one before another has ended:
         * rounds of 16 workers take 0.75 times the time. */
        const int64_t step = interrupted ? some : 1;
        for (int64_t lo = 0; lo < some; lo += step) {
            for (int64_t at = lo; at < lo + step; at++)
                arrive(&r, at);
            for (int64_t at = lo; at < lo + step; at++)
                time[start + at] = ready_at(&r, at);
            for (int64_t at = lo; at < lo + step; at++) {
                const int64_t round = start + at;
                turn_to(&r, at);
                messages[round] = count_messages(&r, time[round], workers + round);
                computations[round] = count_computations(&r, time[round]);
                if (receive > 0)
                    time[round] = received(&r, time[round], messages[round], receive);
                if (!interrupted)
                    finish_messages(&r, time[round] + overhead);
            }
        }
    }
    if (!interrupted)
        memcpy(late, r.late, (size_t)n * sizeof *late);
    free(memory);
    return FGC_OK;
}
