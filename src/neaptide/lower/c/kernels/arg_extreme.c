/* Place of the greatest (sign 1) or least (sign -1) element along the middle of (outer, count, inner). */
static void nt_arg_extreme_@X@(const @T@ *x, int64_t *y, int32_t outer, int32_t count, int32_t inner, int sign,
                               int last_of_equals) {
  for (int32_t o = 0; o < outer; o++)
    for (int32_t i = 0; i < inner; i++) {
      const @T@ *from = x + o * count * inner + i;
      int32_t best = 0;
      for (int32_t k = 1; k < count; k++) {
        const @T@ a = from[k * inner], b = from[best * inner];
        if ((sign > 0 ? a > b : a < b) || (last_of_equals && a == b)) best = k;
      }
      y[o * inner + i] = best;
    }
}
