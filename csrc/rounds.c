/* Simulated rounds: when their messages suffice, and random delays of workers.
 *
 * A round fills in its arrivals (fill_arrivals), finds when it is ready by the plan's rule (find_ready),
 * and counts the messages and computations that are complete by then.
 *
 * Two invariants. Every backend and level rounds alike, so that their counts agree even where times tie:
 * this file is compiled without fused multiply-adds. And shortcuts change no bit of a result: if a
 * window or a limit misses, the same search runs again among all messages.
 *
 * How each rule saves time:
 *
 * - Blocks and cells need the message of one rank: quickselect (Hoare 1961), by weights where the cells'
 *   weights differ. Up to FEW keys are compared each with each, in vectors.
 * - Intervals (FGC_TILING) need two points connected. Edges in parallel or in series merge (Duffin 1965)
 *   once for all rounds. A round then takes minima and maxima, and often one edge is left.
 * - Rounds are alike: blocks, cells and intervals look first inside the window of times at which the
 *   last rounds were ready.
 * - Edges of graphs (FGC_EDGES) take messages in order of arrival, from a heap of workers. A forest of
 *   components records on which side of its component each vertex is.
 * - Rows that span (FGC_SPAN) are spared from the latest one backwards, by Gram-Schmidt. The first that
 *   cannot be spared is the one that the round waits for.
 *
 * Tried and rejected: sorting all arrivals of each round, which costs more than the rest of the round;
 * and drawing delays here, only for workers that may matter: 440 lines, which saved at most 14 ms in
 * 20,000 rounds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

/* The earliest and the latest time at which recent rounds were ready. Rounds are alike: few messages of
 * the next round come between these times, and the one sought is nearly always among them. */
typedef struct {
    double low, high;    /* of the last complete epoch of EPOCH rounds; empty before the first ends */
    double least, most;  /* of the present epoch */
    int64_t rounds;      /* in the present epoch */
} window;

enum { EPOCH = 32 };

/* Among at most so many keys a rank is found by comparing each with each. */
enum { FEW = 32 };

/* Skipping late messages pays if workers send more than so many on average. */
enum { MANY = 8 };

/* key[to] = the earlier, or if serial the later, of key[to] and key[from]. */
typedef struct {
    int64_t to, from, serial;
} step;

/* The messages of one round, and the workers that send them. */
typedef struct {
    int single;      /* whether every worker sends one message */
    int straight;    /* whether messages lie in the order of their groups */
    int many;        /* whether workers send more than MANY on average: late ones are then skipped */
    double *begin;   /* when each worker begins */
    double *load;    /* the computations of each worker */
    double *sent;    /* the share of its work after which each worker sent its last message that came */
    double *arrival; /* when each message comes */
    double limit;    /* later messages may be left out; if the round then is not ready by the limit, */
                     /* it is searched again without one */
} messages;

/* Work space in which keys are selected. */
typedef struct {
    double *key;             /* the keys to select from; overwritten */
    double *spare;           /* the keys beyond a pivot */
    double *gathered;        /* a block's arrivals, or the earliest arrival of each cell */
    int64_t *weight;         /* FGC_CELLS: the weight of each key */
    int64_t *spare_weight;   /* FGC_CELLS: the weight of each spare key */
    window *windows;         /* one for each block; other rules use the first; await_workers the last */
    uint64_t random;         /* state of the generator that picks pivots */
} selection;

/* FGC_BLOCKS and FGC_CELLS: the messages of each group. */
typedef struct {
    int64_t *order;   /* the messages by group */
    int64_t *bound;   /* where each group begins in this order */
    int64_t heaviest; /* the weight of all cells together */
    int64_t rank;     /* how many cells suffice, if any so many do; else 0 */
} grouping;

/* FGC_TILING: the graph that is left after merging edges, and the merges. */
typedef struct {
    int64_t *near;        /* edges inside the window */
    int64_t *start, *stop; /* the ends of each message's edge */
    int64_t *edge;        /* the edges that are left */
    int64_t edges;        /* their number */
    step *step;           /* the merges, in order */
    int64_t steps;        /* their number */
} tiling;

/* A forest of components. For FGC_EDGES: sign[v] is 1 if vertex v is on its parent's side, else -1; and of
 * each root, size counts the component's vertices, more is how many more of them are on the root's side
 * than on the other, and odd says whether the component has a cycle of odd length. */
typedef struct {
    int64_t *parent, *sign, *size, *more, *odd;
} forest;

/* FGC_SPAN: an orthonormal basis of the spared rows, and room for one row more. */
typedef struct {
    double *basis;
    int64_t held; /* rows in the basis */
} spared;

/* A heap of workers by the arrival of their next message. */
typedef struct {
    int64_t *heap;   /* the worker whose message comes next is first */
    int64_t *next;   /* each worker's next message */
    int64_t waiting; /* workers in the heap */
} arrivals;

/* The state that all rounds of one plan share. */
typedef struct {
    const fgc_completion_plan *plan;
    messages messages;
    selection select;
    grouping groups;
    tiling tiling;
    forest parts;
    spared span;
    arrivals queue;
    window last; /* when whole rounds were ready */
} fgc_rounds;

/* Record in the window when a round was ready. */
static void note(const fgc_rounds *r, window *w, double ready)
{
    if (ready > r->messages.limit) /* found among too few messages: the round is searched again */
        return;
    w->least = ready < w->least ? ready : w->least;
    w->most = ready > w->most ? ready : w->most;
    if (++w->rounds == EPOCH)
        *w = (window){w->least, w->most, INFINITY, -INFINITY, 0};
}

