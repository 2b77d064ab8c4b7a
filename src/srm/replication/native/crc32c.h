/* CRC-32C (Castagnoli): by the processor's instruction where there is one, else by tables.
 *
 * A register behind zero bytes is a linear function of the register, so it is looked up: that joins
 * the lanes of the fast loop, and moves the change of a header behind a megabyte of records, in
 * O(log n).
 */
#ifndef SRM_CRC32C_H
#define SRM_CRC32C_H

#include <stdint.h>
#include <string.h>

static uint32_t crc_table[8][256];
static uint32_t crc_shift[40][4][256]; /* [k]: behind 2^k zero bytes, by each byte of a register */

static uint32_t crc_by_tables(uint32_t crc, const uint8_t *p, int64_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= crc;
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^
              crc_table[5][low >> 16 & 255] ^ crc_table[4][low >> 24] ^
              crc_table[3][high & 255] ^ crc_table[2][high >> 8 & 255] ^
              crc_table[1][high >> 16 & 255] ^ crc_table[0][high >> 24];
    }
    for (; n > 0; n--) crc = crc_table[0][(crc ^ *p++) & 255] ^ crc >> 8;
    return crc;
}

static uint32_t crc_behind_power(int k, uint32_t crc) {
    return crc_shift[k][0][crc & 255] ^ crc_shift[k][1][crc >> 8 & 255] ^
           crc_shift[k][2][crc >> 16 & 255] ^ crc_shift[k][3][crc >> 24];
}

static uint32_t crc_behind_zeros(uint32_t crc, int64_t n) {
    for (int k = 0; n; n >>= 1, k++)
        if (n & 1) crc = crc_behind_power(k, crc);
    return crc;
}

#if defined(__x86_64__)
#if defined(__clang__)
#define CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define CRC_TARGET __attribute__((target("sse4.2")))
#endif
#define CRC_OF_8(c, v) ((uint32_t)__builtin_ia32_crc32di(c, v))
#define CRC_OF_1(c, v) __builtin_ia32_crc32qi(c, v)
static int crc_has_instruction(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__aarch64__)
#include <arm_acle.h>
#define CRC_TARGET __attribute__((target("+crc")))
#define CRC_OF_8(c, v) __crc32cd(c, v)
#define CRC_OF_1(c, v) __crc32cb(c, v)
#if defined(__linux__)
#include <sys/auxv.h>
static int crc_has_instruction(void) { return getauxval(AT_HWCAP) >> 7 & 1; }
#else
static int crc_has_instruction(void) { return 1; } /* every Apple processor */
#endif
#endif

#ifdef CRC_TARGET
enum { LANE = 1024, LANE_POWER = 10 };
/* Three lanes at once: the instruction takes three cycles, and one may begin in each. */
CRC_TARGET static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, int64_t n) {
    uint64_t a, b, c;
    for (; n >= 3 * LANE; n -= 3 * LANE, p += 3 * LANE) {
        uint32_t second = 0, third = 0;
        for (int i = 0; i < LANE; i += 8) {
            memcpy(&a, p + i, 8);
            memcpy(&b, p + LANE + i, 8);
            memcpy(&c, p + 2 * LANE + i, 8);
            crc = CRC_OF_8(crc, a);
            second = CRC_OF_8(second, b);
            third = CRC_OF_8(third, c);
        }
        crc = crc_behind_power(LANE_POWER, crc_behind_power(LANE_POWER, crc) ^ second) ^ third;
    }
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&a, p, 8);
        crc = CRC_OF_8(crc, a);
    }
    for (; n > 0; n--) crc = CRC_OF_1(crc, *p++);
    return crc;
}
#else
static int crc_has_instruction(void) { return 0; }
#define crc_by_instruction crc_by_tables
#endif

static uint32_t (*crc_bytes)(uint32_t, const uint8_t *, int64_t);

static uint32_t crc32c(const uint8_t *p, int64_t n) { return ~crc_bytes(~0u, p, n); }

static void crc_begin(int use_instruction) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            crc_table[t][i] = crc_table[0][crc_table[t - 1][i] & 255] ^ crc_table[t - 1][i] >> 8;
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i << 8 * byte;
            crc_shift[0][byte][i] = crc_table[0][c & 255] ^ c >> 8;
        }
    for (int k = 1; k < 40; k++)
        for (int byte = 0; byte < 4; byte++)
            for (int i = 0; i < 256; i++)
                crc_shift[k][byte][i] = crc_behind_power(k - 1, crc_shift[k - 1][byte][i]);
    crc_bytes = use_instruction && crc_has_instruction() ? crc_by_instruction : crc_by_tables;
}
#endif
