package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/open-policy-agent/opa/v1/ast"
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

// object reads an object of at most so many entries.
func object(value ast.Value, most int) (ast.Object, error) {
	fields, isObject := value.(ast.Object)
	if !isObject {
		return nil, fmt.Errorf("is %s: it must be an object", ast.ValueName(value))
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

func boolean(value ast.Value) (bool, error) {
	truth, isBoolean := value.(ast.Boolean)
	if !isBoolean {
		return false, fmt.Errorf("is %s: it must be true or false", ast.ValueName(value))
	}
	return bool(truth), nil
}

func text(value ast.Value, most int) (string, error) {
	t, isText := value.(ast.String)
	if !isText {
		return "", fmt.Errorf("is %s: it must be a text", ast.ValueName(value))
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
