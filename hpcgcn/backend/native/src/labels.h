/* Partitioning by labels: every node takes the label that scores best among its neighbours, as long as that label has
 * room. One thread and nodes in order, each seeing the labels of those before it: the result depends on the seed alone. */

typedef struct {
    int32_t *keys, *counts;             /* labels of the neighbours of one node, in a hash table */
    int32_t *used;                      /* places of the table that are taken */
    int64_t mask, n_used;
} neighbour_labels;

enum { LABELS_AHEAD = 24 };             /* of an entry: neighbours lie anywhere in memory */

static inline uint32_t scattered(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

static bool make_table(neighbour_labels *t, const int64_t *indptr, int64_t n_rows)
{
    int64_t longest = 1, size = 16;
    for (int64_t r = 0; r < n_rows; r++)
        if (indptr[r + 1] - indptr[r] > longest)
            longest = indptr[r + 1] - indptr[r];
    while (size < 2 * longest)
        size *= 2;
    t->mask = size - 1;
    t->n_used = 0;
    t->keys = malloc(3 * size * sizeof *t->keys);
    if (t->keys == NULL)
        return false;
    t->counts = t->keys + size;
    t->used = t->counts + size;
    memset(t->keys, 0xff, size * sizeof *t->keys);
    return true;
}

/* Labels below 0 are none. */
static void count_labels(neighbour_labels *t, const int32_t *columns, int64_t n, const int32_t *labels)
{
    for (int64_t k = 0; k < t->n_used; k++)
        t->keys[t->used[k]] = -1;
    t->n_used = 0;
    for (int64_t e = 0; e < n; e++) {
        if (e + LABELS_AHEAD < n)
            __builtin_prefetch(&labels[columns[e + LABELS_AHEAD]]);
        const int32_t label = labels[columns[e]];
        if (label < 0)
            continue;
        int64_t at = scattered((uint32_t)label) & t->mask;
        while (t->keys[at] != label && t->keys[at] != -1)
            at = (at + 1) & t->mask;
        if (t->keys[at] == -1) {
            t->keys[at] = label;
            t->counts[at] = 0;
            t->used[t->n_used++] = (int32_t)at;
        }
        t->counts[at]++;
    }
}

typedef struct {
    int64_t *sizes, *marked;            /* of each label: weight of its nodes, and its marked nodes (or NULL) */
    int64_t mask;                       /* of labels, where there are fewer sizes than labels */
    int64_t most, most_marked;          /* what a label may have */
    double price;                       /* of a label's size, in edges: price * sqrt(size / most) is Fennel's, gamma 1.5 */
} rooms;

static inline bool has_room(const rooms *r, int64_t place, int64_t weight, int64_t mark)
{
    return r->sizes[place] + weight <= r->most && (mark == 0 || r->marked[place] + 1 <= r->most_marked);
}

static inline double cost(const rooms *r, int64_t place)
{
    return r->price > 0 ? r->price * sqrt((double)r->sizes[place] / (double)r->most) : 0;
}

/* The emptiest label that has room: for nodes whose neighbours have none, or only full ones; -1: there is none. */
static int32_t emptiest(const rooms *r, int64_t n_labels, int64_t weight, int64_t mark)
{
    int32_t best = -1;
    for (int64_t place = 0; place < n_labels; place++)
        if (has_room(r, place, weight, mark) && (best < 0 || r->sizes[place] < r->sizes[best]))
            best = (int32_t)place;
    return best;
}

/* indptr, indices (of some rows), first row, labels, weights or None, marks or None, sizes, marked sizes or None, most,
 * most marked, price, seed, mask of labels, whether a label is a part: then a node without a label gets one, and one in
 * a part that has too much leaves it. The size of a label is sizes[label & mask]. Returns how many labels changed. */
static void run_label_sweep(call *c)
{
    const argument *a = c->in;
    const int64_t *indptr = a[0].data, first = a[2].integer, n_rows = a[0].bytes / 8 - 1;
    const int32_t *indices = a[1].data;
    int32_t *labels = a[3].data;
    const int64_t *weights = a[4].data;
    const uint8_t *marks = a[5].data;
    const int64_t n_sizes = a[6].bytes / 8;
    const bool parts = a[13].integer;
    const uint32_t seed = (uint32_t)a[11].integer;
    rooms r = {.sizes = a[6].data, .marked = a[7].data, .mask = a[12].integer, .most = a[8].integer,
               .most_marked = a[9].integer, .price = a[10].number};
    neighbour_labels t;
    REQUIRE(n_rows >= 0 && indptr[n_rows] - indptr[0] == a[1].bytes / 4, "indptr must fit the entries");
    REQUIRE(first >= 0 && (first + n_rows) * 4 <= a[3].bytes, "labels must be there for all rows");
    REQUIRE(r.mask < 0 || r.mask < n_sizes, "sizes must be there for all labels");
    REQUIRE(marks == NULL || r.marked != NULL, "marks need marked sizes");
    REQUIRE(make_table(&t, indptr, n_rows), "no memory");
    int64_t n_changed = 0;
    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t node = first + row, weight = weights ? weights[node] : 1, mark = marks ? marks[node] != 0 : 0;
        const int32_t own = labels[node];
        const int64_t own_place = own < 0 ? -1 : own & r.mask;
        count_labels(&t, indices + (indptr[row] - indptr[0]), indptr[row + 1] - indptr[row], labels);
        if (own >= 0) {                     /* scores are those of the graph without this node */
            r.sizes[own_place] -= weight;
            if (mark)
                r.marked[own_place]--;
        }
        const bool stays = own >= 0 && (!parts || has_room(&r, own_place, weight, mark));
        int32_t best = stays ? own : -1;
        double best_score = stays ? -cost(&r, own_place) : -INFINITY;
        uint32_t best_draw = 0;
        for (int64_t k = 0; k < t.n_used; k++) {
            const int32_t label = t.keys[t.used[k]];
            const double score = t.counts[t.used[k]] - cost(&r, label & r.mask);
            const uint32_t draw = label == own ? UINT32_MAX
                                               : scattered((uint32_t)label ^ scattered((uint32_t)node + seed)) >> 1;
            if ((label == own ? stays : has_room(&r, label & r.mask, weight, mark))
                && (score > best_score || (score == best_score && draw > best_draw))) {
                best = label;
                best_score = score;
                best_draw = draw;
            }
        }
        if (best < 0 && parts)
            best = emptiest(&r, n_sizes, weight, mark);
        if (best < 0)
            best = own;                     /* nothing has room: where it was */
        if (best >= 0) {
            r.sizes[best & r.mask] += weight;
            if (mark)
                r.marked[best & r.mask]++;
        }
        n_changed += best != own;
        labels[node] = best;
    }
    free(t.keys);
    c->result = (double)n_changed;
}

