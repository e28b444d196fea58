/* Goes to the next place over some axes, the last `skip` of them apart; whether there is one. p: number of axes, extents,
   strides of each of some tensors; `at` is the place, `o` the offset of each tensor. */
static int nt_walk(const int32_t *p, int32_t skip, int32_t *at, int32_t *o, int32_t tensors) {
  const int32_t *n = p + 1, *s = n + p[0];
  for (int32_t axis = p[0] - skip - 1; axis >= 0; axis--) {
    const int32_t back = ++at[axis] < n[axis] ? 0 : n[axis];
    for (int32_t k = 0; k < tensors; k++) o[k] += (1 - back) * s[k * p[0] + axis];
    if (!back) return 1;
    at[axis] = 0;
  }
  return 0;
}
