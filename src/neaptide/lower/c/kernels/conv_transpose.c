/* Transposed convolution of two spatial axes, without scratch; p as for nt_conv, with w as (input, output) channels. */
static void nt_conv_transpose_@X@(const void *x_, const void *w_, const void *b_, void *y_, const int32_t *p) {
  const @T@ *x = x_, *w = w_, *b = b_;
  @T@ *y = y_;
  const int32_t groups = p[1], outs = p[2], ins = p[3], oh = p[4], ow = p[5], h = p[6], wd = p[7];
  const int32_t sh = p[10], sw = p[11], *xs = p + 16, *ws = p + 20, bs = p[24], *ys = p + 25;
  for (int32_t n = 0; n < p[0]; n++)
    for (int32_t g = 0; g < groups; g++)
      for (int32_t m = 0; m < outs; m++) {
        @T@ *plane = y + n * ys[0] + (g * outs + m) * ys[1];
        const @T@ start = b ? b[(g * outs + m) * bs] : 0;
        for (int32_t r = 0; r < oh; r++)
          for (int32_t c = 0; c < ow; c++) plane[r * ys[2] + c * ys[3]] = start;
        for (int32_t k = g * ins; k < (g + 1) * ins; k++)
          for (int32_t i = 0; i < p[8]; i++)
            for (int32_t j = 0; j < p[9]; j++) {
              const int32_t up = i * p[14] - p[12], left = j * p[15] - p[13];
              const int32_t r0 = nt_ceil_div(-up, sh), r1 = nt_least(h, nt_ceil_div(oh - up, sh));
              const int32_t c0 = nt_ceil_div(-left, sw), c1 = nt_least(wd, nt_ceil_div(ow - left, sw));
              const @T@ tap = w[k * ws[0] + m * ws[1] + i * ws[2] + j * ws[3]];
              const @T@ *from = x + n * xs[0] + k * xs[1];
              for (int32_t r = r0; r < r1; r++) {
                const @T@ *row = from + r * xs[2];
                @T@ *into = plane + (r * sh + up) * ys[2] + left * ys[3];
                for (int32_t c = c0; c < c1; c++) into[c * sw * ys[3]] += tap * row[c * xs[3]];
              }
            }
      }
}
