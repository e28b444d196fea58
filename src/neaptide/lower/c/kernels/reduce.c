/* A reduction over strided tensors. p: kept axes (number, extents, strides of x, of y), then reduced axes
   (number, extents, strides of x). */
#define NT_REDUCE(NAME, T, ACC, INIT, STEP, FINISH)                                         \
  static void NAME(const void *x_, void *y_, const int32_t *p) {                            \
    const T *px = x_;                                                                       \
    T *py = y_;                                                                             \
    const int32_t axes = p[0], *n = p + 1, *sx = n + axes, *sy = sx + axes, *q = sy + axes; \
    const int32_t inner = q[0], *m = q + 1, *tx = m + inner, last = inner - 1;              \
    int32_t at[NT_MAX_AXES] = {0}, ox = 0, oy = 0, axis, size = 1;                          \
    for (axis = 0; axis < inner; axis++) size *= m[axis];                                   \
    do {                                                                                    \
      int32_t in[NT_MAX_AXES] = {0}, o = ox;                                                \
      ACC acc = INIT;                                                                       \
      do {                                                                                  \
        for (int32_t k = 0; k < m[last]; k++) {                                             \
          const ACC a = (ACC)px[o + k * tx[last]];                                          \
          acc = STEP;                                                                       \
        }                                                                                   \
        for (axis = last - 1; axis >= 0; axis--) {                                          \
          o += tx[axis];                                                                    \
          if (++in[axis] < m[axis]) break;                                                  \
          o -= m[axis] * tx[axis];                                                          \
          in[axis] = 0;                                                                     \
        }                                                                                   \
      } while (axis >= 0);                                                                  \
      py[oy] = (T)(FINISH);                                                                 \
      for (axis = axes - 1; axis >= 0; axis--) {                                            \
        ox += sx[axis];                                                                     \
        oy += sy[axis];                                                                     \
        if (++at[axis] < n[axis]) break;                                                    \
        ox -= n[axis] * sx[axis];                                                           \
        oy -= n[axis] * sy[axis];                                                           \
        at[axis] = 0;                                                                       \
      }                                                                                     \
    } while (axis >= 0);                                                                    \
    (void)size;                                                                             \
  }
