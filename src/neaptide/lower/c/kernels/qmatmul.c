/* Integer product of batches of strided matrices with a sum in 32 bits. p: as for nt_matmul (c is a bias of 32 bits),
   behind the batch the zero points of a and y and the least and greatest result. Scales and zero points of b are arrays
   with a step by column. */
static void nt_qmatmul_@X@_@W@_@Y@(const void *a_, const void *b_, const int32_t *c, void *y_, const int32_t *p,
                                   const float *b_scale, int32_t scale_step, const void *b_zero_,
                                   int32_t zero_step, float a_scale, float y_scale) {
  const @TW@ *b_zero = b_zero_;
  const int32_t *q = p + 11, *z = q + 1 + 4 * q[0];
  int32_t at[NT_MAX_AXES] = {0}, o[3] = {0};
  do {
    const @T@ *a = (const @T@ *)a_ + o[0];
    const @TW@ *b = (const @TW@ *)b_ + o[1];
    for (int32_t i = 0; i < p[0]; i++)
      for (int32_t j = 0; j < p[1]; j++) {
        const int32_t bz = b_zero ? b_zero[j * zero_step] : 0;
        int32_t sum = c ? c[i * p[7] + j * p[8]] : 0;
        for (int32_t k = 0; k < p[2]; k++)
          sum += (a[i * p[3] + k * p[4]] - z[0]) * (b[k * p[5] + j * p[6]] - bz);
        ((@TY@ *)y_)[o[2] + i * p[9] + j * p[10]] =
            (@TY@)nt_round_to((float)sum * (a_scale * b_scale[j * scale_step] / y_scale), z[1], z[2], z[3]);
      }
  } while (nt_walk(q, 0, at, o, 3));
}
