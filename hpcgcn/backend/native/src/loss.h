/* Losses with their gradients in one pass. */

/* e^x for x <= 0, to two units in the last place; 0 where e^x is below the smallest normal number. */
INLINE vfloat exponential(vfloat x)
{
    const vfloat magic = splat(12582912.0f);        /* adding it rounds to an integer */
    vfloat n = multiply_add(x, splat(1.44269504f), magic) - magic;
    vfloat r = multiply_add(n, splat(-0.693359375f), x);
    r = multiply_add(n, splat(2.12194440e-4f), r);
    vfloat p = splat(1.0f / 5040);
    const float coefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    for (int i = 0; i < 7; i++)
        p = multiply_add(p, r, splat(coefficients[i]));
    const vint too_small = x < splat(-87.0f);
    const vfloat bounded = choose(too_small, splat(-87.0f), n);     /* no shift of a negative exponent */
    const vint exponent = __builtin_convertvector(bounded, vint) + 127;
    return choose(too_small, splat(0.0f), p * (vfloat)((vuint)exponent << 23));
}

/* log(1 + s) for 0 <= s <= 1: twice the inverse hyperbolic tangent of s / (2 + s), whose series converges fast. */
INLINE vfloat log_one_plus(vfloat s)
{
    const vfloat z = s / (s + 2.0f), square = z * z;
    vfloat series = splat(1.0f / 15);
    const float coefficients[] = {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f};
    for (int i = 0; i < 7; i++)
        series = multiply_add(series, square, splat(coefficients[i]));
    return 2.0f * z * series;
}

INLINE float add_lanes(vfloat value)
{
    float part[LANES];
    memcpy(part, &value, sizeof part);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            part[lane] += part[lane + half];
    return part[0];
}

/* The first n lanes; 0 in the others, whatever they hold. */
INLINE vfloat clear_after(vfloat value, int n)
{
    vint lanes;
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = lane;
    return (vfloat)((vint)value & (lanes < n));
}

/* dlogits = scale * (softmax - onehot); returns the row's loss. dlogits may be logits. */
static double softmax_row(const float *logits, float *dlogits, int64_t n_classes, int32_t label, float scale)
{
    float most = -INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t k = 0; k < n_classes; k++)
        most = logits[k] > most ? logits[k] : most;
    const float target = logits[label] - most;
    vfloat sums = {0};
    int64_t k = 0;
    for (; k + LANES <= n_classes; k += LANES) {
        const vfloat e = exponential(load(logits + k) - most);
        store(dlogits + k, e);
        sums += e;
    }
    if (k < n_classes) {
        const int rest = (int)(n_classes - k);
        const vfloat e = exponential(load_first(logits + k, rest) - most);
        store_first(dlogits + k, e, rest);
        sums += clear_after(e, rest);
    }
    const float total = add_lanes(sums), factor = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < n_classes; i++)
        dlogits[i] = dlogits[i] * factor * scale;
    /* The label's own entry is small when the row is learned: (e - total) / total cancels less than e / total - 1. */
    float others = 0.0f;
    const float own = dlogits[label];
    dlogits[label] = 0.0f;
#pragma omp simd reduction(+ : others)
    for (int64_t i = 0; i < n_classes; i++)
        others += dlogits[i];
    dlogits[label] = own != own ? own : -others;
    return log((double)total) - (double)target;
}

