/* Runs of bytes of (outer, axis, inner) at the positions `at`; a negative position counts from the end. */
static void nt_gather_@X@(const void *x_, const @T@ *at, void *y_, int32_t outer, int32_t axis, int32_t count,
                          int32_t inner_bytes) {
  const unsigned char *x = x_;
  unsigned char *y = y_;
  for (int32_t o = 0; o < outer; o++)
    for (int32_t k = 0; k < count; k++) {
      const int32_t i = (int32_t)at[k] < 0 ? (int32_t)at[k] + axis : (int32_t)at[k];
      memcpy(y + (o * count + k) * inner_bytes, x + (o * axis + i) * inner_bytes, (size_t)inner_bytes);
    }
}
