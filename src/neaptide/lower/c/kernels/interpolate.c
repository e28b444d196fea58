/* Linear interpolation of the last two of four axes. p: extents of y, strides of x, of y (four each), then for each row
   of y the rows of x below and above, and the same for columns. `weights` has the share of the upper one. */
static void nt_interpolate_@X@(const void *x_, void *y_, const int32_t *p, const float *weights) {
  const @T@ *x = x_;
  @T@ *y = y_;
  const int32_t oh = p[2], ow = p[3], *xs = p + 4, *ys = p + 8, *rows = p + 12, *columns = rows + 2 * oh;
  for (int32_t n = 0; n < p[0]; n++)
    for (int32_t c = 0; c < p[1]; c++)
      for (int32_t i = 0; i < oh; i++) {
        const @T@ *plane = x + n * xs[0] + c * xs[1];
        const @T@ *low = plane + rows[2 * i] * xs[2], *high = plane + rows[2 * i + 1] * xs[2];
        const float up = weights[i];
        for (int32_t j = 0; j < ow; j++) {
          const int32_t left = columns[2 * j] * xs[3], right = columns[2 * j + 1] * xs[3];
          const float across = weights[oh + j];
          const float a = (float)low[left] * (1 - across) + (float)low[right] * across;
          const float b = (float)high[left] * (1 - across) + (float)high[right] * across;
          y[n * ys[0] + c * ys[1] + i * ys[2] + j * ys[3]] = (@T@)(a * (1 - up) + b * up);
        }
      }
}
