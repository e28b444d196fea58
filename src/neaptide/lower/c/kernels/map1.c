/* An element-wise kernel of one operand over strided tensors; the result may lie exactly on the operand.
   p: number of axes, extents, strides of a, of y. */
#define NT_MAP1(NAME, TA, TY, EXPR)                                                         \
  static void NAME(const void *a_, void *y_, const int32_t *p, float u, float v) {          \
    const TA *pa = a_;                                                                      \
    TY *py = y_;                                                                            \
    const int32_t axes = p[0], count = p[axes], *last = p + 2 * axes;                       \
    const int32_t da = last[0], dy = last[axes];                                            \
    int32_t at[NT_MAX_AXES] = {0}, o[2] = {0};                                              \
    (void)u;                                                                                \
    (void)v;                                                                                \
    do {                                                                                    \
      for (int32_t k = 0; k < count; k++) {                                                 \
        const TA a = pa[o[0] + k * da];                                                     \
        py[o[1] + k * dy] = (TY)(EXPR);                                                     \
      }                                                                                     \
    } while (nt_walk(p, 1, at, o, 2));                                                      \
  }
