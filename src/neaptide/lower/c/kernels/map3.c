/* An element-wise kernel of three operands over strided tensors; a broadcast axis has the stride 0.
   p: number of axes, extents, strides of a, of b, of c, of y. */
#define NT_MAP3(NAME, TA, TB, TC, TY, EXPR)                                                 \
  static void NAME(const void *a_, const void *b_, const void *c_, void *y_, const int32_t *p) {\
    const TA *pa = a_;                                                                      \
    const TB *pb = b_;                                                                      \
    const TC *pc = c_;                                                                      \
    TY *py = y_;                                                                            \
    const int32_t axes = p[0], count = p[axes], *last = p + 2 * axes;                       \
    const int32_t da = last[0], db = last[axes], dc = last[2 * axes], dy = last[3 * axes];  \
    int32_t at[NT_MAX_AXES] = {0}, o[4] = {0};                                              \
    do {                                                                                    \
      for (int32_t k = 0; k < count; k++) {                                                 \
        const TA a = pa[o[0] + k * da];                                                     \
        const TB b = pb[o[1] + k * db];                                                     \
        const TC c = pc[o[2] + k * dc];                                                     \
        py[o[3] + k * dy] = (TY)(EXPR);                                                     \
      }                                                                                     \
    } while (nt_walk(p, 1, at, o, 4));                                                      \
  }
