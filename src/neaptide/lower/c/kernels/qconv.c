/* Integer convolution with a sum in 32 bits. p as for nt_conv, then zero points of x and y, the least and greatest
   result, and whether w has a zero point for each output channel. Scales of x and y are numbers; w's are an array with a
   step of `scale_step`. */
static void nt_qconv_@X@_@W@_@Y@(const void *x_, const void *w_, const int32_t *b, void *y_, const int32_t *p,
                                 const float *w_scale, int32_t scale_step, const void *w_zero_, float x_scale,
                                 float y_scale) {
  const @T@ *x = x_;
  const @TW@ *w = w_, *w_zero = w_zero_;
  @TY@ *y = y_;
  const int32_t groups = p[1], outs = p[2], ins = p[3], oh = p[4], ow = p[5], h = p[6], wd = p[7];
  const int32_t *xs = p + 16, *ws = p + 20, *ys = p + 25, x_zero = p[29];
  for (int32_t n = 0; n < p[0]; n++)
    for (int32_t m = 0; m < groups * outs; m++) {
      const float scale = x_scale * w_scale[m * scale_step] / y_scale;
      const int32_t wz = w_zero ? w_zero[m * p[33]] : 0;
      const @T@ *from = x + n * xs[0] + m / outs * ins * xs[1];
      for (int32_t r = 0; r < oh; r++) {
        const int32_t top = r * p[10] - p[12];
        for (int32_t c = 0; c < ow; c++) {
          const int32_t left = c * p[11] - p[13];
          int32_t sum = b ? b[m] : 0;
          for (int32_t i = 0; i < p[8]; i++) {
            const int32_t row = top + i * p[14];
            if (row < 0 || row >= h) continue;
            for (int32_t j = 0; j < p[9]; j++) {
              const int32_t column = left + j * p[15];
              if (column < 0 || column >= wd) continue;
              const @T@ *a = from + row * xs[2] + column * xs[3];
              const @TW@ *tap = w + m * ws[0] + i * ws[2] + j * ws[3];
              for (int32_t k = 0; k < ins; k++) sum += (a[k * xs[1]] - x_zero) * (tap[k * ws[1]] - wz);
            }
          }
          y[n * ys[0] + m * ys[1] + r * ys[2] + c * ys[3]] =
              (@TY@)nt_round_to((float)sum * scale, p[30], p[31], p[32]);
        }
      }
    }
}
