// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"reflect"
	"time"
)

// sizeOf returns about how many bytes a value takes, with all that it points to.
func sizeOf(value any) int { return reflectSize(reflect.ValueOf(value)) }

func reflectSize(v reflect.Value) int {
	if v.IsValid() && v.Type() == reflect.TypeFor[time.Time]() {
		return 24 // what it points to is shared by all times
	}
	size := 0
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 8
		}
		return 8 + reflectSize(v.Elem())
	case reflect.String:
		return 16 + v.Len()
	case reflect.Struct:
		for i := range v.NumField() {
			size += reflectSize(v.Field(i))
		}
		return size
	case reflect.Slice, reflect.Array:
		return 24 + sizeOfElements(v)
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			size += 16 + reflectSize(entries.Key()) + reflectSize(entries.Value())
		}
		return 48 + size
	default:
		return 8
	}
}

func sizeOfElements(v reflect.Value) int {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return v.Len()
	}
	size := 0
	for i := range v.Len() {
		size += reflectSize(v.Index(i))
	}
	return size
}

// What a value of a JSON text takes when it is decoded, about: an item of a list is a struct of a whole kind, any other object
// a smaller struct or a map, and each further value of a list or an object at least what points to it.
const (
	itemSize   = 2 << 10
	objectSize = 256
	valueSize  = 48
	itemDepth  = 2 // an item is in a list, which is in the answer
)

// checkDecoded returns ErrTooLarge if a JSON text would take more bytes than that when it is decoded. A text of empty objects
// takes hundreds of times as much as it is long.
func checkDecoded(text []byte, most int) error {
	if size := decodedSize(text); size > most {
		return fmt.Errorf("%w: decoded it would take %d MiB", ErrTooLarge, size>>20)
	}
	return nil
}

// decodedSize returns about how many bytes a JSON text takes when it is decoded, besides its own.
func decodedSize(text []byte) int {
	size, depth := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = endOfText(text, i)
		case '{', '[':
			if depth == itemDepth && text[i] == '{' {
				size += itemSize
			} else {
				size += objectSize
			}
			depth++
		case '}', ']':
			depth--
		case ',':
			size += valueSize
		}
	}
	return size
}

// endOfText returns where the text ends that begins with the quote there.
func endOfText(json []byte, at int) int {
	for at++; at < len(json) && json[at] != '"'; at++ {
		if json[at] == '\\' {
			at++
		}
	}
	return at
}
