// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// A Log is an audit log that is read while it grows.
type Log struct {
	path   string
	offset int64
	rest   []byte // a line that was not whole yet
}

// Open starts at the log's end: what is written from now on is read.
func Open(path string) (*Log, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	return &Log{path: path, offset: info.Size()}, nil
}

// Next returns the requests that were logged since the last call.
func (l *Log) Next() ([]Request, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	fresh, err := io.ReadAll(io.NewSectionReader(file, l.offset, 1<<40))
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	l.offset += int64(len(fresh))
	lines := append(l.rest, fresh...)
	end := bytes.LastIndexByte(lines, '\n') + 1
	l.rest = bytes.Clone(lines[end:])
	return Read(bytes.NewReader(lines[:end]))
}
