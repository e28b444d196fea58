/* An element-wise kernel of one operand over strided tensors; the result may lie exactly on the operand.
   p: number of axes, extents, strides of a, strides of y. */
#define NT_MAP1(NAME, TA, TY, EXPR)                                                         \
  static void NAME(const void *a_, void *y_, const int32_t *p, float u, float v) {          \
    const TA *pa = a_;                                                                      \
    TY *py = y_;                                                                            \
    const int32_t axes = p[0], *n = p + 1, *sa = n + axes, *sy = sa + axes;                 \
    const int32_t last = axes - 1, count = n[last], da = sa[last], dy = sy[last];           \
    int32_t at[NT_MAX_AXES] = {0}, oa = 0, oy = 0, axis;                                    \
    (void)u;                                                                                \
    (void)v;                                                                                \
    do {                                                                                    \
      for (int32_t k = 0; k < count; k++) {                                                 \
        const TA a = pa[oa + k * da];                                                       \
        py[oy + k * dy] = (TY)(EXPR);                                                       \
      }                                                                                     \
      for (axis = last - 1; axis >= 0; axis--) {                                            \
        oa += sa[axis];                                                                     \
        oy += sy[axis];                                                                     \
        if (++at[axis] < n[axis]) break;                                                    \
        oa -= n[axis] * sa[axis];                                                           \
        oy -= n[axis] * sy[axis];                                                           \
        at[axis] = 0;                                                                       \
      }                                                                                     \
    } while (axis >= 0);                                                                    \
  }
