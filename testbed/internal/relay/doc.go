// SPDX-License-Identifier: Apache-2.0

// Package relay carries Ethernet frames between the two ends of a cable, and loses or delays some of them as the links of a
// cluster say. What happens to a packet is decided by functions of the packet and the time; the rest moves bytes.
package relay
