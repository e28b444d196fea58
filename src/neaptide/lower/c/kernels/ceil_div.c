/* The smallest k >= 0 with k * b >= a. */
static int32_t nt_ceil_div(int32_t a, int32_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }
