// SPDX-License-Identifier: Apache-2.0

// Package packages installs the Debian packages that worker nodes need.
package packages
