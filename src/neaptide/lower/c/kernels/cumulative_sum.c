/* Running sums along the middle of (outer, count, inner); y may be x. */
static void nt_cumulative_sum_@X@(const @T@ *x, @T@ *y, int32_t outer, int32_t count, int32_t inner, int exclusive,
                                  int reverse) {
  for (int32_t o = 0; o < outer; o++)
    for (int32_t i = 0; i < inner; i++) {
      @T@ sum = 0;
      for (int32_t k = 0; k < count; k++) {
        const int32_t at = (o * count + (reverse ? count - 1 - k : k)) * inner + i;
        const @T@ a = x[at];
        y[at] = exclusive ? sum : sum + a;
        sum += a;
      }
    }
}
