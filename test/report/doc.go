// SPDX-License-Identifier: Apache-2.0

// Package report turns the events of go test -json into what people and CI systems read: a line for each test as it ends, the
// output of tests that failed, and a JUnit XML file.
package report
