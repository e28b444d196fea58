/* Means over windows of two spatial axes; p as for nt_max_pool, then whether pads count as elements. */
static void nt_average_pool_@X@(const void *x_, void *y_, const int32_t *p) {
  const @T@ *x = x_;
  @T@ *y = y_;
  const int32_t h = p[4], w = p[5], *xs = p + 16, *ys = p + 20, counts_pads = p[24];
  for (int32_t n = 0; n < p[0]; n++)
    for (int32_t m = 0; m < p[1]; m++)
      for (int32_t r = 0; r < p[2]; r++)
        for (int32_t c = 0; c < p[3]; c++) {
          const @T@ *from = x + n * xs[0] + m * xs[1];
          @T@ sum = 0;
          int32_t inside = 0, padded = 0;
          for (int32_t i = 0; i < p[6]; i++) {
            const int32_t row = r * p[8] - p[10] + i * p[14];
            for (int32_t j = 0; j < p[7]; j++) {
              const int32_t column = c * p[9] - p[11] + j * p[15];
              if (row < h + p[12] && column < w + p[13]) padded++;
              if (row < 0 || row >= h || column < 0 || column >= w) continue;
              sum += from[row * xs[2] + column * xs[3]];
              inside++;
            }
          }
          y[n * ys[0] + m * ys[1] + r * ys[2] + c * ys[3]] = sum / (@T@)(counts_pads ? padded : inside);
        }
}
