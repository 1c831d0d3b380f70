// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <rte_config.h>
/* Only for strlcpy, which the headers have themselves otherwise. */
#undef RTE_USE_LIBBSD

#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

static skua_dpdk_log log_to;

static ssize_t write_log(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	log_to((uint32_t)rte_log_cur_msg_loglevel(), text, length);
	return (ssize_t)length;
}

/* Negated error number of a function that returns -1 and sets rte_errno, or the number itself. */
static int failed(int result)
{
	if (result != -1)
		return result;
	return rte_errno > 0 ? -rte_errno : -EPERM;
}

int skua_dpdk_start(int count, char **arguments, skua_dpdk_log log)
{
	cookie_io_functions_t functions = {.write = write_log};
	FILE *stream;
	int result;

	log_to = log;
	stream = fopencookie(NULL, "w", functions);
	if (!stream)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, 0);
	if (rte_openlog_stream(stream)) {
		fclose(stream);
		return -EINVAL;
	}
	result = rte_eal_init(count, arguments);
	return result < 0 ? failed(result) : 0;
}

int skua_dpdk_find(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

int skua_dpdk_probe(const char *device)
{
	return failed(rte_dev_probe(device));
}

/* Room for the packets in the queues, in bursts and in what threads keep at hand. */
static struct rte_mempool *make_pool(uint16_t port, uint16_t queues, uint16_t descriptors)
{
	static unsigned int number;
	char name[RTE_MEMPOOL_NAMESIZE];
	unsigned int count = queues * (descriptors + 1024u) * 2 - 1;

	/* Another port may take the place of one whose buffers are not all back. */
	snprintf(name, sizeof(name), "skua_%u_%u", port, number++);
	return rte_pktmbuf_pool_create(name, count, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
				       rte_eth_dev_socket_id(port));
}

static int configure(uint16_t port, uint16_t *queues, uint16_t *descriptors)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	uint16_t senders, sent = 256;
	int result;

	result = rte_eth_dev_info_get(port, &info);
	if (result)
		return result;
	*queues = RTE_MAX(1, RTE_MIN(*queues, info.max_rx_queues));
	if (*queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads &
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
	}
	/* Packets longer than a buffer come in several. */
	conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	/* Nothing is sent, but some drivers want to be able to. */
	senders = RTE_MIN(1, info.max_tx_queues);
	result = rte_eth_dev_configure(port, *queues, senders, &conf);
	if (result)
		return result;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, descriptors, &sent);
	if (result && result != -ENOTSUP)
		return result;
	if (senders)
		return rte_eth_tx_queue_setup(port, 0, sent, rte_eth_dev_socket_id(port), NULL);
	return 0;
}

int skua_dpdk_open(uint16_t port, uint16_t queues, uint16_t descriptors, struct rte_mempool **pool)
{
	int result;

	*pool = NULL;
	result = configure(port, &queues, &descriptors);
	if (result)
		return failed(result);
	*pool = make_pool(port, queues, descriptors);
	if (!*pool)
		return -rte_errno;
	for (uint16_t queue = 0; queue < queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, descriptors,
						rte_eth_dev_socket_id(port), NULL, *pool);
		if (result)
			return failed(result);
	}
	result = rte_eth_dev_start(port);
	if (result)
		return failed(result);
	/* What is for others is wanted, too; a port that cannot has what it has. */
	rte_eth_promiscuous_enable(port);
	rte_eth_allmulticast_enable(port);
	return queues;
}

int skua_dpdk_read_info(uint16_t port, struct skua_dpdk_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	struct rte_eth_link link;
	int result;

	memset(out, 0, sizeof(*out));
	out->removed = rte_eth_dev_is_removed(port) == 1;
	result = rte_eth_dev_info_get(port, &info);
	if (result)
		return result;
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name ? info.driver_name : "");
	rte_eth_dev_get_name_by_port(port, out->name);
	out->ifindex = info.if_index;
	out->queues = info.nb_rx_queues;
	if (!rte_eth_macaddr_get(port, &mac))
		memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	rte_eth_dev_get_mtu(port, &out->mtu);
	if (!rte_eth_link_get_nowait(port, &link)) {
		out->up = link.link_status == RTE_ETH_LINK_UP;
		if (link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
			out->speed = link.link_speed;
	}
	return 0;
}

int skua_dpdk_read_stats(uint16_t port, struct skua_dpdk_stats *out)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);

	if (result)
		return result;
	out->packets = stats.ipackets;
	out->bytes = stats.ibytes;
	out->missed = stats.imissed;
	out->errors = stats.ierrors;
	out->no_buffer = stats.rx_nombuf;
	return 0;
}

void skua_dpdk_close(uint16_t port, struct rte_mempool *pool, bool remove)
{
	struct rte_eth_dev_info info = {0};

	if (rte_eth_dev_info_get(port, &info))
		remove = false;
	rte_eth_allmulticast_disable(port);
	rte_eth_promiscuous_disable(port);
	rte_eth_dev_stop(port);
	if (remove) {
		rte_eth_dev_close(port);
		rte_dev_remove(info.device);
	}
	/* A driver that keeps buffers keeps the pool. */
	if (pool && rte_mempool_full(pool))
		rte_mempool_free(pool);
}

int skua_dpdk_register_thread(void)
{
	return failed(rte_thread_register());
}

void skua_dpdk_unregister_thread(void)
{
	rte_thread_unregister();
}

uint16_t skua_dpdk_receive(uint16_t port, uint16_t queue, struct rte_mbuf **burst)
{
	return rte_eth_rx_burst(port, queue, burst, SKUA_DPDK_MOST);
}

void skua_dpdk_view(const struct rte_mbuf *mbuf, uint32_t wanted, uint8_t *buffer,
		    struct skua_dpdk_packet *packet)
{
	uint32_t length = rte_pktmbuf_pkt_len(mbuf);
	uint32_t first = rte_pktmbuf_data_len(mbuf);

	packet->length = length;
	/* In one piece as it is, or as much as there is room for. */
	packet->captured = RTE_MIN(length, RTE_MAX(wanted, first));
	packet->data = rte_pktmbuf_read(mbuf, 0, packet->captured, buffer);
	if (!packet->data) {
		packet->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
		packet->captured = RTE_MIN(first, length);
	}
	packet->tagged = !!(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED);
	packet->tci = packet->tagged ? mbuf->vlan_tci : 0;
	packet->segment = mbuf->ol_flags & RTE_MBUF_F_RX_LRO ? mbuf->tso_segsz : 0;
}

void skua_dpdk_free(struct rte_mbuf **burst, uint16_t count)
{
	rte_pktmbuf_free_bulk(burst, count);
}