/* Return a key such that about the fraction `part` of all keys is smaller. The sample is random, so that
 * no order of arrivals is bad for long. */
static double choose_pivot(fgc_rounds *r, const double *key, int64_t count, double part)
{
    enum { SAMPLE = 8 };
    double sample[SAMPLE];
    const int64_t size = count < 4 * SAMPLE ? 1 : SAMPLE;
    for (int64_t i = 0; i < size; i++) {
        r->select.random = r->select.random * 6364136223846793005u + 1442695040888963407u;
        const double x = key[(r->select.random >> 32) * (uint64_t)count >> 32];
        int64_t at = i;
        for (; at && sample[at - 1] > x; at--)
            sample[at] = sample[at - 1];
        sample[at] = x;
    }
    return sample[(int64_t)(part * (double)size)];
}

/* Quickselect (Hoare 1961) by weights: return the smallest t such that the keys up to t weigh at least
 * `need` > 0. All `count` keys together weigh `whole`; each weighs 1 if `weight` is NULL. The arrays are
 * overwritten. Keys are split without branches, which would be mispredicted. */
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

/* Return the key of rank `need` > 0 among at most FEW: the least key such that `need` keys are not larger.
 * The array has room for a vector beyond the keys, which is overwritten. */
static double select_few(double *key, int64_t count, int64_t need)
{
    vector found = spread(INFINITY);
    for (int64_t j = count; j < count + LANES; j++)
        key[j] = INFINITY;
    for (int64_t i = 0; i < count; i += LANES) {
        const vector x = load(key + i);
        vector upto = spread(0);
        for (int64_t j = 0; j < count; j++)
            upto += pick(spread(key[j]) <= x, spread(1), spread(0));
        const vector enough = pick(upto >= spread((double)need), x, spread(INFINITY));
        found = pick(enough < found, enough, found);
    }
    double least[LANES];
    store(least, found);
    for (int t = 1; t < LANES; t++)
        least[0] = least[t] < least[0] ? least[t] : least[0];
    return least[0];
}

/* Copy the keys inside the window to `near`, and return their number; *before = how many keys are below
 * the window. */
static int64_t gather_near(const double *key, int64_t count, const window *w, double *near,
                           int64_t *before)
{
    const vector low = spread(w->low), high = spread(w->high);
    vector earlier = spread(0);
    int64_t inside = 0, j = 0;
    for (; j + LANES <= count; j += LANES) {
        const vector x = load(key + j);
        const lanes late = x >= low;
        earlier += pick(late, spread(0), spread(1));
        inside += keep(near + inside, late & (x <= high), x);
    }
    double sums[LANES];
    store(sums, earlier);
    *before = 0;
    for (int t = 0; t < LANES; t++)
        *before += (int64_t)sums[t];
    for (; j < count; j++) {
        near[inside] = key[j];
        *before += key[j] < w->low;
        inside += (key[j] >= w->low) & (key[j] <= w->high);
    }
    return inside;
}

/* Return the key of rank `need` > 0. The keys are not changed. */
static double select_rank(fgc_rounds *r, const double *key, int64_t count, int64_t need, window *w)
{
    if (need > count)
        return INFINITY;
    if (count <= FEW) {
        memcpy(r->select.key, key, (size_t)count * sizeof *key);
        return select_few(r->select.key, count, need);
    }
    double found;
    int64_t before;
    double *const near = r->select.spare;
    const int64_t inside = gather_near(key, count, w, near, &before);
    if (before < need && need <= before + inside) {
        found = inside <= FEW ? select_few(near, inside, need - before)
                              : select_key(r, near, r->select.key, NULL, NULL, inside, inside,
                                           need - before);
    } else {
        memcpy(r->select.key, key, (size_t)count * sizeof *key);
        found = select_key(r, r->select.key, near, NULL, NULL, count, count, need);
    }
    note(r, w, found);
    return found;
}

/* Return when every block has the messages that it needs. */
static double blocks_ready(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    double ready = 0;
    for (int64_t b = 0; b < plan->groups; b++) {
        const int64_t lo = r->groups.bound[b], count = r->groups.bound[b + 1] - lo;
        const double *key = r->messages.arrival + lo;
        if (!r->messages.straight) {
            for (int64_t j = 0; j < count; j++)
                r->select.gathered[j] = r->messages.arrival[r->groups.order[lo + j]];
            key = r->select.gathered;
        }
        int64_t came = 0; /* messages by the time at which the blocks before are ready */
        for (int64_t j = 0; j < count && b > 0; j++)
            came += key[j] <= ready;
        if (came < plan->need[b])
            ready = select_rank(r, key, count, plan->need[b], r->select.windows + b);
    }
    return ready;
}

static FGC_INLINE vector earlier(vector a, vector b) { return pick(a < b, a, b); }

/* Return when the first message of a cell arrives. Its messages are order[lo .. hi-1]. */
static double earliest_of(const fgc_rounds *r, int64_t lo, int64_t hi)
{
    enum { ABREAST = 2 };
    double each[LANES], least = INFINITY;
    int64_t j = lo;
    if (r->messages.straight && hi - lo >= LANES * ABREAST) {
        vector a = load(r->messages.arrival + j), b = load(r->messages.arrival + j + LANES);
        for (j += LANES * ABREAST; j + LANES * ABREAST <= hi; j += LANES * ABREAST) {
            a = earlier(a, load(r->messages.arrival + j));
            b = earlier(b, load(r->messages.arrival + j + LANES));
        }
        store(each, earlier(a, b));
        for (int t = 0; t < LANES; t++)
            least = each[t] < least ? each[t] : least;
    }
    const double *const arrival = r->messages.arrival;
    const int64_t *const order = r->groups.order;
    double other = INFINITY;
    for (; j + 1 < hi; j += 2) {
        const double x = arrival[order[j]], y = arrival[order[j + 1]];
        least = x < least ? x : least;
        other = y < other ? y : other;
    }
    if (j < hi) {
        const double x = arrival[order[j]];
        least = x < least ? x : least;
    }
    return other < least ? other : least;
}

