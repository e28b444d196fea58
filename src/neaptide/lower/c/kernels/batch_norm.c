/* y = (x - mean) / sqrt(variance + epsilon) * scale + bias by channel; y may be x.
   p: extents of four axes (batch, channels, rows, columns), strides of x, of y. */
static void nt_batch_norm_@X@(const void *x_, const void *scale_, const void *bias_, const void *mean_,
                              const void *variance_, void *y_, const int32_t *p, float epsilon) {
  const @T@ *x = x_, *scale = scale_, *bias = bias_, *mean = mean_, *variance = variance_;
  const int32_t *xs = p + 4, *ys = p + 8;
  for (int32_t c = 0; c < p[1]; c++) {
    const @T@ factor = scale[c] / (@T@)sqrt@F@(variance[c] + (@T@)epsilon), rest = bias[c] - mean[c] * factor;
    for (int32_t n = 0; n < p[0]; n++)
      for (int32_t i = 0; i < p[2]; i++) {
        const @T@ *from = x + n * xs[0] + c * xs[1] + i * xs[2];
        @T@ *into = (@T@ *)y_ + n * ys[0] + c * ys[1] + i * ys[2];
        for (int32_t j = 0; j < p[3]; j++) into[j * ys[3]] = from[j * xs[3]] * factor + rest;
      }
  }
}
