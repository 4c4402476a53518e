/* When messages suffice: of rounds that run, and of those simulated. */
#ifndef FASTGC_TALLY_H
#define FASTGC_TALLY_H

#include <string.h>

#include "fastgc.h"

static inline void tally_reset(fgc_tally *t)
{
    t->round++;
    t->due = t->total;
    for (int64_t b = 0; b < t->groups; b++)
        t->lacking[b] = t->need ? t->need[b] : 1;
}

/* Return a vertex as it is in this round. */
static inline fgc_vertex *vertex_of(const fgc_tally *t, int64_t v)
{
    fgc_vertex *const it = t->vertices + v;
    if (it->round != t->round)
        *it = (fgc_vertex){t->round, v, 1, 1, 1, 0};
    return it;
}

/* Return the root of a vertex; *side = 1 if the vertex is on the root's side, else -1. */
static inline fgc_vertex *root_of(const fgc_tally *t, int64_t v, int64_t *side)
{
    fgc_vertex *it = vertex_of(t, v);
    for (*side = 1; it->parent != it - t->vertices; it = t->vertices + it->parent)
        *side *= it->sign;
    return it;
}

/* Return 1 if no combination of a component's edges counts each of its vertices once. One exists if the
 * component has an odd cycle, or if both sides have equally many vertices. */
static inline int64_t lacks(const fgc_vertex *root) { return root->more != 0 && !root->odd; }

/* Add the edge of message m. Returns the change in the number of components that lack a combination. */
static inline int64_t add_edge(const fgc_tally *t, int64_t m)
{
    int64_t one, other;
    fgc_vertex *u = root_of(t, t->group[m], &one), *v = root_of(t, t->other[m], &other);
    int64_t before = lacks(u);
    if (u == v) {
        u->odd |= one == other;
    } else {
        before += lacks(v);
        if (u->size < v->size) {
            fgc_vertex *const smaller = u;
            u = v;
            v = smaller;
        }
        v->parent = u - t->vertices;
        v->sign = -one * other;
        u->size += v->size;
        u->more += v->sign * v->more;
        u->odd |= v->odd;
    }
    return lacks(u) - before;
}

static inline int tally_add(fgc_tally *t, int64_t m)
{
    int64_t side;
    if (t->kind == FGC_BLOCKS || t->kind == FGC_CELLS) {
        const int64_t block = t->group[m];
        if (--t->lacking[block] == 0)
            t->due -= t->weight[block];
        return t->due <= 0;
    }
    t->due += add_edge(t, m);
    return t->kind == FGC_EDGES ? t->due == 0 : root_of(t, 0, &side) == root_of(t, t->total, &side);
}

#endif
