// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"
)

// writeMany writes so many bytes, or as many as are taken.
func writeMany(w io.Writer, count int) {
	part := strings.Repeat(" ", 64<<10)
	for written := 0; written < count; written += len(part) {
		if _, err := io.WriteString(w, part); err != nil {
			return
		}
	}
}

// compressedSpaces are 16 MiB of spaces. One behind the other they are one compressed text.
var compressedSpaces = sync.OnceValue(func() []byte {
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	writeMany(writer, 16<<20)
	if err := writer.Close(); err != nil {
		panic(err) // a buffer takes all
	}
	return compressed.Bytes()
})

// ofAnother returns a certificate with the right name, which nobody knows.
func ofAnother() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{ServerName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}
