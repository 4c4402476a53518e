/* Simulated rounds: when their messages suffice. Their delays are drawn by delays.c.
 *
 * A round fills in its arrivals, finds when it is ready by the plan's rule, and counts the messages and
 * computations that are complete by then. Rules of two kinds are told apart:
 *
 * - Thresholds: every block needs so many of its messages, which is one selection a block. Cells are blocks
 *   that need one message if no cell can be left out, as in all repetition codes.
 * - Tallies: all other rules take messages in order of arrival, from a heap of workers, until they suffice.
 *   FGC_SPAN goes backwards: the first message, from the latest on, that cannot be spared is the one that
 *   the round waits for.
 *
 * Every backend and level rounds alike, so that their counts agree even where times tie: this file is
 * compiled without fused multiply-adds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tally.h"
#include "vector.h"

/* The earliest and the latest time at which recent rounds were ready: of the last complete epoch of EPOCH
 * rounds, and of the present one. Rounds are alike: few messages of the next round come between these times,
 * and the one sought is nearly always among them. Without this, a simulation takes 2.5 times as long. */
typedef struct {
    double low, high, least, most;
    int64_t rounds; /* in the present epoch */
} window;

/* Among at most FEW keys a rank is found by comparing each with each: rounds of 16 and of 80 workers then take
 * three quarters of the time. */
enum { EPOCH = 32, FEW = 32 };

/* A worker's next message: when it comes, its number, and the number after the worker's last. */
typedef struct {
    double at;
    int64_t message, end;
} coming;

/* A vertex in a forest of components: sign = 1 if it is on its parent's side, else -1. Of a root: size counts
 * the component's vertices, more is how many more of them are on the root's side than on the other, and odd
 * says whether the component has a cycle of odd length. */
typedef struct {
    int64_t parent, sign, size, more, odd;
} vertex;

/* The state that all rounds of one plan share. */
typedef struct {
    const fgc_completion_plan *plan;
    int single, thresholds;       /* whether every worker sends one message; whether blocks decide */
    double *begin, *load;         /* when each worker begins; its computations */
    double *sent;                 /* the share of its work after which its last message that came was sent */
    double *arrival;              /* when each message comes */
    double *key, *spare;          /* keys to select from, overwritten */
    int64_t *order, *bound;       /* messages by group, and where each group begins; FGC_SPAN: by arrival */
    int64_t *need;                /* messages needed of each block, or that a cell still lacks */
    window *windows;              /* one for each block, and one for workers */
    coming *heap;                 /* workers by the arrival of their next message */
    int64_t waiting;              /* workers in the heap */
    int64_t lacking;              /* the weight of cells, or the components, that lack something */
    vertex *vertices;             /* FGC_TILING: points; FGC_EDGES: blocks */
    double *basis;                /* FGC_SPAN: an orthonormal basis of the spared rows, and one row more */
    int64_t held;                 /* rows in the basis */
    uint64_t random;              /* state of the generator that picks pivots */
} rounds;

/* ---------------------------------------------------------------------------------- thresholds */

/* Return the key of rank `need` > 0 among at most FEW: the least key such that `need` keys are not larger.
 * The array has room for a vector beyond the keys, which is overwritten. */
static double select_few(double *key, int64_t count, int64_t need)
{
    vector found = spread(INFINITY);
    for (int64_t j = count; j < padded_size(count); j++)
        key[j] = INFINITY;
    for (int64_t i = 0; i < count; i += LANES) {
        const vector x = load(key + i);
        lanes upto = {0};
        for (int64_t j = 0; j < count; j++)
            upto -= spread(key[j]) <= x;
        found = -larger(-found, -pick(upto >= need, x, spread(INFINITY)));
    }
    double least = INFINITY;
    for (int t = 0; t < LANES; t++)
        least = found[t] < least ? found[t] : least;
    return least;
}

/* Quickselect (Hoare 1961): return the key of rank `need` > 0, INFINITY if there are fewer keys. Keys are
 * split without branches, which would be mispredicted, at random pivots, so that no order of arrivals is bad
 * for long. Both arrays are overwritten. */
