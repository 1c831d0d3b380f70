// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Reads a channel number and a value of each packet, keeps a moving average for each channel, and
 * acts on packets of a channel whose average has jumped. Runs at tc ingress, behind the program of
 * the pcap expression when there is one.
 */
#include "detect.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int steer(struct __sk_buff *skb)
{
	return steer_packet(skb);
}