/* Return when the cells of which a message has come weigh enough. If workers send several messages,
 * fill in each worker's arrivals up to its first beyond the limit. */
static double cells_ready(fgc_rounds *r, const double *whole)
{
    const fgc_completion_plan *plan = r->plan;
    double *const key = r->select.gathered;
    const int64_t *const bound = r->groups.bound;
    for (int64_t c = 0; c < plan->groups; c++)
        key[c] = r->messages.single ? earliest_of(r, bound[c], bound[c + 1]) : INFINITY;
    for (int64_t i = 0; i < plan->workers && !r->messages.single; i++) {
        const double begin = r->messages.begin[i], work = whole[i];
        for (int64_t m = plan->first[i]; m < plan->first[i + 1]; m++) {
            const double x = begin + work * plan->share[m];
            double *const earliest = key + plan->group[m];
            r->messages.arrival[m] = x;
            if (x > r->messages.limit)
                break;
            *earliest = x < *earliest ? x : *earliest;
        }
    }
    if (plan->total <= 0)
        return 0;
    if (r->groups.rank)
        return select_rank(r, key, plan->groups, r->groups.rank, r->select.windows);
    memcpy(r->select.weight, plan->need, (size_t)plan->groups * sizeof *r->select.weight);
    return select_key(r, key, r->select.spare, r->select.weight, r->select.spare_weight, plan->groups,
                      r->groups.heaviest, plan->total);
}

/* ------------------------------------------------------------------ messages in order of arrival */

/* When the next message of the worker at place `at` of the heap comes. */
static double next_arrival(const fgc_rounds *r, int64_t at)
{
    return r->messages.arrival[r->queue.next[r->queue.heap[at]]];
}

static void sift_down(fgc_rounds *r, int64_t at)
{
    const int64_t worker = r->queue.heap[at];
    const double arrival = r->messages.arrival[r->queue.next[worker]];
    for (int64_t child; (child = 2 * at + 1) < r->queue.waiting; at = child) {
        if (child + 1 < r->queue.waiting && next_arrival(r, child + 1) < next_arrival(r, child))
            child++;
        if (arrival <= next_arrival(r, child))
            break;
        r->queue.heap[at] = r->queue.heap[child];
    }
    r->queue.heap[at] = worker;
}

static void start_queue(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    r->queue.waiting = 0;
    for (int64_t i = 0; i < plan->workers; i++) {
        r->queue.next[i] = plan->first[i];
        r->queue.heap[r->queue.waiting] = i;
        r->queue.waiting += plan->first[i] < plan->first[i + 1];
    }
    for (int64_t at = r->queue.waiting / 2; at-- > 0;)
        sift_down(r, at);
}

/* Take the message that comes next, of all workers. */
static int64_t take_next(fgc_rounds *r)
{
    const int64_t worker = r->queue.heap[0], message = r->queue.next[worker]++;
    if (r->queue.next[worker] == r->plan->first[worker + 1])
        r->queue.heap[0] = r->queue.heap[--r->queue.waiting];
    if (r->queue.waiting)
        sift_down(r, 0);
    return message;
}

/* ---------------------------------------------------------------- intervals that connect 0 and k */

/* Series-parallel reduction (Duffin 1965), with the points 0 and k kept. Of edges between the same two
 * points, the earliest counts. Of two edges that meet at a point where no other edge ends, the later one
 * counts. An edge that ends where no other does is of no use. Often one edge from 0 to k is left. */
typedef struct {
    int64_t ends, edge;
} joint;

static int by_ends(const void *a, const void *b)
{
    const joint *const x = a, *const y = b;
    if (x->ends != y->ends)
        return x->ends < y->ends ? -1 : 1;
    return (x->edge > y->edge) - (x->edge < y->edge);
}

static void add_step(fgc_rounds *r, int serial, int64_t to, int64_t from)
{
    r->tiling.step[r->tiling.steps++] = (step){to, from, serial};
}

/* Replace edges between the same points by one edge, and drop loops. Returns whether any edge went. */
static int merge_parallel(fgc_rounds *r, joint *joints)
{
    int64_t count = 0;
    for (int64_t j = 0; j < r->tiling.edges; j++) {
        const int64_t e = r->tiling.edge[j], one = r->tiling.start[e], other = r->tiling.stop[e];
        const int64_t low = one < other ? one : other, high = one + other - low;
        if (low != high)
            joints[count++] = (joint){low * (r->plan->total + 1) + high, e};
    }
    qsort(joints, (size_t)count, sizeof *joints, by_ends);
    const int64_t before = r->tiling.edges;
    r->tiling.edges = 0;
    for (int64_t j = 0; j < count; j++)
        if (j && joints[j].ends == joints[j - 1].ends)
            add_step(r, 0, r->tiling.edge[r->tiling.edges - 1], joints[j].edge);
        else
            r->tiling.edge[r->tiling.edges++] = joints[j].edge;
    return r->tiling.edges < before;
}

