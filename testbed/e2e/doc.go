// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the testbed on this machine, with real clusters. Its tests need root, take minutes, and run only
// when TESTBED_E2E is set; `make test-e2e` does that. Other testbeds on the machine are not in their way.
package e2e
