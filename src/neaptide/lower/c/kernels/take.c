/* y[i, j, k, l] = x[t0[i], t1[j], t2[k], t3[l]]. p: extents of y, strides of x, of y (four each), then the four tables. A
   place of -1 leaves the element of y as it is. */
static void nt_take_@X@(const void *x_, void *y_, const int32_t *p) {
  const @T@ *x = x_;
  @T@ *y = y_;
  const int32_t *xs = p + 4, *ys = p + 8, *t0 = p + 12, *t1 = t0 + p[0], *t2 = t1 + p[1], *t3 = t2 + p[2];
  for (int32_t i = 0; i < p[0]; i++)
    for (int32_t j = 0; j < p[1]; j++)
      for (int32_t k = 0; k < p[2]; k++) {
        const @T@ *from = x + t0[i] * xs[0] + t1[j] * xs[1] + t2[k] * xs[2];
        @T@ *into = y + i * ys[0] + j * ys[1] + k * ys[2];
        for (int32_t l = 0; l < p[3]; l++) into[l * ys[3]] = from[t3[l] * xs[3]];
      }
}
