/* y = alpha * a b + beta * c for batches of strided matrices; c may be null. p: rows, columns, depth, strides of a (row,
   depth), b (depth, column), c (row, column) and y (row, column), then the batch: axes, extents, strides of a, b and y. */
static void nt_matmul_@X@(const void *a_, const void *b_, const void *c_, void *y_, const int32_t *p, float alpha,
                          float beta) {
  const @T@ *c = c_;
  int32_t at[NT_MAX_AXES] = {0}, o[3] = {0};
  do {
    const @T@ *a = (const @T@ *)a_ + o[0], *b = (const @T@ *)b_ + o[1];
    @T@ *y = (@T@ *)y_ + o[2];
    for (int32_t i = 0; i < p[0]; i++) {
      @T@ *row = y + i * p[9];
      for (int32_t j = 0; j < p[1]; j++) row[j * p[10]] = c ? (@T@)beta * c[i * p[7] + j * p[8]] : 0;
      for (int32_t k = 0; k < p[2]; k++) {
        const @T@ factor = (@T@)alpha * a[i * p[3] + k * p[4]];
        for (int32_t j = 0; j < p[1]; j++) row[j * p[10]] += factor * b[k * p[5] + j * p[6]];
      }
    }
  } while (nt_walk(p + 11, 0, at, o, 3));
}