/* Replace two edges that follow each other by one, and drop dead ends. Returns whether any edge went. At
 * each point, `ends` counts the edges that end there, and `which` is the exclusive or of their numbers:
 * of two edges, one tells the other. */
static int merge_serial(fgc_rounds *r, int64_t *ends, int64_t *which, int64_t *gone)
{
    const int64_t k = r->plan->total, before = r->tiling.edges;
    for (int64_t point = 0; point <= k; point++)
        ends[point] = which[point] = 0;
    for (int64_t j = 0; j < r->tiling.edges; j++) {
        const int64_t e = r->tiling.edge[j];
        gone[e] = 0;
        ends[r->tiling.start[e]]++;
        ends[r->tiling.stop[e]]++;
        which[r->tiling.start[e]] ^= e;
        which[r->tiling.stop[e]] ^= e;
    }
    for (int64_t j = 0; j < r->tiling.edges; j++) {
        const int64_t e = r->tiling.edge[j];
        for (int64_t side = 0; side < 2 && !gone[e]; side++) {
            int64_t *const end = side ? r->tiling.stop : r->tiling.start;
            int64_t *const far = side ? r->tiling.start : r->tiling.stop;
            while (end[e] != 0 && end[e] != k && ends[end[e]] == 2 && end[e] != far[e]) {
                const int64_t point = end[e], other = which[point] ^ e;
                const int64_t next = r->tiling.start[other] + r->tiling.stop[other] - point;
                add_step(r, 1, e, other);
                gone[other] = 1;
                ends[point] = 0;
                which[next] ^= other ^ e;
                end[e] = next;
            }
            if (end[e] != 0 && end[e] != k && ends[end[e]] == 1) {
                gone[e] = 1;
                ends[end[e]]--;
                ends[far[e]]--;
                which[far[e]] ^= e;
            }
        }
    }
    int64_t kept = 0;
    for (int64_t j = 0; j < before; j++)
        if (!gone[r->tiling.edge[j]])
            r->tiling.edge[kept++] = r->tiling.edge[j];
    r->tiling.edges = kept;
    return kept < before;
}

/* Merge edges until nothing changes. `work` holds three numbers for each message and two for each point. */
static void reduce_graph(fgc_rounds *r, int64_t *work)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t all = plan->first[plan->workers], points = plan->total + 1;
    for (int64_t e = 0; e < all; e++) {
        r->tiling.edge[e] = e;
        r->tiling.start[e] = plan->group[e];
        r->tiling.stop[e] = plan->other[e];
    }
    r->tiling.edges = all;
    joint *const joints = (joint *)work;
    int64_t *const ends = work + 2 * all, *const which = ends + points, *const gone = which + points;
    for (int changed = 1; changed;) {
        changed = merge_parallel(r, joints);
        changed |= merge_serial(r, ends, which, gone);
    }
}

static int64_t root(int64_t *parent, int64_t point)
{
    while (parent[point] != point)
        point = parent[point] = parent[parent[point]];
    return point;
}

static void join(fgc_rounds *r, int64_t e)
{
    r->parts.parent[root(r->parts.parent, r->tiling.start[e])] = root(r->parts.parent, r->tiling.stop[e]);
}

static int connected(fgc_rounds *r)
{
    return root(r->parts.parent, 0) == root(r->parts.parent, r->plan->total);
}

static void take_apart(fgc_rounds *r)
{
    for (int64_t point = 0; point <= r->plan->total; point++)
        r->parts.parent[point] = point;
}

/* Sort edges by their keys: Shell's sort. */
static void sort_edges(int64_t *edge, int64_t count, const double *key)
{
    int64_t gap = 1;
    while (gap < count / 3)
        gap = 3 * gap + 1;
    for (; gap; gap /= 3)
        for (int64_t j = gap; j < count; j++) {
            const int64_t e = edge[j];
            int64_t at = j;
            for (; at >= gap && key[edge[at - gap]] > key[e]; at -= gap)
                edge[at] = edge[at - gap];
            edge[at] = e;
        }
}

/* Add the edges of `near` in order of time. Returns the time at which 0 and k become connected, or -1. */
static double connect(fgc_rounds *r, int64_t *near, int64_t count)
{
    sort_edges(near, count, r->select.key);
    for (int64_t j = 0; j < count; j++) {
        join(r, near[j]);
        if (connected(r))
            return r->select.key[near[j]];
    }
    return -1;
}

/* Join all edges before the window at once, then add those inside one by one. Returns -1 if 0 and k do
 * not become connected inside the window. */
static double connect_near(fgc_rounds *r, const window *w)
{
    int64_t *const early = r->groups.order, *const near = r->tiling.near;
    int64_t before = 0, inside = 0;
    for (int64_t j = 0; j < r->tiling.edges; j++) {
        const int64_t e = r->tiling.edge[j];
        early[before] = near[inside] = e;
        before += r->select.key[e] < w->low;
        inside += (r->select.key[e] >= w->low) & (r->select.key[e] <= w->high);
    }
    for (int64_t j = 0; j < before; j++)
        join(r, early[j]);
    return connected(r) ? -1 : connect(r, near, inside);
}

/* Return when 0 and k are connected, from the keys of the edges that are left. */
static double graph_ready(fgc_rounds *r)
{
    if (r->tiling.edges <= 1)
        return r->tiling.edges ? r->select.key[r->tiling.edge[0]] : INFINITY;
    take_apart(r);
    double ready = connect_near(r, r->select.windows);
    if (ready < 0) {
        take_apart(r);
        memcpy(r->tiling.near, r->tiling.edge, (size_t)r->tiling.edges * sizeof *r->tiling.near);
        ready = connect(r, r->tiling.near, r->tiling.edges);
        if (ready < 0)
            return INFINITY;
    }
    note(r, r->select.windows, ready);
    return ready;
}

