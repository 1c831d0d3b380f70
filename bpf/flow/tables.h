/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One set of programs for many flow tables (SKUA_TABLES): captures with the same settings. A small
 * program in front, one for each table, writes the table's number into `current_table` and
 * tail-calls the flow program. The maps of all tables are elements of the outer maps below; the
 * names of maps.h mean those of the current table from here on.
 */
#pragma once

#define MOST_TABLES 1024

/* The number of the table of this packet. Per CPU and never nested, as other scratch memory. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} current_table SEC(".maps");

#define OUTER_MAP(name)                                                                            \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                          \
		__uint(max_entries, MOST_TABLES);                                                  \
		__type(key, __u32);                                                                \
		__type(value, __u32);                                                              \
	} all_##name SEC(".maps")

OUTER_MAP(slots);
OUTER_MAP(cold_slots);
OUTER_MAP(control);
OUTER_MAP(points);
OUTER_MAP(no_point);
OUTER_MAP(fragments);
OUTER_MAP(wakeups);
OUTER_MAP(ended_flows);
#ifdef SKUA_PACKETS
OUTER_MAP(packets);
#endif

static __always_inline void *map_of_table(void *outer)
{
	__u32 zero = 0, *table = bpf_map_lookup_elem(&current_table, &zero);

	return table ? bpf_map_lookup_elem(outer, table) : NULL;
}

#define OF_TABLE(name) (*(typeof(name) *)map_of_table(&all_##name))

/* An element of an outer map may be missing, which the verifier knows. */
#define bpf_map_lookup_elem(map, key)                                                              \
	({                                                                                         \
		void *map_ = (map);                                                                \
		map_ ? bpf_map_lookup_elem(map_, key) : NULL;                                      \
	})
#define bpf_map_update_elem(map, key, value, flags)                                                \
	({                                                                                         \
		void *map_ = (map);                                                                \
		map_ ? bpf_map_update_elem(map_, key, value, flags) : -1;                          \
	})
#define bpf_ringbuf_output(map, data, size, flags)                                                 \
	({                                                                                         \
		void *map_ = (map);                                                                \
		map_ ? bpf_ringbuf_output(map_, data, size, flags) : -1;                           \
	})
#define bpf_ringbuf_reserve(map, size, flags)                                                      \
	({                                                                                         \
		void *map_ = (map);                                                                \
		map_ ? bpf_ringbuf_reserve(map_, size, flags) : NULL;                              \
	})
#define bpf_ringbuf_query(map, what)                                                               \
	({                                                                                         \
		void *map_ = (map);                                                                \
		map_ ? bpf_ringbuf_query(map_, what) : 0;                                          \
	})

#define slots	    OF_TABLE(slots)
#define cold_slots  OF_TABLE(cold_slots)
#define control	    OF_TABLE(control)
#define points	    OF_TABLE(points)
#define no_point    OF_TABLE(no_point)
#define fragments   OF_TABLE(fragments)
#define wakeups	    OF_TABLE(wakeups)
#define ended_flows OF_TABLE(ended_flows)
/* `packets` is also the name of fields: packets.h. */
