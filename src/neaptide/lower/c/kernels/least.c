static int32_t nt_least(int32_t a, int32_t b) { return a < b ? a : b; }
