/* The product with a sparse matrix: rows of x are gathered and summed in registers, a tile of the width at a time.
 *
 * Where x is too large for the near caches, a tile of its columns is first copied to a compact scratch array (with the
 * mask applied, if there is one) and gathered from there: copying reads each row once, gathering once an entry.
 * A caller that multiplies block of rows by block of rows keeps all tiles of x itself (tile_rows), so that they are
 * copied once for all blocks.
 */

typedef struct {
    const int64_t *indptr, *row_ends;                   /* entries of row i: indptr[i] .. row_ends[i] */
    const int32_t *indices;
    const float *weights, *row_scale, *column_scale;    /* NULL: ones */
    float *out;
    int64_t width;                                      /* of out */
    float scale;                                        /* of everything: the mask's */
    bool accumulate;
} product;

/* What is gathered: columns 0 .. n of rows `stride` elements apart. */
typedef struct {
    const void *x;
    const float *mask;                                  /* NULL: none */
    int64_t stride, to_column;                          /* its first column's place in out */
    int tail;                                           /* lanes of its last vector, 0: all */
} tile;

/* A chunk is the unit given to a thread: about this many entries and rows, so that skewed degrees balance. */
enum { CHUNK_ENTRIES = 1 << 14 };

/* A tile has at most this many vectors: they are summed in registers. */
enum { MAX_VECTORS = 8 };

/* A copy must be used this often, on average, to pay. */
enum { MIN_REUSE = 8 };

/* An x of this size stays in the near caches by itself. */
enum { NEAR_BYTES = 4 << 20 };

/* A tile of a copy: two cache lines of fp32. 16 columns measured about the same, 64 and more slower. */
enum { TILE_COLUMNS = 32, TILE_VECTORS = TILE_COLUMNS / LANES };

INLINE void finish_vector(const product *p, float *to, vfloat sum, float scale, int tail)
{
    sum *= splat(scale);
    if (p->accumulate)
        sum += tail ? load_first(to, tail) : load(to);
    if (tail)
        store_first(to, sum, tail);
    else
        store(to, sum);
}

INLINE float entry_weight(const product *p, int64_t entry, int64_t source)
{
    const float weight = p->weights ? p->weights[entry] : 1.0f;
    return p->column_scale ? weight * p->column_scale[source] : weight;
}

INLINE float row_factor(const product *p, int64_t row)
{
    return p->row_scale ? p->row_scale[row] * p->scale : p->scale;
}

/* Rows first .. last of the product in one tile; n_vectors and what follows are constants where this is inlined. */
INLINE void multiply_tile(const product *p, const tile *t, int64_t first, int64_t last, int tail, int n_vectors,
                          int kind, bool weighted, bool masked)
{
    for (int64_t row = first; row < last; row++) {
        vfloat sum[MAX_VECTORS] = {{0}};
        for (int64_t entry = p->indptr[row]; entry < p->row_ends[row]; entry++) {
            const int64_t source = p->indices[entry], position = source * t->stride;
            const vfloat weight = splat(weighted ? entry_weight(p, entry, source) : 1.0f);
            for (int v = 0; v < n_vectors; v++) {
                const int64_t at = position + v * LANES;
                const bool partial = v == n_vectors - 1 && tail;
                vfloat value = partial ? load_stored_first(t->x, kind, at, tail) : load_stored(t->x, kind, at);
                if (masked)
                    value = keep_masked(value, partial ? load_first(t->mask + at, tail) : load(t->mask + at));
                sum[v] = weighted ? multiply_add(weight, value, sum[v]) : sum[v] + value;
            }
        }
        float *to = p->out + row * p->width + t->to_column;
        const float factor = row_factor(p, row);
        for (int v = 0; v < n_vectors; v++)
            finish_vector(p, to + v * LANES, sum[v], factor, v == n_vectors - 1 ? tail : 0);
    }
}

/* A single column has no vector to fill: four sums in turn hide the latency of adding. */
static void multiply_column(const product *p, const tile *t, int64_t first, int64_t last)
{
    const float *x = t->x;
    const bool weighted = p->weights || p->column_scale;
    for (int64_t row = first; row < last; row++) {
        float sum[4] = {0};
        int64_t entry = p->indptr[row];
        const int64_t end = p->row_ends[row];
        for (; !weighted && entry + 4 <= end; entry += 4)
            for (int turn = 0; turn < 4; turn++)
                sum[turn] += x[p->indices[entry + turn] * t->stride];
        for (; entry < end; entry++)
            sum[entry & 3] += entry_weight(p, entry, p->indices[entry]) * x[p->indices[entry] * t->stride];
        float *to = p->out + row * p->width + t->to_column;
        const float total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) * row_factor(p, row);
        *to = p->accumulate ? *to + total : total;
    }
}

