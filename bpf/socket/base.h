/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What every socket program includes. */
#pragma once
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "kernel.h"
#include "socket.h"