/* threads, logits, labels, scale, dlogits, n_classes, class_weights (or none) = */
static void run_softmax_cross_entropy(call *c)
{
    const argument *a = c->in;
    const float *logits = a[1].data, scale = (float)a[3].number;
    const int32_t *labels = a[2].data;
    float *dlogits = a[4].data;
    const float *class_weights = a[6].data;
    const int64_t n_classes = a[5].integer, n = a[2].bytes / 4, rows = block_rows(n), n_blocks = (n + rows - 1) / rows;
    REQUIRE(a[1].bytes == n * n_classes * 4 && a[4].bytes == a[1].bytes, "logits and dlogits must have a row a label");
    REQUIRE(class_weights == NULL || a[6].bytes == n_classes * 4, "class_weights must have a number for each class");
    bool outside = false;
    for (int64_t row = 0; row < n; row++)
        outside |= labels[row] >= n_classes;
    REQUIRE(!outside, "a label is not below the number of classes");
    double partial[MAX_BLOCKS];
    const int team = team_size(a[0].integer, n * n_classes);
    PARALLEL_FOR(team)
    for (int64_t block = 0; block < n_blocks; block++) {
        double sum = 0.0;
        for (int64_t row = block * rows; row < smaller((block + 1) * rows, n); row++) {
            float *to = dlogits + row * n_classes;
            const float weight = class_weights && labels[row] >= 0 ? class_weights[labels[row]] : 1.0f;
            if (labels[row] >= 0)
                sum += (double)weight
                       * softmax_row(logits + row * n_classes, to, n_classes, labels[row], scale * weight);
            else
                memset(to, 0, (size_t)n_classes * 4);
        }
        partial[block] = sum;
    }
    c->result = add_partials(partial, n_blocks);
}

INLINE vfloat sigmoid_vector(vfloat x, vfloat target, float scale, vfloat *loss)
{
    const vfloat small = exponential((vfloat)((vuint)x | 0x80000000u));     /* e^-|x| */
    const vfloat positive = choose(x >= 0.0f, x, (vfloat){0});
    *loss = positive - x * target + log_one_plus(small);
    const vfloat sigmoid = choose(x >= 0.0f, splat(1.0f), small) / (small + 1.0f);
    return (sigmoid - target) * splat(scale);
}

static double sigmoid_row(const float *logits, const uint8_t *targets, float *dlogits, int64_t n_classes, float scale)
{
    double sum = 0.0;
    vfloat loss;
    int64_t k = 0;
    for (; k + LANES <= n_classes; k += LANES) {
        const vbyte byte = *(const vbyte_any *)(targets + k);
        store(dlogits + k, sigmoid_vector(load(logits + k), __builtin_convertvector(byte, vfloat), scale, &loss));
        sum += (double)add_lanes(loss);
    }
    if (k < n_classes) {
        const int rest = (int)(n_classes - k);
        vfloat target = {0};
        for (int lane = 0; lane < rest; lane++)
            target[lane] = targets[k + lane];
        store_first(dlogits + k, sigmoid_vector(load_first(logits + k, rest), target, scale, &loss), rest);
        sum += (double)add_lanes(clear_after(loss, rest));
    }
    return sum;
}

/* threads, logits, targets, row_used, scale, dlogits, n_classes = */
static void run_sigmoid_cross_entropy(call *c)
{
    const argument *a = c->in;
    const float *logits = a[1].data, scale = (float)a[4].number;
    const uint8_t *targets = a[2].data, *row_used = a[3].data;
    float *dlogits = a[5].data;
    const int64_t n_classes = a[6].integer, n = a[3].bytes, rows = block_rows(n), n_blocks = (n + rows - 1) / rows;
    REQUIRE(a[1].bytes == n * n_classes * 4 && a[5].bytes == a[1].bytes,
            "logits and dlogits must have a row for each row_used");
    REQUIRE(a[2].bytes == n * n_classes, "targets must have the shape of logits");
    double partial[MAX_BLOCKS];
    const int team = team_size(a[0].integer, n * n_classes);
    PARALLEL_FOR(team)
    for (int64_t block = 0; block < n_blocks; block++) {
        double sum = 0.0;
        for (int64_t row = block * rows; row < smaller((block + 1) * rows, n); row++) {
            const int64_t at = row * n_classes;
            if (row_used[row])
                sum += sigmoid_row(logits + at, targets + at, dlogits + at, n_classes, scale);
            else
                memset(dlogits + at, 0, (size_t)n_classes * 4);
        }
        partial[block] = sum;
    }
    c->result = add_partials(partial, n_blocks);
}
