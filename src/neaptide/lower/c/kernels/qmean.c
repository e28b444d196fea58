/* Mean of the inner elements of (outer, inner) in integers: y = round((sum - inner * zero) * ratio) + zero of y. */
static void nt_qmean_@X@(const @T@ *x, @T@ *y, const int32_t *p, float ratio) {
  for (int32_t o = 0; o < p[0]; o++) {
    int32_t sum = -p[1] * p[2];
    for (int32_t k = 0; k < p[1]; k++) sum += x[o * p[1] + k];
    y[o] = (@T@)nt_round_to((float)sum * ratio, p[3], p[4], p[5]);
  }
}
