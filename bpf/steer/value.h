/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Numbers of packets as fixed-point integers, by integer arithmetic alone: programs have no
 * floating point. crates/skua-steer/src/value.rs is the same in Rust.
 */
#pragma once
#include "maps.h"

/* A number, or why it is none (enum steer_count). */
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

/* A decimal number read so far. */
struct decimal {
	__u64 whole;
	__u64 part;
	__u64 scale;
	bool negative;
	bool started;
	bool digits;
	bool point;
};

/* Up to STEER_TEXT characters, the rest is zero: [ ]*[+-]?digits[.digits], at least one digit. */
static __always_inline bool read_decimal(const __u8 *text, struct decimal *n)
{
	for (int i = 0; i < STEER_TEXT; i++) {
		__u8 c = text[i], digit = c - '0';

		if (digit <= 9) {
			n->started = n->digits = true;
			if (!n->point) {
				n->whole = n->whole * 10 + digit;
				if (n->whole > STEER_MOST)
					n->whole = STEER_MOST + 1;
			} else if (n->scale < STEER_DIGITS) {
				n->part = n->part * 10 + digit;
				n->scale *= 10;
			}
		} else if (c == '.' && !n->point) {
			n->started = n->point = true;
		} else if (!n->started && (c == '-' || c == '+')) {
			n->started = true;
			n->negative = c == '-';
		} else if (n->started || c != ' ') {
			return n->digits && ends_number(c);
		}
	}
	return n->digits;
}

static __always_inline struct steer_number decimal_number(const __u8 *text)
{
	struct decimal n = {.scale = 1};

	if (!read_decimal(text, &n))
		return no_number(STEER_NO_NUMBER);
	if (n.whole > STEER_MOST >> settings.fraction)
		return no_number(STEER_OVERFLOW);
	return number((n.whole << settings.fraction) + (n.part << settings.fraction) / n.scale,
		      n.negative);
}
