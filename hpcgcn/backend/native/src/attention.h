/* Attention over edges: logits, softmax and the weighted sum of a row in one pass over its entries.
 *
 * A row is done in batches of entries. The weights of a batch are made head by head, many entries at a time, and kept on
 * the stack; then rows of x are gathered and added up, a tile of a head's columns in registers. Entries with a positive
 * logit are summed apart from the others (see backend/attention.py). A greater logit than all before shrinks the sums.
 */

enum { BATCH_ENTRIES = 64, DRAWN_HEADS = 8, HEAD_VECTORS = 4 };

static const float SLOPE = 0.2f;

typedef struct {
    const int64_t *indptr, *row_ends;
    const int32_t *indices;
    int64_t heads, columns, width;                      /* width = heads * columns */
    const int64_t *row_ids, *column_ids;
    philox_key key;
    uint32_t threshold;
    float scale;                                        /* of kept coefficients */
} attention;

typedef struct {
    float positive[BATCH_ENTRIES], negative[BATCH_ENTRIES];
} batch_weights;

/* -- sums ---------------------------------------------------------------------------------------------------------- */

INLINE vfloat load_lanes(const float *from, int tail) { return tail ? load_first(from, tail) : load(from); }

INLINE void store_lanes(float *to, vfloat value, int tail)
{
    if (tail)
        store_first(to, value, tail);
    else
        store(to, value);
}

/* Both sums of up to HEAD_VECTORS vectors of columns += weight * the same columns of x, for n entries. */
INLINE void add_columns(const float *x, int64_t width, const int32_t *indices, int n, const batch_weights *w,
                        float *positive, float *negative, int n_vectors, int tail)
{
    vfloat more[HEAD_VECTORS], less[HEAD_VECTORS];
    for (int v = 0; v < n_vectors; v++) {
        const int rest = v == n_vectors - 1 ? tail : 0;
        more[v] = load_lanes(positive + v * LANES, rest);
        less[v] = load_lanes(negative + v * LANES, rest);
    }
    for (int k = 0; k < n; k++) {
        const float *from = x + indices[k] * width;
        const vfloat up = splat(w->positive[k]), down = splat(w->negative[k]);
        for (int v = 0; v < n_vectors; v++) {
            const vfloat value = load_lanes(from + v * LANES, v == n_vectors - 1 ? tail : 0);
            more[v] = multiply_add(up, value, more[v]);
            less[v] = multiply_add(down, value, less[v]);
        }
    }
    for (int v = 0; v < n_vectors; v++) {
        const int rest = v == n_vectors - 1 ? tail : 0;
        store_lanes(positive + v * LANES, more[v], rest);
        store_lanes(negative + v * LANES, less[v], rest);
    }
}

/* The same for all columns of a head; x, positive and negative begin at its first one. */
static void add_head(const attention *a, const float *x, const int32_t *indices, int n, const batch_weights *w,
                     float *positive, float *negative)
{
    for (int64_t column = 0; column < a->columns; column += HEAD_VECTORS * LANES) {
        const int64_t columns = smaller(HEAD_VECTORS * LANES, a->columns - column);
        const int tail = (int)(columns % LANES);
        const float *from = x + column;
        float *more = positive + column, *less = negative + column;
        switch ((columns + LANES - 1) / LANES) {
        case 1:
            if (tail)
                add_columns(from, a->width, indices, n, w, more, less, 1, tail);
            else
                add_columns(from, a->width, indices, n, w, more, less, 1, 0);
            break;
        case 2: add_columns(from, a->width, indices, n, w, more, less, 2, tail); break;
        case 3: add_columns(from, a->width, indices, n, w, more, less, 3, tail); break;
        default: add_columns(from, a->width, indices, n, w, more, less, 4, tail);
        }
    }
}

static void scale_row(float *row, int64_t n, float factor)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++)
        row[k] *= factor;
}

/* -- weights ------------------------------------------------------------------------------------------------------- */

