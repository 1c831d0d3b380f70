/* SPDX-License-Identifier: Apache-2.0 */
/* What Rust sees of DPDK: most of its interface is macros and inline functions. */
#ifndef SKUA_DPDK_SHIM_H
#define SKUA_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest texts, with the end. */
#define SKUA_DPDK_NAME 64
#define SKUA_DPDK_MOST 32 /* packets of a burst */

struct rte_mbuf;
struct rte_mempool;

typedef void (*skua_dpdk_log)(uint32_t level, const char *text, size_t length);

/* What a port is. */
struct skua_dpdk_info {
	char name[SKUA_DPDK_NAME];
	char driver[SKUA_DPDK_NAME];
	uint8_t mac[6];
	uint16_t mtu;
	uint32_t speed;	  /* Mbit/s, 0 when not known */
	uint32_t ifindex; /* of the kernel's interface behind it, 0 when there is none */
	uint8_t up;
	uint8_t removed;
	uint16_t queues;
};

struct skua_dpdk_stats {
	uint64_t packets;
	uint64_t bytes;
	uint64_t missed;
	uint64_t errors;
	uint64_t no_buffer;
};

/* A packet that was received; data as long as the burst is not freed. */
struct skua_dpdk_packet {
	const uint8_t *data;
	uint32_t captured;
	uint32_t length;
	uint16_t tci;	  /* of the tag that the port took off */
	uint16_t tagged;  /* whether it did */
	uint32_t segment; /* bytes of payload in each packet that was merged into this, or 0 */
};

/* Each returns 0 or above, or a negated error number. */
int skua_dpdk_start(int count, char **arguments, skua_dpdk_log log);
int skua_dpdk_find(const char *name, uint16_t *port);
int skua_dpdk_probe(const char *device);
int skua_dpdk_open(uint16_t port, uint16_t queues, uint16_t descriptors, struct rte_mempool **pool);
int skua_dpdk_read_info(uint16_t port, struct skua_dpdk_info *info);
int skua_dpdk_read_stats(uint16_t port, struct skua_dpdk_stats *stats);
void skua_dpdk_close(uint16_t port, struct rte_mempool *pool, bool remove);
int skua_dpdk_register_thread(void);
void skua_dpdk_unregister_thread(void);

uint16_t skua_dpdk_receive(uint16_t port, uint16_t queue, struct rte_mbuf **burst);
void skua_dpdk_view(const struct rte_mbuf *mbuf, uint32_t wanted, uint8_t *buffer,
		    struct skua_dpdk_packet *packet);
void skua_dpdk_free(struct rte_mbuf **burst, uint16_t count);

#endif
