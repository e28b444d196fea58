/* y[k with its place along one axis taken from `at`] takes update k. p as for nt_gather_elements, of y. */
static void nt_scatter_elements_@R@_@X@_@W@(const @TW@ *at, const void *updates_, void *y_, const int32_t *p) {
  const @T@ *updates = updates_;
  @T@ *y = y_;
  const int32_t along = p[0], step = p[3 + p[2] + along];
  int32_t place[NT_MAX_AXES] = {0}, o = 0, k = 0;
  do {
    const int32_t i = (int32_t)at[k] < 0 ? (int32_t)at[k] + p[1] : (int32_t)at[k];
    @T@ *into = y + o + (i - place[along]) * step;
    const @T@ a = *into, b = updates[k++];
    *into = (@T@)(@E@);
    (void)a;
  } while (nt_walk(p + 2, 0, place, &o, 1));
}
