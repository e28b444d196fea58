/* Runs of y at tuples of positions take runs of updates. p: number of tuples, their length, elements of a run, then
   extents and strides of the axes of y that a tuple names. */
static void nt_scatter_nd_@R@_@X@(const int64_t *at, const void *updates_, void *y_, const int32_t *p) {
  const @T@ *updates = updates_;
  const int32_t *n = p + 3, *s = n + p[1];
  for (int32_t k = 0; k < p[0]; k++) {
    int32_t o = 0;
    for (int32_t i = 0; i < p[1]; i++) {
      const int32_t here = (int32_t)at[k * p[1] + i];
      o += (here < 0 ? here + n[i] : here) * s[i];
    }
    @T@ *into = (@T@ *)y_ + o;
    for (int32_t i = 0; i < p[2]; i++) {
      const @T@ a = into[i], b = updates[k * p[2] + i];
      into[i] = (@T@)(@E@);
      (void)a;
    }
  }
}
