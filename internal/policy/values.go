// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode"

	"github.com/open-policy-agent/opa/v1/ast"
	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/internal/sanitize"
)

// A problem says what is wrong with which part of an answer.
type problem struct{ path, text string }

func (p problem) Error() string { return strings.TrimSpace(p.path + " " + p.text) }

// within says of which rule or field the problem is, seen from further outside.
func within(name string, err error) error {
	var inner problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &inner):
		return problem{path: name + inner.path, text: inner.text}
	default:
		return problem{path: name, text: err.Error()}
	}
}

// as returns the value as what it must be.
func as[V ast.Value](value ast.Value, what string) (V, error) {
	typed, isOne := value.(V)
	if !isOne {
		return typed, fmt.Errorf("is %s: it must be %s", ast.ValueName(value), what)
	}
	return typed, nil
}

// object reads an object of at most so many entries.
func object(value ast.Value, most int) (ast.Object, error) {
	fields, err := as[ast.Object](value, "an object")
	if err != nil {
		return nil, err
	}
	if fields.Len() > most {
		return nil, fmt.Errorf("has %d entries, more than %d", fields.Len(), most)
	}
	return fields, nil
}

// eachEntry calls take for each entry, in the order of the keys.
func eachEntry(fields ast.Object, take func(key string, value ast.Value) error) error {
	return fields.Iter(func(key, value *ast.Term) error {
		name, isText := key.Value.(ast.String)
		if !isText {
			return fmt.Errorf("has a key that is %s: it must be a text", ast.ValueName(key.Value))
		}
		return within("["+printable(string(name), maxQuoted)+"]", take(string(name), value.Value))
	})
}

// entries reads an object of at most so many entries.
func entries[K ~string, V any](value ast.Value, most int, read func(key string, value ast.Value) (V, error)) (map[K]V, error) {
	fields, err := object(value, most)
	if err != nil {
		return nil, err
	}
	all := make(map[K]V, fields.Len())
	err = eachEntry(fields, func(key string, value ast.Value) (err error) {
		all[K(key)], err = read(key, value)
		return err
	})
	return all, err
}

func boolean(value ast.Value) (bool, error) {
	truth, err := as[ast.Boolean](value, "true or false")
	return bool(truth), err
}

func text(value ast.Value, most int) (string, error) {
	t, err := as[ast.String](value, "a text")
	if err != nil {
		return "", err
	}
	if len(t) > most {
		return "", fmt.Errorf("is longer than %d bytes", most)
	}
	if strings.ToValidUTF8(string(t), "") != string(t) {
		return "", errors.New("is not UTF-8")
	}
	return string(t), nil
}

// printable makes a text that a peer may have had a hand in fit to be shown in one line.
func printable(text string, most int) string {
	return bounded(strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, text), most)
}

// nano is how many decimals a quantity has.
const nano = 9

var errQuantity = errors.New("is not a quantity: it must be a number, or a text such as 500m or 4Gi, from 0 to 2^53")

// largest is what no amount in an answer may exceed: the API takes no more of any resource.
var largest = inf.NewDec(1<<53, 0)

// quantity reads an amount. Numbers are as exact as OPA calculates, and rounded to what a quantity can hold.
func quantity(value ast.Value) (resource.Quantity, error) {
	switch v := value.(type) {
	case ast.Number:
		return parseNumber(string(v))
	case ast.String:
		return parseQuantity(string(v))
	default:
		return resource.Quantity{}, errQuantity
	}
}

func parseNumber(number string) (resource.Quantity, error) {
	if !sanitize.Quantity(number) {
		return resource.Quantity{}, errQuantity
	}
	amount, isNumber := new(big.Rat).SetString(number)
	if !isNumber {
		return resource.Quantity{}, errQuantity
	}
	return parseQuantity(amount.FloatString(nano))
}

func parseQuantity(text string) (resource.Quantity, error) {
	if !sanitize.Quantity(text) {
		return resource.Quantity{}, errQuantity
	}
	amount, err := resource.ParseQuantity(text)
	if err != nil || !fits(amount.AsDec()) {
		return resource.Quantity{}, errQuantity
	}
	return resource.ParseQuantity(text) // AsDec has changed how the other is written
}

func fits(amount *inf.Dec) bool { return amount.Sign() >= 0 && amount.Cmp(largest) <= 0 }

// whole rounds an amount of a resource down to what a Node can have: thousandths of a core, and whole ones of all else.
func whole(name corev1.ResourceName, amount resource.Quantity) (resource.Quantity, error) {
	decimals := inf.Scale(0)
	if name == corev1.ResourceCPU {
		decimals = 3
	}
	exact := amount.DeepCopy()
	rounded := new(inf.Dec).Round(exact.AsDec(), decimals, inf.RoundDown)
	if rounded.Cmp(exact.AsDec()) == 0 {
		return amount, nil
	}
	return resource.ParseQuantity(plain(rounded))
}

// plain writes a decimal without needless zeros.
func plain(amount *inf.Dec) string {
	digits := amount.String()
	if strings.Contains(digits, ".") {
		digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
	}
	return digits
}

// mandatory are the resources that every advertisement names, also when there is nothing of them.
var mandatory = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
}