/* kept[h][k]: what the coefficient of entry k is multiplied by, for DRAWN_HEADS heads from head `first` on. */
static void draw_heads(const attention *a, int64_t row, const int32_t *indices, int n, int64_t first,
                       bool row_is_target, float (*kept)[BATCH_ENTRIES])
{
    const uint64_t here = (uint64_t)a->row_ids[row];
    const uint64_t n_blocks = (uint64_t)(a->heads + DRAWN_HEADS - 1) / DRAWN_HEADS, block = (uint64_t)first / DRAWN_HEADS;
    for (int begin = 0; begin < n; begin += COUNTERS) {
        uint64_t counter[3][COUNTERS] = {{0}};
        const int n_lanes = (int)smaller(COUNTERS, n - begin);
        for (int lane = 0; lane < n_lanes; lane++) {
            const uint64_t there = (uint64_t)a->column_ids[indices[begin + lane]];
            const uint64_t target = row_is_target ? here : there, source = row_is_target ? there : here;
            counter[0][lane] = (source * n_blocks + block) & 0xFFFFFFFFu;
            counter[1][lane] = target & 0xFFFFFFFFu;
            counter[2][lane] = target >> 32;
        }
        philox_state c = {{{0}, {0}, {0}, {0}}};
        for (int word = 0; word < 3; word++)
            memcpy(&c.word[word], counter[word], sizeof c.word[word]);
        c = philox(c, a->key);
        uint64_t words[4][COUNTERS];
        memcpy(words, c.word, sizeof words);
        for (int lane = 0; lane < n_lanes; lane++)
            for (int head = 0; head < DRAWN_HEADS; head++) {
                const uint32_t bits = (uint32_t)(words[head / 2][lane] >> (head % 2 * 16)) & 0xFFFF;
                kept[head][begin + lane] = bits >= a->threshold ? a->scale : 0.0f;
            }
    }
}

INLINE vfloat leaky(vfloat logit) { return choose(logit > splat(0.0f), logit, logit * splat(SLOPE)); }

/* The weights of LANES entries sorted by the sign of their logit, after dropout. */
INLINE void keep_weights(const attention *a, vfloat logit, vfloat weight, const float *kept, int at, batch_weights *w)
{
    if (a->threshold)
        weight *= load(kept + at);
    store(w->positive + at, choose(logit > splat(0.0f), weight, splat(0.0f)));
    store(w->negative + at, choose(logit > splat(0.0f), splat(0.0f), weight));
}

/* One head of a batch going forward; what the arguments point to begins at that head. */
static void attend_head(const attention *a, const float *x, const float *source_logits, float target_logit,
                        const int32_t *indices, int n, const float *kept, float *peak, float *total, float *share,
                        float *positive, float *negative)
{
    float logits[BATCH_ENTRIES], most = *peak;
    for (int k = 0; k < n; k++) {
        logits[k] = source_logits[indices[k] * a->heads] + target_logit;
        const float e = logits[k] > 0.0f ? logits[k] : SLOPE * logits[k];
        most = e > most ? e : most;
    }
    for (int k = n; k % LANES; k++)
        logits[k] = -INFINITY;                          /* weighs nothing */
    if (most > *peak) {
        const float shrink = expf(*peak - most);
        *total *= shrink;
        *share *= shrink;
        scale_row(positive, a->columns, shrink);
        scale_row(negative, a->columns, shrink);
        *peak = most;
    }
    batch_weights w;
    vfloat sum = {0}, upper = {0};
    for (int at = 0; at < n; at += LANES) {
        const vfloat logit = load(logits + at), weight = exponential(leaky(logit) - splat(most));
        sum += weight;
        upper += choose(logit > splat(0.0f), weight, splat(0.0f));
        keep_weights(a, logit, weight, kept, at, &w);
    }
    *total += add_lanes(sum);
    *share += add_lanes(upper);
    add_head(a, x, indices, n, &w, positive, negative);
}

