/* LSTM (4 gates: i, o, f, c), GRU (3: z, r, h) or RNN (1): each row of a batch runs through its sequence, `lens` long, with
   its state on the stack. Tensors as in ONNX; b, lens, h0, c0, peep and each result may be null. p: steps, batch, elements
   of an input, directions, whether the first goes backward, whether GRU multiplies by r after its product. */
static @T@ nt_activated_@N@(int which, @T@ a) {
  switch (which) {
    case 0: return @A0@;
    case 1: return @A1@;
    default: return @A2@;
  }
}
static void nt_@N@(const @T@ *x, const @T@ *w, const @T@ *r, const @T@ *b, const int32_t *lens, const @T@ *h0,
                   const @T@ *c0, const @T@ *peep, @T@ *y, @T@ *yh, @T@ *yc, const int32_t *p) {
  enum { H = @H@, G = @G@ };
  const int32_t steps = p[0], batch = p[1], ins = p[2], dirs = p[3];
  for (int32_t d = 0; d < dirs; d++)
    for (int32_t n = 0; n < batch; n++) {
      const int32_t row = (d * batch + n) * H, length = lens ? lens[n] : steps;
      @T@ h[H], c[H], next[H], sums[2][G];
      for (int32_t j = 0; j < H; j++) {
        h[j] = h0 ? h0[row + j] : 0;
        c[j] = c0 ? c0[row + j] : 0;
      }
      for (int32_t k = 0; k < steps; k++) {
        const int32_t t = k < length && (d || p[4]) ? length - 1 - k : k;
        const @T@ *from = x + (t * batch + n) * ins;
        for (int32_t pass = G == 3 ? 0 : 1; pass < 2 && k < length; pass++)
          for (int32_t j = 0; j < H; j++) {
            for (int32_t g = pass ? 0 : 1; g < (pass ? G : 2); g++) {
              const int32_t at = (d * G + g) * H + j, by_r = G == 3 && g == 2 && !p[5];
              const @T@ *bias = b ? b + d * 2 * G * H + g * H + j : 0;
              sums[0][g] = bias ? bias[0] : 0;
              sums[1][g] = bias ? bias[G * H] : 0;
              for (int32_t i = 0; i < ins; i++) sums[0][g] += w[at * ins + i] * from[i];
              for (int32_t i = 0; i < H; i++) sums[1][g] += r[at * H + i] * (by_r ? h[i] * c[i] : h[i]);
            }
            const @T@ *see = peep ? peep + d * 3 * H + j : 0;
            if (!pass) {
              c[j] = nt_activated_@N@(0, sums[0][1] + sums[1][1]);
            } else if (G == 4) {
              const @T@ in = nt_activated_@N@(0, sums[0][0] + sums[1][0] + (see ? see[0] * c[j] : 0));
              const @T@ keep = nt_activated_@N@(0, sums[0][2 % G] + sums[1][2 % G] + (see ? see[2 * H] * c[j] : 0));
              c[j] = keep * c[j] + in * nt_activated_@N@(1, sums[0][3 % G] + sums[1][3 % G]);
              const @T@ out = nt_activated_@N@(0, sums[0][1 % G] + sums[1][1 % G] + (see ? see[H] * c[j] : 0));
              next[j] = out * nt_activated_@N@(2, c[j]);
            } else if (G == 3) {
              const @T@ z = nt_activated_@N@(0, sums[0][0] + sums[1][0]), share = p[5] ? c[j] : 1;
              next[j] = (1 - z) * nt_activated_@N@(1, sums[0][2 % G] + share * sums[1][2 % G]) + z * h[j];
            } else {
              next[j] = nt_activated_@N@(0, sums[0][0] + sums[1][0]);
            }
          }
        if (k < length) memcpy(h, next, sizeof h);
        for (int32_t j = 0; y && j < H; j++) y[((t * dirs + d) * batch + n) * H + j] = k < length ? h[j] : 0;
      }
      for (int32_t j = 0; yh && j < H; j++) yh[row + j] = h[j];
      for (int32_t j = 0; yc && j < H; j++) yc[row + j] = c[j];
    }
}
