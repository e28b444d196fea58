/* Maxima over windows of two spatial axes; `at` takes their flat row-major positions in x, where it is not null.
   p: batch, channels, output rows and columns, input rows and columns, kernel, strides, pads at the begin, pads at the
   end, dilations (two each), then strides of x and y (four each). */
static void nt_max_pool_@X@(const void *x_, void *y_, int64_t *at, const int32_t *p) {
  const @T@ *x = x_;
  @T@ *y = y_;
  const int32_t oh = p[2], ow = p[3], h = p[4], w = p[5], *xs = p + 16, *ys = p + 20;
  for (int32_t n = 0; n < p[0]; n++)
    for (int32_t m = 0; m < p[1]; m++)
      for (int32_t r = 0; r < oh; r++)
        for (int32_t c = 0; c < ow; c++) {
          const @T@ *from = x + n * xs[0] + m * xs[1];
          @T@ best = @LOWEST@;
          int32_t place = 0;
          for (int32_t i = 0; i < p[6]; i++) {
            const int32_t row = r * p[8] - p[10] + i * p[14];
            if (row < 0 || row >= h) continue;
            for (int32_t j = 0; j < p[7]; j++) {
              const int32_t column = c * p[9] - p[11] + j * p[15];
              if (column < 0 || column >= w) continue;
              const @T@ a = from[row * xs[2] + column * xs[3]];
              if (a > best) {
                best = a;
                place = row * w + column;
              }
            }
          }
          y[n * ys[0] + m * ys[1] + r * ys[2] + c * ys[3]] = best;
          if (at) at[((n * p[1] + m) * oh + r) * ow + c] = (int64_t)(n * p[1] + m) * h * w + place;
        }
}
