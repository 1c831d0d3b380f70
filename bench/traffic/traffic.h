/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What traffic.bpf.c and traffic.c share. */
#pragma once
#include <linux/types.h>

/* Which flow the next packet belongs to. */
struct order {
	__u32 first; /* number of the first flow */
	__u32 flows; /* how many; 0: never start over */
	__u32 step;  /* from one packet's flow to the next one's; 0: any flow at random */
	__u32 verdict;
};

/* Where a CPU's walk over the flows has got to. */
struct position {
	__u32 flow;
	__u32 pad;
};

/* Flow number -> source endpoint; no two flows share one. */
#define FLOW_ADDRESS(flow) (0x0b000000u | ((flow) & 0xffffffu)) /* 11.0.0.0/8 */
#define FLOW_PORT(flow)	   (1024 + ((flow) >> 24))