static double select_key(rounds *r, double *key, double *spare, int64_t count, int64_t need)
{
    if (need > count)
        return INFINITY;
    for (;;) {
        r->random = r->random * 6364136223846793005u + 1442695040888963407u;
        const double pivot = key[(r->random >> 32) * (uint64_t)count >> 32];
        int64_t less = 0, more = 0;
        for (int64_t j = 0; j < count; j++) {
            const double x = key[j];
            key[less] = x;
            spare[more] = x;
            less += x < pivot;
            more += x > pivot;
        }
        if (need <= less) {
            count = less;
        } else if (need <= count - more) {
            return pivot;
        } else {
            need -= count - more;
            count = more;
            double *const other = key;
            key = spare;
            spare = other;
        }
    }
}

/* Return the key of rank `need` > 0 among r->key[0 .. count-1], which are overwritten: first among the keys
 * inside the window, to which those before it are added. */
static double select_near(rounds *r, int64_t count, int64_t need, window *w)
{
    const vector low = spread(w->low), high = spread(w->high);
    double *const key = r->key, *const near = r->spare;
    lanes counts = {0};
    int64_t inside = 0, before = 0;
    for (int64_t j = count; j < padded_size(count); j++)
        key[j] = INFINITY;
    for (int64_t j = 0; j < count; j += LANES) {
        const vector x = load(key + j);
        counts -= x < low;
        inside += keep(near + inside, (x >= low) & (x <= high), x);
    }
    for (int t = 0; t < LANES; t++)
        before += counts[t];
    const int hit = before < need && need <= before + inside;
    const double found = !hit ? select_key(r, key, near, count, need)
                         : inside <= FEW ? select_few(near, inside, need - before)
                                         : select_key(r, near, key, inside, need - before);
    w->least = found < w->least ? found : w->least;
    w->most = found > w->most ? found : w->most;
    if (++w->rounds == EPOCH)
        *w = (window){w->least, w->most, INFINITY, -INFINITY, 0};
    return found;
}

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
            for (int64_t j = 0; j < count; j++)
                r->key[j] = r->arrival[r->plan->groups == 1 ? j : order[j]];
            at = select_near(r, count, r->need[b], r->windows + b);
        }
        ready = at > ready ? at : ready;
    }
    return ready;
}

/* Return when plan->wait workers have sent all their messages; INFINITY if wait is 0. */
static double await_workers(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    if (!plan->wait)
        return INFINITY;
    for (int64_t i = 0; i < plan->workers; i++)
        r->key[i] = r->arrival[plan->first[i + 1] - 1];
    return select_near(r, plan->workers, plan->wait, r->windows + plan->groups);
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
            r->heap[r->waiting++] =
                (coming){r->arrival[plan->first[i]], plan->first[i], plan->first[i + 1]};
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

/* Return the root of a vertex; *side = 1 if the vertex is on the root's side, else -1. */
static vertex *root_of(const rounds *r, int64_t v, int64_t *side)
{
    for (*side = 1; r->vertices[v].parent != v; v = r->vertices[v].parent)
        *side *= r->vertices[v].sign;
    return r->vertices + v;
}

/* Return 1 if no combination of a component's edges counts each of its vertices once. One exists if the
 * component has an odd cycle, or if both sides have equally many vertices. */
static int64_t lacks(const vertex *root) { return root->more != 0 && !root->odd; }

/* Add the edge of message m. Returns the change in the number of components that lack a combination. */
static int64_t add_edge(rounds *r, int64_t m)
{
    int64_t one, other;
    vertex *u = root_of(r, r->plan->group[m], &one), *v = root_of(r, r->plan->other[m], &other);
    int64_t before = lacks(u);
    if (u == v) {
        u->odd |= one == other;
    } else {
        before += lacks(v);
        if (u->size < v->size) {
            vertex *const smaller = u;
            u = v;
            v = smaller;
        }
        v->parent = u - r->vertices;
        v->sign = -one * other;
        u->size += v->size;
        u->more += v->sign * v->more;
        u->odd |= v->odd;
    }
    return lacks(u) - before;
}

/* Take message m. Returns whether the messages taken suffice. */
static int add_message(rounds *r, int64_t m)
{
    const fgc_completion_plan *plan = r->plan;
    int64_t side;
    if (plan->kind == FGC_CELLS)
        return fgc_count(plan->group[m], plan->need, r->need, &r->lacking);
    r->lacking += add_edge(r, m);
    return plan->kind == FGC_EDGES ? r->lacking == 0
                                   : root_of(r, 0, &side) == root_of(r, plan->total, &side);
}

/* Take messages in order of arrival until they suffice. Returns when the last one comes, or INFINITY. */
static double tally_ready(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    r->lacking = plan->total;
    if (plan->kind != FGC_EDGES && plan->total <= 0)
        return 0;
    if (plan->kind == FGC_CELLS)
        for (int64_t c = 0; c < plan->groups; c++)
            r->need[c] = 1;
    else
        for (int64_t v = 0; v <= plan->total; v++)
            r->vertices[v] = (vertex){v, 1, 1, 1, 0};
    start_queue(r);
    while (r->waiting) {
        const double now = r->heap->at;
        if (add_message(r, take_next(r)))
            return now;
    }
    return INFINITY;
}

/* Return whether message m can be spared together with those that already are, and if so add its row to
 * the basis, by Gram-Schmidt. The basis is orthonormal in all columns but the first, which takes part in
 * the same steps: a row that becomes 0 in the others can be spared only if it becomes 0 there, too. */
static int can_spare(rounds *r, int64_t m)
{
    enum { PASSES = 2 }; /* one pass leaves the rounding errors of what it subtracts */
    static const double ZERO = 1e-9, SOLVED = 1e-6;
    const int64_t width = r->plan->width;
    double *const row = r->basis + r->held * width;
    memcpy(row, r->plan->spare + m * width, (size_t)width * sizeof *row);
    double square = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int64_t b = 0; b < r->held; b++) {
            const double *const other = r->basis + b * width;
            double along = 0;
            for (int64_t j = 1; j < width; j++)
                along += other[j] * row[j];
            for (int64_t j = 0; j < width; j++)
                row[j] -= along * other[j];
        }
        square = 0;
        for (int64_t j = 1; j < width; j++)
            square += row[j] * row[j];
    }
    if (square <= ZERO * ZERO)
        return fabs(row[0]) <= SOLVED;
    const double scale = 1 / sqrt(square);
    for (int64_t j = 0; j < width; j++)
        row[j] *= scale;
    r->held++;
    return 1;
}

