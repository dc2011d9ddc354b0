// SPDX-License-Identifier: Apache-2.0

// Command scratch-image makes an image archive from files, on an empty base and without an engine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/hanse-dev/hanse/testbed/internal/image"
)

const usage = `usage: scratch-image -o FILE.tar -tag NAME -file SOURCE=/PATH... -entrypoint /PATH [flags]

Makes an image archive from files, on an empty base and without an engine. The same files give the same archive, to the
byte. "ctr images import" and "docker load" take it.

example: scratch-image -o hello.tar -tag example.com/hello:v1 -file bin/hello=/hello -entrypoint /hello -user 65532

flags:
`

func main() {
	err := run(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	spec, output, err := parse(args)
	if err != nil {
		return err
	}
	return image.Write(spec, output)
}

func parse(args []string) (image.Spec, string, error) {
	var (
		spec   image.Spec
		output string
	)
	flags := flag.NewFlagSet("scratch-image", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&output, "o", "", "the archive to write, a `file`")
	flags.StringVar(&spec.Tag, "tag", "", "the image's `name` and tag")
	flags.Func("file", "a file of the image, as `SOURCE=/PATH`; may be repeated", func(text string) error {
		file, err := image.ParseFile(text)
		spec.Files = append(spec.Files, file)
		return err
	})
	flags.Func("entrypoint", "the `program`; repeated, its first arguments", appendTo(&spec.Entrypoint))
	flags.Func("cmd", "a default `argument`; may be repeated", appendTo(&spec.Cmd))
	flags.Func("env", "an environment variable, as `NAME=VALUE`; may be repeated", appendTo(&spec.Env))
	flags.StringVar(&spec.User, "user", "", "the `user` to run as, like 65532")
	flags.StringVar(&spec.WorkDir, "workdir", "", "the `folder` to start in")
	if err := flags.Parse(args); err != nil {
		return spec, output, err
	}
	if output == "" || flags.NArg() > 0 {
		return spec, output, errors.New("want -o FILE.tar and flags only; -help tells which")
	}
	return spec, output, nil
}

func appendTo(list *[]string) func(string) error {
	return func(text string) error {
		*list = append(*list, text)
		return nil
	}
}
