// SPDX-License-Identifier: Apache-2.0

// Package lego takes the place of the library of that name, with which Traefik gets certificates from authorities. The library
// comes with clients of more than a hundred DNS providers, which would be most of what there is to compile, and not all of them
// can be had. Here is only what Traefik needs to compile: who asks for a certificate of an authority is refused.
package lego
