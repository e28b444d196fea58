/* A reduction over strided tensors. p: kept axes (number, extents, strides of x, of y), then reduced axes
   (number, extents, strides of x). */
#define NT_REDUCE(NAME, T, ACC, INIT, STEP, FINISH)                                         \
  static void NAME(const void *x_, void *y_, const int32_t *p) {                            \
    const T *px = x_;                                                                       \
    T *py = y_;                                                                             \
    const int32_t *q = p + 1 + 3 * p[0], axes = q[0], *last = q + 2 * axes;                 \
    int32_t at[NT_MAX_AXES] = {0}, o[2] = {0}, size = 1;                                    \
    for (int32_t axis = 1; axis <= axes; axis++) size *= q[axis];                           \
    do {                                                                                    \
      int32_t in[NT_MAX_AXES] = {0}, here = o[0];                                           \
      ACC acc = INIT;                                                                       \
      do {                                                                                  \
        for (int32_t k = 0; k < q[axes]; k++) {                                             \
          const ACC a = (ACC)px[here + k * last[0]];                                        \
          acc = STEP;                                                                       \
        }                                                                                   \
      } while (nt_walk(q, 1, in, &here, 1));                                                \
      py[o[1]] = (T)(FINISH);                                                               \
    } while (nt_walk(p, 0, at, o, 2));                                                      \
    (void)size;                                                                             \
  }
