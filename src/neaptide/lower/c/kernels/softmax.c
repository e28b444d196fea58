/* Softmax, or its logarithm, along the middle of (outer, count, inner); y may be x. */
static void nt_softmax_@X@(const void *x_, void *y_, int32_t outer, int32_t count, int32_t inner, int log_of_it) {
  for (int32_t o = 0; o < outer; o++)
    for (int32_t i = 0; i < inner; i++) {
      const @T@ *x = (const @T@ *)x_ + o * count * inner + i;
      @T@ *y = (@T@ *)y_ + o * count * inner + i;
      @T@ top = x[0], sum = 0;
      for (int32_t k = 1; k < count; k++)
        if (x[k * inner] > top) top = x[k * inner];
      for (int32_t k = 0; k < count; k++) {
        const @T@ a = x[k * inner] - top, e = (@T@)exp@F@(a);
        y[k * inner] = log_of_it ? a : e;
        sum += e;
      }
      const @T@ last = log_of_it ? (@T@)log@F@(sum) : 1 / sum;
      for (int32_t k = 0; k < count; k++) y[k * inner] = log_of_it ? y[k * inner] - last : y[k * inner] * last;
    }
}