static void begin_row(const attention *a, float *state, float *sums)
{
    for (int64_t head = 0; head < a->heads; head++) {
        state[head] = -INFINITY;
        state[a->heads + head] = state[2 * a->heads + head] = 0.0f;
    }
    memset(sums, 0, (size_t)a->width * 2 * sizeof *sums);
}

static void finish_row(const attention *a, float *state, float *sums, float *out)
{
    for (int64_t head = 0; head < a->heads; head++) {
        float *peak = state + head, *total = peak + a->heads, *share = total + a->heads;
        const float factor = *total > 0.0f ? 1.0f / *total : *total == 0.0f ? 1.0f : NAN;
        *peak = *total == 0.0f ? 0.0f : *peak + logf(*total);
        *share *= factor;
        float *positive = sums + head * a->columns, *negative = positive + a->width, *to = out + head * a->columns;
        for (int64_t k = 0; k < a->columns; k++) {
            positive[k] *= factor;
            negative[k] *= factor;
            to[k] = positive[k] + negative[k];
        }
    }
}

/* One head of a batch going back; `sums` has both sums of a row, *taken what the softmax takes off again. */
static void attend_head_back(const attention *a, const float *dout, const float *facts, float source_logit,
                             const int32_t *indices, int n, const float *kept, float *positive, float *negative,
                             float *taken)
{
    float logits[BATCH_ENTRIES], logarithms[BATCH_ENTRIES], products[BATCH_ENTRIES];
    for (int k = 0; k < n; k++) {
        const float *of_entry = facts + indices[k] * 3 * a->heads;
        logits[k] = source_logit + of_entry[0];
        logarithms[k] = of_entry[a->heads];
        products[k] = of_entry[2 * a->heads];
    }
    for (int k = n; k % LANES; k++) {
        logits[k] = -INFINITY;
        logarithms[k] = products[k] = 0.0f;
    }
    batch_weights w;
    vfloat sum = {0};
    for (int at = 0; at < n; at += LANES) {
        const vfloat logit = load(logits + at), coefficient = exponential(leaky(logit) - load(logarithms + at));
        sum += coefficient * load(products + at) * choose(logit > splat(0.0f), splat(1.0f), splat(SLOPE));
        keep_weights(a, logit, coefficient, kept, at, &w);
    }
    *taken += add_lanes(sum);
    add_head(a, dout, indices, n, &w, positive, negative);
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

static void attend_row(const attention *a, const float *x, const float *source_logits, const float *target_logits,
                       int64_t row, float *state, float *sums)
{
    float kept[DRAWN_HEADS][BATCH_ENTRIES] = {{0}};
    for (int64_t entry = a->indptr[row]; entry < a->row_ends[row]; entry += BATCH_ENTRIES) {
        const int n = (int)smaller(BATCH_ENTRIES, a->row_ends[row] - entry);
        const int32_t *indices = a->indices + entry;
        for (int64_t head = 0; head < a->heads; head++) {
            if (a->threshold && head % DRAWN_HEADS == 0)
                draw_heads(a, row, indices, n, head, true, kept);
            float *peak = state + head, *positive = sums + head * a->columns;
            attend_head(a, x + head * a->columns, source_logits + head, target_logits[head], indices, n,
                        kept[head % DRAWN_HEADS], peak, peak + a->heads, peak + 2 * a->heads, positive,
                        positive + a->width);
        }
    }
}

/* sums: scratch, both sums of the row and then a number per head. */
static void attend_row_back(const attention *a, const float *dout, const float *facts, const float *x,
                            const float *source_logits, int64_t row, float *dx, float *dsource_logits, bool accumulate,
                            float *sums)
{
    float kept[DRAWN_HEADS][BATCH_ENTRIES] = {{0}}, *taken = sums + 2 * a->width;
    memset(sums, 0, (size_t)(2 * a->width + a->heads) * sizeof *sums);
    for (int64_t entry = a->indptr[row]; entry < a->row_ends[row]; entry += BATCH_ENTRIES) {
        const int n = (int)smaller(BATCH_ENTRIES, a->row_ends[row] - entry);
        const int32_t *indices = a->indices + entry;
        for (int64_t head = 0; head < a->heads; head++) {
            if (a->threshold && head % DRAWN_HEADS == 0)
                draw_heads(a, row, indices, n, head, false, kept);
            float *positive = sums + head * a->columns;
            attend_head_back(a, dout + head * a->columns, facts + head, source_logits[head], indices, n,
                             kept[head % DRAWN_HEADS], positive, positive + a->width, taken + head);
        }
    }
    for (int64_t head = 0; head < a->heads; head++) {
        const float *positive = sums + head * a->columns, *negative = positive + a->width, *own = x + head * a->columns;
        float *to = dx + head * a->columns, product = 0.0f;
#pragma omp simd reduction(+ : product)
        for (int64_t k = 0; k < a->columns; k++) {
            product += (positive[k] + SLOPE * negative[k]) * own[k];
            to[k] = positive[k] + negative[k] + (accumulate ? to[k] : 0.0f);
        }
        dsource_logits[head] = product - taken[head];
    }
}

/* -- operations ---------------------------------------------------------------------------------------------------- */

/* What both directions check and share: the arguments from `from` on are key0, key1, threshold, scale, row_ids,
 * column_ids. */
static attention make_attention(const argument *a, int64_t heads, int64_t width, const argument *from)
{
    const int64_t *indptr = a[1].data, *row_ends = a[2].data;
    return (attention){.indptr = indptr, .row_ends = row_ends ? row_ends : indptr + 1,
                       .indices = a[3].data, .heads = heads,
                       .columns = heads > 0 ? width / heads : 0, .width = width, .row_ids = from[4].data,
                       .column_ids = from[5].data,
                       .key = {{(uint32_t)from[0].integer, (uint32_t)from[1].integer}},
                       .threshold = (uint32_t)from[2].integer, .scale = (float)from[3].number};
}

/* threads, indptr, row_ends, indices, n_columns, x, heads, width, source_logits, target_logits, state, sums, out, start,
 * stop, first, last, key0, key1, threshold, scale, row_ids, column_ids */
static void run_attend(call *c)
{
    const argument *a = c->in;
    const int64_t n_rows = a[1].bytes / 8 - 1, n_columns = a[4].integer, heads = a[6].integer, width = a[7].integer;
    const int64_t start = a[13].integer, stop = a[14].integer;
    const attention t = make_attention(a, heads, width, a + 17);
    REQUIRE(0 <= start && start <= stop && stop <= n_rows, "rows out of range");
    REQUIRE(heads > 0 && width % heads == 0, "the width must be a multiple of the number of heads");
    REQUIRE(!a[2].data || a[2].bytes == n_rows * 8, "row_ends must have one number per row");
    REQUIRE(a[5].bytes == n_columns * width * 4 && a[8].bytes == n_columns * heads * 4,
            "x and source_logits must have a row for each column of the matrix");
    REQUIRE(a[9].bytes == n_rows * heads * 4 && a[10].bytes == n_rows * heads * 12 && a[11].bytes == n_rows * width * 8
                && a[12].bytes == n_rows * width * 4,
            "target_logits, state, sums and out must have a row for each row of the matrix");
    REQUIRE(!t.threshold || (a[21].bytes == n_rows * 8 && a[22].bytes == n_columns * 8), "ids must have one number per node");
    const product p = {.indptr = t.indptr};
    const int64_t work = entries_and_rows(&p, start, stop);
    const row_split split = {start, stop, (work + CHUNK_ENTRIES - 1) / CHUNK_ENTRIES};
    const int team = team_size(a[0].integer, work * width);
    const float *target_logits = a[9].data;
    float *state = a[10].data, *sums = a[11].data, *out = a[12].data;
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int64_t chunk = 0; chunk < split.n_chunks; chunk++)
        for (int64_t row = chunk_start(&p, &split, chunk); row < chunk_start(&p, &split, chunk + 1); row++) {
            if (a[15].integer)
                begin_row(&t, state + row * 3 * heads, sums + row * 2 * width);
            attend_row(&t, a[5].data, a[8].data, target_logits + row * heads, row, state + row * 3 * heads,
                       sums + row * 2 * width);
            if (a[16].integer)
                finish_row(&t, state + row * 3 * heads, sums + row * 2 * width, out + row * width);
        }
}