/* Return when the intervals that came connect 0 and k. */
static double tiling_ready(fgc_rounds *r)
{
    const int64_t all = r->plan->first[r->plan->workers];
    if (r->plan->total == 0)
        return 0;
    memcpy(r->select.key, r->messages.arrival, (size_t)all * sizeof *r->select.key);
    for (int64_t j = 0; j < r->tiling.steps; j++) {
        const step s = r->tiling.step[j];
        const double x = r->select.key[s.to], y = r->select.key[s.from];
        r->select.key[s.to] = (x < y) == s.serial ? y : x;
    }
    return graph_ready(r);
}

/* ------------------------------------------------------------------- edges of a graph, and rows */

/* Return when plan->wait workers have sent all their messages; INFINITY if wait is 0. */
static double await_workers(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    if (!plan->wait)
        return INFINITY;
    double *const last = r->select.gathered;
    for (int64_t i = 0; i < plan->workers; i++)
        last[i] = r->messages.arrival[plan->first[i + 1] - 1];
    return select_rank(r, last, plan->workers, plan->wait, r->select.windows + plan->groups + 1);
}

/* Return the root of a vertex; *side = 1 if the vertex is on the root's side, else -1. */
static int64_t root_and_side(const fgc_rounds *r, int64_t vertex, int64_t *side)
{
    for (*side = 1; r->parts.parent[vertex] != vertex; vertex = r->parts.parent[vertex])
        *side *= r->parts.sign[vertex];
    return vertex;
}

/* Return 1 if no combination of a component's edges counts each of its vertices once. One exists if the
 * component has an odd cycle, or if both sides have equally many vertices. */
static int64_t lacks(const fgc_rounds *r, int64_t root)
{
    return r->parts.more[root] != 0 && !r->parts.odd[root];
}

/* Add the edge of message m. Returns the change in the number of components that lack a combination. */
static int64_t add_edge(fgc_rounds *r, int64_t m)
{
    int64_t one, other;
    int64_t u = root_and_side(r, r->plan->group[m], &one);
    int64_t v = root_and_side(r, r->plan->other[m], &other);
    int64_t before = lacks(r, u);
    if (u == v) {
        r->parts.odd[u] |= one == other;
    } else {
        before += lacks(r, v);
        if (r->parts.size[u] < r->parts.size[v]) {
            const int64_t smaller = u;
            u = v;
            v = smaller;
        }
        r->parts.parent[v] = u;
        r->parts.sign[v] = -one * other;
        r->parts.size[u] += r->parts.size[v];
        r->parts.more[u] += r->parts.sign[v] * r->parts.more[v];
        r->parts.odd[u] |= r->parts.odd[v];
    }
    return lacks(r, u) - before;
}

/* Take messages in order of arrival, up to `latest`, until no component lacks a combination. Returns the
 * time of the last one taken, or INFINITY. */
static double edges_ready(fgc_rounds *r, double latest)
{
    const int64_t vertices = r->plan->total;
    int64_t lacking = vertices;
    for (int64_t v = 0; v < vertices; v++) {
        r->parts.parent[v] = v;
        r->parts.sign[v] = r->parts.size[v] = r->parts.more[v] = 1;
        r->parts.odd[v] = 0;
    }
    start_queue(r);
    while (r->queue.waiting) {
        const double now = next_arrival(r, 0);
        if (now > latest)
            break;
        lacking += add_edge(r, take_next(r));
        if (lacking == 0)
            return now;
    }
    return INFINITY;
}

/* Return whether message m can be spared together with those that already are, and if so add its row to
 * the basis, by Gram-Schmidt. The basis is orthonormal in all columns but the first, which takes part in
 * the same steps: a row that becomes 0 in the others can be spared only if it becomes 0 there, too. */
static int can_spare(fgc_rounds *r, int64_t m)
{
    enum { PASSES = 2 }; /* one pass leaves the rounding errors of what it subtracts */
    static const double ZERO = 1e-9, SOLVED = 1e-6;
    const int64_t width = r->plan->width;
    double *const row = r->span.basis + r->span.held * width;
    memcpy(row, r->plan->spare + m * width, (size_t)width * sizeof *row);
    double square = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int64_t b = 0; b < r->span.held; b++) {
            const double *const other = r->span.basis + b * width;
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
    r->span.held++;
    return 1;
}

/* Spare messages from the latest one backwards. Returns the arrival of the first that cannot be spared.
 * All messages after `latest` must be spared; if one cannot be, returns INFINITY. */
static double span_ready(fgc_rounds *r, double latest)
{
    const int64_t all = r->plan->first[r->plan->workers];
    int64_t came = 0;
    r->span.held = 0;
    for (int64_t m = 0; m < all; m++)
        if (r->messages.arrival[m] <= latest)
            r->groups.order[came++] = m;
        else if (!can_spare(r, m))
            return INFINITY;
    sort_edges(r->groups.order, came, r->messages.arrival);
    while (came--)
        if (!can_spare(r, r->groups.order[came]))
            return r->messages.arrival[r->groups.order[came]];
    return 0;
}

/* ------------------------------------------------------------------------------------- rounds */

