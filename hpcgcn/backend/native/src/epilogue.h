/* What follows a product, in one pass over each row: bias, LayerNorm, ReLU, dropout; and the way back. */

#define LAYER_NORM_EPSILON 1e-5f

typedef struct {
    philox_key key;
    uint32_t threshold;     /* 0: no dropout, nothing is drawn */
    float scale;
    const int64_t *ids;
    int64_t first_column;   /* of the arrays' columns in the whole row: draws are by the column of that */
} dropping;

static dropping take_dropping(const argument *a)
{
    return (dropping){{{(uint32_t)a[0].integer, (uint32_t)a[1].integer}}, (uint32_t)a[2].integer, (float)a[3].number,
                      a[4].data, 0};
}

/* out = x * scale where the element's bits reach the threshold, else 0; out may be x. */
static void drop_row(const dropping *d, int64_t row, const float *x, float *out, int64_t width)
{
    const int64_t skipped = d->first_column % 8;      /* eight columns are drawn at once */
    for (int64_t first = 0; first < width; first += DRAW_COLUMNS) {
        uint16_t drawn[DRAW_COLUMNS + COUNTERS * 8];
        const int64_t columns = smaller(DRAW_COLUMNS, width - first);
        draw_bits(d->key, d->ids[row], d->first_column - skipped + first, skipped + columns, drawn);
        const uint16_t *bits = drawn + skipped;
        const float *from = x + first;
        float *to = out + first;
#pragma omp simd
        for (int64_t k = 0; k < columns; k++) {
            const float kept = from[k] * d->scale;
            to[k] = bits[k] >= d->threshold ? kept : 0.0f;
        }
    }
}

/* threads, x, out, width, n, key0, key1, threshold, scale, ids */
static void run_dropout(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data;
    float *out = a[2].data;
    const int64_t width = a[3].integer, n = a[4].integer;
    const dropping d = take_dropping(a + 5);
    REQUIRE(a[1].bytes == n * width * 4 && a[2].bytes == n * width * 4, "x and out must have the same shape");
    REQUIRE(a[9].bytes == n * 8, "ids must have one number per row");
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++)
        drop_row(&d, row, x + row * width, out + row * width, width);
}

/* -- forward ------------------------------------------------------------------------------------------------------- */

static float normalise_row(const float *y, float *xhat, int64_t width)
{
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < width; k++)
        sum += y[k];
    const float mean = sum / (float)width;
#pragma omp simd reduction(+ : squares)
    for (int64_t k = 0; k < width; k++) {
        const float centred = y[k] - mean;
        squares += centred * centred;
    }
    const float rstd = 1.0f / sqrtf(squares / (float)width + LAYER_NORM_EPSILON);
#pragma omp simd
    for (int64_t k = 0; k < width; k++)
        xhat[k] = (y[k] - mean) * rstd;
    return rstd;
}

/* threads, y, out, bias, gamma, beta, xhat, rstd, width, n, key0, key1, threshold, scale, ids, first_column */
static void run_epilogue_forward(call *c)
{
    const argument *a = c->in;
    float *y = a[1].data, *out = a[2].data, *xhat = a[6].data, *rstd = a[7].data;
    const float *bias = a[3].data, *gamma = a[4].data, *beta = a[5].data;
    const int64_t width = a[8].integer, n = a[9].integer, row_bytes = width * 4;
    dropping d = take_dropping(a + 10);
    d.first_column = a[15].integer;
    REQUIRE(a[1].bytes == n * row_bytes && a[2].bytes == n * row_bytes, "y and out must have the same shape");
    REQUIRE(!bias || a[3].bytes == row_bytes, "bias must be as wide as y");
    REQUIRE(!gamma || (a[4].bytes == row_bytes && a[5].bytes == row_bytes), "gamma and beta must be as wide as y");
    REQUIRE(!gamma || (a[6].bytes == n * row_bytes && a[7].bytes == n * 4), "xhat and rstd must have y's rows");
    REQUIRE(!d.threshold || a[14].bytes == n * 8, "ids must have one number per row");
    REQUIRE(d.first_column >= 0, "first_column must not be negative");
    const int team = team_size(a[0].integer, n * width);
    PARALLEL_FOR(team)
    for (int64_t row = 0; row < n; row++) {
        float *in = y + row * width, *to = out + row * width;
        if (bias) {
#pragma omp simd
            for (int64_t k = 0; k < width; k++)
                in[k] += bias[k];
        }
        if (gamma) {
            const float *normal = xhat + row * width;
            rstd[row] = normalise_row(in, xhat + row * width, width);
#pragma omp simd
            for (int64_t k = 0; k < width; k++) {
                const float v = normal[k] * gamma[k] + beta[k];
                to[k] = v < 0.0f ? 0.0f : v;        /* this way round a NaN stays one */
            }
        } else {
#pragma omp simd
            for (int64_t k = 0; k < width; k++)
                to[k] = in[k] < 0.0f ? 0.0f : in[k];
        }
        if (d.threshold)
            drop_row(&d, row, to, to, width);
    }
}