/* threads, indptr, row_ends, indices, n_columns, dout, heads, width, facts, x, source_logits, dx, dsource_logits, start,
 * stop, accumulate, key0, key1, threshold, scale, row_ids, column_ids */
static void run_attend_backward(call *c)
{
    const argument *a = c->in;
    const int64_t n_rows = a[1].bytes / 8 - 1, n_columns = a[4].integer, heads = a[6].integer, width = a[7].integer;
    const int64_t start = a[13].integer, stop = a[14].integer;
    const attention t = make_attention(a, heads, width, a + 16);
    REQUIRE(0 <= start && start <= stop && stop <= n_rows, "rows out of range");
    REQUIRE(heads > 0 && width % heads == 0, "the width must be a multiple of the number of heads");
    REQUIRE(!a[2].data || a[2].bytes == n_rows * 8, "row_ends must have one number per row");
    REQUIRE(a[5].bytes == n_columns * width * 4 && a[8].bytes == n_columns * heads * 12,
            "dout and facts must have a row for each column of the matrix");
    REQUIRE(a[9].bytes == n_rows * width * 4 && a[10].bytes == n_rows * heads * 4 && a[11].bytes == n_rows * width * 4
                && a[12].bytes == n_rows * heads * 4,
            "x, source_logits and their gradients must have a row for each row of the matrix");
    REQUIRE(!t.threshold || (a[20].bytes == n_rows * 8 && a[21].bytes == n_columns * 8), "ids must have one number per node");
    const product p = {.indptr = t.indptr};
    const int64_t work = entries_and_rows(&p, start, stop);
    const row_split split = {start, stop, (work + CHUNK_ENTRIES - 1) / CHUNK_ENTRIES};
    const int team = team_size(a[0].integer, work * width);
    const float *x = a[9].data, *source_logits = a[10].data;
    float *dx = a[11].data, *dsource_logits = a[12].data;
    bool no_memory = false;
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int64_t chunk = 0; chunk < split.n_chunks; chunk++) {
        float *sums = malloc((size_t)(2 * width + heads) * sizeof *sums);
        const int64_t last = sums ? chunk_start(&p, &split, chunk + 1) : 0;
        for (int64_t row = chunk_start(&p, &split, chunk); row < last; row++)
            attend_row_back(&t, a[5].data, a[8].data, x + row * width, source_logits + row * heads, row,
                            dx + row * width, dsource_logits + row * heads, a[15].integer != 0, sums);
        if (!sums) {
#pragma omp atomic write
            no_memory = true;
        }
        free(sums);
    }
    REQUIRE(!no_memory, "out of memory");
}

