/* The k greatest (sign 1) or least (sign -1) elements along the middle of (outer, count, inner), best first, with their
   places. */
static void nt_top_k_@X@(const @T@ *x, @T@ *y, int64_t *at, const int32_t *p) {
  const int32_t outer = p[0], count = p[1], inner = p[2], most = p[3], sign = p[4];
  for (int32_t o = 0; o < outer; o++)
    for (int32_t i = 0; i < inner; i++) {
      const @T@ *from = x + o * count * inner + i;
      @T@ *values = y + o * most * inner + i;
      int64_t *places = at + o * most * inner + i;
      int32_t found = 0;
      for (int32_t k = 0; k < count; k++) {
        const @T@ a = from[k * inner];
        int32_t to = found < most ? found++ : most;
        for (; to > 0 && (sign > 0 ? a > values[(to - 1) * inner] : a < values[(to - 1) * inner]); to--)
          if (to < most) {
            values[to * inner] = values[(to - 1) * inner];
            places[to * inner] = places[(to - 1) * inner];
          }
        if (to < most) {
          values[to * inner] = a;
          places[to * inner] = k;
        }
      }
    }
}