/* -- one function for each storage type, with or without weights and mask, and number of vectors ------------------- */

typedef void (*tile_function)(const product *, const tile *, int64_t first, int64_t last);

#define FUNCTION(kind, variant, n) multiply_##kind##_##variant##_##n
#define DEFINE(kind, variant, n, weighted, masked)                                                              \
    static void FUNCTION(kind, variant, n)(const product *p, const tile *t, int64_t first, int64_t last)        \
    {                                                                                                           \
        if (t->tail)                                                                                            \
            multiply_tile(p, t, first, last, t->tail, n, kind, weighted, masked);                               \
        else                                                                                                    \
            multiply_tile(p, t, first, last, 0, n, kind, weighted, masked);                                     \
    }
#define DEFINE_WIDTHS(kind, variant, weighted, masked)                                                          \
    DEFINE(kind, variant, 1, weighted, masked) DEFINE(kind, variant, 2, weighted, masked)                       \
    DEFINE(kind, variant, 3, weighted, masked) DEFINE(kind, variant, 4, weighted, masked)                       \
    DEFINE(kind, variant, 5, weighted, masked) DEFINE(kind, variant, 6, weighted, masked)                       \
    DEFINE(kind, variant, 7, weighted, masked) DEFINE(kind, variant, 8, weighted, masked)
#define DEFINE_VARIANTS(kind)                                                                                   \
    DEFINE_WIDTHS(kind, plain, false, false) DEFINE_WIDTHS(kind, weighted, true, false)                         \
    DEFINE_WIDTHS(kind, masked, true, true)
DEFINE_VARIANTS(FP32) DEFINE_VARIANTS(FP16) DEFINE_VARIANTS(BF16)

enum variant { PLAIN, WEIGHTED, MASKED };

#define WIDTHS(kind, variant)                                                                                   \
    {FUNCTION(kind, variant, 1), FUNCTION(kind, variant, 2), FUNCTION(kind, variant, 3),                        \
     FUNCTION(kind, variant, 4), FUNCTION(kind, variant, 5), FUNCTION(kind, variant, 6),                        \
     FUNCTION(kind, variant, 7), FUNCTION(kind, variant, 8)}
#define VARIANTS(kind) {WIDTHS(kind, plain), WIDTHS(kind, weighted), WIDTHS(kind, masked)}
static const tile_function tile_functions[3][3][MAX_VECTORS] = {VARIANTS(FP32), VARIANTS(FP16), VARIANTS(BF16)};

static tile_function choose_function(const product *p, const tile *t, int kind, int64_t columns)
{
    if (p->width == 1 && kind == FP32 && !t->mask)
        return multiply_column;
    const int variant = t->mask ? MASKED : p->weights || p->column_scale ? WEIGHTED : PLAIN;
    return tile_functions[kind][variant][(columns + LANES - 1) / LANES - 1];
}

/* -- splitting the rows -------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t start, stop, n_chunks;
} row_split;

static int64_t entries_and_rows(const product *p, int64_t start, int64_t stop)
{
    return p->indptr[stop] - p->indptr[start] + (stop - start);
}

/* The first row of [start, stop] at which `work` (entries plus rows, from start) is reached. */
static int64_t row_at(const product *p, int64_t start, int64_t stop, int64_t work)
{
    int64_t low = start, high = stop;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (entries_and_rows(p, start, middle) < work)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int64_t chunk_start(const product *p, const row_split *s, int64_t chunk)
{
    return chunk == s->n_chunks ? s->stop : row_at(p, s->start, s->stop, chunk * CHUNK_ENTRIES);
}

/* -- gathering from x itself --------------------------------------------------------------------------------------- */

static void multiply_in_place(const product *p, const row_split *s, const void *x, int kind, const float *mask,
                              int team)
{
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int64_t chunk = 0; chunk < s->n_chunks; chunk++) {
        const int64_t first = chunk_start(p, s, chunk), last = chunk_start(p, s, chunk + 1);
        for (int64_t column = 0; column < p->width; column += MAX_VECTORS * LANES) {
            const int64_t columns = smaller(MAX_VECTORS * LANES, p->width - column);
            const tile t = {element(x, kind, column), mask ? mask + column : NULL, p->width, column,
                            (int)(columns % LANES)};
            choose_function(p, &t, kind, columns)(p, &t, first, last);
        }
    }
}

/* -- gathering from a compact copy --------------------------------------------------------------------------------- */

