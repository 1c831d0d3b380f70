/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Numbers of packets as fixed-point integers, by integer arithmetic alone: programs have no
 * floating point. crates/act/steer/src/value.rs is the same in Rust.
 */
#pragma once
#include "maps.h"

/* A number, or why there is none (enum steer_count). */
struct steer_number {
	__s64 value;
	__u32 cause;
};

static __always_inline struct steer_number no_number(__u32 cause)
{
	return (struct steer_number){.cause = cause};
}

static __always_inline struct steer_number number(__u64 magnitude, bool negative)
{
	if (magnitude > STEER_MOST)
		return no_number(STEER_OVERFLOW);
	return (struct steer_number){.value = negative ? -(__s64)magnitude : (__s64)magnitude};
}

static __always_inline struct steer_number whole_number(__u64 magnitude, bool negative)
{
	if (magnitude > STEER_MOST >> settings.fraction)
		return no_number(STEER_OVERFLOW);
	return number(magnitude << settings.fraction, negative);
}

/* significand * 2^exponent; what is smaller than the last bit is cut off. */
static __always_inline struct steer_number binary(__u64 significand, __s32 exponent, bool negative)
{
	__s32 shift = exponent + settings.fraction;

	if (!significand)
		return number(0, false);
	if (shift >= 50)
		return no_number(STEER_OVERFLOW);
	if (shift >= 0) {
		if (significand > STEER_MOST >> shift)
			return no_number(STEER_OVERFLOW);
		return number(significand << shift, negative);
	}
	if (shift <= -64)
		return number(0, false);
	return number(significand >> -shift, negative);
}

/* IEEE 754 binary32 */
static __always_inline struct steer_number float_number(__u32 bits)
{
	__u32 exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;

	if (exponent == 0xff)
		return no_number(STEER_NO_NUMBER);
	if (exponent)
		fraction |= 1 << 23;
	else
		exponent = 1;
	return binary(fraction, (__s32)exponent - 150, bits >> 31);
}

/* IEEE 754 binary64 */
static __always_inline struct steer_number double_number(__u64 bits)
{
	__u64 fraction = bits & ((1ULL << 52) - 1);
	__u32 exponent = bits >> 52 & 0x7ff;

	if (exponent == 0x7ff)
		return no_number(STEER_NO_NUMBER);
	if (exponent)
		fraction |= 1ULL << 52;
	else
		exponent = 1;
	return binary(fraction, (__s32)exponent - 1075, bits >> 63);
}

static __always_inline struct steer_number signed_number(__u64 raw, __u32 width)
{
	__s64 value;

	switch (width) {
	case 1:
		value = (__s8)raw;
		break;
	case 2:
		value = (__s16)raw;
		break;
	case 4:
		value = (__s32)raw;
		break;
	default:
		value = raw;
	}
	return whole_number(value < 0 ? -(__u64)value : (__u64)value, value < 0);
}

static __always_inline bool ends_number(__u8 c)
{
	switch (c) {
	case 0:
	case ' ':
	case '\t':
	case '\r':
	case '\n':
	case ',':
	case ';':
	case '|':
		return true;
	}
	return false;
}

/*
 * Up to STEER_TEXT characters, the rest is zero: [ ]*[+-]?digits[.digits], at least one digit. What
 * was read before a character is known by where the program is, which is quicker than to remember
 * it: each part of a number has its own code for each position.
 *
 * Positions, and the one behind each:
 */
#define LATER(X)                                                                                   \
	X(1, 2)                                                                                    \
	X(2, 3)                                                                                    \
	X(3, 4)                                                                                    \
	X(4, 5)                                                                                    \
	X(5, 6)                                                                                    \
	X(6, 7)                                                                                    \
	X(7, 8)                                                                                    \
	X(8, 9)                                                                                    \
	X(9, 10)                                                                                   \
	X(10, 11)                                                                                  \
	X(11, 12)                                                                                  \
	X(12, 13)                                                                                  \
	X(13, 14)                                                                                  \
	X(14, 15)                                                                                  \
	X(15, 16)                                                                                  \
	X(16, 17)                                                                                  \
	X(17, 18)                                                                                  \
	X(18, 19)                                                                                  \
	X(19, 20)
#define EACH(X) X(0, 1) LATER(X)

#define SPACE(at, next)                                                                            \
	if (text[at] == '-' || text[at] == '+') {                                                  \
		negative = text[at] == '-';                                                        \
		goto whole_##next;                                                                 \
	}                                                                                          \
	if (text[at] != ' ')                                                                       \
		goto whole_##at;

#define WHOLE(at, next)                                                                            \
	whole_##at : digit = text[at] - '0';                                                       \
	if (digit > 9) {                                                                           \
		if (text[at] == '.')                                                               \
			goto part_##next;                                                          \
		c = text[at];                                                                      \
		goto end;                                                                          \
	}                                                                                          \
	whole = whole * 10 + digit;                                                                \
	digits = true;                                                                             \
	if (at == 15 && whole > STEER_MOST)                                                        \
		whole = STEER_MOST + 1;

#define PART(at, next)                                                                             \
	part_##at : digit = text[at] - '0';                                                        \
	if (digit > 9) {                                                                           \
		c = text[at];                                                                      \
		goto end;                                                                          \
	}                                                                                          \
	digits = true;                                                                             \
	if (scale < STEER_DIGITS) {                                                                \
		part = part * 10 + digit;                                                          \
		scale *= 10;                                                                       \
	}

static __always_inline struct steer_number decimal_number(const __u8 *text)
{
	__u64 whole = 0, part = 0, scale = 1;
	bool negative = false, digits = false;
	/* What the number ends with; with the text, 0. */
	__u8 c = 0, digit;

	EACH(SPACE)
	goto end;
	EACH(WHOLE)
whole_20:
	goto end;
	LATER(PART)
part_20:
end:
	if (!digits || !ends_number(c))
		return no_number(STEER_NO_NUMBER);
	if (whole > STEER_MOST >> settings.fraction)
		return no_number(STEER_OVERFLOW);
	return number((whole << settings.fraction) + (part << settings.fraction) / scale, negative);
}
