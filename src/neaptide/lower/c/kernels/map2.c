/* An element-wise kernel of two operands over strided tensors; a broadcast axis has the stride 0.
   p: number of axes, extents, strides of a, of b, of y. */
#define NT_MAP2(NAME, TA, TB, TY, EXPR)                                                     \
  static void NAME(const void *a_, const void *b_, void *y_, const int32_t *p, float u) {   \
    const TA *pa = a_;                                                                      \
    const TB *pb = b_;                                                                      \
    TY *py = y_;                                                                            \
    const int32_t axes = p[0], count = p[axes], *last = p + 2 * axes;                       \
    const int32_t da = last[0], db = last[axes], dy = last[2 * axes];                       \
    int32_t at[NT_MAX_AXES] = {0}, o[3] = {0};                                              \
    (void)u;                                                                                \
    do {                                                                                    \
      for (int32_t k = 0; k < count; k++) {                                                 \
        const TA a = pa[o[0] + k * da];                                                     \
        const TB b = pb[o[1] + k * db];                                                     \
        py[o[2] + k * dy] = (TY)(EXPR);                                                     \
      }                                                                                     \
    } while (nt_walk(p, 1, at, o, 3));                                                      \
  }
