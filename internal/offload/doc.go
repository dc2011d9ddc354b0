// SPDX-License-Identifier: Apache-2.0

// Package offload decides what a pod becomes when it runs in another cluster, and what comes back of it: Outbound and
// Build on its way out, Export and Inbound for its status on the way home. Its functions are pure. Build reads what a
// consumer sent and Inbound what a provider sent, so both take only what is on their lists, whatever the bytes are.
package offload
