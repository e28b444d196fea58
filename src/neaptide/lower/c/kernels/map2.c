/* An element-wise kernel of two operands over strided tensors; a broadcast axis has the stride 0.
   p: number of axes, extents, strides of a, of b, of y. */
#define NT_MAP2(NAME, TA, TB, TY, EXPR)                                                     \
  static void NAME(const void *a_, const void *b_, void *y_, const int32_t *p, float u) {   \
    const TA *pa = a_;                                                                      \
    const TB *pb = b_;                                                                      \
    TY *py = y_;                                                                            \
    const int32_t axes = p[0], *n = p + 1, *sa = n + axes, *sb = sa + axes, *sy = sb + axes;\
    const int32_t last = axes - 1, count = n[last];                                         \
    const int32_t da = sa[last], db = sb[last], dy = sy[last];                              \
    int32_t at[NT_MAX_AXES] = {0}, oa = 0, ob = 0, oy = 0, axis;                            \
    (void)u;                                                                                \
    do {                                                                                    \
      for (int32_t k = 0; k < count; k++) {                                                 \
        const TA a = pa[oa + k * da];                                                       \
        const TB b = pb[ob + k * db];                                                       \
        py[oy + k * dy] = (TY)(EXPR);                                                       \
      }                                                                                     \
      for (axis = last - 1; axis >= 0; axis--) {                                            \
        oa += sa[axis];                                                                     \
        ob += sb[axis];                                                                     \
        oy += sy[axis];                                                                     \
        if (++at[axis] < n[axis]) break;                                                    \
        oa -= n[axis] * sa[axis];                                                           \
        ob -= n[axis] * sb[axis];                                                           \
        oy -= n[axis] * sy[axis];                                                           \
        at[axis] = 0;                                                                       \
      }                                                                                     \
    } while (axis >= 0);                                                                    \
  }