/* Sort the messages by group: a counting sort. */
static void sort_by_block(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t messages = plan->first[plan->workers];
    for (int64_t b = 0; b <= plan->groups; b++)
        r->groups.bound[b] = 0;
    for (int64_t m = 0; m < messages; m++)
        r->groups.bound[plan->group[m] + 1]++;
    for (int64_t b = 0; b < plan->groups; b++)
        r->groups.bound[b + 1] += r->groups.bound[b];
    /* Each group is filled from its end. */
    for (int64_t m = messages; m-- > 0;)
        r->groups.order[--r->groups.bound[plan->group[m] + 1]] = m;
    for (int64_t b = 0; b < plan->groups; b++)
        r->groups.bound[b] = r->groups.bound[b + 1];
    r->groups.bound[plan->groups] = messages;
}

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

static FGC_INLINE int64_t lower_bits(double number)
{
    return (int64_t)(bits_of(number) & ((UINT64_C(1) << 52) - 1));
}

/* Count the messages that came by the time `ready`, if each worker sends one. sent[i] becomes the share
 * of its work after which worker i sent its last message that came, or 0. */
static int64_t count_single(const fgc_rounds *r, double ready, double *sent)
{
    const double *const share = r->plan->share, *const arrival = r->messages.arrival;
    const int64_t n = r->plan->workers;
    int64_t heard = 0;
    for (int64_t i = 0; i < n; i++) {
        heard += arrival[i] <= ready;
        sent[i] = arrival[i] <= ready ? share[i] : 0;
    }
    return heard;
}

/* The same if workers send several; *senders = the workers of which a message came. */
static int64_t count_several(const fgc_rounds *r, double ready, double *sent, int64_t *senders)
{
    const fgc_completion_plan *plan = r->plan;
    int64_t heard = 0;
    *senders = 0;
    for (int64_t i = 0; i < plan->workers; i++) {
        const int64_t first = plan->first[i], end = plan->first[i + 1];
        int64_t came = 0;
        if (r->messages.many)
            for (int64_t m = first; m < end && r->messages.arrival[m] <= ready; m++)
                came++;
        else
            for (int64_t m = first; m < end; m++)
                came += r->messages.arrival[m] <= ready;
        heard += came;
        *senders += came > 0;
        sent[i] = came ? plan->share[first + came - 1] : 0;
    }
    return heard;
}

/* Count the computations that all workers have finished by the time `ready`. */
static int64_t count_computed(const fgc_rounds *r, const double *whole, double ready,
                              const double *sent)
{
    const double *const load = r->messages.load, *const begin = r->messages.begin;
    const int64_t n = r->plan->workers;
    int64_t done = 0;
    for (int64_t i = 0; i < n; i++)
        done += lower_bits(computed(load[i], whole[i], ready - begin[i], sent[i]));
    return done;
}

/* Take room for `count` numbers of 8 bytes from memory whose first *used bytes are taken. If `memory` is
 * NULL, the bytes are only counted. */
static void *take(char *memory, size_t *used, int64_t count)
{
    void *const taken = memory ? memory + *used : NULL;
    *used += (size_t)count * 8;
    return taken;
}

/* Give each array its room in `memory`. Returns how many bytes they take together. */
static size_t lay_out(fgc_rounds *r, char *memory, int64_t **reduction)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t n = plan->workers, all = plan->first[n], groups = plan->groups;
    const int64_t keys = (all > groups ? all : groups) + FEW;
    const int64_t points = plan->kind == FGC_TILING ? plan->total + 1 : 0;
    const int64_t vertices = plan->kind == FGC_EDGES ? plan->total : 0;
    const int64_t width = plan->kind == FGC_SPAN ? plan->width : 0;
    const int64_t edges = points ? all : 0;
    size_t used = 0;
#define TAKE(array, count) array = take(memory, &used, count)
    TAKE(r->messages.begin, n);
    TAKE(r->messages.load, n);
    TAKE(r->messages.sent, n);
    TAKE(r->messages.arrival, all);
    TAKE(r->select.key, keys);
    TAKE(r->select.spare, keys);
    TAKE(r->select.gathered, keys);
    TAKE(r->select.weight, keys);
    TAKE(r->select.spare_weight, keys);
    TAKE(r->select.windows, (groups + 2) * (int64_t)(sizeof(window) / 8));
    TAKE(r->groups.order, keys);
    TAKE(r->groups.bound, groups + 1);
    TAKE(r->tiling.near, keys);
    TAKE(r->tiling.start, edges);
    TAKE(r->tiling.stop, edges);
    TAKE(r->tiling.edge, edges);
    TAKE(r->tiling.step, 3 * edges);
    TAKE(*reduction, 3 * edges + 2 * points);
    TAKE(r->parts.parent, points + vertices);
    TAKE(r->parts.sign, vertices);
    TAKE(r->parts.size, vertices);
    TAKE(r->parts.more, vertices);
    TAKE(r->parts.odd, vertices);
    TAKE(r->span.basis, width * width);
    TAKE(r->queue.heap, n);
    TAKE(r->queue.next, n);
#undef TAKE
    return used;
}

/* Set groups.rank: how many cells suffice, if it does not matter which they are. */
static void rank_cells(fgc_rounds *r)
{
    const fgc_completion_plan *plan = r->plan;
    int64_t least = INT64_MAX, most = 0, all = 0;
    for (int64_t c = 0; c < plan->groups; c++) {
        all += plan->need[c];
        least = plan->need[c] < least ? plan->need[c] : least;
        most = plan->need[c] > most ? plan->need[c] : most;
    }
    r->groups.heaviest = all;
    if (plan->total > all - least) /* every cell is needed, or even all are too few */
        r->groups.rank = plan->total > all ? plan->groups + 1 : plan->groups;
    else if (least == most && plan->total > 0)
        r->groups.rank = (plan->total + most - 1) / most;
}

