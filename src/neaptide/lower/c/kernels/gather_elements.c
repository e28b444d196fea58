/* y[k] = x[k with its place along one axis taken from `at`]. p: axes, the axis, its extent in x, extents of `at`, strides
   of x. */
static void nt_gather_elements_@X@_@W@(const void *x_, const @TW@ *at, void *y_, const int32_t *p) {
  const @T@ *x = x_;
  @T@ *y = y_;
  const int32_t axes = p[0], along = p[1], *n = p + 3, *s = n + axes;
  int32_t place[NT_MAX_AXES] = {0}, o = 0, k = 0, axis;
  do {
    const int32_t i = (int32_t)at[k] < 0 ? (int32_t)at[k] + p[2] : (int32_t)at[k];
    y[k++] = x[o + (i - place[along]) * s[along]];
    for (axis = axes - 1; axis >= 0; axis--) {
      o += s[axis];
      if (++place[axis] < n[axis]) break;
      o -= n[axis] * s[axis];
      place[axis] = 0;
    }
  } while (axis >= 0);
}
