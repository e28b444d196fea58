/* y[k] = x[k with its place along one axis taken from `at`]. p: the axis, its extent in x, then axes, extents of `at`,
   strides of x. */
static void nt_gather_elements_@X@_@W@(const void *x_, const @TW@ *at, void *y_, const int32_t *p) {
  const @T@ *x = x_;
  @T@ *y = y_;
  const int32_t along = p[0], step = p[3 + p[2] + along];
  int32_t place[NT_MAX_AXES] = {0}, o = 0, k = 0;
  do {
    const int32_t i = (int32_t)at[k] < 0 ? (int32_t)at[k] + p[1] : (int32_t)at[k];
    y[k++] = x[o + (i - place[along]) * step];
  } while (nt_walk(p + 2, 0, place, &o, 1));
}
