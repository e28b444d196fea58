/* Local response normalisation over `size` neighbouring channels of (batch, channels, inner). */
static void nt_lrn(const float *x, float *y, const int32_t *p, float alpha, float beta, float bias) {
  const int32_t channels = p[1], inner = p[2], size = p[3];
  for (int32_t n = 0; n < p[0]; n++)
    for (int32_t c = 0; c < channels; c++)
      for (int32_t k = 0; k < inner; k++) {
        const float *from = x + n * channels * inner + k;
        int32_t first = c - (size - 1) / 2, end = c + size / 2 + 1;
        float sum = 0;
        if (first < 0) first = 0;
        if (end > channels) end = channels;
        for (int32_t i = first; i < end; i++) sum += from[i * inner] * from[i * inner];
        y[(n * channels + c) * inner + k] = from[c * inner] / powf(bias + alpha / (float)size * sum, beta);
      }
}
