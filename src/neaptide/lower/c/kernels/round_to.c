/* The nearest integer within [low, high], halves to the even one. */
static int32_t nt_round_to(float a, int32_t zero, int32_t low, int32_t high) {
  const float r = rintf(a) + (float)zero;
  return r <= (float)low ? low : r >= (float)high ? high : (int32_t)r;
}
