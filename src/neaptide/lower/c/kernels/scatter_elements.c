/* y[k with its place along one axis taken from `at`] takes update k. p as for nt_gather_elements, of y. */
static void nt_scatter_elements_@R@_@X@_@W@(const @TW@ *at, const void *updates_, void *y_, const int32_t *p) {
  const @T@ *updates = updates_;
  @T@ *y = y_;
  const int32_t axes = p[0], along = p[1], *n = p + 3, *s = n + axes;
  int32_t place[NT_MAX_AXES] = {0}, o = 0, k = 0, axis;
  do {
    const int32_t i = (int32_t)at[k] < 0 ? (int32_t)at[k] + p[2] : (int32_t)at[k];
    @T@ *into = y + o + (i - place[along]) * s[along];
    const @T@ a = *into, b = updates[k++];
    *into = (@T@)(@E@);
    (void)a;
    for (axis = axes - 1; axis >= 0; axis--) {
      o += s[axis];
      if (++place[axis] < n[axis]) break;
      o -= n[axis] * s[axis];
      place[axis] = 0;
    }
  } while (axis >= 0);
}
