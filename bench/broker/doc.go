// SPDX-License-Identifier: Apache-2.0

// Package broker measures how soon what a member says is heard by all members of its broker, and what a broker with many members takes.
package broker
