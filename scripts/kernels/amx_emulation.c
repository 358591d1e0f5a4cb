/* What the instructions of AMX do, for a processor that has none: see amx_emulation.py.
   Source: Intel's architecture manual, instruction set reference. Wrong uses trap. */

#include <math.h>
#include <stdint.h>
#include <string.h>

static __thread struct {
  uint8_t configured, rows[8], tiles[8][16][64];
  uint16_t row_bytes[8];
} state;

static void need(int condition) {
  if (!condition || !state.configured) __builtin_trap();
}

void emulated_ldtilecfg(const uint8_t *config) {
  if (config[0] != 1) __builtin_trap();
  state.configured = 1;
  for (int i = 0; i < 8; i++) {
    memcpy(&state.row_bytes[i], config + 16 + 2 * i, 2);
    state.rows[i] = config[48 + i];
    need(state.row_bytes[i] <= 64 && state.rows[i] <= 16);
  }
  memset(state.tiles, 0, sizeof state.tiles);
}

void emulated_tilerelease(void) { memset(&state, 0, sizeof state); }

void emulated_tilezero(uint8_t tile) {
  need(tile < 8);
  memset(state.tiles[tile], 0, 1024);
}

void emulated_tileloadd64(uint8_t tile, const uint8_t *from, int64_t stride) {
  need(tile < 8 && state.rows[tile]);
  memset(state.tiles[tile], 0, 1024);
  for (int r = 0; r < state.rows[tile]; r++)
    memcpy(state.tiles[tile][r], from + r * stride, state.row_bytes[tile]);
}

void emulated_tilestored64(uint8_t tile, uint8_t *to, int64_t stride) {
  need(tile < 8 && state.rows[tile]);
  for (int r = 0; r < state.rows[tile]; r++)
    memcpy(to + r * stride, state.tiles[tile][r], state.row_bytes[tile]);
}

static void need_product(uint8_t d, uint8_t a, uint8_t b) {
  need(d < 8 && a < 8 && b < 8 && d != a && d != b && a != b);
  need(state.rows[d] == state.rows[a] && state.row_bytes[d] == state.row_bytes[b]);
  need(state.row_bytes[a] == 4 * state.rows[b]);
}

void emulated_tdpbssd(uint8_t d, uint8_t a, uint8_t b) {
  need_product(d, a, b);
  for (int m = 0; m < state.rows[a]; m++) {
    int32_t sums[16];
    memcpy(sums, state.tiles[d][m], 64);
    for (int k = 0; k < state.rows[b]; k++)
      for (int n = 0; n < state.row_bytes[d] / 4; n++)
        for (int i = 0; i < 4; i++)
          sums[n] += (int8_t)state.tiles[a][m][4 * k + i] * (int8_t)state.tiles[b][k][4 * n + i];
    memcpy(state.tiles[d][m], sums, 64);
  }
}

/* Subnormal numbers are zeros, of operands and of results. */
static float flushed(uint32_t bits) {
  float value;
  if (!(bits & 0x7f800000u)) bits &= 0x80000000u;
  memcpy(&value, &bits, 4);
  return value;
}

static float result(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return flushed(bits);
}

static float bfloat16(const uint8_t *from) { return flushed((uint32_t)from[1] << 24 | from[0] << 16); }

void emulated_tdpbf16ps(uint8_t d, uint8_t a, uint8_t b) {
  need_product(d, a, b);
  for (int m = 0; m < state.rows[a]; m++)
    for (int n = 0; n < state.row_bytes[d] / 4; n++) {
      float sum, parts[2] = {0, 0};
      for (int k = 0; k < state.rows[b]; k++)
        for (int i = 0; i < 2; i++)
          parts[i] = result(fmaf(bfloat16(state.tiles[a][m] + 4 * k + 2 * i),
                                 bfloat16(state.tiles[b][k] + 4 * n + 2 * i), parts[i]));
      memcpy(&sum, state.tiles[d][m] + 4 * n, 4);
      sum = result(result(sum) + result(parts[0] + parts[1]));
      memcpy(state.tiles[d][m] + 4 * n, &sum, 4);
    }
}
