// Package packages installs the Debian packages that worker nodes need.
package packages
