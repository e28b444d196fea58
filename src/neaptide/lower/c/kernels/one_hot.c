/* (outer, depth, inner) with values[1] at the positions `at` along depth and values[0] elsewhere. */
static void nt_one_hot_@X@_@W@(const @TW@ *at, const void *values_, void *y_, int32_t outer, int32_t depth,
                               int32_t inner) {
  const @T@ *values = values_;
  @T@ *y = y_;
  for (int32_t o = 0; o < outer; o++)
    for (int32_t d = 0; d < depth; d++)
      for (int32_t i = 0; i < inner; i++) {
        const int32_t k = (int32_t)at[o * inner + i];
        y[(o * depth + d) * inner + i] = values[k == d || k + depth == d];
      }
}