/* -- backward ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const float *dout, *out, *gamma, *xhat, *rstd;
    float *dy;
    int64_t width;
    float scale;
} backward;

/* Sums of one block of rows: `panel` (fp32, of the rows since the last flush) for each of dgamma, dbeta, dbias. */
static void backward_row(const backward *b, int64_t row, float *panel)
{
    const int64_t width = b->width;
    const float *dout = b->dout + row * width, *out = b->out + row * width, *xhat = b->xhat + row * width;
    const float *gamma = b->gamma;
    float *dy = b->dy + row * width, *dgamma = panel, *dbeta = panel + width, *dbias = panel + 2 * width;
    float sum = 0.0f, projection = 0.0f;
#pragma omp simd reduction(+ : sum, projection)
    for (int64_t k = 0; k < width; k++) {
        const float scaled = dout[k] * b->scale, dv = out[k] != 0.0f ? scaled : 0.0f;
        const float dxhat = dv * gamma[k];
        dgamma[k] += dv * xhat[k];
        dbeta[k] += dv;
        sum += dxhat;
        projection += dxhat * xhat[k];
        dy[k] = dxhat;
    }
    sum /= (float)width;
    projection /= (float)width;
    const float rstd = b->rstd[row];
#pragma omp simd
    for (int64_t k = 0; k < width; k++) {
        dy[k] = rstd * (dy[k] - sum - xhat[k] * projection);
        dbias[k] += dy[k];
    }
}

static void backward_row_plain(const backward *b, int64_t row, float *panel)
{
    const float *dout = b->dout + row * b->width, *out = b->out + row * b->width;
    float *dy = b->dy + row * b->width, *dbias = panel + 2 * b->width;
#pragma omp simd
    for (int64_t k = 0; k < b->width; k++) {
        const float scaled = dout[k] * b->scale, dv = out[k] != 0.0f ? scaled : 0.0f;
        dy[k] = dv;
        dbias[k] += dv;
    }
}

/* threads, dout, out, dy, scale, gamma, xhat, rstd, dgamma, dbeta, dbias, width, n */
static void run_epilogue_backward(call *c)
{
    const argument *a = c->in;
    const int64_t width = a[11].integer, n = a[12].integer, row_bytes = width * 4;
    const backward b = {.dout = a[1].data, .out = a[2].data, .dy = a[3].data, .scale = (float)a[4].number,
                        .gamma = a[5].data, .xhat = a[6].data, .rstd = a[7].data, .width = width};
    float *dgamma = a[8].data, *dbeta = a[9].data, *dbias = a[10].data;
    REQUIRE(a[1].bytes == n * row_bytes && a[2].bytes == n * row_bytes && a[3].bytes == n * row_bytes,
            "dout, out and dy must have the same shape");
    REQUIRE(!b.gamma || (a[5].bytes == row_bytes && a[6].bytes == n * row_bytes && a[7].bytes == n * 4),
            "gamma, xhat and rstd must fit dy");
    REQUIRE(!b.gamma || (a[8].bytes == row_bytes && a[9].bytes == row_bytes), "dgamma and dbeta must be as wide as dy");
    REQUIRE(!dbias || a[10].bytes == row_bytes, "dbias must be as wide as dy");
    if (n == 0 || width == 0)
        return;
    const int64_t rows = block_rows(n), n_blocks = (n + rows - 1) / rows, sums = 3 * width;
    double *partial = calloc((size_t)(n_blocks * sums), sizeof *partial);
    float *panels = calloc((size_t)(n_blocks * sums), sizeof *panels);
    if (partial && panels) {
        const int team = team_size(a[0].integer, n * width);
        PARALLEL_FOR(team)
        for (int64_t block = 0; block < n_blocks; block++) {
            float *panel = panels + block * sums;
            const int64_t last = smaller((block + 1) * rows, n);
            for (int64_t row = block * rows; row < last; row++) {
                if (b.gamma)
                    backward_row(&b, row, panel);
                else
                    backward_row_plain(&b, row, panel);
                if (row % PANEL_ROWS == PANEL_ROWS - 1 || row == last - 1)
                    flush_panel(panel, partial + block * sums, sums);
            }
        }
        if (b.gamma) {
            add_blocks(partial, n_blocks, sums, width, dgamma);
            add_blocks(partial + width, n_blocks, sums, width, dbeta);
        }
        if (dbias)
            add_blocks(partial + 2 * width, n_blocks, sums, width, dbias);
    } else {
        c->error = "out of memory";
    }
    free(partial);
    free(panels);
}