/* indptr, indices (of some rows), first row, groups of all nodes, keys (-1: free), counts: add the entries between rows
 * and columns of different groups to a hash table of pairs (smaller group << 32 | larger group), each by 1. Returns how
 * many places are taken, or -1 if more than three quarters would be. */
static void run_count_pairs(call *c)
{
    const argument *a = c->in;
    const int64_t *indptr = a[0].data, first = a[2].integer, n_rows = a[0].bytes / 8 - 1;
    const int32_t *indices = a[1].data, *groups = a[3].data;
    int64_t *keys = a[4].data, *counts = a[5].data;
    const int64_t size = a[4].bytes / 8;
    int64_t n_used = a[6].integer;
    REQUIRE(n_rows >= 0 && indptr[n_rows] - indptr[0] == a[1].bytes / 4, "indptr must fit the entries");
    REQUIRE(first >= 0 && (first + n_rows) * 4 <= a[3].bytes, "groups must be there for all rows");
    REQUIRE(size > 0 && (size & (size - 1)) == 0 && a[5].bytes == a[4].bytes, "the table must be of a power of two");
    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t own = groups[first + row];
        for (int64_t e = indptr[row] - indptr[0]; e < indptr[row + 1] - indptr[0]; e++) {
            const int64_t other = groups[indices[e]];
            if (other == own)
                continue;
            const int64_t key = own < other ? own << 32 | other : other << 32 | own;
            uint64_t mixed = (uint64_t)key * 0x9E3779B97F4A7C15u;
            int64_t at = (int64_t)((mixed ^ (mixed >> 32)) & (uint64_t)(size - 1));
            while (keys[at] != key && keys[at] != -1)
                at = (at + 1) & (size - 1);
            if (keys[at] == -1) {
                if (4 * ++n_used > 3 * size) {
                    c->result = -1;
                    return;
                }
                keys[at] = key;
                counts[at] = 0;
            }
            counts[at]++;
        }
    }
    c->result = (double)n_used;
}