/* Whole vectors are written: a row of the scratch has room for them. */
INLINE void copy_tile(const void *x, int kind, int64_t width, int64_t column, int64_t columns, void *scratch,
                      int64_t stride, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++)
        for (int64_t k = 0; k < columns; k += LANES) {
            const void *from = element(x, kind, row * width + column + k);
            void *to = (void *)element(scratch, kind, row * stride + k);
            const int n = (int)smaller(LANES, columns - k);
            if (kind == FP32)
                store(to, n < LANES ? load_first(from, n) : load(from));
            else
                store_half(to, n < LANES ? load_half_first(from, n) : load_half(from));
        }
}

INLINE void copy_masked_tile(const void *x, int kind, const float *mask, int64_t width, int64_t column, int64_t columns,
                             float *scratch, int64_t stride, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++)
        for (int64_t k = 0; k < columns; k += LANES) {
            const int64_t at = row * width + column + k;
            const int n = (int)smaller(LANES, columns - k);
            const vfloat value = n < LANES ? load_stored_first(x, kind, at, n) : load_stored(x, kind, at);
            const vfloat kept = n < LANES ? load_first(mask + at, n) : load(mask + at);
            store(scratch + row * stride + k, keep_masked(value, kept));
        }
}

static void multiply_compact(const product *p, const row_split *s, const void *x, int kind, const float *mask,
                             int64_t n_columns, void *scratch, int team)
{
    const int copy_kind = mask ? FP32 : kind;
    const int64_t n_vectors = (p->width + LANES - 1) / LANES, n_tiles = (n_vectors + TILE_VECTORS - 1) / TILE_VECTORS;
    const int64_t stride = (n_vectors + n_tiles - 1) / n_tiles * LANES, copy_rows = 1024;
#pragma omp parallel num_threads(team) if (team > 1)
    for (int64_t column = 0; column < p->width; column += stride) {
        const int64_t columns = smaller(stride, p->width - column);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < n_columns; first += copy_rows) {
            const int64_t last = smaller(first + copy_rows, n_columns);
            if (mask && kind == FP32)
                copy_masked_tile(x, FP32, mask, p->width, column, columns, scratch, stride, first, last);
            else if (mask && kind == FP16)
                copy_masked_tile(x, FP16, mask, p->width, column, columns, scratch, stride, first, last);
            else if (mask)
                copy_masked_tile(x, BF16, mask, p->width, column, columns, scratch, stride, first, last);
            else if (kind == FP32)
                copy_tile(x, FP32, p->width, column, columns, scratch, stride, first, last);
            else
                copy_tile(x, kind, p->width, column, columns, scratch, stride, first, last);
        }
        const tile t = {scratch, NULL, stride, column, (int)(columns % LANES)};
        const tile_function multiply = choose_function(p, &t, copy_kind, columns);
#pragma omp for schedule(dynamic)
        for (int64_t chunk = 0; chunk < s->n_chunks; chunk++)
            multiply(p, &t, chunk_start(p, s, chunk), chunk_start(p, s, chunk + 1));
    }
}

/* -- gathering from tiles that the caller keeps --------------------------------------------------------------------- */

/* Tile after tile, each of `tile_rows` rows of TILE_COLUMNS elements; columns beyond the width are not read. */
static void multiply_tiles(const product *p, const row_split *s, const void *tiles, int kind, int64_t tile_rows,
                           int64_t first_row, int64_t first_tile, int64_t last_tile, int team)
{
    const int64_t end = smaller(last_tile * TILE_COLUMNS, p->width);
#pragma omp parallel num_threads(team) if (team > 1)
    for (int64_t column = first_tile * TILE_COLUMNS; column < end; column += TILE_COLUMNS) {
        const int64_t columns = smaller(TILE_COLUMNS, p->width - column);
        const tile t = {element(tiles, kind, column * tile_rows + first_row * TILE_COLUMNS), NULL, TILE_COLUMNS, column,
                        (int)(columns % LANES)};
        const tile_function multiply = choose_function(p, &t, kind, columns);
        /* All rows before the next tile: a tile stays in the near caches as long as it is in use. */
#pragma omp for schedule(dynamic)
        for (int64_t chunk = 0; chunk < s->n_chunks; chunk++)
            multiply(p, &t, chunk_start(p, s, chunk), chunk_start(p, s, chunk + 1));
    }
}