/* -- row by row ---------------------------------------------------------------------------------------------------- */

INLINE float head_product(const float *x, const float *y, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < n; k++)
        sum += x[k] * y[k];
    return sum;
}

/* threads, x, vector, out, n, heads, width */
static void run_head_dots(call *c)
{
    const argument *a = c->in;
    const int64_t n = a[4].integer, heads = a[5].integer, width = a[6].integer;
    const float *x = a[1].data, *vector = a[2].data;
    float *out = a[3].data;
    REQUIRE(heads > 0 && width % heads == 0, "the width must be a multiple of the number of heads");
    REQUIRE(a[1].bytes == n * width * 4 && a[2].bytes == width * 4 && a[3].bytes == n * heads * 4,
            "x, vector and out must fit each other");
    const int64_t columns = width / heads;
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++)
        for (int64_t head = 0; head < heads; head++)
            out[row * heads + head] = head_product(x + row * width + head * columns, vector + head * columns, columns);
}

/* threads, x, vector, dout, dx, dvector, n, heads, width */
static void run_head_dots_backward(call *c)
{
    const argument *a = c->in;
    const int64_t n = a[6].integer, heads = a[7].integer, width = a[8].integer;
    const float *x = a[1].data, *vector = a[2].data, *dout = a[3].data;
    float *dx = a[4].data, *dvector = a[5].data;
    REQUIRE(heads > 0 && width % heads == 0, "the width must be a multiple of the number of heads");
    REQUIRE(a[1].bytes == n * width * 4 && a[2].bytes == width * 4 && a[3].bytes == n * heads * 4
                && a[4].bytes == n * width * 4 && a[5].bytes == width * 4,
            "x, vector and their gradients must fit each other");
    if (n == 0 || width == 0)
        return;
    const int64_t columns = width / heads, rows = block_rows(n), n_blocks = (n + rows - 1) / rows;
    double *partial = calloc((size_t)(n_blocks * width), sizeof *partial);
    float *panels = calloc((size_t)(n_blocks * width), sizeof *panels);
    if (partial && panels) {
        const int team = team_size(a[0].integer, n * width);
        PARALLEL_FOR(team)
        for (int64_t block = 0; block < n_blocks; block++) {
            float *panel = panels + block * width;
            const int64_t last = smaller((block + 1) * rows, n);
            for (int64_t row = block * rows; row < last; row++) {
                for (int64_t head = 0; head < heads; head++) {
                    const float factor = dout[row * heads + head];
                    const float *from = x + row * width, *by = vector;
                    float *to = dx + row * width;
#pragma omp simd
                    for (int64_t k = head * columns; k < (head + 1) * columns; k++) {
                        to[k] += factor * by[k];
                        panel[k] += factor * from[k];
                    }
                }
                if (row % PANEL_ROWS == PANEL_ROWS - 1 || row == last - 1)
                    flush_panel(panel, partial + block * width, width);
            }
        }
        add_blocks(partial, n_blocks, width, width, dvector);
    } else {
        c->error = "out of memory";
    }
    free(partial);
    free(panels);
}