/* Spare messages from the latest one backwards. Returns the arrival of the first that cannot be spared. */
static double span_ready(rounds *r)
{
    int64_t came = 0;
    r->held = 0;
    start_queue(r);
    while (r->waiting)
        r->order[came++] = take_next(r);
    while (came--)
        if (!can_spare(r, r->order[came]))
            return r->arrival[r->order[came]];
    return 0;
}

/* ------------------------------------------------------------------------------------- rounds */

/* Return how many of `load` computations are done after `since` of `whole` seconds, plus 2^52: its lower
 * bits are then the integer, without a branch. At least the share `sent` is done: after it the worker
 * sent its last message that came. `since` may say less, as a long delay costs it digits. */
static FGC_INLINE double computed(double load, double whole, double since, double sent)
{
    const double quotient = since / whole;
    double part = since > 0 ? quotient : 0;
    part = since < whole ? part : (since < 0 ? 0 : 1);
    part = part > sent ? part : sent;
    const double done = load * part + 1e-9, nearest = done + 0x1p52;
    return nearest - 0x1p52 > done ? nearest - 1 : nearest;
}

/* Count the messages that came by the time `ready`. sent[i] becomes the share of its work after which worker
 * i sent its last message that came, or 0; *senders = the workers of which a message came. */
static int64_t count_messages(const rounds *r, double ready, int64_t *senders)
{
    const fgc_completion_plan *plan = r->plan;
    const double *const share = plan->share, *const arrival = r->arrival;
    int64_t heard = 0;
    *senders = 0;
    for (int64_t i = 0; i < plan->workers && r->single; i++) {
        heard += arrival[i] <= ready;
        r->sent[i] = arrival[i] <= ready ? share[i] : 0;
    }
    if (r->single)
        return *senders = heard;
    for (int64_t i = 0; i < plan->workers; i++) {
        const int64_t first = plan->first[i], end = plan->first[i + 1];
        int64_t came = 0;
        for (int64_t m = first; m < end; m++)
            came += arrival[m] <= ready;
        heard += came;
        *senders += came > 0;
        r->sent[i] = came ? share[first + came - 1] : 0;
    }
    return heard;
}

/* Give each array its room in `memory`. Returns how many bytes they take together. */
static size_t lay_out(rounds *r, char *memory)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t n = plan->workers, all = plan->first[n], keys = (all > n ? all : n) + 2 * LANES;
    const int graph = plan->kind == FGC_TILING || plan->kind == FGC_EDGES;
    uintptr_t at = (uintptr_t)memory;