/* Prepare what is the same in all rounds. Returns memory that the caller frees, or NULL. */
static void *start_rounds(fgc_rounds *r, const fgc_completion_plan *plan)
{
    const int64_t n = plan->workers, all = plan->first[n];
    int64_t *reduction;
    *r = (fgc_rounds){.plan = plan};
    char *const memory = malloc(lay_out(r, NULL, &reduction));
    if (!memory)
        return NULL;
    lay_out(r, memory, &reduction);
    r->select.random = 1;
    r->messages.single = r->messages.straight = 1;
    r->messages.many = all > MANY * n;
    for (int64_t i = 0; i < n; i++) {
        r->messages.load[i] = (double)plan->loads[i];
        r->messages.single &= plan->first[i] == i && plan->first[i + 1] == i + 1;
    }
    r->last = (window){INFINITY, -INFINITY, INFINITY, -INFINITY, 0};
    for (int64_t w = 0; w < plan->groups + 2; w++)
        r->select.windows[w] = r->last;
    if (plan->kind == FGC_TILING) {
        reduce_graph(r, reduction);
    } else if (plan->kind == FGC_BLOCKS || plan->kind == FGC_CELLS) {
        sort_by_block(r);
        for (int64_t j = 0; j < all; j++)
            r->messages.straight &= r->groups.order[j] == j;
    }
    if (plan->kind == FGC_CELLS)
        rank_cells(r);
    return memory;
}

/* Where the results of each round are written. */
typedef struct {
    double *time;
    int64_t *messages, *workers, *computations;
} report;

/* Fill in when messages come: of a worker with several, only those within the limit and the one after.
 * For FGC_CELLS with several messages a worker, cells_ready does it. */
static void fill_arrivals(fgc_rounds *r, const double *whole)
{
    const fgc_completion_plan *plan = r->plan;
    if (r->messages.single) {
        for (int64_t i = 0; i < plan->workers; i++)
            r->messages.arrival[i] = r->messages.begin[i] + whole[i] * plan->share[i];
        return;
    }
    for (int64_t i = 0; i < plan->workers && plan->kind != FGC_CELLS; i++) {
        const double begin = r->messages.begin[i], work = whole[i];
        const int64_t end = plan->first[i + 1];
        int64_t m = plan->first[i];
        if (r->messages.limit < INFINITY) {
            while (m < end && (r->messages.arrival[m] = begin + work * plan->share[m]) <= r->messages.limit)
                m++;
            for (m++; m < end; m++)
                r->messages.arrival[m] = INFINITY;
        } else {
            for (; m < end; m++)
                r->messages.arrival[m] = begin + work * plan->share[m];
        }
    }
}

/* Return when the round is ready: by the plan's rule, or once enough workers have sent everything. */
static double find_ready(fgc_rounds *r, const double *whole)
{
    fill_arrivals(r, whole);
    const fgc_rule kind = r->plan->kind;
    double ready = INFINITY;
    if (kind == FGC_BLOCKS)
        ready = blocks_ready(r);
    else if (kind == FGC_CELLS)
        ready = cells_ready(r, whole);
    else if (kind == FGC_TILING)
        ready = tiling_ready(r);
    const double latest = await_workers(r);
    if (kind == FGC_EDGES)
        ready = edges_ready(r, latest);
    else if (kind == FGC_SPAN)
        ready = span_ready(r, latest);
    return ready < latest ? ready : latest;
}

static void run_rounds(fgc_rounds *r, const double *delay, const double *work, double *late,
                       int64_t rounds, double receive, double overhead, int interrupted, report to)
{
    const fgc_completion_plan *plan = r->plan;
    const int64_t n = plan->workers;
    for (int64_t round = 0; round < rounds; round++) {
        const double *const wait = delay + round * n, *const whole = work + round * n;
        for (int64_t i = 0; i < n; i++)
            r->messages.begin[i] = late[i] + wait[i];
        /* The round is likely ready by when the last ones were: leave later messages out at first. */
        const int near = interrupted && r->messages.many && !plan->wait && r->last.low <= r->last.high;
        r->messages.limit = near ? r->last.high : INFINITY;
        double ready = find_ready(r, whole);
        if (ready > r->messages.limit) {
            r->messages.limit = INFINITY;
            ready = find_ready(r, whole);
        }
        note(r, &r->last, ready);

        int64_t senders;
        const int64_t heard = r->messages.single ? (senders = count_single(r, ready, r->messages.sent))
                                        : count_several(r, ready, r->messages.sent, &senders);
        double end = ready;
        if (receive > 0) {
            start_queue(r);
            for (int64_t left = heard; left > 0; left--) {
                const double taken = r->messages.arrival[take_next(r)] + (double)left * receive;
                end = taken > end ? taken : end;
            }
        }
        to.time[round] = end;
        to.messages[round] = heard;
        to.workers[round] = senders;
        to.computations[round] = count_computed(r, whole, ready, r->messages.sent);
        if (interrupted)
            continue;
        end += overhead;
        for (int64_t i = 0; i < n; i++) {
            double free_at = late[i];
            for (int64_t m = plan->first[i]; m < plan->first[i + 1] && free_at <= end; m++)
                free_at = r->messages.arrival[m];
            late[i] = free_at > end ? free_at - end : 0;
        }
    }
}

