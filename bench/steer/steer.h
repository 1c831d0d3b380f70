/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the programs of this benchmark share. */
#pragma once
#include <linux/types.h>

/* Ethernet, IP and UDP header, channel of two bytes, a value. */
#define FRAME	 62
#define PAYLOAD	 42
#define CHANNELS 64

struct generator {
	__u8 frame[64];
	/* Interface to send out of; 0: as if received. */
	__u32 out;
	__u32 pad;
};
