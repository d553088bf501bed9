/* Element-wise steps, sums over rows, and Adam. */

/* threads, alpha, x, beta, y, out */
static void run_axpby(call *c)
{
    const argument *a = c->in;
    const float alpha = (float)a[1].number, beta = (float)a[3].number, *x = a[2].data, *y = a[4].data;
    float *out = a[5].data;
    const int64_t n = a[5].bytes / 4;
    const int team = team_size(a[0].integer, n);
    REQUIRE(a[2].bytes == a[5].bytes, "x and out must have the same shape");
    REQUIRE(beta == 0.0f || a[4].bytes == a[5].bytes, "y and out must have the same shape");
    if (beta == 0.0f) {
        PARALLEL_FOR(team)
        for (int64_t i = 0; i < n; i++)
            out[i] = alpha * x[i];
    } else {
        PARALLEL_FOR(team)
        for (int64_t i = 0; i < n; i++)
            out[i] = alpha * x[i] + beta * y[i];
    }
}

/* -- sums over rows: short panels in fp32, panels and blocks in float64, always in the same order ---------------- */

enum { PANEL_ROWS = 64 };

static void flush_panel(float *panel, double *total, int64_t n)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        total[k] += panel[k];
        panel[k] = 0.0f;
    }
}

static void add_blocks(const double *partial, int64_t n_blocks, int64_t stride, int64_t n, float *out)
{
    for (int64_t k = 0; k < n; k++) {
        double total = 0.0;
        for (int64_t block = 0; block < n_blocks; block++)
            total += partial[block * stride + k];
        out[k] += (float)total;
    }
}

/* threads, x, width, out */
static void run_column_sum_add(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data;
    float *out = a[3].data;
    const int64_t width = a[2].integer;
    REQUIRE(width >= 0 && a[3].bytes == width * 4, "out must be as wide as x");
    const int64_t n = width ? a[1].bytes / 4 / width : 0, rows = block_rows(n), n_blocks = (n + rows - 1) / rows;
    if (n == 0)
        return;
    double *partial = calloc((size_t)(n_blocks * width), sizeof *partial);
    float *panels = calloc((size_t)(n_blocks * width), sizeof *panels);
    if (partial && panels) {
        const int team = team_size(a[0].integer, n * width);
        PARALLEL_FOR(team)
        for (int64_t block = 0; block < n_blocks; block++) {
            float *panel = panels + block * width;
            const int64_t last = smaller((block + 1) * rows, n);
            for (int64_t row = block * rows; row < last; row++) {
                const float *from = x + row * width;
#pragma omp simd
                for (int64_t k = 0; k < width; k++)
                    panel[k] += from[k];
                if (row % PANEL_ROWS == PANEL_ROWS - 1 || row == last - 1)
                    flush_panel(panel, partial + block * width, width);
            }
        }
        add_blocks(partial, n_blocks, width, width, out);
    } else {
        c->error = "out of memory";
    }
    free(partial);
    free(panels);
}

static double add_partials(const double *partial, int64_t n)
{
    double total = 0.0;
    for (int64_t block = 0; block < n; block++)
        total += partial[block];
    return total;
}

/* threads, x = */
static void run_square_sum(call *c)
{
    const argument *a = c->in;
    const float *x = a[1].data;
    const int64_t n = a[1].bytes / 4, rows = block_rows(n), n_blocks = (n + rows - 1) / rows;
    double partial[MAX_BLOCKS];
    const int team = team_size(a[0].integer, n);
    PARALLEL_FOR(team)
    for (int64_t block = 0; block < n_blocks; block++) {
        double sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = block * rows; i < smaller((block + 1) * rows, n); i++)
            sum += (double)x[i] * (double)x[i];
        partial[block] = sum;
    }
    c->result = add_partials(partial, n_blocks);
}

/* threads, param, grad, m, v, lr, beta1, beta2, epsilon, weight_decay, correction1, correction2 */
static void run_adam(call *c)
{
    const argument *a = c->in;
    float *param = a[1].data, *m = a[3].data, *v = a[4].data;
    const float *grad = a[2].data;
    const float lr = (float)a[5].number, beta1 = (float)a[6].number, beta2 = (float)a[7].number;
    const float rest1 = (float)(1.0 - a[6].number), rest2 = (float)(1.0 - a[7].number);
    const float epsilon = (float)a[8].number, decay = (float)a[9].number;
    const float correction1 = (float)a[10].number, correction2 = (float)a[11].number;
    const int64_t n = a[1].bytes / 4;
    REQUIRE(a[2].bytes == n * 4 && a[3].bytes == n * 4 && a[4].bytes == n * 4, "the four arrays must be equally long");
    const int team = team_size(a[0].integer, n * 4);
#pragma omp parallel for simd schedule(static) num_threads(team) if (team > 1)
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] + decay * param[i];
        m[i] = m[i] * beta1 + rest1 * g;
        v[i] = v[i] * beta2 + rest2 * g * g;
        param[i] -= lr * (m[i] / correction1) / (sqrtf(v[i] / correction2) + epsilon);
    }
}
