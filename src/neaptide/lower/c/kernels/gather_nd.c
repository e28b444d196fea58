/* Runs of x at tuples of positions. p: number of tuples, their length, bytes of a run, then extents and strides in bytes
   of the axes of x that a tuple names. */
static void nt_gather_nd(const void *x_, const int64_t *at, void *y_, const int32_t *p) {
  const int32_t *n = p + 3, *s = n + p[1];
  for (int32_t k = 0; k < p[0]; k++) {
    int32_t o = 0;
    for (int32_t i = 0; i < p[1]; i++) {
      const int32_t here = (int32_t)at[k * p[1] + i];
      o += (here < 0 ? here + n[i] : here) * s[i];
    }
    memcpy((unsigned char *)y_ + k * p[2], (const unsigned char *)x_ + o, (size_t)p[2]);
  }
}
