/* Each of `rows` runs of `count` elements less its mean, over its deviation, times `scale`, plus `bias` (either may be
   null). Element k of run r has the factor (r % period) * per_run + k / span * per_element of scale and bias. y may be x.
   The mean and the reciprocal deviation go to `means` and `inverses` where these are not null. */
static void nt_normalize_@X@(const void *x_, const void *scale_, const void *bias_, void *y_, void *means,
                             void *inverses, const int32_t *p, float epsilon) {
  const @T@ *scale = scale_, *bias = bias_;
  const int32_t rows = p[0], count = p[1], period = p[2], per_run = p[3], span = p[4], per_element = p[5];
  for (int32_t r = 0; r < rows; r++) {
    const @T@ *x = (const @T@ *)x_ + r * count;
    @T@ *y = (@T@ *)y_ + r * count;
    @T@ mean = 0, square = 0;
    if (p[6]) {
      for (int32_t k = 0; k < count; k++) mean += x[k];
      mean /= (@T@)count;
    }
    for (int32_t k = 0; k < count; k++) square += (x[k] - mean) * (x[k] - mean);
    const @T@ inverse = 1 / (@T@)sqrt@F@(square / (@T@)count + (@T@)epsilon);
    int32_t from = r % period * per_run;
    for (int32_t k = 0; k < count; from += per_element)
      for (int32_t end = nt_least(k + span, count); k < end; k++) {
        const @T@ a = (x[k] - mean) * inverse;
        y[k] = (scale ? a * scale[from] : a) + (bias ? bias[from] : 0);
      }
    if (means) ((@T@ *)means)[r] = mean;
    if (inverses) ((@T@ *)inverses)[r] = inverse;
  }
}
