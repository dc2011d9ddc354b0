// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strconv"
	"strings"
)

// ParseNetns tells which node of which cluster a network namespace of this slot belongs to.
func (s Slot) ParseNetns(netns string) (cluster string, number int, ok bool) {
	rest, ok := strings.CutPrefix(netns, s.NetnsPrefix())
	if !ok {
		return "", 0, false
	}
	end := strings.LastIndexByte(rest, '-')
	if end <= 0 {
		return "", 0, false
	}
	number, err := strconv.Atoi(rest[end+1:])
	if err != nil || number < 0 {
		return "", 0, false
	}
	return rest[:end], number, true
}