fgc_status FGC_AT_LEVEL(fgc_completion_part)(const fgc_completion_plan *plan, const double *delay,
                                        const double *work, double *late, int64_t rounds,
                                        double receive, double overhead, int interrupted,
                                        double *time, int64_t *messages, int64_t *workers,
                                        int64_t *computations)
{
    fgc_rounds r;
    void *const memory = start_rounds(&r, plan);
    if (!memory)
        return FGC_NO_MEMORY;
    run_rounds(&r, delay, work, late, rounds, receive, overhead, interrupted,
               (report){time, messages, workers, computations});
    free(memory);
    return FGC_OK;
}

/* ------------------------------------------------------------------------ random delays
 *
 * The random number of (key, round, worker) is SplitMix64's (Steele, Lea, Flood 2014) at a counter, so
 * that rounds can be drawn in any pieces, on any thread. Minus the logarithm of its upper 52 bits is
 * exponential; its lower 32 bits put simultaneous messages in random order. */
static const uint64_t STEP = 0x9E3779B97F4A7C15u;
/* log(2) as a sum; the last 13 bits of the high part are 0 */
static const double LN2_HIGH = 0.6931471805592082, LN2_LOW = 7.371002565167799e-13;

static FGC_INLINE uint64_t mixed(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static const uint64_t ONE = 0x3FF0000000000000u; /* the bits of 1.0 */

/* Return -log u for u = 1 - (r + 1/2) 2^-52, where r is the upper 52 bits. With u = 2^e m, m in
 * [sqrt(1/2), sqrt(2)), log m = 2 s + s^3 P(s^2), s = (m - 1) / (m + 1). */
static FGC_INLINE double exponential(uint64_t random)
{
    const double u = 2 - from_bits(random >> 12 | ONE) - 0x1p-53;
    const uint64_t above = bits_of(u) + (ONE - 0x3FE6A09E667F3BCDu); /* moves sqrt(1/2) to 1 */
    const uint64_t e = above >> 52;
    const double exponent = from_bits(e | 0x4330000000000000u) - (0x1p52 + 1023);
    const double m = from_bits(bits_of(u) + ONE - (e << 52));
    const double s = (m - 1) / (m + 1), z = s * s;
    double p = 0.14616449685043406;
    p = p * z + 0.15331721600556042;
    p = p * z + 0.18182889125261723;
    p = p * z + 0.2222221113479508;
    p = p * z + 0.28571428625975487;
    p = p * z + 0.39999999999899505;
    p = p * z + 0.666666666666667;
    return -(exponent * LN2_HIGH + (2 * s + (s * z * p + exponent * LN2_LOW)));
}

/* Return e^x, 0 <= x <= 700, as 2^k e^r with |r| <= log(2) / 2, and e^r = 1 + r + r^2 Q(r). */
static FGC_INLINE double power_of_e(double x)
{
    const double shifted = x * 1.4426950408889634 + 0x1.8p52, k = shifted - 0x1.8p52;
    const double r = x - k * LN2_HIGH - k * LN2_LOW;
    double q = 2.5100375832561234e-08;
    q = q * r + 2.7620075879983367e-07;
    q = q * r + 2.7557268480310024e-06;
    q = q * r + 2.4801521322368692e-05;
    q = q * r + 0.00019841269863040545;
    q = q * r + 0.0013888888917196719;
    q = q * r + 0.008333333333330065;
    q = q * r + 0.041666666666624164;
    q = q * r + 0.16666666666666669;
    q = q * r + 0.5000000000000001;
    const double p = 1 + (r + r * r * q);
    return from_bits(bits_of(p) + (bits_of(shifted) << 52));
}

/* Return a number from 1 to 1 + 2^-40, by the lower 32 bits. */
static FGC_INLINE double apart(uint64_t random)
{
    return 1 + (from_bits((random << 32) >> 12 | ONE) - 1) * 0x1p-40;
}

void FGC_AT_LEVEL(fgc_draw_part)(const fgc_delays *delays, int64_t first, int64_t rounds, double *wait,
                                 double *whole)
{
    const int64_t n = delays->workers, period = delays->repeats * n;
    const double onset = delays->onset;
    for (int64_t at = 0; at < rounds * n; at += period) {
        const int64_t count = rounds * n - at < period ? rounds * n - at : period;
        const uint64_t counter = delays->key + ((uint64_t)first * n + at) * STEP;
        const double *const shift = delays->shift, *const scale = delays->scale;
        const double *const power = delays->power, *const load = delays->load;
        const double *const work = delays->work;
        double *const begin = wait + at, *const factor = whole + at;
        if (delays->given) {
            memcpy(begin, delays->given + at, (size_t)count * sizeof *begin);
            for (int64_t i = 0; i < count; i++)
                factor[i] = apart(mixed(counter + (uint64_t)(i + 1) * STEP));
        } else {
            for (int64_t i = 0; i < count; i++) {
                const uint64_t random = mixed(counter + (uint64_t)(i + 1) * STEP);
                begin[i] = exponential(random);
                factor[i] = apart(random);
            }
            if (delays->powers)
                for (int64_t i = 0; i < count; i++) {
                    const double x = begin[i], e = power_of_e(x * power[i]);
                    begin[i] = power[i] > 0 ? e : x;
                }
            for (int64_t i = 0; i < count; i++)
                begin[i] = shift[i] + scale[i] * begin[i];
        }
        for (int64_t i = 0; i < count; i++) {
            const double time = begin[i], by = factor[i];
            begin[i] = time * onset * by;
            factor[i] = (time * load[i] + work[i]) * by;
        }
    }
}