/* threads, dout, sums, state, target_logits, facts, dtarget_logits, n, heads, width */
static void run_attention_gradients(call *c)
{
    const argument *a = c->in;
    const int64_t n = a[7].integer, heads = a[8].integer, width = a[9].integer;
    const float *dout = a[1].data, *sums = a[2].data, *state = a[3].data, *target_logits = a[4].data;
    float *facts = a[5].data, *dtarget_logits = a[6].data;
    REQUIRE(heads > 0 && width % heads == 0, "the width must be a multiple of the number of heads");
    REQUIRE(a[1].bytes == n * width * 4 && a[2].bytes == n * width * 8, "dout and sums must fit each other");
    REQUIRE(a[3].bytes == n * heads * 12 && a[4].bytes == n * heads * 4 && a[5].bytes == n * heads * 12
                && a[6].bytes == n * heads * 4,
            "state, logits and facts must have a row for each row of dout");
    const int64_t columns = width / heads;
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++)
        for (int64_t head = 0; head < heads; head++) {
            const float *d = dout + row * width + head * columns, *positive = sums + row * 2 * width + head * columns;
            const float upper = head_product(d, positive, columns);
            const float product = upper + head_product(d, positive + width, columns);
            const float *of_row = state + row * 3 * heads + head;
            float *fact = facts + row * 3 * heads + head;
            fact[0] = target_logits[row * heads + head];
            fact[heads] = of_row[0];
            fact[2 * heads] = product;
            dtarget_logits[row * heads + head] = (1.0f - SLOPE) * (upper - product * of_row[2 * heads]);
        }
}