static int64_t tiles_bytes(int64_t rows, int64_t width, int kind)
{
    return (width + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS * rows * storage_bytes(kind);
}

INLINE void copy_to_tiles(const float *x, int64_t width, void *tiles, int kind, int64_t tile_rows, int64_t start,
                          int64_t stop, int team)
{
    PARALLEL_FOR(team)
    for (int64_t row = start; row < stop; row++)
        for (int64_t column = 0; column < width; column += TILE_COLUMNS)
            convert_row(x, FP32, row * width + column, tiles, kind, column * tile_rows + row * TILE_COLUMNS,
                        smaller(TILE_COLUMNS, width - column));
}

/* threads, x, width, tiles, kind, tile_rows, start, stop: rows start .. stop of x, fp32, into their tiles */
static void run_tile_rows(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data;
    void *tiles = a[3].data;
    const int kind = (int)a[4].integer;
    const int64_t width = a[2].integer, tile_rows = a[5].integer, start = a[6].integer, stop = a[7].integer;
    REQUIRE(0 <= start && start <= stop && stop <= tile_rows, "rows out of range");
    REQUIRE(a[1].bytes == tile_rows * width * 4, "x must have a row for each row of a tile");
    REQUIRE(a[3].bytes == tiles_bytes(tile_rows, width, kind), "tiles must be whole and hold all columns");
    const int team = team_size(a[0].integer, (stop - start) * width);
    switch (kind) {
    case FP32: copy_to_tiles(x, width, tiles, FP32, tile_rows, start, stop, team); break;
    case FP16: copy_to_tiles(x, width, tiles, FP16, tile_rows, start, stop, team); break;
    default: copy_to_tiles(x, width, tiles, BF16, tile_rows, start, stop, team);
    }
}

/* threads, indptr, indices, weights, row_scale, column_scale, x, kind, width, out, start, stop, accumulate, mask,
 * mask_scale, n_columns, scratch, tile_rows (0: x is not in tiles), first_row (of the tiles: column 0 of the matrix),
 * first_tile, last_tile, row_ends (None: the next row's begin) */
static void run_spmm(call *c)
{
    const argument *a = c->in;
    const int kind = (int)a[7].integer;
    const int64_t start = a[10].integer, stop = a[11].integer, width = a[8].integer, n_columns = a[15].integer;
    const float *mask = a[13].data;
    const int64_t *indptr = a[1].data, *row_ends = a[21].data;
    const product p = {.indptr = indptr, .row_ends = row_ends ? row_ends : indptr + 1,
                       .indices = a[2].data, .weights = a[3].data,
                       .row_scale = a[4].data, .column_scale = a[5].data, .out = a[9].data, .width = width,
                       .scale = mask ? (float)a[14].number : 1.0f, .accumulate = a[12].integer != 0};
    const int64_t n_rows = a[1].bytes / 8 - 1, x_bytes = n_columns * width * storage_bytes(kind);
    REQUIRE(0 <= start && start <= stop && stop <= n_rows, "rows out of range");
    REQUIRE(!row_ends || a[21].bytes == n_rows * 8, "row_ends must have one number per row");
    const int64_t tile_rows = a[17].integer, first_row = a[18].integer, first_tile = a[19].integer, last_tile = a[20].integer;
    if (tile_rows) {
        REQUIRE(!mask, "tiles take no mask");
        REQUIRE(a[6].bytes == tiles_bytes(tile_rows, width, kind), "tiles must be whole and hold all columns");
        REQUIRE(0 <= first_tile && last_tile <= (width + TILE_COLUMNS - 1) / TILE_COLUMNS, "no such tiles");
        REQUIRE(0 <= first_row && first_row + n_columns <= tile_rows, "tiles must have a row for each column of the matrix");
    } else {
        REQUIRE(a[6].bytes == x_bytes, "x must have a row for each column of the matrix");
    }
    REQUIRE(a[9].bytes == n_rows * width * 4, "out must have a row for each row of the matrix, as wide as x");
    REQUIRE(!mask || a[13].bytes == n_columns * width * 4, "mask must have the shape of x");
    const int64_t work = entries_and_rows(&p, start, stop), entries = work - (stop - start);
    const row_split split = {start, stop, (work + CHUNK_ENTRIES - 1) / CHUNK_ENTRIES};
    const int team = team_size(a[0].integer, work * width);
    const bool too_large = (mask ? n_columns * width * 8 : x_bytes) > smaller(NEAR_BYTES, a[16].bytes);
    const bool fits = n_columns * TILE_COLUMNS * storage_bytes(mask ? FP32 : kind) <= a[16].bytes;
    if (tile_rows)
        multiply_tiles(&p, &split, a[6].data, kind, tile_rows, first_row, first_tile, last_tile, team);
    else if (too_large && fits && entries >= MIN_REUSE * n_columns)
        multiply_compact(&p, &split, a[6].data, kind, mask, n_columns, a[16].data, team);
    else
        multiply_in_place(&p, &split, a[6].data, kind, mask, team);
}