#define TAKE(array, count) (r->array = (void *)at, at += (size_t)(count) * 8)
    TAKE(begin, n);
    TAKE(load, n);
    TAKE(sent, n);
    TAKE(arrival, all);
    TAKE(key, keys);
    TAKE(spare, keys);
    TAKE(windows, (plan->groups + 1) * (int64_t)(sizeof(window) / 8));
    TAKE(order, all);
    TAKE(bound, plan->groups + 1);
    TAKE(need, plan->groups);
    TAKE(heap, n * (int64_t)(sizeof(coming) / 8));
    TAKE(vertices, graph * (plan->total + 1) * (int64_t)(sizeof(vertex) / 8));
    TAKE(basis, plan->kind == FGC_SPAN ? plan->width * plan->width : 0);
#undef TAKE
    return at - (uintptr_t)memory;
}

/* Sort the messages by group: a counting sort, which fills each group from its end. */
static void sort_by_group(rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    memset(r->bound, 0, (size_t)(plan->groups + 1) * sizeof *r->bound);
    for (int64_t m = 0; m < plan->first[plan->workers]; m++)
        r->bound[plan->group[m]]++;
    for (int64_t b = 0; b < plan->groups; b++)
        r->bound[b + 1] += r->bound[b];
    for (int64_t m = plan->first[plan->workers]; m-- > 0;)
        r->order[--r->bound[plan->group[m]]] = m;
}

/* Prepare what is the same in all rounds. Returns memory that the caller frees, or NULL. */
static void *start_rounds(rounds *r, const fgc_completion_plan *plan)
{
    const int64_t n = plan->workers;
    *r = (rounds){.plan = plan, .random = 1, .single = 1, .thresholds = plan->kind == FGC_BLOCKS};
    char *const memory = malloc(lay_out(r, NULL));
    if (!memory)
        return NULL;
    lay_out(r, memory);
    for (int64_t i = 0; i < n; i++) {
        r->load[i] = (double)plan->loads[i];
        r->single &= plan->first[i] == i && plan->first[i + 1] == i + 1;
    }
    for (int64_t w = 0; w <= plan->groups; w++)
        r->windows[w] = (window){INFINITY, -INFINITY, INFINITY, -INFINITY, 0};
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
    if (r->thresholds)
        sort_by_group(r);
    return memory;
}

fgc_status FGC_AT_LEVEL(fgc_completion_part)(const fgc_completion_plan *plan, const double *delay,
                                             const double *work, double *late, int64_t count,
                                             double receive, double overhead, int interrupted,
                                             double *time, int64_t *messages, int64_t *workers,
                                             int64_t *computations)
{
    const uint64_t LOWER = (UINT64_C(1) << 52) - 1; /* see `computed` */
    rounds r;
    void *const memory = start_rounds(&r, plan);
    if (!memory)
        return FGC_NO_MEMORY;
    const int64_t n = plan->workers;
    for (int64_t round = 0; round < count; round++) {
        const double *const wait = delay + round * n, *const whole = work + round * n;
        for (int64_t i = 0; i < n; i++)
            r.begin[i] = late[i] + wait[i];
        for (int64_t i = 0; i < n && r.single; i++)
            r.arrival[i] = r.begin[i] + whole[i] * plan->share[i];
        for (int64_t i = 0; i < n && !r.single; i++)
            for (int64_t m = plan->first[i]; m < plan->first[i + 1]; m++)
                r.arrival[m] = r.begin[i] + whole[i] * plan->share[m];
        const double latest = await_workers(&r);
        double ready = r.thresholds               ? blocks_ready(&r)
                       : plan->kind == FGC_SPAN ? span_ready(&r)
                                                : tally_ready(&r);
        ready = latest < ready ? latest : ready;
        const int64_t heard = count_messages(&r, ready, workers + round);
        messages[round] = heard;
        int64_t done = 0;
        for (int64_t i = 0; i < n; i++)
            done += (int64_t)(bits_of(computed(r.load[i], whole[i], ready - r.begin[i], r.sent[i])) & LOWER);
        computations[round] = done;
        double end = ready;
        if (receive > 0) {
            start_queue(&r);
            for (int64_t left = heard; left > 0; left--) {
                const double taken = r.arrival[take_next(&r)] + (double)left * receive;
                end = taken > end ? taken : end;
            }
        }
        time[round] = end;
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
